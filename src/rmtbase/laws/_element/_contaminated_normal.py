"""Normal bulk contaminated by a second, small component."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, ndtri, xlogy

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.parameters import require_finite_number, require_order, require_positive_number

_ROOT_TAU = math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class ContaminatedNormal(Distribution):
    """Mixture (1 - q) N(mean_bulk, σ_bulk²) + q N(mean_spike, σ_spike²) with q = ``spike_weight`` (Tukey 1960).

    With δ = mean_spike - mean_bulk and v_b, v_s the two variances,

        mean = mean_bulk + q δ,    var = (1 - q) v_b + q v_s + q (1 - q) δ²,
        μ_3  = q (1 - q) δ [3 (v_s - v_b) + (1 - 2q) δ²],
        μ_4  = 3 (1 - q) v_b² + 3 q v_s² + 6 q (1 - q) δ² [q v_b + (1 - q) v_s] + q (1 - q) δ⁴ [1 - 3 q (1 - q)].

    Exact; all functions are computed to rounding, except the entropy. With ``sigma_spike=0`` the point mass is included
    in ``cdf``, ``sf``, ``ppf`` and the moments; ``pdf`` is the continuous part, of mass 1 - q, and the entropy is -inf.

    Attributes:
        spike_weight: q, the weight of the spike (not of the bulk), 0 ≤ q ≤ 1.
        mean_spike, mean_bulk: means of spike and bulk.
        sigma_bulk, sigma_spike: their standard deviations, positive; that of the spike may be zero. Other parameters
            raise a ParameterError.
    """

    spike_weight: float
    mean_spike: float = 0.0
    sigma_bulk: float = 1.0
    sigma_spike: float = 0.0
    mean_bulk: float = 0.0

    def __post_init__(self) -> None:
        weight = require_finite_number("spike_weight", self.spike_weight)
        if not 0.0 <= weight <= 1.0:
            raise ParameterError("spike_weight", self.spike_weight, "a number from 0 to 1")
        spread = require_finite_number("sigma_spike", self.sigma_spike)
        if spread < 0.0:
            raise ParameterError("sigma_spike", self.sigma_spike, "zero (a point mass) or a positive number")
        object.__setattr__(self, "spike_weight", weight)
        object.__setattr__(self, "sigma_spike", spread)
        object.__setattr__(self, "sigma_bulk", require_positive_number("sigma_bulk", self.sigma_bulk))
        for name in ("mean_spike", "mean_bulk"):
            object.__setattr__(self, name, require_finite_number(name, getattr(self, name)))

    @property
    def atom_mass(self) -> float:
        """Mass of the atom at mean_spike: q for σ_spike = 0, else 0."""
        return self.spike_weight if self.sigma_spike == 0.0 else 0.0

    def _pdf(self, x: FloatArray) -> FloatArray:
        density = (1.0 - self.spike_weight) * _normal_pdf(x, self.mean_bulk, self.sigma_bulk)
        if self.sigma_spike > 0.0:
            density = density + self.spike_weight * _normal_pdf(x, self.mean_spike, self.sigma_spike)
        return density

    def _cdf(self, x: FloatArray) -> FloatArray:
        spike = ndtr((x - self.mean_spike) / self.sigma_spike) if self.sigma_spike > 0.0 else x >= self.mean_spike
        return (1.0 - self.spike_weight) * ndtr((x - self.mean_bulk) / self.sigma_bulk) + self.spike_weight * spike

    def _sf(self, x: FloatArray) -> FloatArray:
        spike = ndtr((self.mean_spike - x) / self.sigma_spike) if self.sigma_spike > 0.0 else x < self.mean_spike
        return (1.0 - self.spike_weight) * ndtr((self.mean_bulk - x) / self.sigma_bulk) + self.spike_weight * spike

    def _bracketed(self, mass: FloatArray, from_below: NDArray[np.bool_]) -> FloatArray:
        """Find the smallest w with the given mass; it lies between the quantiles of the components."""
        score = np.where(from_below, 1.0, -1.0) * ndtri(mass)
        ends = self.mean_bulk + self.sigma_bulk * score, self.mean_spike + self.sigma_spike * score
        low, high = np.minimum(*ends), np.maximum(*ends)

        def excess(x: FloatArray, mass: FloatArray, from_below: NDArray[np.bool_]) -> FloatArray:
            return np.where(from_below, self.cdf(x) - mass, mass - self.sf(x))

        result = find_root(excess, (low, high), args=(mass, from_below), tolerances={"xatol": 0.0, "xrtol": 4e-16})
        # Equal ends, or a jump exactly at one of them, give no change of sign: take the lowest end that suffices.
        return np.where(result.success, result.x, np.where(excess(low, mass, from_below) >= 0.0, low, high))

    def moment(self, k: int) -> float:
        """E[w^k], k = 0, 1, 2, ...; exact up to rounding."""
        order = require_order(k)
        bulk = _normal_moment(order, self.mean_bulk, self.sigma_bulk)
        spike = _normal_moment(order, self.mean_spike, self.sigma_spike)
        return (1.0 - self.spike_weight) * bulk + self.spike_weight * spike

    def mean(self) -> float:
        return self.mean_bulk + self.spike_weight * self._delta

    def var(self) -> float:
        q = self.spike_weight
        return (1.0 - q) * self.sigma_bulk**2 + q * self.sigma_spike**2 + q * (1.0 - q) * self._delta**2

    def skewness(self) -> float:
        """Third standardized moment."""
        q, delta = self.spike_weight, self._delta
        widths = 3.0 * (self.sigma_spike**2 - self.sigma_bulk**2)
        return q * (1.0 - q) * delta * (widths + (1.0 - 2.0 * q) * delta**2) / self.var() ** 1.5

    def kurtosis(self) -> float:
        """Fourth standardized moment, 3 for a normal law."""
        q, delta2 = self.spike_weight, self._delta**2
        bulk, spike, both = self.sigma_bulk**2, self.sigma_spike**2, q * (1.0 - q)
        fourth = (
            3.0 * (1.0 - q) * bulk**2
            + 3.0 * q * spike**2
            + 6.0 * both * delta2 * (q * bulk + (1.0 - q) * spike)
            + both * delta2**2 * (1.0 - 3.0 * both)
        )
        return fourth / self.var() ** 2

    def entropy(self) -> float:
        """Differential entropy -<ln pdf> in nats; numerical, absolute error below 1e-9; -inf with a point mass."""
        if self.atom_mass > 0.0:
            return -math.inf
        components = [(self.mean_bulk, self.sigma_bulk)] * (self.spike_weight < 1.0)
        components += [(self.mean_spike, self.sigma_spike)] * (self.spike_weight > 0.0)
        reaches = [sign * reach for sign in (-1.0, 1.0) for reach in (0.0, 3.0, 9.0, 38.0)]
        ends = sorted({mean + reach * sigma for mean, sigma in components for reach in reaches})
        return math.fsum(
            quad(lambda x: -xlogy(p := float(self.pdf(x)), p), low, high, epsabs=1e-12, epsrel=1e-11, limit=200)[0]
            for low, high in pairwise(ends)
        )

    @property
    def _delta(self) -> float:
        return self.mean_spike - self.mean_bulk


def _normal_pdf(x: FloatArray, mean: float, sigma: float) -> FloatArray:
    return np.exp(-0.5 * ((x - mean) / sigma) ** 2) / (_ROOT_TAU * sigma)


def _normal_moment(k: int, mean: float, sigma: float) -> float:
    return math.fsum(
        math.comb(k, j) * mean ** (k - j) * sigma**j * math.prod(range(1, j, 2)) for j in range(0, k + 1, 2)
    )
