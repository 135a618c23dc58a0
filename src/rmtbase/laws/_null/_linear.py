"""Nulls of the statistics that are functions of sums over the eigenvalues: entropies and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rmtbase.laws._chain._chain_map import chain_map
from rmtbase.laws._chain._linear_statistics import LinearStatistics, linear_statistics_of_map
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._exact._participation_ratio import participation_ratio_of
from rmtbase.laws._null._pearson import Pearson3

_TRUSTED = 0.05  # relative error of the standard deviation

POWERS = {"eigenvalue": 1.0, "singular": 0.5}


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


def function_of_sums(dims: tuple[int, ...], convention: str, statistic: str) -> Pearson3:
    """The null of an entropy -sum p ln p or a participation ratio of the r eigenvalues (or singular values).

    Δ method to second order in the mean and to leading order in the skewness, on the cumulants of the sums. The
    covariance is taken at dimensions raised by one half and widened by 1 + 1/(2r): its next order, exact for
    d_head/d_model → 0 (where it makes χ² of h²/2 into one of (h + 2)(h - 1)/2 degrees of freedom) and measured
    beyond.
    """
    here = sums(dims, convention)
    raised = sums(tuple(n + 0.5 for n in dims), convention)
    chosen = [0, _SECOND[statistic]]
    both = np.ix_(chosen, chosen)
    expand = _EXPANSIONS[statistic]
    value, gradient, hessian = expand(*here.mean[chosen])
    covariance = here.covariance[both]
    mean = value + 0.5 * float((hessian * covariance).sum())
    leading = float(gradient @ covariance @ gradient)
    slope = covariance @ gradient
    third = np.einsum("i,j,k,ijk", gradient, gradient, gradient, here.third_cumulant[np.ix_(chosen, chosen, chosen)])
    skewness = float(third + 3.0 * slope @ hessian @ slope) / leading**1.5
    steeper = expand(*raised.mean[chosen]).gradient
    std = math.sqrt(float(steeper @ raised.covariance[both] @ steeper)) * (1.0 + 0.5 / min(dims))
    if statistic == "participation_ratio":  # it is extensive: to the true number of values
        std *= min(dims) / (min(dims) + 0.5)
    return Pearson3(mean, std, skewness)


def effective_rank(dims: tuple[int, ...]) -> Pearson3:
    """The null of the exponential of the entropy of the singular values."""
    of = function_of_sums(dims, "singular", "entropy")
    # Of exp(S), S nearly normal: to the same orders.
    centre = math.exp(of.centre)
    return Pearson3(centre * (1.0 + 0.5 * of.spread**2), centre * of.spread, of.skewness + 3.0 * of.spread)


def participation_ratio(dims: tuple[int, ...], convention: str, per_value: bool) -> Pearson3:
    """The null of T²/Q, divided by r for ``per_value``: of eigenvalues by exact moments where these serve."""
    moments = participation_ratio_of(dims) if convention == "eigenvalue" else None
    if moments is None or moments.std_error > _TRUSTED * moments.std:  # few eigenvalues of a nearly square chain
        law = function_of_sums(dims, convention, "participation_ratio")
    else:
        law = Pearson3(moments.mean, moments.std, moments.skewness)
    unit = 1.0 / min(dims) if per_value else 1.0
    return Pearson3(unit * law.centre, unit * law.spread, law.skewness)


def _entropy_expansion(total: float, weighted: float) -> Expansion:
    """ln T - U/T with T = Σ y and U = Σ y ln y."""
    return Expansion(
        math.log(total) - weighted / total,
        np.array([1.0 / total + weighted / total**2, -1.0 / total]),
        np.array([[-1.0 / total**2 - 2.0 * weighted / total**3, 1.0 / total**2], [1.0 / total**2, 0.0]]),
    )


def _participation_expansion(total: float, square: float) -> Expansion:
    """T²/Q with T = Σ y and Q = sum y²."""
    ratio = total / square
    return Expansion(
        total * ratio,
        np.array([2.0 * ratio, -(ratio**2)]),
        np.array([[2.0 / square, -2.0 * ratio / square], [-2.0 * ratio / square, 2.0 * ratio**2 / square]]),
    )


_EXPANSIONS = {"entropy": _entropy_expansion, "participation_ratio": _participation_expansion}
_SECOND = {"entropy": 1, "participation_ratio": 2}
