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
    """Smallest orders of infinite moments of the extreme eigenvalues; infinity if all moments are finite."""

    smallest: float = math.inf  #: E λ_h^(-p) is finite for p below it, and infinite for other p
    largest: float = math.inf  #: E λ_1^p is finite for p below it, and infinite for other p


def inverse_moment_order(dims: Sequence[int]) -> float:
    """(g + 1)/2, with g the difference between the second smallest dimension of a chain and the smallest, h.

    For a product of Gaussian matrices of shapes (n_0, n_1), (n_1, n_2), …, or one matrix of independent elements with
    a bounded density, E λ_h^(-p) is finite for p < (g + 1)/2 and infinite for p ≥ (g + 1)/2.

    The product has the singular values of h × h factors whose Wishart matrices have n_l degrees of freedom, with n_l
    all dimensions except one smallest. The eigenvalues of one factor have a density
    ∝ Π λ_i^((n_l - h - 1)/2) Π |λ_i - λ_j| e^(-Σλ/2), so that P(λ_h < x) ∝ x^((n_l - h + 1)/2) as x → 0 for the
    smallest. In a product the factor with the smallest exponent decides; ties add powers of ln x, which do not change
    the order. W_QK has g = d_model - d_head.

    Source: A. Edelman, SIAM J. Matrix Anal. Appl. 9, 543 (1988); J. R. Ipsen and M. Kieburg, Phys. Rev. E 89, 032106
    (2014), for the factors.
    """
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
    """Smallest order of infinite moments of each ordered eigenvalue, the largest first: k times that of λ_1.

    λ_k is large only if k elements are large, no two of them in a row or column.
    """
    return extremes.largest * np.arange(1, rank + 1)


def drawn_moments(mean: ArrayLike, std: ArrayLike, order: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Keep the mean and standard deviation of a null's draws only if they are estimates; NaN otherwise.

    The mean is kept if it is finite. The standard deviation is kept only if the fourth moment is finite: otherwise the
    estimate, and any z in its units, varies strongly from seed to seed. ``order`` is :func:`moment_order`.
    """
    mean, std = require_real_numbers("mean", mean), require_real_numbers("std", std)
    return np.where(np.greater(order, 1), mean, np.nan), np.where(np.greater(order, 4), std, np.nan)


def missing_moment(name: str, order: float) -> str | None:
    """Say which moment a statistic with that :func:`moment_order` lacks, and why; None if it has mean and variance."""
    if order > 2:
        return None
    lacks = "mean" if order <= 1 else "standard deviation"
    return f"{name} has no {lacks} here: E x^p is infinite for p >= {order:g}"
