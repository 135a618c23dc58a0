"""What dividing by a matrix's own variance does to the moments of a Gaussian chain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

from rmtbase.parameters import require_dims, require_positive_integer


def self_normalization(power: int, dims: Sequence[int]) -> Fraction:
    """Return E prod_l (sigma_hat_l^2)^power at sigma_l = 1, sigma_hat_l^2 = |X_l|_F^2 / N_l, N_l = n_{l-1} n_l. Exact.

    A factor's size |X_l| and its direction X_l / |X_l| are independent, and |X_l|^2 is chi^2 of N_l degrees of freedom.
    A statistic T homogeneous of degree p in prod sigma_l^2 is therefore T = (prod sigma_hat_l^2)^p T_own with T_own the
    same statistic of the self-normalised chain, independent of the sigma_hat_l, and

        E T_own^k = E T^k / self_normalization(p k, dims),    E (chi^2_N / N)^k = N (N + 2) ... (N + 2k - 2) / N^k.

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
