"""Two statistics of the largest magnitude: its ratio to a sample quantile, and its probability by the Weibull fit."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy import special
from scipy.interpolate import CubicSpline

from rmtbase.laws._distribution import Distribution, FloatArray, KnownSpread
from rmtbase.laws._element._arithmetic import FLOAT
from rmtbase.laws._element._expansion import Expansion, mean_square, panels
from rmtbase.laws._element._product_sum import DependentStatistic, Element, SharedNorms
from rmtbase.laws._element.parents import Parent
from rmtbase.laws._null._pearson import OnScale, Pearson3Mixture, logarithm
from rmtbase.laws._null._reference_law import log_quantile
from rmtbase.laws._tabulated import FINE, normal_rule
from rmtbase.laws._weibull._plot import WeibullPlot, weibull_plot


@lru_cache(maxsize=64)
def _log_quantiles(parent: Parent) -> CubicSpline:
    grid = panels(parent)
    inside = (grid.sf > 1e-280) & (grid.cdf > 1e-280)
    logit = np.log(grid.cdf[inside]) - np.log(grid.sf[inside])
    rising = np.append(True, np.diff(np.maximum.accumulate(logit)) > 1e-6)
    return CubicSpline(logit[rising], grid.log_x[inside][rising])


def _log_quantile(parent: Parent, sf: FloatArray) -> FloatArray:
    return _log_quantiles(parent)(np.log1p(-sf) - np.log(sf))


def beta_rule(a: float, b: float, count: int = 48) -> tuple[FloatArray, FloatArray]:
    score, weight = normal_rule(count)
    return special.betainccinv(a, b, special.ndtr(-score)), weight


@dataclass(frozen=True)
class LargestToQuantile(KnownSpread):
    """Law of max |w|/q of n independent weights, with q the 99 % quantile of the magnitudes.

    Given the largest m, F/F(m) of the r-th smallest is Beta(r, n − r), at the real r = 0.99 (n − 1) + 1.
    """

    parent: Parent  # the law of the weights
    count: int  # n

    @property
    def support(self) -> tuple[float, float]:
        return 1.0, math.inf

    @property
    def _above(self) -> float:
        return 0.01 * (self.count - 1)

    @cached_property
    def _given(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        sf, weight = beta_rule(1.0, float(self.count))
        return sf, np.exp(_log_quantile(self.parent, sf)), weight

    def _cdf(self, x: FloatArray) -> FloatArray:
        sf, largest, weight = self._given
        share = (self.parent.law(largest[:, None] / x, FLOAT)[2] - sf[:, None]) / (1.0 - sf[:, None])
        return weight @ special.betainc(self._above, self.count - self._above, np.clip(share, 0.0, 1.0))

    def _sf(self, x: FloatArray) -> FloatArray:
        sf, largest, weight = self._given
        share = self.parent.law(largest[:, None] / x, FLOAT)[1] / (1.0 - sf[:, None])
        return weight @ special.betainc(self.count - self._above, self._above, np.clip(share, 0.0, 1.0))

    @cached_property
    def _moments(self) -> tuple[float, float]:
        sf, largest, weight = self._given
        share, inner = beta_rule(self._above, self.count - self._above)
        below = np.exp(_log_quantile(self.parent, sf[:, None] + (1.0 - sf[:, None]) * share))
        ratio = largest[:, None] / below
        mean = float(weight @ ratio @ inner)
        return mean, math.sqrt(float(weight @ (ratio - mean) ** 2 @ inner))

    def mean(self) -> float:
        return self._moments[0]

    def std(self) -> float:
        return self._moments[1]


Polynomials = Callable[[FloatArray], FloatArray]


def _hazard_polynomials(
    plot: WeibullPlot, log_scale: Expansion, numbers: Callable[[Expansion], tuple[float, ...]]
) -> Polynomials:
    """Return ln x ↦ ``numbers`` of the expansion of k̂ (ln x − ln λ̂), polynomials in ln x of degree at most 3."""
    points = np.linspace(-1.0, 3.0, 4) + log_scale.value
    values = [numbers(plot.sample_shape * (x - log_scale)) for x in points]
    return lambda log_x: np.stack(
        [np.polynomial.Polynomial.fit(points, value, 3)(log_x) for value in zip(*values, strict=True)]
    )


@lru_cache(maxsize=64)
def _log_hazard(parent: Parent) -> Polynomials:
    """Return ln x ↦ limit, drift, κ₂, κ₃ for independent weights, and c; see :func:`tail_probability`."""
    plot = weibull_plot(parent)

    def numbers(hazard: Expansion) -> tuple[float, ...]:
        return hazard.value, hazard.drift, hazard.variance, hazard.third, float(hazard.influence[-1])

    return _hazard_polynomials(plot, plot.sample_log_scale, numbers)


@dataclass(frozen=True)
class TailProbability(KnownSpread):
    """Law of log₁₀ n − H/ln 10 with H = (max |w|/λ̂)^k̂, from the law of ln H."""

    log_hazard: Pearson3Mixture  # the law of ln H, a mixture over the largest magnitude
    count: int  # n

    @property
    def support(self) -> tuple[float, float]:
        return -math.inf, math.log10(self.count)

    def _at(self, y: FloatArray) -> FloatArray:
        return np.log((math.log10(self.count) - y) * math.log(10.0))

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.log_hazard.sf(self._at(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.log_hazard.cdf(self._at(x))

    def _moment(self, power: int) -> float:
        law = self.log_hazard
        return float(law.weight @ np.exp(power * law.centre + 0.5 * power**2 * np.square(law.spread)))

    def mean(self) -> float:
        return math.log10(self.count) - self._moment(1) / math.log(10.0)

    def std(self) -> float:
        return math.sqrt(self._moment(2) - self._moment(1) ** 2) / math.log(10.0)


def tail_probability(parent: Parent, n: int) -> TailProbability:
    """Law of log₁₀ n − H/ln 10 for n weights and their Weibull fit; given max |w| = x, ln H is of type III."""
    sf, weight = beta_rule(1.0, float(n), FINE)
    limit, drift, second, third, outer = _log_hazard(parent)(_log_quantile(parent, sf))
    mean = limit + drift / n + outer * (1.0 / n - sf)
    skewness = third / second**1.5 / math.sqrt(n)
    return TailProbability(Pearson3Mixture(mean, _overlapping(mean, np.sqrt(second / n)), skewness, weight), n)


def _overlapping(centre: FloatArray, spread: FloatArray | float) -> FloatArray:
    """Return spreads of at least 3/5 of the distance between the parts of a mixture, so that they leave no gaps."""
    return np.maximum(spread, 0.6 * np.abs(np.gradient(centre)))


@lru_cache(maxsize=64)
def _product_hazard(parent: Element) -> tuple[WeibullPlot, SharedNorms, Expansion]:
    plot = weibull_plot(parent)
    return plot, SharedNorms(plot.grid), plot.sample_log_scale - 0.5 * mean_square(plot.grid).log()


@lru_cache(maxsize=64)
def _product_log_hazard(parent: Element, rows: int, columns: int) -> Polynomials:
    plot, norms, relative = _product_hazard(parent)
    return _hazard_polynomials(plot, relative, lambda hazard: (hazard.value, *norms(hazard).cumulants(rows, columns)))


def product_tail_probability(
    parent: Element, rows: int, columns: int, log_largest: FloatArray, weight: FloatArray
) -> TailProbability:
    """Return the law for W_QK, from nodes and weights of ln(max |w|/s), taken as independent of the body."""
    n = rows * columns
    limit, drift, second, third = _product_log_hazard(parent, rows, columns)(log_largest)
    skewness = np.clip(third / second**1.5 / math.sqrt(n), -1.0, 1.0)
    mean = limit + drift / n
    return TailProbability(Pearson3Mixture(mean, _overlapping(mean, np.sqrt(second / n)), skewness, weight), n)


@lru_cache(maxsize=64)
def _product_quantile(parent: Element) -> DependentStatistic:
    """ln(q/s), with q the 99 % quantile of the magnitudes."""
    x = float(parent.ppf(0.99))
    grid = panels(parent, [x])
    return SharedNorms(grid)(log_quantile(grid, 0.99, x, 0.0) - 0.5 * mean_square(grid).log())


def product_largest_to_quantile(
    parent: Element, rows: int, columns: int, log_largest: FloatArray, weight: FloatArray
) -> Distribution:
    """Law of max |w|/q of W_QK from that of ln(max |w|/s); q by regression: both have the same norms."""
    n, quantile = rows * columns, _product_quantile(parent)
    drift, second, third = quantile.cumulants(rows, columns)
    grid, middle = quantile.statistic.grid, float(weight @ log_largest)
    beyond = (grid.log_x > middle) / float(np.interp(middle, grid.log_x, grid.density)) - 0.5 * np.exp(2.0 * grid.log_x)
    common = (rows + columns - 2) / n * SharedNorms(grid).shared(beyond, quantile.statistic.influence)
    spread = float(weight @ (log_largest - middle) ** 2)
    slope = common / spread
    left = math.sqrt(second / n - slope * common)
    centre = log_largest - slope * (log_largest - middle) - quantile.statistic.value - drift / n
    law = Pearson3Mixture(centre, _overlapping(centre, left), -third / n**2 / left**3, weight)
    first, square = (float(weight @ np.exp(p * law.centre + 0.5 * p**2 * left**2)) for p in (1, 2))
    return OnScale(first, math.sqrt(square - first**2), logarithm(), law)
