"""Noise that is left of a Gaussian chain below k directions, and one further direction in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.nulls import SMALLEST_P_VALUE

_REMOTE = 40.0  # in scales of the edge, above the edge

Values = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class RemainingNoise:
    """Noise at v = Π σ_l² = 1 after k directions of any strength are removed: the chain of dims n_l - k.

    Infinitely strong directions leave exactly that chain. A direction of finite strength changes the sum of the other
    eigenvalues by (θ gain)² - λ (``laws.Outlier.excess``), which tends to -Π n_l Σ 1/n_l as θ → infinity. Its
    :meth:`deflation` is that limit minus this change.
    """

    dims: tuple[int, ...]  # dims of the remaining chain, n_l - k

    @cached_property
    def total(self) -> float:
        """E Σλ = Π n_l."""
        return float(math.prod(self.dims))

    @cached_property
    def relative_std(self) -> float:
        """Standard deviation of Σλ over its mean; exact."""
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
        """Law of one further direction."""
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

    def deflation(self, excess: Values) -> Values:
        """Reduction of the others' sum by directions of this :class:`laws.Outlier` excess, beyond the limit θ → ∞."""
        return -excess - self.total * math.fsum(1.0 / n for n in self.dims)

    def direction(self, eigenvalue: Values) -> tuple[dict[str, Values], Values]:
        """Describe a direction by the names of :class:`SpectralSignal`; also return the spread of its eigenvalue."""
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

    def detectable_strength(self, level: float) -> float:
        """Strength that the image of a further direction needs to be found with probability 1 - level."""
        return self.spike.gain * _detectable_strength(self.spike, level)


@lru_cache(maxsize=4096)
def noise_left(dims: tuple[int, ...], k: int) -> RemainingNoise:
    """Return the noise that k directions leave of a chain; its laws are computed only once."""
    return RemainingNoise(tuple(n - k for n in dims))


@lru_cache(maxsize=1024)
def _detectable_strength(spike: laws.RankOneSpike, level: float) -> float:
    return spike.detectable_strength(1.0 - level, level)
