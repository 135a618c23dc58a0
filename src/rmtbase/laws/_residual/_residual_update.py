"""Limiting eigenvalue law of a residual path without its direct path, and its map (τ², a) → ln λ.

α, β, n, B, C, z, m and k are those of docs/mathematics/residual-paths.md. All is even in τ: a point is (e, a), e = τ² -
1. E ln(λ - z) = -ln(e/4) + L (α - 1)(β - 1)/σ². With S = (α + β)/2 - 1, D = (α - β)/2, P = 1 - (B + C)/2, Q = (C -
B)/2, the equation for k, D (P - z) = Q (S + S² - D²), does not cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import expm1, log1p

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import ComplexArray, FloatArray
from rmtbase.laws._parameters import as_float
from rmtbase.laws._residual._eigenvalue_law import CutMap, EigenvalueLaw
from rmtbase.laws._residual._residual_path import ResidualParameters, ResidualPath
from rmtbase.parameters import require_order

_LARGEST_LOG = 16.0  # beyond about 20 the equations lose their digits near zero
_NEAR_ZERO = 1e-7  # below this, in units of min(1, σ L^(1/2)), singular values are given by linear terms
_LEAST_LOG_MASS = 230.0  # mass ~ λ^(1/2): below 1e-100 it counts as zero
_INNER_STEPS = 50


@dataclass(frozen=True)
class ResidualUpdate(ResidualParameters, EigenvalueLaw):
    """Limiting law of the eigenvalues λ of (P - I)(P - I)ᵀ, P = Π_{l=1..L} (I + σ G_l / √d), as d → infinity.

    P - I is the contribution of the blocks to the residual stream: the sum over all paths except the direct one. For
    L = 1 it is σ G/√d, and the law is Marchenko–Pastur. For L > 1 there is no S-transform and no explicit map: the law
    follows from two equations for two unknowns, with a closed form of the cdf. The lower edge is hard, at zero, with a
    mass ~ λ^(1/2). Total mass, mean and second moment agree with their exact values to 1e-12 relative.

    Attributes are those of :class:`ResidualPath`.

    Raises:
        ParameterError: for a depth that is not a positive integer, a σ outside [1e-7, 20], or parameters for which
            the largest eigenvalue of P Pᵀ is above e^16 = 9e6. There I is negligible beside P; use
            :class:`ResidualPath`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        depth, sigma = self.depth, self.sigma
        if not 1e-7 <= sigma <= 20.0:
            raise ParameterError("sigma", sigma, "a number in [1e-7, 20]")
        if ResidualPath(depth, sigma).log_eigenvalue.support[1] > _LARGEST_LOG:
            raise ParameterError(
                "sigma", sigma, f"less at depth {depth}: eigenvalues of P P^T of at most 9e6 (or use ResidualPath)"
            )

    @property
    def _map(self) -> ResidualUpdateMap:
        return _residual_update_map(self.depth, self.sigma)

    def moment(self, k: int) -> float:
        """E[λ^k]: exact for k ≤ 2, rounded once; numerical above.

        m_1 = M - 1, exact at every d,    m_2 = M² (1 + L (1 - (1 + σ²)^(-2))) - 4 L σ² M / (1 + σ²) - 1,

        with M = (1 + σ²)^L.
        """
        order = require_order(k)
        if order <= 2:
            return as_float((Fraction(1), self._growth - 1, self._second)[order])
        upper = self.log_eigenvalue.support[1]
        scaled = self.log_eigenvalue.expect(lambda y: np.exp(order * (y - upper)))
        return math.exp(math.log(scaled) + order * upper) if math.log(scaled) + order * upper < 709.0 else math.inf

    def var(self) -> float:
        """Variance of λ, exact for the law, rounded once."""
        return as_float(self._second - (self._growth - 1) ** 2)

    @property
    def _growth(self) -> Fraction:
        return (1 + Fraction(self.sigma) ** 2) ** self.depth

    @property
    def _second(self) -> Fraction:
        variance, growth = Fraction(self.sigma) ** 2, self._growth
        excess = self.depth * (1 - 1 / (1 + variance) ** 2)
        return growth**2 * (1 + excess) - 4 * self.depth * variance * growth / (1 + variance) - 1

    def _density_at_zero_singular_value(self) -> float:
        # s pdf(s²) is even in s: take its value at a negligible s².
        y = self._map.lowest_log + 1.0
        return 2.0 * float(self.log_eigenvalue.pdf(y)) * math.exp(-0.5 * y)


class _Halves(NamedTuple):
    """Even and odd parts: α = 1 + s + d, β = 1 + s - d, B and C = exp(high ± x)."""

    tau: ComplexArray
    f: ComplexArray
    x: ComplexArray
    high: ComplexArray
    s: ComplexArray
    d: ComplexArray

    @property
    def work(self) -> ComplexArray:
        return self.s**2 - self.d**2


class _Equations(NamedTuple):
    """z, the residual of the equation between e and a, and the derivatives of the residual and ln z by e and a."""

    z: ComplexArray
    residual: ComplexArray
    residual_slopes: tuple[ComplexArray, ComplexArray]
    log_z_slopes: tuple[ComplexArray, ComplexArray]


class ResidualUpdateMap(CutMap):
    """Map of depth L; a point is (e, a, ln λ)."""

    lower = None

    def __init__(self, depth: int, sigma: float) -> None:
        self.depth, self.variance = depth, sigma**2
        self.nearest_log = 2.0 * math.log(_NEAR_ZERO * min(1.0, sigma * math.sqrt(depth)))
        self.lowest_log = self.nearest_log - 2.0 * _LEAST_LOG_MASS
        self.upper = self._upper_point()

    def _halves(self, e: ComplexArray | complex, a: ComplexArray | complex) -> _Halves:
        e, a = np.asarray(e, dtype=np.complex128), np.asarray(a, dtype=np.complex128)
        tau = np.sqrt(1.0 + e)
        d = np.asarray(0.5 * self.variance * tau, dtype=np.complex128)
        f = np.arcsinh(d * np.exp(-a))
        # ln n = ln((τ - 1)/(τ + 1)), accurate for τ near 1 (large σ) and for large τ (small σ).
        log_n = np.where(np.abs(e) < 1.0, np.log(e) - 2.0 * np.log(1.0 + tau), log1p(-2.0 / (tau + 1.0)))
        s = expm1(a) * np.cosh(f) + 2.0 * np.sinh(0.5 * f) ** 2
        return _Halves(tau, f, self.depth * f + log_n, self.depth * a, s, d)

    def _at(self, e: ComplexArray | complex, a: ComplexArray | complex) -> _Equations:
        depth, halves = self.depth, self._halves(e, a)
        tau, f, x, high, s, d = halves
        p, q = -expm1(high) * np.cosh(x) - 2.0 * np.sinh(0.5 * x) ** 2, np.exp(high) * np.sinh(-x)
        b, c, work = -expm1(high + x), -expm1(high - x), halves.work
        z = b * c

        def slopes(a_slope: float, f_slope: ComplexArray, x_slope: ComplexArray, d_slope: float):
            s_slope = (s + 1.0) * a_slope + d * f_slope
            p_slope = (p - 1.0) * depth * a_slope + q * x_slope
            q_slope = q * depth * a_slope + (p - 1.0) * x_slope
            along, across = depth * a_slope, x_slope
            log_z_slope = (1.0 - 1.0 / b) * (along + across) + (1.0 - 1.0 / c) * (along - across)
            residual_slope = (
                d_slope * (p - z)
                + d * (p_slope - z * log_z_slope)
                - q_slope * (s + work)
                - q * (s_slope * (1.0 + 2.0 * s) - 2.0 * d * d_slope)
            )
            return residual_slope, log_z_slope

        bend = np.tanh(f)
        by_tau = slopes(0.0, bend / tau, depth * bend / tau + 2.0 / np.asarray(e), 0.5 * self.variance)
        by_a = slopes(1.0, -bend, -depth * bend, 0.0)
        by_e = 0.5 / tau * by_tau[0], 0.5 / tau * by_tau[1]
        return _Equations(z, d * (p - z) - q * (s + work), (by_e[0], by_a[0]), (by_e[1], by_a[1]))

    def _direction(self, point: _Equations) -> tuple[ComplexArray, ComplexArray]:
        a_slope = -point.residual_slopes[0] / point.residual_slopes[1]
        return a_slope, point.log_z_slopes[0] + point.log_z_slopes[1] * a_slope

    def _solved_for_a(self, e: complex, a: complex) -> complex:
        for _ in range(_INNER_STEPS):
            point = self._at(e, a)
            step = complex(point.residual / point.residual_slopes[1])
            a -= step
            if abs(step) <= 1e-16 * abs(a):
                break
        return a

    def _upper_point(self) -> ComplexArray:
        """Return the point (e, a, ln λ) where z, which falls from infinity as e falls from 0, is stationary."""
        a = complex(0.5 * math.log1p(self.variance))

        def slope(u: float) -> float:
            nonlocal a
            a = self._solved_for_a(-math.exp(u), a)
            return -float(self._direction(self._at(-math.exp(u), a))[1].real)

        # From far outside, where z ~ -4 (1 + σ²)^L / e, inwards in steps small enough for a to follow.
        u = -2.0 * self.depth * math.log1p(self.variance) - 10.0
        while slope(u + 0.1) < 0.0:
            u += 0.1
        root: float = brentq(slope, u, u + 0.1, xtol=1e-14, rtol=1e-14)  # type: ignore[arg-type, assignment]
        a = self._solved_for_a(-math.exp(root), a)
        log_z = math.log(complex(self._at(-math.exp(root), a).z).real)
        return np.array([-math.exp(root), a.real, log_z], dtype=np.complex128)

    def start(self) -> ComplexArray:
        move = -1e-3j * self.upper[0]
        a_slope, _ = self._direction(self._at(self.upper[0], self.upper[1]))
        e = self.upper[0] + move
        a = self._solved_for_a(e, complex(self.upper[1] + a_slope * move))
        return np.array([e, a, math.log(abs(complex(self._at(e, a).z)))], dtype=np.complex128)

    def log_x(self, w: ComplexArray) -> ComplexArray:
        return w[2]

    def velocity(self, w: ComplexArray) -> ComplexArray:
        a_slope, log_z_slope = self._direction(self._at(w[0], w[1]))
        return np.array([1.0 / log_z_slope, a_slope / log_z_slope, np.ones_like(log_z_slope)])

    def newton_step(self, w: ComplexArray, log_x: FloatArray) -> ComplexArray:
        point = self._at(w[0], w[1])
        (slope_e, slope_a), (z_e, z_a) = point.residual_slopes, point.log_z_slopes
        off = np.log(point.z * np.exp(-log_x))
        determinant = slope_e * z_a - slope_a * z_e
        by_e = (point.residual * z_a - slope_a * off) / determinant
        by_a = (slope_e * off - z_e * point.residual) / determinant
        return np.array([by_e, by_a, w[2] - log_x])

    @property
    def last_angle(self) -> float:
        return math.sqrt(self.log_upper - self.nearest_log)

    @cached_property
    def curve(self) -> tuple[FloatArray, ComplexArray]:
        """(χ, w) at nodes along the curve, continued to :attr:`lowest_log` by linear terms."""
        nodes, points = super().curve
        log_x = np.linspace(self.nearest_log, self.lowest_log, 400)[1:]
        nearer = self._towards_zero(points[:, -1:], log_x - points[2, -1].real, log_x)
        return np.append(nodes, self.angle(log_x)), np.append(points, nearer, axis=1)

    def solve(self, log_x: FloatArray) -> ComplexArray:
        w = super().solve(np.maximum(log_x, self.nearest_log))
        return self._towards_zero(w, np.minimum(log_x - self.nearest_log, 0.0), log_x)

    @staticmethod
    def _towards_zero(w: ComplexArray, log_ratio: FloatArray, log_x: FloatArray) -> ComplexArray:
        """Scale z by a ratio, near zero: imaginary parts are odd in z^(1/2), Re a vanishes as z, Re e is constant."""
        root = np.exp(0.5 * log_ratio)
        e, a = w[0].real + 1j * root * w[0].imag, root * (root * w[1].real + 1j * w[1].imag)
        return np.array([e, a, np.asarray(log_x, dtype=np.complex128)])

    def density(self, w: ComplexArray) -> FloatArray:
        """Return |Im z m| / π with m = 2 k / (ρ^L - 1 + z) and ρ = e^(2a)."""
        halves, z = self._halves(w[0], w[1]), np.exp(w[2].real)
        k = (-halves.s - halves.work) / self.variance
        return np.abs((2.0 * k * z / (expm1(2.0 * halves.high) + z)).imag) / np.pi

    def cdf(self, w: ComplexArray) -> FloatArray:
        """π cdf = arg e - L Im (α - 1)(β - 1) / σ², from the potential."""
        work = self.depth / self.variance * self._halves(w[0], w[1]).work.imag
        return np.clip((np.angle(w[0]) - work) / np.pi, 0.0, 1.0)

    def sf(self, w: ComplexArray) -> FloatArray:
        work = self.depth / self.variance * self._halves(w[0], w[1]).work.imag
        return np.clip((np.arctan2(w[0].imag, -w[0].real) + work) / np.pi, 0.0, 1.0)


_residual_update_map = lru_cache(maxsize=256)(ResidualUpdateMap)
