"""The map p -> ln lambda of a residual path P = prod_l (I + sigma G_l / sqrt(d)), L factors.

For one factor the Stieltjes transform m(z) of (I + sigma G/sqrt(d))(I + sigma G/sqrt(d))^T solves
z = (m - 1 - sigma^2 m) / (m (1 + sigma^2 m)^2) (Dozier & Silverstein 2007). With 1 + sigma^2 m = 1/(1 + p) it factors,

    psi = p (p + 1 + sigma^2) / sigma^2,    1 + psi = (1 + p)(p + sigma^2) / sigma^2,
    S = (1 + psi) / (psi z) = 1 / ((1 + p)(p + 1 + sigma^2)),

psi the moment generating function and S the S-transform. psi is the same function of p for every depth, so S^L gives

    lambda = (1 + psi) / (psi S^L) = (1 + p)^(L+1) (p + sigma^2) (p + 1 + sigma^2)^(L-1) / p.

The cut is the curve (L+1) arg(1 + p) + arg(p + sigma^2) + (L-1) arg(p + 1 + sigma^2) = arg p: at a given arg p in
(0, pi) the left side grows with |p| from 0 to (2L+1) arg p, so there is one such point. It ends at a critical point
p_- in (-1, -sigma^2) for sigma < 1 (soft), and at p = -1 for sigma >= 1 (hard), where lambda ~ (1 + p)^(L+1), or
(1 + p)^(L+2) at sigma = 1, and psi + 1 ~ 1 + p, or (1 + p)^2.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import expm1, log1p

from rmtbase.laws._arrays import ComplexArray, FloatArray
from rmtbase.laws._cut import find_edge, log_excess
from rmtbase.laws._residual._cut_map import CutMap

_LEAST_LOG_MASS = 345.0  # at a hard edge a mass of 1e-150 counts as zero: 1 + p, and its square, stay normal doubles


class ResidualMap(CutMap):
    """The map of depth L in the coordinate w = ln(1 + p), which is linear in ln lambda at a hard edge.

    Attributes:
        depth: L, a positive integer.
        sigma: a positive number.
        variance: sigma^2.
        gap: 1 - sigma^2.
    """

    longest_move = 1.0  # near sigma = 1 the exponent of a hard edge changes within a unit of ln(1 + p)

    def __init__(self, depth: int, sigma: float) -> None:
        self.depth, self.sigma, self.variance = depth, sigma, sigma**2
        self.gap = (1.0 - sigma) * (1.0 + sigma)
        # mass ~ lambda^(1/(L+1)), or a higher power.
        self.lowest_log = -_LEAST_LOG_MASS * (depth + 1) - 2.0 * abs(math.log(sigma)) * depth
        self.upper = np.array([self._upper_point()], dtype=np.complex128)
        self.lower = np.array([self._lower_point()], dtype=np.complex128) if self.gap > 0.0 else None

    def _critical(self, p: float, distance: float, from_pole: float) -> float:
        """Return |p (p + sigma^2)| d ln lambda / dp / sigma^2 at real p, given |p + sigma^2| and 1 + p."""
        depth, variance = self.depth, self.variance
        return abs(p) * distance / variance * ((depth + 1) / from_pole + (depth - 1) / (from_pole + variance)) - 1.0

    def _upper_point(self) -> float:
        """ln(1 + p_+), p_+ > 0."""

        def critical(log_p: float) -> float:
            p = math.exp(log_p)
            return self._critical(p, p + self.variance, 1.0 + p)

        low = math.log(min(0.125 / self.depth, 0.25 * self.sigma / math.sqrt(self.depth)))
        return math.log1p(math.exp(find_edge(critical, low, 0.0)))

    def _lower_point(self) -> float:
        """ln(1 + p_-), p_- in (-1, -sigma^2), for sigma < 1."""

        def fraction(t: float) -> float:
            """(-sigma^2 - p) / (1 - sigma^2), in logarithmic units from both ends."""
            return 1.0 / (1.0 + math.exp(-t))

        def critical(t: float) -> float:
            distance = self.gap * fraction(t)
            return self._critical(distance + self.variance, distance, self.gap * fraction(-t))

        low = 2.0 * math.log(self.sigma) - math.log(self.depth + 1.0) - 40.0
        return math.log1p(-self.sigma) + math.log1p(self.sigma) - math.log1p(math.exp(find_edge(critical, low, 40.0)))

    def _shifted(self, w: ComplexArray) -> tuple[ComplexArray, ComplexArray]:
        """Return p and p + sigma^2, each to full relative accuracy where it is small and matters."""
        p = np.asarray(expm1(w[0]), dtype=np.complex128)
        shifted = p + self.variance if self.variance < 0.25 else np.exp(w[0]) - self.gap
        return p, np.asarray(shifted, dtype=np.complex128)

    def log_x(self, w: ComplexArray) -> ComplexArray:
        """Return ln lambda; to rounding relative to sigma where sigma is small, and the law narrow."""
        p, shifted = self._shifted(w)
        ratio = log1p(self.variance / p) if self.variance < 0.25 else np.log(shifted) - np.log(p)
        return (self.depth + 1) * w[0] + ratio + (self.depth - 1) * log1p(shifted)

    def velocity(self, w: ComplexArray) -> ComplexArray:
        """Return d ln(1 + p) / d ln lambda."""
        p, shifted = self._shifted(w)
        inner = (self.depth - 1) / (1.0 + shifted) - self.variance / (p * shifted)
        return 1.0 / (self.depth + 1 + np.exp(w) * inner)

    def start(self) -> ComplexArray:
        """Return a point above ln(1 + p_+), which is itself the scale on which the map varies there."""
        return self.upper * (1.0 + 1e-3j)

    def log_curvature(self, w: float) -> float:
        """Return d^2 ln lambda / d psi^2 at a critical point w = ln(1 + p) of an edge."""
        p, variance = math.expm1(w), self.variance
        curvature = (
            variance * (2.0 * p + variance) / (p * (p + variance)) ** 2
            - (self.depth + 1) / (1.0 + p) ** 2
            - (self.depth - 1) / (p + 1.0 + variance) ** 2
        )
        return curvature * (variance / (2.0 * p + 1.0 + variance)) ** 2

    def density(self, w: ComplexArray) -> FloatArray:
        """Return Im psi / pi = Im p (2 Re p + 1 + sigma^2) / (pi sigma^2)."""
        outer = np.asarray(np.exp(w[0]), dtype=np.complex128)
        return outer.imag * (2.0 * outer.real - self.gap) / (np.pi * self.variance)

    def cdf(self, w: ComplexArray) -> FloatArray:
        """Return the mass below, accurate relative to itself at a hard edge.

        pi cdf = pi - arg p + (L-1) arg(p + 1 + sigma^2) + L Im(p^2/sigma^2 + p), from :meth:`sf` by the equation
        of the curve. With delta = 1 + p and R(x) = ln(1 + x) - x, the terms linear in delta, which cancel at sigma = 1,
        are (L+1) (1 - 1/sigma^2) Im delta, and Im(L delta^2/sigma^2 - R(-delta) + (L-1) R(delta/sigma^2)) is left.
        """
        p, shifted = self._shifted(w)
        if self.variance < 0.25:
            total = np.arctan2(p.imag, -p.real) + (self.depth - 1) * np.angle(1.0 + shifted) + self._bilinear(p)
        else:
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
        """Return the mass above.

        pi sf = (L+1) arg(1 + p) + arg(p + sigma^2) - L Im(p^2/sigma^2 + p): psi d ln lambda has the primitive
        L (p^2/sigma^2 + p) - (L+1) ln(1 + p) - ln(p + sigma^2).
        """
        p, shifted = self._shifted(w)
        total = (self.depth + 1) * w[0].imag + np.angle(shifted) - self._bilinear(p)
        return np.clip(total / np.pi, 0.0, 1.0)

    def _bilinear(self, p: ComplexArray) -> FloatArray:
        """L Im(p^2/sigma^2 + p)."""
        return self.depth * p.imag * (2.0 * p.real / self.variance + 1.0)
