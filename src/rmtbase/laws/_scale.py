"""What self-normalisation takes out of the eigenvalues of a Gaussian chain W = X_1 ... X_L."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any, Unpack

from scipy.special import digamma, polygamma

from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor
from rmtbase.parameters import require_positive_integer


def as_float(value: Fraction) -> float:
    """Return the nearest double, ∞ where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@takes(ChainKeywords)
def self_normalization(power: int, *shape: Any, **chain: Unpack[ChainKeywords]) -> Fraction:
    """Return E Π_l (σ̂_l²)^power, σ̂_l² = |X_l|_F² / N_l, N_l = n_{l-1} n_l. Exact.

    A factor's size |X_l| and direction X_l / |X_l| are independent, and |X_l|²/σ_l² is χ² of N_l degrees of freedom.
    A statistic T homogeneous of degree p in Π σ_l² is therefore T = (Π σ̂_l²)^p T_own with T_own the
    same statistic of the self-normalised chain, independent of the σ̂_l, and

        E T_own^k = E T^k / self_normalization(p k, ...),    E (χ²_N / N)^k = N (N + 2) ... (N + 2k - 2) / N^k.

    The estimates are of the factors, which no normalization divides: it is the same at either.

    Raises:
        ParameterError: for a power that is not a positive integer, and as :class:`rmtbase.laws.GaussianChain`.
    """
    exponent = require_positive_integer("power", power)
    of = ChainParameters(*shape, **chain)
    return variance_factor(of.dims, of.sigmas, "none") ** exponent * own_variance_moment(exponent, of.dims)


def own_variance_moment(power: int, dims: tuple[int, ...]) -> Fraction:
    """The same at σ = 1 for checked arguments, and for power 0."""
    entries = [n * m for n, m in pairwise(dims)]
    return Fraction(math.prod(n + 2 * i for n in entries for i in range(power)), math.prod(entries) ** power)


def own_variance_log_cumulants(dims: tuple[int, ...]) -> tuple[float, float, float]:
    """First three cumulants of ln Π_l σ̂_l² at σ_l = 1. Exact."""
    halves = [0.5 * m * n for m, n in pairwise(dims)]
    return (
        math.fsum(float(digamma(x)) - math.log(x) for x in halves),
        math.fsum(float(polygamma(1, x)) for x in halves),
        math.fsum(float(polygamma(2, x)) for x in halves),
    )
