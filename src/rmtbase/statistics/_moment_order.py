"""Which moments of a random spectrum's statistics are finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.parameters import require_real_numbers
from rmtbase.statistics._registry import Statistic

FloatArray = Float[np.ndarray, "..."]


class ExtremeMoments(NamedTuple):
    """Which moments the extreme eigenvalues have; infinity where all.

    Attributes:
        smallest: E λ_h^(-p) is finite for p below it, and infinite from it on.
        largest: so is E λ_1^p.
    """

    smallest: float = math.inf
    largest: float = math.inf


def inverse_moment_order(dims: Sequence[int]) -> float:
    """(g + 1)/2, with g what the second smallest of a chain's dimensions has above the smallest, h.

    For a product of Gaussian matrices of shapes (n_0, n_1), (n_1, n_2), …, or one matrix of independent elements with
    a bounded density, E λ_h^(-p) is finite for p < (g + 1)/2 and infinite from there on.

    The product has the singular values of h × h factors whose Wishart matrices have n_l degrees of freedom, n_l every
    dimension but one smallest. The eigenvalues of one have a density ∝ Π λ_i^((n_l - h - 1)/2) Π |λ_i - λ_j| e^(-Σλ/2),
    so that the smallest has P(λ_h < x) ∝ x^((n_l - h + 1)/2) as x → 0. Of a product the factor with the smallest
    exponent decides: ties add powers of ln x, which move no moment. W_QK has g = d_model - d_head.

    Source: A. Edelman, SIAM J. Matrix Anal. Appl. 9, 543 (1988); J. R. Ipsen and M. Kieburg, Phys. Rev. E 89, 032106
    (2014), for the factors.
    """
    smallest, second, *_ = sorted(dims)
    return (second - smallest + 1) / 2


def moment_order(statistic: Statistic, extremes: ExtremeMoments, rank: int) -> float:
    """The order from which on the moments E|x|^p of a statistic are infinite: below it they are finite.

    x grows as λ_h^(-a) and λ_1^b, a its ``inverse_power`` and b its ``scaling`` or, where it has none, a: the smaller
    of the orders that λ_h and λ_1 allow. So the condition number of W_QK has a mean where d_model - d_head ≥ 2 and a
    variance where ≥ 4; that of singular values where ≥ 1 and ≥ 2. A spectrum of one eigenvalue has no ratios, and only
    h large elements, no two in a row or column, make λ_h large.
    """
    scaling = 0 if statistic.scaling == "additive" else statistic.scaling
    if rank == 1 and scaling == 0:
        return math.inf
    below, above = statistic.inverse_power, max(scaling, statistic.inverse_power)
    if statistic.name == "smallest_eigenvalue":
        above /= rank
    return min(extremes.smallest / below if below else math.inf, extremes.largest / above if above else math.inf)


def eigenvalue_moment_orders(extremes: ExtremeMoments, rank: int) -> Float[np.ndarray, " index"]:
    """The same of each ordered eigenvalue, the largest first: k times that of λ_1.

    It takes k large elements, no two in a row or column, to make λ_k large.
    """
    return extremes.largest * np.arange(1, rank + 1)


def drawn_moments(mean: ArrayLike, std: ArrayLike, order: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """What a null says of itself by the moments of its draws: a mean where it is finite, and a standard deviation.

    The latter only where the fourth moment is finite, too: without it draws do not tell the second, which differs from
    seed to seed, and a z in its units with it. NaN elsewhere; ``order`` is :func:`moment_order`.

    Raises:
        ParameterError: moments that are masked or no real numbers.
    """
    mean, std = require_real_numbers("mean", mean), require_real_numbers("std", std)
    return np.where(np.greater(order, 1), mean, np.nan), np.where(np.greater(order, 4), std, np.nan)


def missing_moment(name: str, order: float) -> str | None:
    """What a statistic with that :func:`moment_order` lacks, and why, in words; None where it has mean and variance."""
    if order > 2:
        return None
    lacks = "mean" if order <= 1 else "standard deviation"
    return f"{name} has no {lacks} here: E x^p is infinite for p >= {order:g}"
