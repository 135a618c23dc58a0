"""Law of a sum of logarithms of independent gamma variables, from its exact characteristic function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebinterpolate, chebval
from scipy.optimize import brentq
from scipy.special import digamma, gammaln, loggamma, ndtri_exp, polygamma

from rmtbase.laws._distribution import ComplexArray, FloatArray

_LOG_TINY = 780.0  # -ln of the smallest tabulated probability; below exp(-745) no double is positive
_LARGEST_TILT = 1e4  # in units of the strip; it limits how close to its upper end a bounded law is resolved
_LOG_ROUNDING = 36.7  # -ln 2^-53
_STEP, _NODES = 0.25, 60  # of the trapezoidal rule on the contour
# Bends of the contour, in units of the width of the saddle: 0 suits a quadratic K, 1/3 a single logarithm.
_BENDS = np.array([0.0, 0.02, 0.04, 0.08, 0.16, 1 / 3])
# Stirling's series, B_2k / (2k (2k - 1)), and the argument from which its seven terms give double precision.
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156)
_STIRLING_FROM = 16.0
_Y, _SCORE, _LOG_DENSITY = 0, 1, 2  # columns of the tables


@dataclass(frozen=True)
class LogGammaSum:
    """Law of Y with ln E exp(s Y) = K(s) = Σ_j m_j [lnGamma(a_j + c_j s) - lnGamma(a_j) - c_j s ln a_j].

    With weights m_j > 0, Y = sum c_j ln(G_j / a_j), where the G_j are independent gamma variables of shape a_j and
    scale 1 (m_j of each). Terms of negative weight divide an independent part out of Y. K is analytic for
    Re s > -strip.

    The tails are inversion integrals: P(Y > y) = (1/2 π i) int exp(K(s) - s y) ds/s over a path to the right of s = 0,
    and minus the same integral over a path to its left for P(Y ≤ y). The path is a parabola through the saddle point of
    the integrand. There the trapezoidal rule converges geometrically (Helstrom 1996), and no tail is a difference of
    larger numbers. The tails are tabulated once as the normal score z, P(Y ≤ y) = ndtr(z), by Chebyshev series in a
    coordinate of the saddle point. Beyond |z| = 39, where the tail is not a positive double, y is clipped. Numerical;
    the measured error relative to either tail is 1e-11 and grows with the cancellation in K, to 1e-9 where
    sum |m_j| a_j is of order 10^6.

    Attributes:
        weights, powers, shapes: m_j, c_j > 0 and a_j > 0.
    """

    weights: tuple[float, ...]
    powers: tuple[float, ...]
    shapes: tuple[float, ...]

    def cumulant(self, k: int) -> float:
        """Cumulant of order k ≥ 1: Σ m c^k polygamma(k - 1, a), minus Σ m c ln a for k = 1."""
        return float(self._derivative(np.zeros(()), k))

    def score(self, y: FloatArray) -> FloatArray:
        return self._looked_up(_Y, y, _SCORE)

    def log_density(self, y: FloatArray) -> FloatArray:
        return self._looked_up(_Y, y, _LOG_DENSITY)

    def quantile(self, z: FloatArray) -> FloatArray:
        return self._looked_up(_SCORE, z, _Y)

    def _looked_up(self, source: int, value: FloatArray, target: int) -> FloatArray:
        """Return the column ``target`` of the tables where the column ``source`` has these values."""
        result = np.full(value.shape, np.nan)
        lower, upper = self._tables
        meeting = upper.nodes[source, 0]
        for inside, table in ((value < meeting, lower), (value >= meeting, upper)):
            result[inside] = chebval(table.coordinate(source, value[inside]), table.series[:, target])
        return result

    @cached_property
    def _terms(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return np.array(self.weights), np.array(self.powers), np.array(self.shapes)

    @cached_property
    def _strip(self) -> float:
        m, c, a = self._terms
        return float((a / c)[m > 0].min())

    def _log_mgf(self, s):
        m, c, a = self._terms
        return _log_gamma_ratio(a, c * s[..., None]) @ m

    def _derivative(self, s: FloatArray, k: int) -> FloatArray:
        """Return the k-th derivative of K at real s."""
        m, c, a = self._terms
        x = a + c * s[..., None]
        return (digamma(x) - np.log(a) if k == 1 else polygamma(k - 1, x)) @ (m * c**k)

    def _saddle_value(self, s: FloatArray) -> FloatArray:
        """Return y for which exp(K - s y) / s has its saddle point at s."""
        return self._derivative(s, 1) - 1.0 / s

    def _log_tail_and_density(self, s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ln P(Y > y) for s > 0 and ln P(Y ≤ y) for s < 0, and ln of the density, at y = _saddle_value(s)."""
        y, start = self._saddle_value(s), self._log_mgf(s)
        width = 1.0 / np.sqrt(self._derivative(s, 2) + 1.0 / s**2)

        def path(bend: FloatArray, u: FloatArray) -> tuple[ComplexArray, ComplexArray]:
            """Return the parabola s + width (i u - bend u²) and the change of K - s y along it."""
            points = s[:, None] + width[:, None] * (1j * u - bend * u * u)
            return points, self._log_mgf(points) - start[:, None] - (points - s[:, None]) * y[:, None]

        u = _STEP * np.arange(_NODES, dtype=np.float64)
        # The straightest path on which the integrand is negligible at the last node: stronger bends reach regions
        # where K grows.
        at_end = path(_BENDS, u[-1])[1].real
        enough = at_end < -_LOG_ROUNDING
        bend = _BENDS[np.where(enough.any(axis=1), enough.argmax(axis=1), at_end.argmin(axis=1))][:, None]
        points, exponent = path(bend, u)
        integrand = np.exp(exponent) * width[:, None] * (1.0 + 2j * bend * u)
        integrand[:, 0] *= 0.5
        tail, density = (_STEP / np.pi * (integrand / divisor).real.sum(axis=1) for divisor in (points, 1.0))
        return start - s * y + np.log(np.abs(tail)), start - s * y + np.log(density)

    @cached_property
    def _tables(self) -> tuple[_Table, _Table]:
        def below(tau):
            return -self._strip / (1.0 + np.exp(tau))

        def above(tau):
            return self._strip * np.exp(tau)

        def value(tau: float, saddle: Callable) -> float:
            return float(self._saddle_value(np.array(saddle(tau))))

        def unlikely(tau: float, saddle: Callable) -> float:
            """Return a number that is positive where exp(K - s y) is too small to be tabulated."""
            s = np.array(saddle(tau))
            return float(s * self._saddle_value(s) - self._log_mgf(s)) - _LOG_TINY

        def table(saddle: Callable, sign: float, first: float, last: float) -> _Table:
            def columns(tau: FloatArray) -> FloatArray:
                s = saddle(tau)
                log_tail, log_density = self._log_tail_and_density(s)
                return np.stack([self._saddle_value(s), sign * ndtri_exp(log_tail), log_density], axis=1)

            return _Table.of(columns, first, last)

        first = -math.log(self._strip * math.sqrt(self.cumulant(2)))  # s = 1 / std
        meeting = value(first, above)
        last = _root(lambda tau: value(tau, below) - meeting, -12.0, 12.0 - first)
        farthest = math.log(_LARGEST_TILT)
        if unlikely(farthest, above) > 0.0:
            farthest = _root(lambda tau: unlikely(tau, above), first, farthest)
        nearest = _root(lambda tau: unlikely(tau, below), -12.0, last)
        return table(below, 1.0, nearest, last), table(above, -1.0, first, farthest)


@dataclass(frozen=True, eq=False)
class _Table:
    """Chebyshev series of y, z and ln density in t from -1 to 1, one column each; y and z rise with t."""

    series: FloatArray

    @classmethod
    def of(cls, columns: Callable[[FloatArray], Any], first: float, last: float) -> _Table:
        # y is analytic for |Im τ| < π and z for a little less: coefficients fall as exp(-n asinh(2 / half)).
        half, centre = 0.5 * (last - first), 0.5 * (last + first)
        degree = math.ceil(_LOG_ROUNDING / math.asinh(2.0 / half))
        return cls(chebinterpolate(lambda t: columns(centre + half * t), degree))

    @cached_property
    def nodes(self) -> FloatArray:
        """Values of the columns at equidistant t, shape (3, 513)."""
        return np.asarray(chebval(np.linspace(-1.0, 1.0, 513), self.series), dtype=np.float64)

    def coordinate(self, column: int, value: FloatArray) -> FloatArray:
        """Find t in [-1, 1] at which a column has these values, by Newton's method from the nodes."""
        nodes, series = self.nodes[column], self.series[:, column]
        slope = chebder(series)
        t = np.interp(value, nodes, np.linspace(-1.0, 1.0, nodes.size))
        bounded = np.clip(value, nodes[0], nodes[-1])
        for _ in range(3):
            t = np.clip(t - (chebval(t, series) - bounded) / chebval(t, slope), -1.0, 1.0)
        return t


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return float(brentq(function, low, high))  # type: ignore[arg-type]


def _log_gamma_ratio(a: FloatArray, z):
    """LnGamma(a + z) - lnGamma(a) - z ln a for real or complex z and a > 0, without cancellation at large arguments.

    There it is (x - 1/2) ln(x/a) - z + S(x) - S(a) with x = a + z and S the tail of Stirling's series. It is analytic
    except at x ≤ 0.
    """
    x = a + z
    base, step = np.broadcast_to(a, x.shape), np.broadcast_to(z, x.shape)
    large = (base >= _STIRLING_FROM) & (x.real >= _STIRLING_FROM)
    few = ~large
    ratio = np.empty_like(x)
    ratio[few] = loggamma(x[few]) - gammaln(base[few]) - step[few] * np.log(base[few])
    x, base, step = x[large], base[large], step[large]
    ratio[large] = (x - 0.5) * np.log1p(step / base) - step + _stirling_tail(x) - _stirling_tail(base)
    return ratio


def _stirling_tail(x):
    inverse_square = 1.0 / (x * x)
    total = np.full_like(x, _STIRLING[-1])
    for coefficient in _STIRLING[-2::-1]:
        total = total * inverse_square + coefficient
    return total / x
