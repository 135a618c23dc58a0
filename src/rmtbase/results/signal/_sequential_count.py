"""Sequential test of spectra: the number of learned directions, and the noise that is left of a chain below them."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.nulls import SMALLEST_P_VALUE
from rmtbase.results.signal.schema import ALL_OF_THE_NORM, NO_LAW_LEFT, TOO_FEW_LEFT, ZEROS_LEFT

Values = Float[np.ndarray, "..."]
Spectra = Float[np.ndarray, "spectrum r"]
PerSpectrum = Float[np.ndarray, " spectrum"]
Counts = Int[np.ndarray, " spectrum"]
Mask = Bool[np.ndarray, " spectrum"]

LEAST_REST = 8  # eigenvalues that must be left: with fewer, the law of the largest of them is not known
_REMOTE = 40.0  # in scales of the edge, above the edge


@dataclass(frozen=True)
class RemainingNoise:
    """Noise at v = Π σ_l² = 1 after k directions of any strength are removed: the chain of dims n_l - k.

    Infinitely strong directions leave exactly that chain. One of finite strength changes the sum of the others by
    (θ gain)² - λ (``laws.Outlier.excess``) → -Π n_l Σ 1/n_l as θ → ∞; :meth:`deflation` is the limit minus the change.
    """

    dims: tuple[int, ...]  # dims of the remaining chain, n_l - k

    @cached_property
    def total(self) -> float:
        """E Σλ = Π n_l."""
        return float(math.prod(self.dims))

    @cached_property
    def relative_std(self) -> float:
        return math.sqrt(float(laws.trace_cumulant((1, 1), dims=self.dims, normalization="none"))) / self.total

    @cached_property
    def either_way(self) -> tuple[int, ...]:
        """Dims in an order common to a chain and its transpose, so that both share laws."""
        return min(self.dims, self.dims[::-1])

    @cached_property
    def ratio(self) -> laws.NullLaw | None:
        """The law of Σλ/λ_max; None where it is not known."""
        try:
            return laws.null("stable_rank", dims=self.either_way)
        except ParameterError:
            return None

    @cached_property
    def remote(self) -> float:
        """Eigenvalue beyond which no tail probability is above the floor of p-values, whatever the corrections."""
        law = laws.GaussianChain(dims=self.dims, normalization="none")
        return law.support[1] + _REMOTE * law.edge_scale[1]

    @cached_property
    def spike(self) -> laws.RankOneSpike:
        return laws.RankOneSpike(dims=self.dims, factor=0, normalization="none")

    def p_value(self, eigenvalue: Values, others: Values) -> Values | None:
        """P(λ_max is as large a part of Σλ), given eigenvalues and the sums of the others; None if it is not known."""
        p_values = np.full(eigenvalue.shape, SMALLEST_P_VALUE)
        near = eigenvalue * (self.total - self.remote) < others * self.remote
        if near.any():
            if self.ratio is None:
                return None
            p_values[near] = np.maximum(self.ratio.cdf(1.0 + others[near] / eigenvalue[near]), SMALLEST_P_VALUE)
        return p_values

    def deflation(self, eigenvalue: Values) -> Values:
        """Reduction of the others' sum by directions at these eigenvalues, beyond the limit θ → ∞."""
        return -self.spike.outlier(eigenvalue).excess - self.total * math.fsum(1.0 / n for n in self.dims)

    def direction(self, eigenvalue: Values) -> tuple[dict[str, Values], Values]:
        """Describe directions by the names of :class:`SpectralSignal`; also return the spread of their eigenvalues."""
        outlier = self.spike.outlier(eigenvalue)
        strength = self.spike.gain * np.fmax(outlier.strength, self.spike.threshold)
        # With ψ = m/θ², each overlap is (1 - S)(1 + c ψ), c that of the end on its side, and shrunken = s (1 - S).
        ends = [1.0 + self.total / (n * strength**2) for n in (self.dims[0], self.dims[-1])]
        left, right = (np.minimum(outlier.shrunken / np.sqrt(eigenvalue) * end, 1.0) for end in ends)
        named = {"strength": strength, "shrunken": outlier.shrunken, "overlap_left": left, "overlap_right": right}
        return named, outlier.std

    def limits(self, eigenvalue: Values, unrepelled: Values, level: float) -> tuple[Values, Values]:
        """Outermost of the confidence limits of the strength that belong to either eigenvalue."""
        low, high = self.spike.strength_limits(np.stack([eigenvalue, unrepelled]), level)
        return self.spike.gain * np.fmin(*low), self.spike.gain * np.fmax(*high)


@lru_cache(maxsize=4096)  # so that the laws are computed only once
def noise_left(dims: tuple[int, ...], k: int) -> RemainingNoise:
    return RemainingNoise(tuple(n - k for n in dims))


@lru_cache(maxsize=1024)
def detectable_strength(noise: RemainingNoise, level: float) -> float:
    return noise.spike.gain * noise.spike.detectable_strength(1.0 - level, level)


class CountedDirections(NamedTuple):
    number: Counts  # number of directions
    kept: Mask  # whether a hypothesis was kept; False if all that can be tested were rejected
    p_value: Float[np.ndarray, "spectrum hypothesis"]  # p-values of H_0, H_1, ..., as far as they were tested
    scale: PerSpectrum  # v of the noise
    no_number: Shaped[np.ndarray, " spectrum"]  # code of ``schema.NO_NUMBER`` where the test went on to its end, or ""


def count_directions(values: Spectra, dims: tuple[int, ...], level: float) -> CountedDirections:
    """Run the sequential test of :func:`spectral_signal` on checked eigenvalues (spectrum, r)."""
    sums = np.cumsum(values[:, ::-1], axis=1)[:, ::-1]  # of λ_k and all below
    number, kept = np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=bool)
    deflation, no_number = np.zeros(len(values)), np.full(len(values), "", dtype=object)
    p_values: list[Values] = []
    rows = np.flatnonzero(values[:, 0] > 0.0)
    for k in range(min(dims) - LEAST_REST + 1):
        noise = noise_left(dims, k)
        positive, beyond = values[rows, k] > 0.0, deflation[rows] >= noise.total
        no_number[rows[beyond]], no_number[rows[~positive]] = ALL_OF_THE_NORM, ZEROS_LEFT
        rows = rows[positive & ~beyond]
        total = sums[rows, k] / (1.0 - deflation[rows] / noise.total)
        p_value = noise.p_value(values[rows, k], total - values[rows, k])
        if not rows.size or p_value is None:
            no_number[rows] = NO_LAW_LEFT
            break
        p_values.append(np.full(len(values), np.nan))
        p_values[-1][rows] = p_value
        rejected = p_value <= level
        kept[rows[~rejected]] = True
        rows = rows[rejected]
        number[rows] += 1
        scale = _scale(sums, dims, rows, k + 1, deflation)
        without = rows[scale <= 0.0]
        no_number[without] = np.where(sums[without, k + 1] > 0.0, ALL_OF_THE_NORM, ZEROS_LEFT)
        rows, scale = rows[scale > 0.0], scale[scale > 0.0]
        deflation[rows] += noise.deflation(values[rows, k] / scale)
    else:
        no_number[rows] = TOO_FEW_LEFT
    columns = np.stack(p_values, axis=1) if p_values else np.empty((len(values), 0))
    counted = at_last_scale(values, dims, kept, number, columns, deflation)
    return counted._replace(no_number=np.where(kept, counted.no_number, no_number))


def at_last_scale(
    values: Spectra, dims: tuple[int, ...], kept: Mask, number: Counts, p_value: Values, deflation: PerSpectrum
) -> CountedDirections:
    """Evaluate all directions at the scale of the noise that remains without all of them."""
    sums, scale = np.cumsum(values[:, ::-1], axis=1)[:, ::-1], np.full(len(values), np.nan)
    for turn in range(2):  # at the deflation of the count, then at that of all directions at the scale found
        for k in np.unique(number[kept]).tolist():
            rows = np.flatnonzero(kept & (number == k))
            scale[rows] = _scale(sums, dims, rows, k, deflation)
        if turn:
            break
        deflation = np.zeros(len(values))
        for k in range(int(number[kept].max(initial=0))):
            rows = np.flatnonzero(kept & (number > k))
            deflation[rows] += noise_left(dims, k).deflation(values[rows, k] / scale[rows])
    no_number = np.where(kept & ~(scale > 0.0), ALL_OF_THE_NORM, "")
    kept = kept & (scale > 0.0)
    return CountedDirections(number, kept, p_value, np.where(kept, scale, np.nan), no_number)


def _scale(
    sums: Spectra, dims: tuple[int, ...], rows: Int[np.ndarray, " row"], k: int, deflation: PerSpectrum
) -> Float[np.ndarray, " row"]:
    """Estimate v from the eigenvalues below the k-th; it is not positive if the directions account for all of them."""
    if k >= sums.shape[1]:
        return np.zeros(rows.size)
    return sums[rows, k] / (math.prod(n - k for n in dims) - deflation[rows])
