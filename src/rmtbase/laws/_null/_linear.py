"""Nulls of functions of sums over the eigenvalues: entropies, participation ratios and ranks; their fitted corrections.

Where the normal score of T under the law of an expansion is z + δ(z), δ is a cubic polynomial, whose coefficients were
fitted as products of sizes (``studies/spectral_tails``), clipped to their range among the chains of the fit:

    s, p    standard deviation of ln T from the expansion; of the logarithm of the eigenvalues' participation ratio
    e       exp(-(n - r)/2), with n the second smallest dimension; one where the lower edge is hard
    t, d    for stable ranks: relative standard deviation of the sum, and sd(ln λ_max)/sd(ln T) - 1 (s_max for s)
    f       for the participation ratio of eigenvalues: by how much less than usual the fourth moment of its inverse
            adds to the skewness; it is inaccurate for many factors and few eigenvalues
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map
from rmtbase.laws._chain._linear_statistics import LinearStatistics, linear_statistics_of_map
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._exact._participation_ratio import estimates_by_order, participation_ratio_of
from rmtbase.laws._null._pearson import EXPONENTIAL, OnScale, Pearson3, TailedPearson3, log_moments
from rmtbase.laws._null._simulated_law import MendedLaw

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

    The participation ratio of eigenvalues has four exact moments. The others are of type III in N, with moments of ln N
    from the sums: the mean by the Δ method, the skewness to leading order, the covariance at dimensions raised by one
    half, the std times 1 + 1/(2r). Remaining corrections are those of ln P, known exactly, times Var ln N / Var ln P: a
    closure, up to six factors within 1.5 % of the std and 0.03 of the skewness.
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
