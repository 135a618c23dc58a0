"""The parameters of a Gaussian chain W = X_1 ... X_L, and the scale that they give its eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from scipy.special import digamma, polygamma

from rmtbase.parameters import (
    require_dims,
    require_head_shape,
    require_normalization,
    require_positive_integer,
    require_positive_number,
    require_sigmas,
)


@dataclass(frozen=True)
class ChainParameters:
    """Dimensions, standard deviations and normalization of a chain, checked: the fields of every law of one."""

    dims: tuple[int, ...]
    sigmas: Sequence[float] | None = None
    normalization: str = "none"

    def __post_init__(self) -> None:
        dims = require_dims(self.dims)
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "sigmas", require_sigmas(self.sigmas, len(dims) - 1))
        object.__setattr__(self, "normalization", require_normalization(self.normalization))

    @property
    def rank(self) -> int:
        """The rank r = min n_l: how many eigenvalues are structurally nonzero."""
        return min(self.dims)

    @property
    def _variance_factor(self) -> Fraction:
        return variance_factor(self.dims, tuple(self.sigmas or ()), self.normalization)


def product_parameters(
    d_model: int, d_head: int, sigma_q: float, sigma_k: float, normalization: str
) -> tuple[tuple[int, int, int], tuple[float, float], str]:
    """The dimensions, sigmas and normalization of W_QK as a chain, checked."""
    width, head = require_head_shape(d_model, d_head)
    sigmas = (require_positive_number("sigma_q", sigma_q), require_positive_number("sigma_k", sigma_k))
    return (width, head, width), sigmas, require_normalization(normalization)


def variance_factor(dims: Sequence[int], sigmas: Sequence[float], normalization: str) -> Fraction:
    """Return, exactly, what multiplies the eigenvalues of the σ = 1, raw chain.

    It is Π σ_l², divided by n_0 for ``sqrt_d``, which divides the product by √n_0.
    """
    factor = math.prod((Fraction(sigma) ** 2 for sigma in sigmas), start=Fraction(1))
    return factor / dims[0] if normalization == "sqrt_d" else factor


def as_float(value: Fraction) -> float:
    """Return the nearest double, ∞ where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


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
    return Fraction(math.prod(n + 2 * i for n in entries for i in range(power)), math.prod(entries) ** power)


def own_variance_log_cumulants(dims: tuple[int, ...]) -> tuple[float, float, float]:
    """First three cumulants of ln Π_l σ̂_l² at σ_l = 1. Exact."""
    halves = [0.5 * m * n for m, n in pairwise(dims)]
    return (
        math.fsum(float(digamma(x)) - math.log(x) for x in halves),
        math.fsum(float(polygamma(1, x)) for x in halves),
        math.fsum(float(polygamma(2, x)) for x in halves),
    )
