"""Nulls of statistics that are functions of sums over the eigenvalues: entropies, participation ratios and ranks."""

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
    """Return the cumulants of the sums of :func:`summands` over the r eigenvalues, in the dimensionless x."""
    return linear_statistics_of_map(chain_map(dims), summands(convention))


def entropy(dims: tuple[int, ...], convention: str) -> OnScale:
    number = effective_number(dims, convention, "entropy")
    return OnScale(*log_moments(number.at_score)[:2], Exponential(), number)


def effective_rank(dims: tuple[int, ...]) -> MendedLaw:
    """Return the null of the exponential of the entropy of the singular values."""
    return effective_number(dims, "singular", "entropy")


def participation_ratio(dims: tuple[int, ...], convention: str, per_value: bool) -> MendedLaw:
    """Return the null of (Σ y)²/Σ y², divided by r if ``per_value``."""
    law, sizes = expanded_number(dims, convention, "participation_ratio")
    scaled = law.scaled(1.0 / min(dims)) if per_value else law
    return mended_by_draws(f"{convention} participation_ratio", scaled, sizes)


@lru_cache(maxsize=256)
def effective_number(dims: tuple[int, ...], convention: str, statistic: str) -> MendedLaw:
    """Return the null of N, which is the exponential of the entropy, or the participation ratio."""
    return mended_by_draws(f"{convention} {statistic}", *expanded_number(dims, convention, statistic))


@lru_cache(maxsize=256)
def expanded_number(
    dims: tuple[int, ...], convention: str, statistic: str
) -> tuple[Pearson3 | TailedPearson3, FloatArray]:
    """Return the law of N without the correction fitted to draws, and the sizes on which that correction depends.

    For the participation ratio of eigenvalues it has four exact moments. For the others it is of type III in N, with
    three moments of ln N from the cumulants of the sums: the mean by the Δ method to second order, and the skewness to
    leading order. The covariance is taken at dimensions raised by one half, and the standard deviation is multiplied by
    1 + 1/(2r). This is the next order, exact for d_head/d_model → 0 (where it turns χ² with h²/2 into χ² with
    (h + 2)(h - 1)/2 degrees of freedom). The remaining correction is known exactly for ln P, with P the participation
    ratio of the eigenvalues. Relative corrections of standard deviation and skewness are of the order of the variance
    of the statistic, so those of ln N are taken as those of ln P times Var ln N / Var ln P, each to leading order. This
    is a closure, not a derivation; in measurements up to six factors it is within 1.5 % of the standard deviation and
    0.03 of the skewness.
    """
    reference, number = _leading(dims, "eigenvalue", "participation_ratio"), _of_eigenvalues(dims)
    if (convention, statistic) == ("eigenvalue", "participation_ratio"):
        return number, _participation_sizes(dims, reference.std)
    leading = _leading(dims, convention, statistic)
    _, exact_std, exact_skewness = log_moments(number.at_score)
    share = leading.variance / reference.variance
    std = leading.std * (1.0 + share * (exact_std / reference.std - 1.0))
    skewness = leading.skewness * (1.0 + share * (exact_skewness / reference.skewness - 1.0))
    # Moments of N to the same orders.
    mean = math.exp(leading.mean)
    start = Pearson3(mean * (1.0 + 0.5 * std**2), mean * std, skewness + 3.0 * std)
    with few_for_the_expansion(dims):
        law = Pearson3.through(lambda x: np.log(np.maximum(x, 1.0)), leading.mean, std, skewness, start)
    return law, bulk_sizes(dims, leading.std, reference.std)


def _participation_sizes(dims: tuple[int, ...], p: float) -> FloatArray:
    """Return the sizes of the participation ratio of eigenvalues.

    They are zero if fewer than four moments of 1/P are known, since no such chain was drawn; f is zero if more than
    four are known.
    """
    estimates = estimates_by_order(dims)
    if len(estimates) < 4:
        return 0.0 * participation_sizes(p, 0.0)
    lacking = _USUALLY - (estimates[3].skewness - estimates[2].skewness)
    return participation_sizes(p, lacking if len(estimates) == 4 else 0.0)


def reference_spread(dims: tuple[int, ...]) -> float:
    return _leading(dims, "eigenvalue", "participation_ratio").std


@contextmanager
def few_for_the_expansion(dims: tuple[int, ...]) -> Iterator[None]:
    """Report the failure to find a law with the moments of an expansion as an error of ``dims``."""
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
    """Mean, skewness and leading-order variance of ln N, and its standard deviation to next order."""

    mean: float
    variance: float
    skewness: float
    std: float


@lru_cache(maxsize=256)
def _leading(dims: tuple[int, ...], convention: str, statistic: str) -> _Leading:
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
