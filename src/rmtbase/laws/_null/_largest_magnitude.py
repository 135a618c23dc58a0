"""Laws of the largest deviation |w − w̄|/s, of its ratio to a quantile, and of its probability by the Weibull fit."""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from numpy.typing import NDArray
from scipy import special
from scipy.interpolate import CubicSpline

from rmtbase.laws._distribution import Distribution, FloatArray, KnownSpread
from rmtbase.laws._element._expansion import POWERS, Expansion, mean_square, panels, partial_moments
from rmtbase.laws._element._normal_sample import gaussian_sample_statistic
from rmtbase.laws._element._product_sum import DependentStatistic, Element, SharedNorms, row_law
from rmtbase.laws._element.parents import FLOAT, Parent, VarianceGamma
from rmtbase.laws._null._pearson import OnScale, Pearson3Mixture, logarithm
from rmtbase.laws._null._reference_law import log_quantile
from rmtbase.laws._tabulated import FINE, Tabulated, beta_rule, log_rule, normal_rule, score_table
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


_OF_TABLE = 128
_TINY = 1e-300


class SelfNormalisedMaximum(Tabulated):
    """Law of max |w|/s, by two laws that are each right in one tail, with weights F(x) and 1 − F(x), F the first.

    The first treats the |w|/s as independent. As max |w|/σ is max |w|/s times an independent s/σ (Basu 1955), the
    second is that of max |w|/σ, contracted in its logarithm by that variance.
    """

    @abstractmethod
    def _log_upper(self, x: FloatArray) -> FloatArray:
        """ln P(max |w|/s ≤ x), accurate where it is near 0."""

    @abstractmethod
    def _log_free(self, x: FloatArray) -> FloatArray:
        """ln P(max |w|/σ ≤ x)."""

    @abstractmethod
    def _shared(self, log_x: FloatArray, weight: FloatArray) -> tuple[float, float]:
        """Return Var ln(s/σ) and any other part of Var ln(max |w|/σ) that ln(max |w|/s) lacks, from its rule."""

    @property
    @abstractmethod
    def _range(self) -> tuple[float, float]:
        """Interval that holds max |w|/σ and max |w|/s up to a mass of 1e-14."""

    def _points(self) -> FloatArray:
        return np.geomspace(*self._range, _OF_TABLE)

    @cached_property
    def _contraction(self) -> tuple[float, float, float]:
        """Means of ln(max |w|/σ) and ln(max |w|/s), and the latter's standard deviation over the former's."""
        log_x, weight = log_rule(score_table(self._points(), lambda x: _both(self._log_free(x)), self.furthest))
        mean = float(weight @ log_x)
        of_s, besides = self._shared(log_x, weight)
        ratio = (of_s + besides) / float(weight @ (log_x - mean) ** 2)
        return mean, mean + of_s, math.sqrt(1.0 - ratio)

    def _tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        free_mean, mean, contraction = self._contraction
        cdf, sf = _both(self._log_upper(x))
        lower_cdf, lower_sf = _both(self._log_free(np.exp(free_mean + (np.log(x) - mean) / contraction)))
        return cdf * cdf + sf * lower_cdf, sf * (cdf + lower_sf)


def _both(log_cdf: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.exp(log_cdf), -np.expm1(np.minimum(log_cdf, 0.0))


@dataclass(frozen=True)
class NormalMaximum(SelfNormalisedMaximum):
    """Law of max |w − w̄|/s of n normal numbers (Thompson's law); Var w̄ is a part of that of max |w|/σ."""

    count: int  # n

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, (self.count - 1) / math.sqrt(self.count)

    @property
    def _range(self) -> tuple[float, float]:
        at = -special.ndtri(np.array([min(50.0 / self.count, 0.4), 1e-32 / self.count]))
        return 0.9 * float(at[0]), min(1.1 * float(at[1]), 0.999 * self.support[1])

    def _log_upper(self, x: FloatArray) -> FloatArray:
        law = gaussian_sample_statistic("largest_magnitude", self.count)
        sf = law.sf(x)
        return np.where(sf < 0.5, np.log1p(-np.minimum(sf, 0.5)), np.log(np.maximum(law.cdf(x), _TINY)))

    def _log_free(self, x: FloatArray) -> FloatArray:
        return self.count * np.log1p(-np.minimum(2.0 * special.ndtr(-x), 1.0 - 1e-16))

    def _shared(self, log_x: FloatArray, weight: FloatArray) -> tuple[float, float]:
        return 0.5 / (self.count - 1), float(weight @ np.exp(-2.0 * log_x)) / self.count


@dataclass(frozen=True)
class ProductMaximum(SelfNormalisedMaximum):
    """Law of max |w|/s over the elements of a d_query × d_key W_QK, which cluster in rows and columns of large norm γ.

    With p = 2Φ(−x/√γ), R = −d_query ln E e^(−d_key p(γ)), C likewise, Λ = d_query d_key E p(γ), −ln P(max ≤ x) = R C/Λ
    to first order. γ/d is Beta(h/2, (d − 1)h/2), for max |w|/σ γ is χ²_h/h; other factors scale p to the right Λ.
    """

    d_query: int
    element: Element  # the law of an element
    d_key: int

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.sqrt(self.d_query * self.d_key)

    @property
    def _range(self) -> tuple[float, float]:
        furthest = 1.0 + 9.0 * max(float(root.max()) for root, _ in self._of_mean)
        return 1.0, min(furthest, 0.999 * self.support[1])

    @property
    def _degrees(self) -> float:
        return row_law(self.element).degrees

    @cached_property
    def _of_mean(self) -> list[tuple[FloatArray, FloatArray]]:
        half = 0.5 * self._degrees
        rules = [(beta_rule(half, half * (number - 1)), number) for number in (self.d_query, self.d_key)]
        return [(np.sqrt(share * number), weight) for (share, weight), number in rules]

    @cached_property
    def _free(self) -> list[tuple[FloatArray, FloatArray]]:
        score, weight = normal_rule()
        return [(np.sqrt(special.chdtri(self._degrees, special.ndtr(-score)) / self._degrees), weight)] * 2

    def _log_upper(self, x: FloatArray) -> FloatArray:
        return self._clustered(x, self._of_mean)

    def _log_free(self, x: FloatArray) -> FloatArray:
        return self._clustered(x, self._free)

    def _clustered(self, x: FloatArray, norms: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
        numbers, factor = (self.d_query, self.d_key), self._factor(x)
        expected, together = np.zeros(x.shape), np.ones(x.shape)
        for (root, weight), number, partners in zip(norms, numbers, numbers[::-1], strict=True):
            beyond = factor * special.ndtr(-x[..., None] / root)
            expected += 0.5 * number * partners * (beyond @ weight)
            together *= -number * np.log1p(np.maximum(np.expm1(-partners * beyond) @ weight, 1e-16 - 1.0))
        return -together / np.maximum(expected, _TINY)

    def _factor(self, x: FloatArray) -> FloatArray | float:
        if isinstance(self.element, VarianceGamma):
            return 2.0
        root, weight = self._free[0]
        return (self.element.law(x, FLOAT)[2] / np.maximum(special.ndtr(-x[:, None] / root) @ weight, _TINY))[:, None]

    def _shared(self, log_x: FloatArray, weight: FloatArray) -> tuple[float, float]:
        rows, columns = self.d_query, self.d_key
        return 0.5 / self._degrees * (1.0 / rows + 1.0 / columns) + 0.5 / (rows * columns), 0.0


_CENTRES = np.linspace(0.0, 5.4, 10)  # of w̄, in units of its standard deviation
_WIDTHS = {True: np.linspace(-7.0, 7.0, 57), False: np.linspace(-7.0, 7.0, 29)}  # of ln s; more for a bounded parent
_POINTS = 64
_AT_A_TIME = 16
_LEAST_SKEWNESS = 1e-3


@dataclass(frozen=True)
class LargestMagnitude(Tabulated):
    """Law of T = max |w − w̄|/s of n independent weights.

    P(T ≤ x) = ∫∫ P(w in W)^n p(a, b | all w in W) da db, (a, b) = (w̄, s), W the window |w − a| ≤ x b. Given W, w̄ is
    treated as normal, and s² given w̄ as Pearson's type III with a mean by regression on w̄ and w̄².
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
        sign = np.where(POWERS % 2, -1.0, 1.0)[:, None, None, None]
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
    # The density of Pearson's type III of mean 0 and variance 1, by Stirling's series to 1/(12 k).
    g = np.where(np.abs(skewness) < _LEAST_SKEWNESS, _LEAST_SKEWNESS, skewness)
    k, rise = 4.0 / g**2, 0.5 * g * np.clip((square - 1.0 - shift) / relative, -1e3, 1e3)
    inside: NDArray[np.bool_] = rise > -1.0
    rise = np.where(inside, rise, 0.0)
    log_density = (k - 1.0) * np.log1p(rise) - k * rise - 1.0 / (12.0 * k)
    of_square = np.where(inside, np.exp(log_density), 0.0) / math.sqrt(2.0 * math.pi) / relative * 2.0 * square
    return of_mean * of_square
