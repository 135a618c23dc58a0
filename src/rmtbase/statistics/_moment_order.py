"""Finite and infinite moments of the statistics of random spectra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.parameters import require_real_numbers
from rmtbase.statistics._registry import SPECTRAL_STATISTICS, Statistic

FloatArray = Float[np.ndarray, "..."]


class ExtremeMoments(NamedTuple):
    smallest: float = math.inf  #: E λ_h^(-p) is finite for p below it, and infinite for other p
    largest: float = math.inf  #: E λ_1^p is finite for p below it, and infinite for other p


def inverse_moment_order(dims: Sequence[int]) -> float:
    """Order (g + 1)/2 from which on E λ_h^(-p) is infinite, g the second smallest dimension less the smallest."""
    # P(λ_h < x) ∝ x^((n - h + 1)/2) for Wishart factors of n degrees of freedom, and the smallest exponent decides: A.
    # Edelman, SIAM J. Matrix Anal. Appl. 9, 543 (1988); J. R. Ipsen and M. Kieburg, Phys. Rev. E 89, 032106 (2014), for
    # the factors.
    smallest, second, *_ = sorted(dims)
    return (second - smallest + 1) / 2


def moment_order(statistic: Statistic, extremes: ExtremeMoments, rank: int) -> float:
    """Smallest order p at which the moments E|x|^p of a statistic are infinite; below it they are finite.

    x grows as λ_h^(-a) and λ_1^b, with a its ``inverse_power`` and b its ``scaling`` or, if larger, a. The order is the
    smaller of those that λ_h and λ_1 allow. So the condition number of W_QK has a mean if d_model - d_head ≥ 2 and a
    variance if it is ≥ 4; for the condition number of singular values, ≥ 1 and ≥ 2. In a spectrum of one eigenvalue
    all ratios are constant. λ_h is large only if h elements are large, no two of them in a row or column.
    """
    scaling = 0 if statistic.scaling == "additive" else statistic.scaling
    if rank == 1 and scaling == 0:
        return math.inf
    below, above = statistic.inverse_power, max(scaling, statistic.inverse_power)
    if statistic.name == "smallest_eigenvalue":
        above /= rank
    return min(extremes.smallest / below if below else math.inf, extremes.largest / above if above else math.inf)


def moment_orders(extremes: ExtremeMoments, rank: int) -> Float[np.ndarray, " statistic"]:
    return np.array([moment_order(statistic, extremes, rank) for statistic in SPECTRAL_STATISTICS.values()])


def eigenvalue_moment_orders(extremes: ExtremeMoments, rank: int) -> Float[np.ndarray, " index"]:
    """Order k times that of λ_1 for λ_k, which is large only if k elements are, no two of them in a row or column."""
    return extremes.largest * np.arange(1, rank + 1)


def drawn_moments(mean: ArrayLike, std: ArrayLike, order: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Keep a finite mean, and a deviation whose fourth moment is finite: other estimates vary from seed to seed."""
    mean, std = require_real_numbers("mean", mean), require_real_numbers("std", std)
    return np.where(np.greater(order, 1), mean, np.nan), np.where(np.greater(order, 4), std, np.nan)


def missing_moment(name: str, order: float) -> str | None:
    """Say which moment a statistic with that :func:`moment_order` lacks, and why; None if it has mean and variance."""
    if order > 2:
        return None
    lacks = "mean" if order <= 1 else "standard deviation"
    return f"{name} has no {lacks} here: E x^p is infinite for p >= {order:g}"
