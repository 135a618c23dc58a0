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
from rmtbase.laws._null._pearson import Pearson3

POWERS = {"eigenvalue": 1.0, "singular": 0.5}


class Expansion(NamedTuple):
    """A smooth function of two sums to second order: its value, gradient (2,) and Hessian (2, 2)."""

    value: float
    gradient: FloatArray
    hessian: FloatArray


class SmoothMoments(NamedTuple):
    """Mean, standard deviation and skewness of a smooth function of sums."""

    mean: float
    std: float
    skewness: float


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


def smooth_moments(dims: tuple[int, ...], convention: str, statistic: str) -> SmoothMoments:
    """Moments of an entropy or a participation ratio of the r eigenvalues (or singular values).

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
    return SmoothMoments(mean, std, skewness)


def entropy(dims: tuple[int, ...], convention: str) -> Pearson3:
    """The null of -sum p ln p."""
    return Pearson3(*smooth_moments(dims, convention, "entropy"))


def effective_rank(dims: tuple[int, ...]) -> Pearson3:
    """The null of the exponential of the entropy of the singular values."""
    mean, std, skewness = smooth_moments(dims, "singular", "entropy")
    # Of exp(S), S nearly normal: to the same orders.
    centre = math.exp(mean)
    return Pearson3(centre * (1.0 + 0.5 * std**2), centre * std, skewness + 3.0 * std)


def participation_ratio_singular(dims: tuple[int, ...], per_value: bool) -> Pearson3:
    """The null of (Σ s)² / sum s², divided by r for ``per_value``."""
    mean, std, skewness = smooth_moments(dims, "singular", "participation_ratio")
    unit = 1.0 / min(dims) if per_value else 1.0
    return Pearson3(unit * mean, unit * std, skewness)


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
