"""Nulls of entropies, participation ratios and ranks, with their fitted corrections, and of condition numbers.

The error of an expansion's normal score is a cubic whose coefficients were fitted as products of sizes, clipped to
their range in the fit (``studies/spectral_tails``): s, p, the spreads of ln T and of the logarithm of the participation
ratio; e = exp(-(n - r)/2), n the second smallest dimension; t, d, for stable ranks, the sum's relative spread and
sd(ln λ_max)/sd(ln T) - 1; f, by how much less than usual the fourth moment of 1/P adds to the skewness of P.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.special import ndtr, ndtri_exp

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map
from rmtbase.laws._chain._linear_statistics import (
    LinearStatistics,
    eigenvalue_response_of_map,
    linear_statistics_of_map,
)
from rmtbase.laws._distribution import Distribution, FloatArray, InvertedScore, KnownSpread, TransformedLaw
from rmtbase.laws._edge._extreme_eigenvalues import EdgeLaw, ExtremeLaw, Law, largest_eigenvalue, smallest_eigenvalue
from rmtbase.laws._edge._tracy_widom import TracyWidom
from rmtbase.laws._exact._trace_polynomials import estimates_by_order, participation_ratio_of, trace_cumulants
from rmtbase.laws._null._pearson import EXPONENTIAL, LogPearson3, OnScale, Pearson3, TailedPearson3, log_moments
from rmtbase.laws._null._simulated_law import MendedLaw
from rmtbase.laws._parameters import own_variance_log_cumulants
from rmtbase.parameters import require_order

_CLOSENESS = 0.5
_SCORES = np.linspace(-4.0, 4.0, 33)
POWERS = {"eigenvalue": 1.0, "singular": 0.5}
_USUALLY = 0.07  # usual contribution of the fourth moment of 1/P to the skewness of P


class Expansion(NamedTuple):
    """Second-order expansion of a smooth function of two sums: its value, gradient (2,) and Hessian (2, 2)."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def summands(convention: str) -> Callable[[FloatArray], FloatArray]:
    """Return y, y ln y and y² as functions of ln x, with y = x for ``"eigenvalue"`` and x^(1/2) for ``"singular"``."""
    power = POWERS[convention]

    def functions(log_x: FloatArray) -> FloatArray:
        y = np.exp(power * log_x)
        return np.stack([y, power * log_x * y, y * y])

    return functions


@lru_cache(maxsize=256)
def sums(dims: tuple[float, ...], convention: str) -> LinearStatistics:
    return linear_statistics_of_map(chain_map(dims), summands(convention))


def hermite(score: FloatArray) -> FloatArray:
    return np.polynomial.hermite_e.hermevander(score, 3)


@cache
def _coefficients() -> dict[str, Any]:
    return json.loads(Path(__file__).with_name("expansion_rest.json").read_text(encoding="utf-8"))


def mended_by_draws(statistic: str, law: Distribution, sizes: FloatArray) -> MendedLaw:
    fit = _coefficients()[statistic]
    change = hermite(_SCORES) @ (np.clip(sizes, fit["smallest"], fit["largest"]) @ np.array(fit["coefficients"]))
    return MendedLaw(law, _SCORES + change, _SCORES)


def nearly_hard(dims: tuple[int, ...]) -> float:
    smallest, second = sorted(dims)[:2]
    return math.exp(-_CLOSENESS * (second - smallest))


def entropy(dims: tuple[int, ...], convention: str) -> OnScale:
    number = effective_number(dims, convention, "entropy")
    return OnScale(*log_moments(number.at_score)[:2], EXPONENTIAL, number)


def participation_ratio(dims: tuple[int, ...], convention: str, per_value: bool) -> MendedLaw:
    """Return the null of (Σ y)²/Σ y², divided by r if ``per_value``."""
    law, sizes = expanded_number(dims, convention, "participation_ratio")
    scaled = law.scaled(1.0 / min(dims)) if per_value else law
    return mended_by_draws(f"{convention} participation_ratio", scaled, sizes)


@lru_cache(maxsize=256)
def effective_number(dims: tuple[int, ...], convention: str, statistic: str) -> MendedLaw:
    return mended_by_draws(f"{convention} {statistic}", *expanded_number(dims, convention, statistic))


@lru_cache(maxsize=256)
def expanded_number(
    dims: tuple[int, ...], convention: str, statistic: str
) -> tuple[Pearson3 | TailedPearson3, FloatArray]:
    """Return the law of N without the correction fitted to draws, and the sizes on which that correction depends.

    That of eigenvalues' participation ratios has four exact moments, others are of type III in N, with moments of ln N
    from the sums at dimensions raised by one half, the std times 1 + 1/(2r). What remains is that of ln P, known
    exactly, times Var ln N / Var ln P: a closure, up to six factors within 1.5 % of the std and 0.03 of the skewness.
    """
    reference, moments = leading_moments(dims), participation_ratio_of(dims)
    number = TailedPearson3.matched(moments.mean, moments.std, moments.skewness, moments.excess_kurtosis)
    if (convention, statistic) == ("eigenvalue", "participation_ratio"):
        estimates = estimates_by_order(dims)
        if len(estimates) < 4:  # no such chain was drawn
            return number, np.zeros(3)
        p, f = reference.std, 0.0
        if len(estimates) == 4:
            f = _USUALLY - (estimates[3].skewness - estimates[2].skewness)
        return number, np.array([p**3, f, f * p])
    leading = leading_moments(dims, convention, statistic)
    _, exact_std, exact_skewness = log_moments(number.at_score)
    share = leading.variance / reference.variance
    std = leading.std * (1.0 + share * (exact_std / reference.std - 1.0))
    skewness = leading.skewness * (1.0 + share * (exact_skewness / reference.skewness - 1.0))
    # Moments of N to the same orders.
    mean = math.exp(leading.mean)
    start = Pearson3(mean * (1.0 + 0.5 * std**2), mean * std, skewness + 3.0 * std)
    with few_for_the_expansion(dims):
        law = Pearson3.through(lambda x: np.log(np.maximum(x, 1.0)), leading.mean, std, skewness, start)
    r, e, s, p = min(dims), nearly_hard(dims), leading.std, reference.std
    return law, np.array([1.0 / r, s, s * p, p**2, r * p**2, p**3, e / r, e / (r**2 * s)])


@contextmanager
def few_for_the_expansion(dims: tuple[int, ...]) -> Iterator[None]:
    try:
        yield
    except ParameterError as error:
        raise ParameterError(
            "dims", dims, "more eigenvalues or fewer factors: no law has the moments of the expansion here"
        ) from error


class _Leading(NamedTuple):
    mean: float
    variance: float
    skewness: float
    std: float


@lru_cache(maxsize=256)
def leading_moments(
    dims: tuple[int, ...], convention: str = "eigenvalue", statistic: str = "participation_ratio"
) -> _Leading:
    plain, raised = sums(dims, convention), sums(tuple(n + 0.5 for n in dims), convention)
    chosen = [0, SECOND[statistic]]
    both, expand = np.ix_(chosen, chosen), EXPANSIONS[statistic]
    value, gradient, hessian = expand(*plain.mean[chosen])
    covariance = plain.covariance[both]
    slope = covariance @ gradient
    variance = float(gradient @ slope)
    third = np.einsum("i,j,k,ijk", gradient, gradient, gradient, plain.third_cumulant[np.ix_(chosen, chosen, chosen)])
    steeper = expand(*raised.mean[chosen]).gradient
    return _Leading(
        value + 0.5 * float((hessian * covariance).sum()),
        variance,
        float(third + 3.0 * slope @ hessian @ slope) / variance**1.5,
        math.sqrt(float(steeper @ raised.covariance[both] @ steeper)) * (1.0 + 0.5 / min(dims)),
    )


def _entropy_expansion(total: float, weighted: float) -> Expansion:
    """ln T - U/T with T = Σ y and U = Σ y ln y."""
    return Expansion(
        math.log(total) - weighted / total,
        np.array([1.0 / total + weighted / total**2, -1.0 / total]),
        np.array([[-1.0 / total**2 - 2.0 * weighted / total**3, 1.0 / total**2], [1.0 / total**2, 0.0]]),
    )


def _participation_expansion(total: float, square: float) -> Expansion:
    """2 ln T - ln Q with T = Σ y and Q = Σ y²."""
    return Expansion(
        2.0 * math.log(total) - math.log(square),
        np.array([2.0 / total, -1.0 / square]),
        np.diag([-2.0 / total**2, 1.0 / square**2]),
    )


EXPANSIONS = {"entropy": _entropy_expansion, "participation_ratio": _participation_expansion}
SECOND = {"entropy": 1, "participation_ratio": 2}


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
        numerator, inverse = self.powers
        return numerator.mean() * inverse.mean()

    def std(self) -> float:
        if math.isinf(self.powers[1].std()):
            return math.inf
        squares = [(power.std() / power.mean()) ** 2 for power in self.powers]
        return self.mean() * math.sqrt(math.fsum([*squares, math.prod(squares)]))

    @property
    def powers(self) -> tuple[EdgePower, EdgePower]:
        return EdgePower(self.upper, self.power), EdgePower(self.lower, -self.power)

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
    return mended_by_draws(f"{convention} stable_rank", *expanded_stable_rank(dims, convention))


def expanded_stable_rank(dims: tuple[int, ...], convention: str) -> tuple[LogPearson3, FloatArray]:
    """Return the law of R without the correction fitted to draws, and the sizes on which that correction depends.

    Of type III in ln(R - 1). The skewness is minus that of TW_1 or, exact for one factor, of the self-normalised λ_max;
    for Σ λ / λ_max their mean is used.
    """
    times = 1.0 if convention == "eigenvalue" else 2.0  # λ_max / T, or λ_max / (Σ s)²
    totals = sums(dims, convention)
    total = float(totals.mean[0])
    sum_variance = leading = times**2 * float(totals.covariance[0, 0]) / total**2
    mean, variance, third = replace(largest_eigenvalue(dims=dims), log_unit=0.0).log_cumulants()
    log_mean = times * math.log(total) - 0.5 * leading / times - mean
    response = eigenvalue_response_of_map(chain_map(dims), summands(convention), mean)[0] / total
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
    with few_for_the_expansion(dims):
        exponent = Pearson3.through(lambda y: np.logaddexp(0.0, y), log_mean, log_std, skewness, start)
    r, e, s, p = min(dims), nearly_hard(dims), log_std, leading_moments(dims).std
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
