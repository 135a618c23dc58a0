"""What dividing by a matrix's own variance does to the moments of a Gaussian chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from rmtbase.parameters import require_dims, require_positive_integer


def self_normalization(power: int, dims: Sequence[int]) -> Fraction:
    """Return E Π_l (σ̂_l²)^power at σ_l = 1, σ̂_l² = |X_l|_F² / N_l, N_l = n_{l-1} n_l. Exact.

    A factor's size |X_l| and its direction X_l / |X_l| are independent, and |X_l|² is χ² of N_l degrees of freedom.
    A statistic T homogeneous of degree p in Π σ_l² is therefore T = (Π σ̂_l²)^p T_own with T_own the
    same statistic of the self-normalised chain, independent of the σ̂_l, and

        E T_own^k = E T^k / self_normalization(p k, dims),    E (χ²_N / N)^k = N (N + 2) ... (N + 2k - 2) / N^k.

    Raises:
        ParameterError: for a power or dimensions that are not positive integers.
    """
    return own_variance_moment(require_positive_integer("power", power), require_dims(dims))


def own_variance_moment(power: int, dims: tuple[int, ...]) -> Fraction:
    """The same for checked arguments, and for power 0."""
    entries = [n * m for n, m in pairwise(dims)]
    return Fraction(
        math.prod(n + 2 * i for n in entries for i in range(power)),
        math.prod(entries) ** power,
    )
