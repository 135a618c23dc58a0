"""Nulls of the statistics that are functions of sums over the eigenvalues: entropies and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.laws._chain._chain_map import chain_map
from rmtbase.laws._chain._linear_statistics import LinearStatistics, linear_statistics_of_map
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._exact._participation_ratio import estimates_by_order, participation_ratio_of
from rmtbase.laws._null._expansion_rest import bulk_sizes, mended_by_draws, participation_sizes
from rmtbase.laws._null._on_scale import Exponential, OnScale
from rmtbase.laws._null._pearson import Pearson3, TailedPearson3, log_moments
from rmtbase.laws._null._simulated_law import MendedLaw

POWERS = {"eigenvalue": 1.0, "singular": 0.5}
_USUALLY = 0.07  # added to the skewness of the participation ratio by the fourth moment of its inverse


class Expansion(NamedTuple):
    """A smooth function of two sums to second order: its value, gradient (2,) and Hessian (2, 2)."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


def summands(convention: str) -> Callable[[FloatArray], FloatArray]:
    """The functions y, y ln y and y² of ln x, y = x for ``"eigenvalue"`` and x^(1/2) for ``"singular"``."""
    power = POWERS[convention]

    def functions(log_x: FloatArray) -> FloatArray:
        y = np.exp(power * log_x)
        return np.stack([y, power * log_x * y, y * y])

    return functions


@lru_cache(maxsize=256)
def sums(dims: tuple[float, ...], convention: str) -> LinearStatistics:
    """The sums of :func:`summands` over the r eigenvalues, in the dimensionless x of the chain's map."""
    return linear_statistics_of_map(chain_map(dims), summands(convention))


def entropy(dims: tuple[int, ...], convention: str) -> OnScale:
    """The null of -Σ p ln p, p = y/Σ y."""
    number = effective_number(dims, convention, "entropy")
    return OnScale(*log_moments(number.at_score)[:2], Exponential(), number)


def effective_rank(dims: tuple[int, ...]) -> MendedLaw:
    """The null of the exponential of the entropy of the singular values."""
    return effective_number(dims, "singular", "entropy")


def participation_ratio(dims: tuple[int, ...], convention: str, per_value: bool) -> MendedLaw:
    """The null of (Σ y)²/Σ y², divided by r for ``per_value``."""
    law, sizes = expanded_number(dims, convention, "participation_ratio")
    scaled = law.scaled(1.0 / min(dims)) if per_value else law
    return mended_by_draws(f"{convention} participation_ratio", scaled, sizes)


@lru_cache(maxsize=256)
def effective_number(dims: tuple[int, ...], convention: str, statistic: str) -> MendedLaw:
    """The null of N, e to the entropy or the participation ratio."""
    return mended_by_draws(f"{convention} {statistic}", *expanded_number(dims, convention, statistic))


@lru_cache(maxsize=256)
def expanded_number(
    dims: tuple[int, ...], convention: str, statistic: str
) -> tuple[Pearson3 | TailedPearson3, FloatArray]:
    """That without what draws add, and the sizes that these go by.

    Of the participation ratio of eigenvalues by four exact moments. Of others of type III in N, by three moments of
    ln N: mean by the Δ method to second order and skewness to leading order, on the cumulants of the sums. The
    covariance is taken at dimensions raised by one half and widened by 1 + 1/(2r): its next order, exact for
    d_head/d_model → 0 (where it makes χ² of h²/2 into one of (h + 2)(h - 1)/2 degrees of freedom). What that leaves out
    is known exactly for ln P, P the participation ratio of the eigenvalues. Relative corrections of standard deviation
    and skewness are of the order of the variance of the statistic; those of ln N are taken as those of ln P times
    Var ln N / Var ln P, each to leading order: a closure, not a derivation, within 1.5 % of the standard deviation and
    0.03 of the skewness in measurements up to six factors.
    """
    known, number = _leading(dims, "eigenvalue", "participation_ratio"), _of_eigenvalues(dims)
    if (convention, statistic) == ("eigenvalue", "participation_ratio"):
        return number, _participation_sizes(dims, known.std)
    of = _leading(dims, convention, statistic)
    _, exact_std, exact_skewness = log_moments(number.at_score)
    share = of.variance / known.variance
    std = of.std * (1.0 + share * (exact_std / known.std - 1.0))
    skewness = of.skewness * (1.0 + share * (exact_skewness / known.skewness - 1.0))
    # Of N, to the same orders.
    mean = math.exp(of.mean)
    start = Pearson3(mean * (1.0 + 0.5 * std**2), mean * std, skewness + 3.0 * std)
    with few_for_the_expansion(dims):
        law = Pearson3.through(lambda x: np.log(np.maximum(x, 1.0)), of.mean, std, skewness, start)
    return law, bulk_sizes(dims, of.std, known.std)


def _participation_sizes(dims: tuple[int, ...], p: float) -> FloatArray:
    """Zero where fewer than four moments of 1/P are known, of which no chain was drawn; f zero where more are."""
    estimates = estimates_by_order(dims)
    if len(estimates) < 4:
        return 0.0 * participation_sizes(p, 0.0)
    lacking = _USUALLY - (estimates[3].skewness - estimates[2].skewness)
    return participation_sizes(p, lacking if len(estimates) == 4 else 0.0)


def reference_spread(dims: tuple[int, ...]) -> float:
    """The standard deviation of ln P to next order."""
    return _leading(dims, "eigenvalue", "participation_ratio").std


@contextmanager
def few_for_the_expansion(dims: tuple[int, ...]) -> Iterator[None]:
    """Say of which dimensions no law has the moments that an expansion gives."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(
            "dims", dims, "more eigenvalues or fewer factors: no law has the moments of the expansion here"
        ) from error


@lru_cache(maxsize=256)
def _of_eigenvalues(dims: tuple[int, ...]) -> TailedPearson3:
    moments = participation_ratio_of(dims)
    return TailedPearson3.matched(moments.mean, moments.std, moments.skewness, moments.excess_kurtosis)


class _Leading(NamedTuple):
    """Of ln N: mean and skewness, variance to leading order, and the standard deviation with its next order."""

    mean: float
    variance: float
    skewness: float
    std: float


@lru_cache(maxsize=256)
def _leading(dims: tuple[int, ...], convention: str, statistic: str) -> _Leading:
    here, raised = sums(dims, convention), sums(tuple(n + 0.5 for n in dims), convention)
    chosen = [0, SECOND[statistic]]
    both, expand = np.ix_(chosen, chosen), EXPANSIONS[statistic]
    value, gradient, hessian = expand(*here.mean[chosen])
    covariance = here.covariance[both]
    slope = covariance @ gradient
    variance = float(gradient @ slope)
    third = np.einsum("i,j,k,ijk", gradient, gradient, gradient, here.third_cumulant[np.ix_(chosen, chosen, chosen)])
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
