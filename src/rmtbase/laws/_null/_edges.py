"""Nulls of statistics that depend on an edge of the spectrum: stable ranks and condition numbers."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import ndtr, ndtri_exp

from rmtbase.laws._chain._chain_map import chain_map
from rmtbase.laws._chain._linear_statistics import eigenvalue_response_of_map
from rmtbase.laws._distribution import FloatArray, InvertedScore, KnownSpread, TransformedLaw
from rmtbase.laws._edge._extreme_eigenvalues import EdgeLaw, ExtremeLaw, Law, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._exact._trace_polynomials import trace_cumulants
from rmtbase.laws._null import _linear as linear
from rmtbase.laws._null._pearson import LogPearson3, Pearson3
from rmtbase.laws._null._simulated_law import MendedLaw
from rmtbase.laws._parameters import own_variance_log_cumulants
from rmtbase.parameters import require_order

_NODES = 257
_REMOTEST = 11.5  # normal score of each eigenvalue up to which the ratio is tabulated, a probability of 1e-30
_FAR_RIGHT = 40.0  # in TW_1, beyond which the probability is smaller than that
_NEWTON_STEPS = 30


@dataclass(frozen=True)
class EdgePower(TransformedLaw, KnownSpread):
    law: ExtremeLaw  # type: ignore[assignment]  # frozen
    power: float

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    @property
    def rising(self) -> bool:
        return self.power > 0

    def moment(self, k: int) -> float:
        return self.law.expect_power(require_order(k) * self.power)

    def std(self) -> float:
        if math.isinf(self.law.expect_power(2.0 * self.power)):
            return math.inf
        log_values, weights = self.law.quadrature()
        relative = np.exp(self.power * (log_values - weights @ log_values))
        centre = float(weights @ relative)
        return self.mean() * math.sqrt(float(weights @ (relative / centre - 1.0) ** 2))

    def _to(self, x: FloatArray) -> FloatArray:
        return x**self.power

    def _from(self, x: FloatArray) -> FloatArray:
        return x ** (1.0 / self.power)


@dataclass(frozen=True)
class EdgeRatio(InvertedScore, KnownSpread):
    """Law of (λ_max / λ_min)^power for independent λ_max and λ_min: a convolution, tabulated as a normal score."""

    upper: EdgeLaw
    lower: ExtremeLaw
    power: float

    @property
    def support(self) -> tuple[float, float]:
        return 1.0, math.inf

    def mean(self) -> float:
        return self.numerator.mean() * self.inverse.mean()

    def std(self) -> float:
        if math.isinf(self.inverse.std()):
            return math.inf
        squares = [(power.std() / power.mean()) ** 2 for power in (self.numerator, self.inverse)]
        return self.mean() * math.sqrt(math.fsum([*squares, math.prod(squares)]))

    @property
    def numerator(self) -> EdgePower:
        return EdgePower(self.upper, self.power)

    @property
    def inverse(self) -> EdgePower:
        return EdgePower(self.lower, -self.power)

    @property
    def _table(self) -> CubicSpline:
        return _score_table(self.upper, self.lower)

    def _score(self, x: FloatArray) -> FloatArray:
        log_ratio = np.log(x) / self.power
        inner = np.clip(log_ratio, self._table.x[0], self._table.x[-1])
        return self._table(inner) + (log_ratio - inner) * self._table(inner, 1)

    def at_score(self, z: FloatArray) -> FloatArray:
        table = self._table
        ends = table(table.x[[0, -1]])
        inner = np.clip(z, *ends)
        log_ratio = np.interp(inner, table(table.x), table.x)
        for _ in range(_NEWTON_STEPS):
            step = (table(log_ratio) - inner) / table(log_ratio, 1)
            log_ratio = np.clip(log_ratio - step, table.x[0], table.x[-1])
            if not (np.abs(step) > 1e-14 * table.x[-1]).any():
                break
        beyond = np.where(z == inner, 0.0, z - inner)
        log_ratio = np.maximum(log_ratio + beyond / table(log_ratio, 1), 0.0)
        with np.errstate(over="ignore"):
            return np.exp(self.power * log_ratio)


@lru_cache(maxsize=256)
def _score_table(upper: EdgeLaw, lower: ExtremeLaw) -> CubicSpline:
    tail = ndtr(-np.linspace(_REMOTEST, 0.0, _NODES // 2, endpoint=False))
    ends = (upper.ppf(tail), lower.isf(tail)), (upper.isf(tail[::-1]), lower.ppf(tail[::-1]))
    log_ratio = np.concatenate([np.log(largest) - np.log(smallest) for largest, smallest in ends])
    log_ratio = log_ratio[log_ratio > 0.0]
    log_largest, weights = upper.quadrature(_FAR_RIGHT)
    smallest = np.exp(log_largest - log_ratio[:, None])
    with np.errstate(divide="ignore"):  # a mass that rounds to zero
        log_cdf, log_sf = np.log(lower.sf(smallest) @ weights), np.log(lower.cdf(smallest) @ weights)
    score = np.where(log_cdf < log_sf, ndtri_exp(np.minimum(log_cdf, 0.0)), -ndtri_exp(np.minimum(log_sf, 0.0)))
    sound = np.isfinite(score)
    return CubicSpline(log_ratio[sound], score[sound])


def stable_rank(dims: tuple[int, ...], convention: str) -> MendedLaw:
    """Return the null of R = Σ λ / λ_max, or of R = Σ s / s_max."""
    return linear.mended_by_draws(f"{convention} stable_rank", *expanded_stable_rank(dims, convention))


def expanded_stable_rank(dims: tuple[int, ...], convention: str) -> tuple[LogPearson3, FloatArray]:
    """Return the law of R without the correction fitted to draws, and the sizes on which that correction depends.

    Of type III in ln(R - 1), with three moments of ln R. To leading order the skewness is minus that of TW_1, and of
    -ln of the self-normalised λ_max, exact for Σ λ / λ_max of one factor; for Σ λ / λ_max their mean is used.
    """
    times = 1.0 if convention == "eigenvalue" else 2.0  # λ_max / T, or λ_max / (Σ s)²
    totals = linear.sums(dims, convention)
    total = float(totals.mean[0])
    sum_variance = leading = times**2 * float(totals.covariance[0, 0]) / total**2
    mean, variance, third = replace(largest_eigenvalue(dims=dims), log_unit=0.0).log_cumulants()
    log_mean = times * math.log(total) - 0.5 * leading / times - mean
    response = eigenvalue_response_of_map(chain_map(dims), linear.summands(convention), mean)[0] / total
    limit, middle = TracyWidom(1), TracyWidom(1).mean()
    skewness = -(limit.moment(3) - 3.0 * middle * limit.var() - middle**3) / limit.var() ** 1.5
    if convention == "eigenvalue":
        trace = trace_cumulants(1, dims=dims, normalization="none")
        sum_variance = LogPearson3.matched(trace.mean, trace.std, trace.skewness).law.var()
        own_variance = own_variance_log_cumulants(dims)[1]
        skewness = 0.5 * (skewness - third / (variance - own_variance) ** 1.5)
    covariance = times * float(response) * sum_variance / leading
    log_std = math.sqrt(variance + sum_variance - 2.0 * covariance) / times
    log_mean /= times
    # Moments of ln(R - 1) to leading order.
    distance = math.expm1(log_mean)
    slope = (1.0 + distance) / distance
    start = Pearson3(math.log(distance), slope * log_std, skewness - 3.0 * log_std / distance)
    with linear.few_for_the_expansion(dims):
        exponent = Pearson3.through(lambda y: np.logaddexp(0.0, y), log_mean, log_std, skewness, start)
    r, e, s, p = min(dims), linear.nearly_hard(dims), log_std, linear.leading_moments(dims).std
    t, d = math.sqrt(leading) / times, math.sqrt(variance) / times / log_std - 1.0
    return LogPearson3.above(1.0, exponent), np.array([1.0 / r, s, t, (t / s) ** 2, d, p**2, p**3, e / (r**2 * s)])


def condition_number(dims: tuple[int, ...], power: float) -> EdgeRatio:
    """Return the null of (λ_max / λ_min)^power, of two laws made independent at the same skewness."""
    upper, lower = (
        largest_eigenvalue(dims=dims, normalization="none"),
        smallest_eigenvalue(dims=dims, normalization="none"),
    )
    covariance = 2.0 / (min(dims) * (upper.coordinate.psi - lower.coordinate.psi)) ** 2
    return EdgeRatio(_narrowed(upper, covariance), _narrowed(lower, covariance), power)


def _narrowed(law: Law, by: float) -> Law:
    mean, variance, third = law.log_cumulants()
    left = 1.0 - by / variance
    return law.with_log_cumulants(mean, left * variance, left**1.5 * third)
