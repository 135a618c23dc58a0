"""The noise that is left of a Gaussian chain below some directions, and one more direction in it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.nulls import SMALLEST_P_VALUE

_REMOTE = 40.0  # scales of the edge above it

Values = Float[np.ndarray, "..."]


@dataclass(frozen=True)
class RemainingNoise:
    """The noise at v = Π σ_l² = 1 when k directions of any strength are taken out: the chain of dims n_l - k.

    Directions beyond all bounds leave exactly that. A weaker one takes Σλ - λ = (θ gain)² - λ of the others' sum
    (``laws.Outlier.excess``), which is finite and in the limit θ → infinity -Π n_l Σ 1/n_l: the difference is its
    :meth:`deflation`.

    Attributes:
        dims: n_l - k.
    """

    dims: tuple[int, ...]

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
        """The dims in that direction in which a chain and its transpose are one, and share laws."""
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
        """An eigenvalue beyond which no tail probability is above the floor of p-values, whatever the corrections."""
        law = laws.GaussianChain(dims=self.dims, normalization="none")
        return law.support[1] + _REMOTE * law.edge_scale[1]

    @cached_property
    def spike(self) -> laws.RankOneSpike:
        """One more direction."""
        return laws.RankOneSpike(dims=self.dims, factor=0, normalization="none")

    def p_value(self, eigenvalue: Values, others: Values) -> Values | None:
        """P(λ_max is as large a part of Σλ), of eigenvalues and the sums of the others; None where it is not known."""
        p_values = np.full(eigenvalue.shape, SMALLEST_P_VALUE)
        near = eigenvalue * (self.total - self.remote) < others * self.remote
        if near.any():
            if self.ratio is None:
                return None
            p_values[near] = np.maximum(self.ratio.cdf(1.0 + others[near] / eigenvalue[near]), SMALLEST_P_VALUE)
        return p_values

    def deflation(self, excess: Values) -> Values:
        """What directions of this :class:`laws.Outlier` excess take out of the others' sum beyond what all do."""
        return -excess - self.total * math.fsum(1.0 / n for n in self.dims)

    def direction(self, eigenvalue: Values) -> tuple[dict[str, Values], Values]:
        """A direction with this eigenvalue by the names of :class:`SpectralSignal`, and the eigenvalue's spread."""
        found = self.spike.outlier(eigenvalue)
        strength = self.spike.gain * np.fmax(found.strength, self.spike.threshold)
        # With ψ = m/θ² each is (1 - S)(1 + c ψ), c of the end on its side: shrunken = s (1 - S).
        ends = [1.0 + self.total / (n * strength**2) for n in (self.dims[0], self.dims[-1])]
        left, right = (np.minimum(found.shrunken / np.sqrt(eigenvalue) * end, 1.0) for end in ends)
        named = {"strength": strength, "shrunken": found.shrunken, "overlap_left": left, "overlap_right": right}
        return named, found.std

    def limits(self, eigenvalue: Values, unrepelled: Values, level: float) -> tuple[Values, Values]:
        """The outermost confidence limits of the strength that belong to one of the two eigenvalues."""
        low, high = self.spike.strength_limits(np.stack([eigenvalue, unrepelled]), level)
        return self.spike.gain * np.fmin(*low), self.spike.gain * np.fmax(*high)

    def detectable_strength(self, level: float) -> float:
        """The strength of the image of one more direction that is found with probability 1 - level."""
        return self.spike.gain * _detectable_strength(self.spike, level)


@lru_cache(maxsize=4096)
def noise_left(dims: tuple[int, ...], k: int) -> RemainingNoise:
    """What k directions leave of a chain; the laws of each are made once."""
    return RemainingNoise(tuple(n - k for n in dims))


@lru_cache(maxsize=1024)
def _detectable_strength(spike: laws.RankOneSpike, level: float) -> float:
    return spike.detectable_strength(1.0 - level, level)
