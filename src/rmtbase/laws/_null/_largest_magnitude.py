"""Law of the largest of n standardised deviations |w − w̄|/s, for any parent."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element._panels import panels
from rmtbase.laws._element.parents import Parent
from rmtbase.laws._tabulated import Tabulated

_POWERS = np.arange(7)
_CENTRES = np.linspace(0.0, 5.4, 10)  # of w̄, in units of its standard deviation
_WIDTHS = {True: np.linspace(-7.0, 7.0, 57), False: np.linspace(-7.0, 7.0, 29)}  # of ln s; more for a bounded parent
_POINTS = 64
_AT_A_TIME = 16
_LEAST_SKEWNESS = 1e-3


class PartialMoments:
    """∫ x^k dF from 0 to c for k = 0 … 6, with F the law of |w|/σ, as splines in ln c that are right to 1e-9."""

    def __init__(self, parent: Parent) -> None:
        grid = panels(parent)
        self.sigma = math.sqrt(float(grid.probability @ np.exp(2.0 * grid.log_x)))
        self.kurtosis = float(grid.probability @ np.exp(4.0 * grid.log_x)) / self.sigma**4
        upper = float(parent.upper(FLOAT)) / self.sigma
        log_x = grid.edges - math.log(self.sigma)
        x = np.exp(log_x)
        per_panel = grid.probability.reshape(log_x.size - 1, -1)
        powers = (np.exp(grid.log_x) / self.sigma)[:, None] ** _POWERS
        running = np.zeros((log_x.size, _POWERS.size))
        np.cumsum(np.einsum("pn,pnk->pk", per_panel, powers.reshape(*per_panel.shape, -1)), axis=0, out=running[1:])
        inside = np.minimum(np.exp(grid.edges), np.nextafter(parent.upper(FLOAT), 0.0))
        slope = (parent.law(inside, FLOAT)[0] * inside)[:, None] * x[:, None] ** _POWERS
        apart = np.append(True, np.diff(log_x) > 0.0)  # near the end of a law rounding can make two edges equal
        self._spline = CubicHermiteSpline(log_x[apart], running[apart], slope[apart])
        self._ends = float(log_x[0]), min(float(log_x[-1]), math.log(upper))
        self._parent, self.upper = parent, upper

    def __call__(self, c: FloatArray) -> FloatArray:
        """Return the partial moments, shape (7, *c.shape)."""
        with np.errstate(divide="ignore"):
            log_c = np.clip(np.log(np.maximum(c, 0.0)), *self._ends)
        return np.moveaxis(self._spline(log_c), -1, 0)

    def beyond(self, c: FloatArray) -> FloatArray:
        """P(|w|/σ > c)."""
        inside = np.clip(c, 1e-300, np.nextafter(self.upper, 0.0))
        return np.where(c <= 0.0, 1.0, np.where(c >= self.upper, 0.0, self._parent.law(inside * self.sigma, FLOAT)[2]))


partial_moments = lru_cache(maxsize=64)(PartialMoments)


@dataclass(frozen=True)
class LargestMagnitude(Tabulated):
    """Law of T = max |w − w̄|/s of n independent weights.

    With p(a, b) the joint density of (w̄, s), and W the window |w − a| ≤ x b,

        P(T ≤ x) = ∫∫ P(w in W)^n p(a, b | all w in W) da db.

    Given that all weights are in W, they are independent with the parent's law restricted to W. For this restricted law
    w̄ is treated as normal, and s² given w̄ as Pearson's type III whose mean is a regression on w̄ and w̄².
    """

    furthest: ClassVar[float] = 6.0

    parent: Parent  # the law of the weights
    count: int  # n

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, (self.count - 1) / math.sqrt(self.count)

    def _points(self) -> FloatArray:
        n, moments = self.count, partial_moments(self.parent)
        # From where 14 weights are expected beyond to where 1e-8 are, plus some deviations of ln s on either side.
        ends = self.parent.isf(np.array([min(14.0 / n, 0.5), 1e-8 / n])) / moments.sigma
        spread = math.sqrt((moments.kurtosis - 1.0) / (4.0 * n))
        return np.geomspace(ends[0] * (1.0 - min(6.0 * spread, 0.5)), ends[1] * (1.0 + 10.0 * spread), _POINTS)

    def _tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        parts = [self._at(part) for part in np.array_split(x, math.ceil(x.size / _AT_A_TIME))]
        cdf, sf = np.concatenate(parts, axis=1)
        return cdf, sf

    def _at(self, x: Float[np.ndarray, " x"]) -> Float[np.ndarray, "2 x"]:
        """P(T ≤ x) and P(T > x), the latter from the difference to the density of (w̄, s) in an infinite window."""
        n, moments = self.count, partial_moments(self.parent)
        spread, steps = math.sqrt((moments.kurtosis - 1.0) / (4.0 * n)), _WIDTHS[math.isfinite(moments.upper)]
        centre, width = _CENTRES[:, None] / math.sqrt(n), np.exp(spread * steps)
        right, left = x[:, None, None] * width + centre, x[:, None, None] * width - centre
        sign = np.where(_POWERS % 2, -1.0, 1.0)[:, None, None, None]
        log_mass = np.log1p(-np.minimum(0.5 * (moments.beyond(right) + moments.beyond(left)), 1.0 - 1e-300))
        inside = _density(n, centre, width, 0.5 * (moments(right) + sign * moments(left))) * np.exp(n * log_mass)
        everywhere = moments(np.array(math.inf))[:, None, None] * (1.0 + sign[:, 0]) * 0.5
        unrestricted = _density(n, centre, width, everywhere)
        weight = np.full(
            _CENTRES.size, 2.0 * (_CENTRES[1] - _CENTRES[0]) / math.sqrt(n) * spread * (steps[1] - steps[0])
        )
        weight[0] *= 0.5
        return np.stack([inside.sum(axis=2) @ weight, (unrestricted - inside).sum(axis=2) @ weight])


def _density(n: int, centre: FloatArray, width: FloatArray, moments: FloatArray) -> FloatArray:
    """Return the density of w̄ and ln s at (centre, width), for n weights with moments E x^k 1(x in W), k = 0 … 6."""
    m1, m2, m3, m4, m5, m6 = moments[1:] / np.maximum(moments[0], 1e-300)
    variance = m2 - m1**2
    third = m3 - 3.0 * m1 * m2 + 2.0 * m1**3
    fourth = m4 - 4.0 * m1 * m3 + 6.0 * m1**2 * m2 - 3.0 * m1**4
    sixth = m6 - 6.0 * m1 * m5 + 15.0 * m1**2 * m4 - 20.0 * m1**3 * m3 + 15.0 * m1**4 * m2 - 5.0 * m1**6
    kurtosis, asymmetry = fourth / variance**2, third / variance**1.5
    # Mean of s²/variance given w̄, by regression on w̄ and w̄², and its standard deviation.
    score = (centre - m1) * np.sqrt(n / variance)
    shift = asymmetry / math.sqrt(n) * score + 0.5 * (kurtosis - 3.0) / n * (score**2 - 1.0)
    relative = np.sqrt(np.maximum(kurtosis - (n - 3.0) / (n - 1.0) - asymmetry**2, 1e-12) / n)
    skewness = (sixth / variance**3 - 3.0 * kurtosis + 2.0) / np.maximum(kurtosis - 1.0, 1e-12) ** 1.5 / math.sqrt(n)
    square = width**2 / variance
    of_mean = np.exp(-0.5 * score**2) * np.sqrt(n / (2.0 * math.pi * variance))
    of_square = _type_three(np.clip((square - 1.0 - shift) / relative, -1e3, 1e3), skewness) / relative * 2.0 * square
    return of_mean * of_square


def _type_three(score: FloatArray, skewness: FloatArray) -> FloatArray:
    """Return the density of Pearson's type III of mean 0 and variance 1, by Stirling's series to 1/(12 k)."""
    g = np.where(np.abs(skewness) < _LEAST_SKEWNESS, _LEAST_SKEWNESS, skewness)
    k, rise = 4.0 / g**2, 0.5 * g * score
    inside: NDArray[np.bool_] = rise > -1.0
    rise = np.where(inside, rise, 0.0)
    log_density = (k - 1.0) * np.log1p(rise) - k * rise - 1.0 / (12.0 * k)
    return np.where(inside, np.exp(log_density), 0.0) / math.sqrt(2.0 * math.pi)
