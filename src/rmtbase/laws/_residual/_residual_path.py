"""Limiting eigenvalue law of a residual path, and its map p → ln λ (docs/mathematics/residual-paths.md).

    ψ = p (p + 1 + σ²) / σ²,    λ = (1 + p)^(L+1) (p + σ²) (p + 1 + σ²)^(L-1) / p.

The cut is (L+1) arg(1 + p) + arg(p + σ²) + (L-1) arg(p + 1 + σ²) = arg p, one point for each arg p in (0, π). It ends
at a critical point in (-1, -σ²) for σ < 1, and at p = -1, a hard edge, for σ ≥ 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from scipy.special import expm1, log1p

from rmtbase.errors import ParameterError
from rmtbase.laws._cut import find_edge, log_excess
from rmtbase.laws._distribution import ComplexArray, FloatArray
from rmtbase.laws._residual._eigenvalue_law import CutMap, EigenvalueLaw, exponential
from rmtbase.parameters import require_order, require_positive_integer, require_positive_number

_LEAST_LOG_MASS = 345.0  # a mass of 1e-150 at a hard edge counts as zero, so 1 + p and its square are normal doubles


@dataclass(frozen=True)
class ResidualParameters:
    """Checked depth L and σ of a residual path: the fields of every law of a residual path."""

    depth: int
    sigma: float

    def __post_init__(self) -> None:
        depth, sigma = require_residual(self.depth, self.sigma)
        object.__setattr__(self, "depth", depth)
        object.__setattr__(self, "sigma", sigma)


@dataclass(frozen=True)
class ResidualPath(ResidualParameters, EigenvalueLaw):
    """Limiting law of the eigenvalues λ of P Pᵀ, P = Π_{l=1..L} (I + σ G_l / √d), as d → infinity.

    The G_l are independent d x d matrices with independent entries of mean 0 and variance 1; P is the sum over all 2^L
    paths through L residual blocks. With ψ(λ) = Σ_k m_k λ^{-k} the moment generating function,

        λ = (1 + p)^(L+1) (p + σ²) (p + 1 + σ²)^(L-1) / p,    ψ = p (p + 1 + σ²) / σ²,
        density(λ) = |Im ψ(λ)| / (π λ),    S(ψ) = ((1 + p)(p + 1 + σ²))^(-L)

    (Dozier & Silverstein 2007; Tarnowski, Warchol, Jastrzebski, Tabor & Nowak 2018). The lower edge is soft for σ < 1.
    For σ ≥ 1 it is hard, at zero, with a mass ~ λ^(1/(L+1)) for σ > 1 and λ^(2/(L+2)) at σ = 1. The law is asymptotic
    only in d; a draw differs by O(1/d) inside the support. Numerical, to a few units of rounding in ln λ.

    Attributes:
        depth: L, a positive integer.
        sigma: the standard deviation of the entries of a block is σ / √d; in [1e-100, 1e100], else a ParameterError.
    """

    @property
    def _map(self) -> ResidualMap:
        return _residual_map(self.depth, self.sigma)

    def moment(self, k: int) -> float:
        """E[λ^k], k = 0, 1, 2, ...: exact for the law, rounded once; inf if it is too large for a double.

        m_k = [p^(k-1)] ψ'(p) ((1 + p)^(L+1) (p + σ²) (p + 1 + σ²)^(L-1))^k / k, by Lagrange inversion in integers with
        σ² = N/D and p = σ² q. m_1 = (1 + σ²)^L is exact at every d.
        """
        order = require_order(k)
        if order == 0:
            return 1.0
        try:
            return _moment(order, self.depth, self.sigma)
        except OverflowError:
            return math.inf

    def var(self) -> float:
        """Variance of λ: L σ² (2 + σ²) (1 + σ²)^(2L-2)."""
        variance = self.sigma**2
        growth = 2.0 * (self.depth - 1) * math.log1p(variance)
        return exponential(growth + math.log(self.depth) + math.log(variance) + math.log(2.0 + variance))

    def log_mean(self) -> float:
        """E[ln λ]: 0 for σ ≤ 1, L (ln σ² - 1 + 1/σ²) for σ > 1, the mean of 2 L ln|1 + σ z| over the circular law."""
        if self.sigma <= 1.0:
            return 0.0
        return self.depth * (2.0 * math.log(self.sigma) - (1.0 - 1.0 / self.sigma) * (1.0 + 1.0 / self.sigma))

    def edge_scale(self, d_model: int) -> tuple[float | None, float]:
        """(lower, upper) Tracy–Widom scale (λ √(|F''/F| λ / 2) / d)^(2/3) at width d; None at a hard edge.

        λ = F(ψ). λ_max is close to support[1] + edge_scale[1] TW_1, λ_min to support[0] - edge_scale[0] TW_1
        (asymptotic: it neglects a shift of order d^(-1/3) of the scale; El Karoui 2007).
        """
        width = require_positive_integer("d_model", d_model)
        cut, (lower, upper) = self._map, self.support

        def scale(w: ComplexArray, eigenvalue: float) -> float:
            return eigenvalue * (math.sqrt(0.5 * abs(cut.log_curvature(float(w[0].real)))) / width) ** (2.0 / 3.0)

        return None if cut.lower is None else scale(cut.lower, lower), scale(cut.upper, upper)

    def _density_at_zero_singular_value(self) -> float:
        # s pdf(s²) ~ s^(2a - 1) where the mass below λ is ~ λ^a.
        exponent = 2.0 / (self.depth + 2) if self.sigma == 1.0 else 1.0 / (self.depth + 1)
        if self.sigma < 1.0 or exponent > 0.5:
            return 0.0
        if exponent < 0.5:
            return math.inf
        # (L, σ) = (2, 1): ψ + 1 = i s. L = 1: ψ + 1 = i s √(σ² - 1) / σ².
        return 2.0 / math.pi * (1.0 if self.depth == 2 else math.sqrt(self.sigma**2 - 1.0) / self.sigma**2)


def require_residual(depth: object, sigma: object) -> tuple[int, float]:
    checked_depth = require_positive_integer("depth", depth, 10_000)  # exact moments grow with it
    checked_sigma = require_positive_number("sigma", sigma)
    if not 1e-100 <= checked_sigma <= 1e100:
        raise ParameterError("sigma", sigma, "a number in [1e-100, 1e100], so that sigma^2 is a normal double")
    return checked_depth, checked_sigma


@lru_cache(maxsize=256)
def _moment(k: int, depth: int, sigma: float) -> float:
    """[q^(k-1)] (2Nq + N + D) (1 + q)^k (D + Nq)^((L+1)k) (D + N + Nq)^((L-1)k) / (k D^(2Lk+1))."""
    n, d = (Fraction(sigma) ** 2).as_integer_ratio()
    series = [n + d, 2 * n, *[0] * k][:k]
    for constant, linear, power in ((1, 1, k), (d, n, (depth + 1) * k), (d + n, n, (depth - 1) * k)):
        count = min(k, power + 1)  # terms of (constant + linear q)^power
        factor = [math.comb(power, j) * linear**j * constant ** (power - j) for j in range(count)]
        series = [sum(factor[j] * series[i - j] for j in range(min(i + 1, count))) for i in range(k)]
    return series[k - 1] / (k * d ** (2 * depth * k + 1))


class ResidualMap(CutMap):
    """Map of depth L in the coordinate w = ln(1 + p), which is linear in ln λ at a hard edge."""

    longest_move = 1.0  # near σ = 1 the exponent of a hard edge changes within a unit of ln(1 + p)

    def __init__(self, depth: int, sigma: float) -> None:
        self.depth, self.sigma, self.variance = depth, sigma, sigma**2
        self.gap = (1.0 - sigma) * (1.0 + sigma)
        # mass ~ λ^(1/(L+1)), or a higher power.
        self.lowest_log = -_LEAST_LOG_MASS * (depth + 1) - 2.0 * abs(math.log(sigma)) * depth
        self.upper = np.array([self._upper_point()], dtype=np.complex128)
        self.lower = np.array([self._lower_point()], dtype=np.complex128) if self.gap > 0.0 else None

    def _critical(self, p: float, distance: float, from_pole: float) -> float:
        """Return |p (p + σ²)| d ln λ / dp / σ² at real p, given |p + σ²| and 1 + p."""
        depth, variance = self.depth, self.variance
        return abs(p) * distance / variance * ((depth + 1) / from_pole + (depth - 1) / (from_pole + variance)) - 1.0

    def _upper_point(self) -> float:
        def critical(log_p: float) -> float:
            p = math.exp(log_p)
            return self._critical(p, p + self.variance, 1.0 + p)

        low = math.log(min(0.125 / self.depth, 0.25 * self.sigma / math.sqrt(self.depth)))
        return math.log1p(math.exp(find_edge(critical, low, 0.0)))

    def _lower_point(self) -> float:
        def fraction(t: float) -> float:  # (-σ² - p) / (1 - σ²) as a function of its logit
            return 1.0 / (1.0 + math.exp(-t))

        def critical(t: float) -> float:
            distance = self.gap * fraction(t)
            return self._critical(distance + self.variance, distance, self.gap * fraction(-t))

        low = 2.0 * math.log(self.sigma) - math.log(self.depth + 1.0) - 40.0
        return math.log1p(-self.sigma) + math.log1p(self.sigma) - math.log1p(math.exp(find_edge(critical, low, 40.0)))

    def _shifted(self, w: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """Return p and p + σ², with full relative accuracy where they are small and it matters."""
        p = np.asarray(expm1(w[0]), dtype=np.complex128)
        shifted = p + self.variance if self.variance < 0.25 else np.exp(w[0]) - self.gap
        return p, np.asarray(shifted, dtype=np.complex128)

    def log_x(self, w: ComplexArray) -> ComplexArray:
        """Return ln λ; for small σ, where the law is narrow, to rounding relative to σ."""
        p, shifted = self._shifted(w)
        ratio = log1p(self.variance / p) if self.variance < 0.25 else np.log(shifted) - np.log(p)
        return (self.depth + 1) * w[0] + ratio + (self.depth - 1) * log1p(shifted)

    def velocity(self, w: ComplexArray) -> ComplexArray:
        p, shifted = self._shifted(w)
        inner = (self.depth - 1) / (1.0 + shifted) - self.variance / (p * shifted)
        return 1.0 / (self.depth + 1 + np.exp(w) * inner)

    def log_curvature(self, w: float) -> float:
        """Return d² ln λ / d ψ² at the critical point w = ln(1 + p) of an edge."""
        p, variance = math.expm1(w), self.variance
        curvature = (
            variance * (2.0 * p + variance) / (p * (p + variance)) ** 2
            - (self.depth + 1) / (1.0 + p) ** 2
            - (self.depth - 1) / (p + 1.0 + variance) ** 2
        )
        return curvature * (variance / (2.0 * p + 1.0 + variance)) ** 2

    def density(self, w: ComplexArray) -> FloatArray:
        outer = np.asarray(np.exp(w[0]), dtype=np.complex128)
        return outer.imag * (2.0 * outer.real - self.gap) / (np.pi * self.variance)

    def cdf(self, w: ComplexArray) -> FloatArray:
        """π cdf = π - arg p + (L-1) arg(p + 1 + σ²) + L Im(p²/σ² + p), with a small relative error at a hard edge."""
        p, shifted = self._shifted(w)
        if self.variance < 0.25:
            total = np.arctan2(p.imag, -p.real) + (self.depth - 1) * np.angle(1.0 + shifted) + self._bilinear(p)
        else:
            # With δ = 1 + p and R(x) = ln(1 + x) - x, the terms linear in δ, which cancel at σ = 1, are
            # (L+1) (1 - 1/σ²) Im δ, and the rest is Im(L δ²/σ² - R(-δ) + (L-1) R(δ/σ²)).
            delta = np.asarray(np.exp(w[0]), dtype=np.complex128)
            inner = delta / self.variance
            rest = (
                self.depth * delta * inner
                - log_excess(-delta, 1.0 - delta)
                + (self.depth - 1) * log_excess(inner, 1.0 + inner)
            )
            total = rest.imag - (self.depth + 1) * self.gap * inner.imag
        return np.clip(total / np.pi, 0.0, 1.0)

    def sf(self, w: ComplexArray) -> FloatArray:
        """Return the mass above λ: ψ d ln λ has the primitive L (p²/σ² + p) - (L+1) ln(1 + p) - ln(p + σ²)."""
        p, shifted = self._shifted(w)
        total = (self.depth + 1) * w[0].imag + np.angle(shifted) - self._bilinear(p)
        return np.clip(total / np.pi, 0.0, 1.0)

    def _bilinear(self, p: ComplexArray) -> FloatArray:
        return self.depth * p.imag * (2.0 * p.real / self.variance + 1.0)


_residual_map = lru_cache(maxsize=256)(ResidualMap)


@dataclass(frozen=True)
class FreeMultiplicativeBrownian(EigenvalueLaw):
    """Limiting law of the eigenvalues λ of P Pᵀ with σ² = t/L, for d → infinity and then depth L → infinity.

    With ψ(λ) = Σ_k m_k λ^{-k} the moment generating function,

        λ = (1 + 1/ψ) e^(t (1 + 2 ψ)),    S(ψ) = e^(-t (1 + 2 ψ)),    support (1 + t ± r) e^(±r),
        r = √(t² + 2 t),    density(λ) = |Im ψ(λ)| / (π λ)

    (Biane 1997; Tarnowski et al. 2018). ln λ is symmetric about 0. The law of :class:`ResidualPath` with σ² = t/L
    differs from it by O(1/L): its cdf by at most 0.09/L at t = 0.5 and 0.24/L at t = 2. Numerical, to rounding in ln λ.

    Attributes:
        t: the time, L σ², in [1e-200, 1e6], else a ParameterError.
    """

    t: float

    def __post_init__(self) -> None:
        t = require_positive_number("t", self.t)
        if not 1e-200 <= t <= 1e6:
            raise ParameterError("t", self.t, "a number in [1e-200, 1e6]")
        object.__setattr__(self, "t", t)

    @property
    def _map(self) -> _BrownianMap:
        return _brownian_map(self.t)

    def moment(self, k: int) -> float:
        """E[λ^k] = e^(kt)/k Σ_{j<k} binom(k, j+1) (2kt)^j / j! (Biane 1997), to rounding; inf if too large.

        The sum is the Laguerre polynomial L^(1)_{k-1}(-2kt): 1, e^t, e^(2t) (1 + 2t), e^(3t) (1 + 6t + 6t²), ...
        """
        order = require_order(k)
        if order == 0:
            return 1.0
        x = 2.0 * order * self.t
        log_terms = [math.log(math.comb(order, j + 1)) + j * math.log(x) - math.lgamma(j + 1.0) for j in range(order)]
        largest = max(log_terms)
        total = math.fsum(math.exp(term - largest) for term in log_terms)
        return exponential(order * self.t - math.log(order) + largest + math.log(total))

    def mean(self) -> float:
        """E[λ] = e^t."""
        return exponential(self.t)

    def var(self) -> float:
        """Variance of λ: 2 t e^(2t)."""
        return 2.0 * self.t * exponential(2.0 * self.t)

    def log_mean(self) -> float:
        """E[ln λ] = 0."""
        return 0.0


class _BrownianMap(CutMap):
    """Map in the coordinate w = ψ; see :class:`FreeMultiplicativeBrownian`."""

    lowest_log = -math.inf

    def __init__(self, t: float) -> None:
        self.t = t
        # 2 t ψ (1 + ψ) = 1 at both edges.
        self.upper = np.array([1.0 / (t + math.sqrt(t) * math.sqrt(t + 2.0))], dtype=np.complex128)
        self.lower = -1.0 - self.upper

    def log_x(self, w: ComplexArray) -> ComplexArray:
        return self.t * (1.0 + 2.0 * w[0]) + log1p(1.0 / w[0])

    def velocity(self, w: ComplexArray) -> ComplexArray:
        return 1.0 / (2.0 * self.t - 1.0 / (w * (1.0 + w)))

    def density(self, w: ComplexArray) -> FloatArray:
        return w[0].imag / np.pi

    def cdf(self, w: ComplexArray) -> FloatArray:
        """Return the mass below λ, which equals the mass above 1/λ."""
        return self.sf(np.asarray(-1.0 - np.conj(w), dtype=np.complex128))

    def sf(self, w: ComplexArray) -> FloatArray:
        """Return the mass above λ, from the primitive t ψ² - ln(1 + ψ) of ψ d ln λ."""
        return np.clip((np.angle(1.0 + w[0]) - 2.0 * self.t * w[0].real * w[0].imag) / np.pi, 0.0, 1.0)


_brownian_map = lru_cache(maxsize=256)(_BrownianMap)
