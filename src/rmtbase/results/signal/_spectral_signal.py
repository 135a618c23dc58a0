"""Signal and noise of spectra: directions that stand out of a random product, their strengths, and the remaining noise.

W = N + S. N is a Gaussian chain of dims (n_0, ..., n_L) at an unknown scale v = Π σ_l². S was learned in one of the
factors, or in W itself if it is the only factor; each of its directions is a spike θ u vᵀ. With ψ the chain's moment
generating function and m = E Σλ / r the mean eigenvalue of N, a direction whose image in W has strength θ puts an
eigenvalue at

    θ² = m/ψ,    λ = m Π_l (1 + c_l ψ)/ψ,    c_l = r/n_l        (laws.RankOneSpike, factor=0; any factor gives the same)

so that Σλ = E Σλ(N) + Σθ² in the mean. A direction that was learned in two factors at once, as u aᵀ in one and a vᵀ in
the next, puts its eigenvalue where a direction of one factor with the same image norm would.

:class:`RemainingNoise` is the noise that k directions leave.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy.typing import ArrayLike

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.nulls import LARGEST_KURTOSIS, SMALLEST_P_VALUE, without_kurtosis
from rmtbase.parameters import require_dims, require_probability, require_real_array
from rmtbase.reasons import Reason
from rmtbase.results.signal.schema import ALL_OF_THE_NORM, NO_LAW_LEFT, OF_DIRECTION, TOO_FEW_LEFT, ZEROS_LEFT
from rmtbase.shown import in_one_line
from rmtbase.statistics import cauchy_combination, spectral_statistics

Values = Float[np.ndarray, "..."]
Spectra = Float[np.ndarray, "spectrum r"]
PerSpectrum = Float[np.ndarray, " spectrum"]
Counts = Int[np.ndarray, " spectrum"]
Mask = Bool[np.ndarray, " spectrum"]

LEAST_REST = 8  # eigenvalues that must be left: with fewer, the law of the largest of them is not known
_REMOTE = 40.0  # in scales of the edge, above the edge
_LEAST_LEVEL = 1e-12
_REPULSION, _SOFTENED = 1.25, 0.5  # see spectral_signal
_FLOOR_LEVEL = 1e-3  # p-value of the remaining eigenvalues below which they are not a noise floor

# by which the rest is compared with noise: they depend on the shape of a spectrum, not on its scale
_REST_STATISTICS = [
    f"{name}{of}"
    for of in ("", "_singular")
    for name in ("stable_rank", "normalized_participation_ratio", "spectral_entropy")
]


class CountedDirections(NamedTuple):
    number: Counts  # number of directions
    kept: Mask  # whether a hypothesis was kept; False if all that can be tested were rejected
    p_value: Float[np.ndarray, "spectrum hypothesis"]  # p-values of H_0, H_1, ..., as far as they were tested
    scale: PerSpectrum  # v of the noise
    no_number: Shaped[np.ndarray, " spectrum"]  # code of ``schema.NO_NUMBER`` where the test went on to its end, or ""


@in_one_line
@dataclass(frozen=True)
class SpectralSignal:
    """Signal and noise of spectra of one shape; the leading axes ... are those of the spectra.

    Strengths, scales and singular values are in the units of W. Numbers that are not known are NaN: those of directions
    beyond ``n_directions``, and everything but the first two p-values where no noise floor was reached.
    """

    #: k, the number of learned directions that are seen. There are at least k with confidence 1 - level, but those
    #: below the threshold leave no trace. A further one of ``detectable_strength`` would have been seen.
    n_directions: Float[np.ndarray, "..."]
    first_p_value: Float[np.ndarray, "..."]  #: p-value of the hypothesis that there is no direction
    #: p-value of the hypothesis that there are no more than k; of the last one tested if none was kept
    next_p_value: Float[np.ndarray, "..."]
    rest_p_value: Float[np.ndarray, "..."]  #: p-value of the hypothesis that the other eigenvalues are noise
    #: whether the others are noise: at least :data:`LEAST_REST` are left, with a p-value of at least 0.001
    noise_floor: Shaped[np.ndarray, "..."]
    noise_scale: Float[np.ndarray, "..."]  #: product of the standard deviations of the factors' elements in the noise
    noise_scale_std: Float[np.ndarray, "..."]  #: its standard error
    threshold: Float[np.ndarray, "..."]  #: strength beyond which a further direction leaves the bulk
    detectable_strength: Float[np.ndarray, "..."]  #: strength found with probability 1 - level
    signal_share: Float[np.ndarray, "..."]  #: Σθ²/‖W‖_F² of the directions found; at most 1
    raw_share: Float[np.ndarray, "..."]  #: Σs²/‖W‖_F² of their uncorrected singular values, which noise has inflated
    #: p-value, for each direction, of the hypothesis that only the directions before it exist
    p_value: Float[np.ndarray, "... direction"]
    strength: Float[np.ndarray, "... direction"]  #: θ, the singular value of the direction's part of S
    #: strength_low, strength_high: confidence limits at 1 - level, for each direction by itself, of the *mean*
    #: strength: the root mean square of θ over the noise of the other factors, θ_Q σ_K √d for θ_Q a uᵀ in W_Q. They are
    #: too wide for the realised θ, ‖θ_Q W_Kᵀ a‖: at 95 % it is within them in 98 to 100 % of cases. For one matrix both
    #: strengths are the same.
    strength_low: Float[np.ndarray, "... direction"]
    strength_high: Float[np.ndarray, "... direction"]
    #: overlap_left, overlap_right: squared cosine of W's singular vector with the direction learned on that side
    overlap_left: Float[np.ndarray, "... direction"]
    overlap_right: Float[np.ndarray, "... direction"]
    #: θ cos_u cos_v, the singular value that brings the direction nearest to its part of S in ‖·‖_F
    shrunken: Float[np.ndarray, "... direction"]
    #: why the number is not known although directions were found, a code of ``schema.NO_NUMBER``; "" otherwise
    no_number: Shaped[np.ndarray, "..."]

    @property
    def expected_error(self) -> Float[np.ndarray, "..."]:
        """E‖Ŝ - S‖_F² of the shrunken directions found, Σ (θ² - shrunken²)."""
        return np.nansum(self.strength**2 - self.shrunken**2, axis=-1)


def spectral_signal(
    eigenvalues: ArrayLike, dims: tuple[int, ...], level: float = 0.05, excess_kurtosis: ArrayLike = 0.0
) -> SpectralSignal:
    """Find the learned directions of spectra, one after the other, each against the noise that is left without it.

    H_k, "no more than k directions", is tested for k = 0, 1, 2, ... by the ratio of the largest remaining eigenvalue to
    the sum of all remaining ones, λ_(k+1)/Σ_(i>k) λ_i, which needs no scale. Its law is the law of the stable rank of
    the chain of dims n_l - k (``laws.null``); the sum is first corrected to its value for infinitely strong directions.
    The first H_k with p > ``level`` is kept. So the number is too large with probability ``level`` (Kritchman & Nadler
    2009 do so for one Wishart matrix, with the scale estimated). Directions below :attr:`SpectralSignal.threshold`
    cannot be seen by any test of eigenvalues.

    Eigenvalues of directions of nearly equal strength repel each other, as in a k × k matrix of the Gaussian orthogonal
    ensemble whose diagonal elements have the variance τ² of an outlier. Limits of a strength are therefore the
    outermost of two pairs of limits: from λ_j, and from λ_j without the repulsion of the others,
    5/4 τ² Σ_i g/(g² + τ²/2), with g the gaps and τ² the smaller of two (it is τ² Σ 1/g where such a spectrum is
    likeliest; the numbers were chosen by simulation).

    Measured for four shapes and eleven other chains in studies/signal. The noise has normal entries, or entries with a
    given ``excess_kurtosis``: every eigenvalue is then first shifted back to its value for normal entries, to first
    order, at the scale of the noise (:func:`rmtbase.laws.eigenvalue_displacement`). At κ from -1.2 (uniform) to 1.2
    (logistic) the test keeps its level for untrained heads and for single matrices of rank 64; in matrices of lower
    rank it finds a direction in up to 6.5 %. Laplace entries (κ = 3) do not keep the level: at 0.05 a direction is
    found in 4 to 12 %, and in 13 to 24 % if they are treated as normal; for uniform entries treated as normal, in 2 to
    4 %.

    Args:
        eigenvalues: eigenvalues of Wᵀ W (..., r), descending, without the structural zeros.
        dims: dims of the chain: (d_model, d_head, d_model) for W_QK, (rows, columns) for one matrix.
        level: significance level of each test; limits have confidence 1 - level.
        excess_kurtosis: κ of the entries of all factors, one for all spectra or (...) one for each. If the factors
            differ, see ``nulls.mean_kurtosis``.

    Raises:
        ParameterError: eigenvalues are not finite, negative, ascending or not min(dims) in number; dims are not
            dimensions; there are fewer than :data:`LEAST_REST` eigenvalues; the law of the largest eigenvalue is not
            known at these dims (many factors of few eigenvalues); the level is outside (0, 1/2); or the excess kurtosis
            is not from -2 to :data:`rmtbase.nulls.LARGEST_KURTOSIS`.
    """
    shape = require_dims(dims)
    values = _require_spectra(eigenvalues, shape)
    level = require_level(level)
    if no_law_at(shape):
        few = f"at least {LEAST_REST} eigenvalues, and a chain whose largest eigenvalue has a known law"
        raise ParameterError("dims", shape, few)
    leading = values.shape[:-1]
    kurtosis = require_real_array("excess_kurtosis", excess_kurtosis).astype(np.float64)
    if kurtosis.shape not in {(), leading}:
        raise ParameterError("excess_kurtosis", kurtosis.shape, f"one number, or one for each spectrum: {leading}")
    if not ((kurtosis >= -2.0) & (kurtosis <= LARGEST_KURTOSIS)).all():
        expected = f"from -2, below which there is none, to {LARGEST_KURTOSIS:g}, beyond which no first order helps"
        raise ParameterError("excess_kurtosis", excess_kurtosis, expected)
    flat = values.reshape(-1, values.shape[-1])
    counted = count_directions(flat, shape, level)
    if kurtosis.any():  # moves eigenvalues to their places without it, at the scale of the noise, or of all if unknown
        scale = np.where(np.isnan(counted.scale), flat.sum(axis=1) / math.prod(shape), counted.scale)
        moved, unit = scale > 0.0, scale[scale > 0.0, None]
        kurtosis = np.broadcast_to(kurtosis, leading).reshape(-1)[moved]
        flat = flat.copy()
        flat[moved] = unit * without_kurtosis(flat[moved] / unit, kurtosis, shape)
        counted = count_directions(flat, shape, level)
    arrays = described(flat, shape, level, counted)
    return SpectralSignal(**{name: array.reshape((*leading, *array.shape[1:])) for name, array in arrays.items()})


def no_law_at(dims: tuple[int, ...]) -> Reason:
    if min(dims) < LEAST_REST:
        return Reason("too_short", {"length": min(dims), "needed": LEAST_REST})
    return Reason("no_law_of_dims", {"dims": list(dims)}) if noise_left(dims, 0).ratio is None else Reason()


def require_level(level: object) -> float:
    """Return the level of a test; raise ParameterError unless it is at least 1e-12 and below 1/2."""
    checked = require_probability("level", level, 0.5)
    if checked < _LEAST_LEVEL:
        raise ParameterError("level", level, f"at least {_LEAST_LEVEL:g}, to which the laws of noise are known")
    return checked


def described(
    values: Spectra, dims: tuple[int, ...], level: float, counted: CountedDirections, normal: bool = True
) -> dict[str, np.ndarray]:
    """Compute the fields of :class:`SpectralSignal`; without ``normal``, those that need the law of entries are NaN."""
    number, kept = counted.number, counted.kept
    longest = int(number[kept].max(initial=0))
    of_direction = {name: np.full((len(values), longest), np.nan) for name in OF_DIRECTION}
    of_direction["p_value"][:] = np.where(np.arange(longest) < number[:, None], counted.p_value[:, :longest], np.nan)
    of_direction["p_value"][~kept] = np.nan
    units = values[:, :longest] / counted.scale[:, None]
    std = np.full(units.shape, np.nan)
    for j in range(longest):
        rows, noise = np.flatnonzero(kept & (number > j)), noise_left(dims, j)
        named, std[rows, j] = noise.direction(units[rows, j])
        for name, value in named.items():
            of_direction[name][rows, j] = value
    if normal:
        for j in range(longest):
            rows = np.flatnonzero(kept & (number > j))
            # less the repulsion of the other eigenvalues; NaN among them are ignored
            gap, variance = units[rows, j, None] - units[rows], np.minimum(std[rows], std[rows, j, None]) ** 2
            with np.errstate(invalid="ignore", divide="ignore"):
                pushed = np.nansum(_REPULSION * variance * gap / (gap**2 + _SOFTENED * variance), axis=1)
            low, high = noise_left(dims, j).limits(units[rows, j], units[rows, j] - pushed, level)
            of_direction["strength_low"][rows, j] = np.fmin(low, of_direction["strength"][rows, j])
            of_direction["strength_high"][rows, j] = np.fmax(high, of_direction["strength"][rows, j])
    for name in ("strength", "strength_low", "strength_high", "shrunken"):
        of_direction[name] *= np.sqrt(counted.scale)[:, None]
    squares = np.where(kept, values.sum(axis=1), np.nan)
    tested = np.column_stack([np.full(len(values), np.nan), counted.p_value])
    is_direction = np.arange(values.shape[1]) < number[:, None]
    of_spectrum = {
        "n_directions": np.where(kept, number, np.nan),
        "first_p_value": counted.p_value[:, 0] if counted.p_value.size else np.full(len(values), np.nan),
        "next_p_value": tested[np.arange(len(tested)), np.isfinite(tested).sum(axis=1)],
        "signal_share": np.minimum(np.nansum(of_direction["strength"] ** 2, axis=1) / squares, 1.0),
        "raw_share": np.minimum((values * is_direction).sum(axis=1) / squares, 1.0),
        "noise_scale": np.sqrt(counted.scale),
    }
    unknown = ("rest_p_value", "noise_scale_std", "threshold", "detectable_strength")
    of_spectrum |= {name: np.full(len(values), np.nan) for name in unknown}
    for k in np.unique(number[kept]).tolist():
        rows, noise = np.flatnonzero(kept & (number == k)), noise_left(dims, k)
        scale = of_spectrum["noise_scale"][rows]
        of_spectrum["threshold"][rows] = noise.spike.gain * noise.spike.threshold * scale
        if normal:
            of_spectrum["rest_p_value"][rows] = _rest_p_value(values[rows, k:], noise.either_way)
            of_spectrum["noise_scale_std"][rows] = 0.5 * noise.relative_std * scale
            of_spectrum["detectable_strength"][rows] = detectable_strength(noise, level) * scale
    floor = of_spectrum["rest_p_value"] >= _FLOOR_LEVEL
    of_spectrum["noise_floor"] = floor if normal else np.full(len(values), np.nan)
    return of_spectrum | of_direction | {"no_number": counted.no_number}


def _rest_p_value(rest: Spectra, dims: tuple[int, ...]) -> PerSpectrum:
    """Compute the p-value of the rest: two-sided for each statistic by its law, then Cauchy's combination over all."""
    p_values = []
    for name, values in zip(_REST_STATISTICS, spectral_statistics(np.sqrt(rest), _REST_STATISTICS).T, strict=True):
        law = laws.null(name, dims=dims)
        p_values.append(np.minimum(2.0 * np.minimum(law.cdf(values), law.sf(values)), 1.0))
    return cauchy_combination(np.maximum(np.stack(p_values, axis=-1), SMALLEST_P_VALUE))


def _require_spectra(eigenvalues: ArrayLike, dims: tuple[int, ...]) -> Float[np.ndarray, "... r"]:
    array = require_real_array("eigenvalues", eigenvalues)
    rank = min(dims)
    if array.ndim == 0 or array.shape[-1] != rank:
        raise ParameterError("eigenvalues", array.shape, f"shape (..., {rank}), as many as dims = {dims} has rank")
    array = array.astype(np.float64)
    nan, infinite, negative = (int(np.count_nonzero(mask)) for mask in (np.isnan(array), np.isinf(array), array < 0.0))
    rising = not (nan or infinite) and bool((np.diff(array, axis=-1) > 0.0).any())
    if nan or infinite or negative or rising:
        order = "not descending" if rising else "in order"
        counts = f"{nan} NaN, {infinite} infinite and {negative} negative values, {order}"
        raise ParameterError("eigenvalues", counts, "finite numbers that are not negative, in descending order")
    return array


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
