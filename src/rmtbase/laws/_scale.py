"""Effect of self-normalisation on the eigenvalues of a Gaussian chain W = X_1 ... X_L."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

from scipy.special import digamma, polygamma


def as_float(value: Fraction) -> float:
    """Return the nearest double, or ±∞ where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def own_variance_moment(power: int, dims: tuple[int, ...]) -> Fraction:
    """Return E Π_l (σ̂_l²)^power exactly at σ = 1, where σ̂_l² = |X_l|_F² / N_l and N_l = n_{l-1} n_l.

    The size |X_l| and the direction X_l / |X_l| of a factor are independent, and |X_l|²/σ_l² has the χ² law with N_l
    degrees of freedom. Therefore a statistic T that is homogeneous of degree p in Π σ_l² is T = (Π σ̂_l²)^p T_own,
    where T_own is the same statistic of the self-normalised chain and is independent of the σ̂_l, and

        E T_own^k = E T^k / E Π_l (σ̂_l²)^(p k),    E (χ²_N / N)^k = N (N + 2) ... (N + 2k - 2) / N^k.
    """
    entries = [n * m for n, m in pairwise(dims)]
    return Fraction(math.prod(n + 2 * i for n in entries for i in range(power)), math.prod(entries) ** power)


def own_variance_log_cumulants(dims: tuple[int, ...]) -> tuple[float, float, float]:
    """Return the exact first three cumulants of ln Π_l σ̂_l² at σ_l = 1."""
    halves = [0.5 * m * n for m, n in pairwise(dims)]
    return (
        math.fsum(float(digamma(x)) - math.log(x) for x in halves),
        math.fsum(float(polygamma(1, x)) for x in halves),
        math.fsum(float(polygamma(2, x)) for x in halves),
    )
