"""Effect of self-normalisation on the eigenvalues of a Gaussian chain W = X_1 ... X_L."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any, Unpack

from scipy.special import digamma, polygamma

from rmtbase.laws._parameters import ChainKeywords, ChainParameters, takes, variance_factor
from rmtbase.parameters import require_positive_integer


def as_float(value: Fraction) -> float:
    """Return the nearest double, or ±∞ where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@takes(ChainKeywords)
def self_normalization(power: int, *shape: Any, **chain: Unpack[ChainKeywords]) -> Fraction:
    """Return E Π_l (σ̂_l²)^power exactly, where σ̂_l² = |X_l|_F² / N_l and N_l = n_{l-1} n_l.

    The size |X_l| and the direction X_l / |X_l| of a factor are independent, and |X_l|²/σ_l² has the χ² law with N_l
    degrees of freedom. Therefore a statistic T that is homogeneous of degree p in Π σ_l² is T = (Π σ̂_l²)^p T_own,
    where T_own is the same statistic of the self-normalised chain and is independent of the σ̂_l, and

        E T_own^k = E T^k / self_normalization(p k, ...),    E (χ²_N / N)^k = N (N + 2) ... (N + 2k - 2) / N^k.

    The result does not depend on ``normalization``, because the σ̂_l are estimates of the raw factors.

    Raises:
        ParameterError: for a power that is not a positive integer, and as :class:`rmtbase.laws.GaussianChain`.
    """
    exponent = require_positive_integer("power", power)
    of = ChainParameters(*shape, **chain)
    return variance_factor(of.dims, of.sigmas, "none") ** exponent * own_variance_moment(exponent, of.dims)


def own_variance_moment(power: int, dims: tuple[int, ...]) -> Fraction:
    """Return :func:`self_normalization` at σ = 1 for checked arguments; the power may be 0."""
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
