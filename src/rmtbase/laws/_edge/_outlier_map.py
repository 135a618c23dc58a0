"""Maps between the strength of a spike and its outlier, through the ψ of the chain; derived in ``_spike``."""

import math
from functools import cached_property

import numpy as np
from scipy.optimize.elementwise import find_root

from rmtbase.laws._chain._chain_map import ChainMap
from rmtbase.laws._distribution import FloatArray

_LARGEST_PSI = 1e12
_NEWTON_STEPS = 64  # each step only halves the distance to a root at the edge, where the slope is zero
_ROUNDING = 4e-16


class OutlierMap:
    """Maps from ψ to λ, θ and the outlier, for one chain and a spike on its dimensions ``first`` to ``last``."""

    def __init__(self, chain: ChainMap, log_scale: float, log_unit: float, first: int, last: int) -> None:
        self.chain, self.log_scale, self.log_unit, self.first, self.last = chain, log_scale, log_unit, first, last
        self.ratios = chain.rank / np.asarray(chain.dims)  # c_l of the whole chain
        self.inner = self.ratios[first + 1 : last]  # strictly inside the sub-product that holds the spike
        self.psi_edge = chain.upper_delta - 1.0  # ψ_+, where the outlier separates from the bulk

    @cached_property
    def psi_end(self) -> float:
        """End of the continuation of the outlier below the threshold: the ψ of minimal θ, where S_in = 1."""
        if self.inner.size < 2:
            return _LARGEST_PSI
        low, high = math.log(self.psi_edge), math.log(_LARGEST_PSI)
        return math.exp(find_root(lambda t: _slope(self.inner, np.exp(t)) - 1.0, (low, high)).x)

    def log_eigenvalue(self, psi: FloatArray) -> FloatArray:
        return self.log_scale + _log_product(self.ratios, psi) - np.log(psi)

    def log_strength(self, psi: FloatArray) -> FloatArray:
        return 0.5 * (self.log_unit + _log_product(self.inner, psi) - np.log(psi))

    def psi_of_strength(self, log_strength: FloatArray) -> FloatArray:
        return self.solve(self.inner, 2.0 * log_strength - self.log_unit, 0.0, self.psi_edge)

    def psi_below_threshold(self, log_strength: FloatArray) -> FloatArray:
        """ψ > ψ_+ at ln θ below the threshold: the continuation of the outlier; inf where it ends."""
        end = self.psi_end
        target = 2.0 * log_strength - self.log_unit
        reached = target > _log_product(self.inner, np.asarray(end)) - math.log(end)
        psi = np.full(target.shape, np.inf)
        psi[reached] = self.solve(self.inner, target[reached], self.psi_edge, end)
        return psi

    def overlap(self, psi: FloatArray) -> FloatArray:
        """(1 - S)/(1 - S_in), the squared overlap without the factor of either side."""
        return (1.0 - _slope(self.ratios, psi)) / (1.0 - _slope(self.inner, psi))

    def overlaps(self, psi: FloatArray) -> tuple[FloatArray, FloatArray]:
        both = self.overlap(psi)
        left = np.exp(_log_product(self.ratios[: self.first + 1], psi))
        right = np.exp(_log_product(self.ratios[self.last :], psi))
        return both * left, both * right

    def relative_std(self, psi: FloatArray) -> FloatArray:
        """Return the std of ln λ_out to leading order: Var = (2/r) Q [(S - S_in)/ψ - (c_a + c_b) Q], Q the overlap."""
        both = self.overlap(psi)
        free = (_slope(self.ratios, psi) - _slope(self.inner, psi)) / psi
        ends = self.ratios[self.first] + self.ratios[self.last]
        return np.sqrt(np.maximum(2.0 / self.chain.rank * both * (free - ends * both), 0.0))

    def solve(self, ratios: FloatArray, target: FloatArray, low: float, high: float) -> FloatArray:
        """Find ψ in [low, high] with Σ ln(1 + c ψ) - ln ψ = target, convex in ln ψ: Newton steps do not pass it."""
        least = np.maximum(-target, math.log(low) if low else -np.inf)
        if not ratios.size:
            return np.exp(least)
        most = np.maximum(least, math.log(high))
        t = least
        for _ in range(_NEWTON_STEPS):
            psi = np.exp(t)
            left = _log_product(ratios, psi) - t - target
            with np.errstate(invalid="ignore", divide="ignore"):
                step = left / (1.0 - _slope(ratios, psi))
            # At the edge the slope is zero up to rounding, and the end is the root.
            t, before = np.where(left > 0.0, np.where(step > 0.0, np.minimum(t + step, most), most), t), t
            if (t - before <= _ROUNDING * np.maximum(np.abs(t), 1.0)).all():
                break
        return np.exp(t)


def _log_product(ratios: FloatArray, psi: FloatArray) -> FloatArray:
    return np.log1p(np.multiply.outer(psi, ratios)).sum(axis=-1)


def _slope(ratios: FloatArray, psi: FloatArray) -> FloatArray:
    terms = np.multiply.outer(psi, ratios)
    return (terms / (1.0 + terms)).sum(axis=-1)
