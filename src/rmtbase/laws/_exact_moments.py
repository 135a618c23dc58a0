"""Exact finite-size moments of the traces of a Gaussian chain, and what follows from them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product

from scipy.special import digamma, polygamma

from rmtbase.laws._moments import Moments
from rmtbase.laws._parameters import as_float, checked_dims, variance_factor
from rmtbase.laws._partitions import Partition, sorted_partition
from rmtbase.laws._zonal import power_sum_in_zonals, zonal_at_identity
from rmtbase.parameters import (
    require_head_shape,
    require_normalization,
    require_positive_integer,
    require_positive_number,
)

_EXACT = "exact"


def trace_moment(partition: Sequence[int], dims: Sequence[int]) -> Fraction:
    """Return E[prod_i tr M^(mu_i)], M = W^T W, W = X_1 ... X_L with real standard normal entries. Exact.

    For S a real Wishart matrix of n degrees of freedom, E J_kappa(A S) = 2^k (n/2)_kappa J_kappa(A) with J_kappa the
    zonal polynomial (Muirhead 1982, theorem 7.2.7). Taking one factor of the chain after the other leaves

        E p_mu(M) = sum_kappa a_{mu kappa} prod_{l=0..L} J_kappa(1^{n_l}),    p_mu = sum_kappa a_{mu kappa} J_kappa.

    Polynomial in the dimensions, any degree k = sum(partition); the coefficients are computed once per degree (a
    millisecond at k = 4, a quarter of a second at k = 12). Scale by (prod sigma_l^2)^k, and by n_0^(-k) for ``sqrt_d``.

    Args:
        partition: the exponents mu_i, positive integers in any order; () gives 1.
        dims: (n_0, ..., n_L).

    Raises:
        ParameterError: for exponents or dimensions that are not positive integers.
    """
    mu = sorted_partition([require_positive_integer("partition", part) for part in partition])
    return _trace_moment(mu, checked_dims(dims))


@lru_cache(maxsize=4096)
def _trace_moment(mu: Partition, dims: tuple[int, ...]) -> Fraction:
    if not mu:
        return Fraction(1)
    return sum(
        (a * math.prod(zonal_at_identity(kappa, n) for n in dims) for kappa, a in power_sum_in_zonals(mu).items()),
        Fraction(0),
    )


@dataclass(frozen=True)
class TraceMoments:
    """Exact first and second moments of the sum of the eigenvalues and of their squares.

    Attributes:
        mean_trace, std_trace: of the sum of lambda.
        mean_trace_of_square, std_trace_of_square: of the sum of lambda^2.
        covariance: of the two sums.
    """

    mean_trace: float
    std_trace: float
    mean_trace_of_square: float
    std_trace_of_square: float
    covariance: float


def trace_moments(
    d_model: int, d_head: int, sigma_q: float = 1.0, sigma_k: float = 1.0, normalization: str = "sqrt_d"
) -> TraceMoments:
    """Return the moments of the sums of lambda and lambda^2 for W_QK. Exact, rounded once.

    With sigma = 1 and ``sqrt_d``: E sum lambda = d h and E sum lambda^2 = h (d^2 + 2 d h + 2 d + h + 3).

    Raises:
        ParameterError: as :func:`rmtbase.laws.low_rank_product`.
    """
    width, head = require_head_shape(d_model, d_head)
    sigmas = (require_positive_number("sigma_q", sigma_q), require_positive_number("sigma_k", sigma_k))
    dims = (width, head, width)
    factor = variance_factor(dims, sigmas, require_normalization(normalization))
    first, second = _trace_moment((1,), dims), _trace_moment((2,), dims)
    return TraceMoments(
        as_float(factor * first),
        as_float(factor) * math.sqrt(_central_moment((2, 0), dims)),
        as_float(factor**2 * second),
        as_float(factor**2) * math.sqrt(_central_moment((0, 2), dims)),
        as_float(factor**3 * _central_moment((1, 1), dims)),
    )


def participation_ratio(d_model: int, d_head: int) -> Moments:
    """Return mean and standard deviation of (sum lambda)^2 / sum lambda^2 for W_QK; free of sigma and normalization.

    Second-order delta method on the exact moments of the two sums; ``error`` and ``std_error`` are the sizes
    of the next order, computed from the exact third and fourth moments. Exact for d_head = 1, where it is 1.

    Raises:
        ParameterError: for d_head > d_model, or dimensions that are not positive integers.
    """
    return _participation_ratio(*require_head_shape(d_model, d_head))


def normalized_participation_ratio(d_model: int, d_head: int) -> Moments:
    """Return mean and standard deviation of the participation ratio divided by d_head, as above."""
    width, head = require_head_shape(d_model, d_head)
    moments = _participation_ratio(width, head)
    return Moments(
        moments.mean / head,
        moments.std / head,
        moments.method,
        moments.error / head,
        moments.std_error / head,
    )


@lru_cache(maxsize=1024)
def _participation_ratio(d_model: int, d_head: int) -> Moments:
    if d_head == 1:
        return Moments(1.0, 0.0, _EXACT)
    dims = (d_model, d_head, d_model)
    first, second = _trace_moment((1,), dims), _trace_moment((2,), dims)

    def relative(i: int, j: int) -> float:
        """E[a^i b^j], a and b the relative deviations of the two sums: small, so float from here on."""
        return float(_central_moment((i, j), dims) / (first**i * second**j))

    # (1 + a)^2 / (1 + b) = sum of coefficients c_ij a^i b^j.
    series = {(i, j): math.comb(2, i) * (-1.0) ** j for i in range(3) for j in range(5) if i + j <= 4}
    order = {k: math.fsum(c * relative(i, j) for (i, j), c in series.items() if i + j == k) for k in (2, 3, 4)}
    ratio = float(first**2 / second)
    linear = {(1, 0): 2.0, (0, 1): -1.0}
    quadratic = {(2, 0): 1.0, (1, 1): -2.0, (0, 2): 1.0}
    cubic = {(2, 1): -1.0, (1, 2): 2.0, (0, 3): -1.0}
    variance = _mean_product(linear, linear, relative)
    # Var of the second-order expansion beyond the leading term, of relative order 1/(d h) like the mean's.
    beyond = (
        2.0 * _mean_product(linear, quadratic, relative)
        + 2.0 * _mean_product(linear, cubic, relative)
        + _mean_product(quadratic, quadratic, relative)
        - order[2] ** 2
    )
    std = math.sqrt(variance)
    return Moments(
        ratio * (1.0 + order[2]),
        ratio * std,
        "second-order delta method on exact moments; neglected: error",
        ratio * (abs(order[3] + order[4])),
        ratio * abs(math.sqrt(max(variance + beyond, 0.0)) - std),
    )


def _mean_product(left: dict[tuple[int, int], float], right: dict[tuple[int, int], float], relative) -> float:
    """E of the product of two polynomials in (a, b)."""
    return math.fsum(
        c * e * relative(i + k, j + m) for ((i, j), c), ((k, m), e) in product(left.items(), right.items())
    )


@lru_cache(maxsize=4096)
def _central_moment(orders: tuple[int, int], dims: tuple[int, ...]) -> Fraction:
    """E[(tr M - E)^i (tr M^2 - E)^j] at sigma = 1, raw. Exact: the binomial sum cancels, rationals do not mind."""
    i, j = orders
    first, second = _trace_moment((1,), dims), _trace_moment((2,), dims)
    return sum(
        (
            math.comb(i, a) * math.comb(j, b) * (-first) ** (i - a) * (-second) ** (j - b)
            * _trace_moment((2,) * b + (1,) * a, dims)
            for a, b in product(range(i + 1), range(j + 1))
        ),
        Fraction(0),
    )  # fmt: skip


def log_determinant(
    d_model: int, d_head: int, sigma_q: float = 1.0, sigma_k: float = 1.0, normalization: str = "sqrt_d"
) -> Moments:
    """Return mean and standard deviation of sum ln lambda over the d_head nonzero eigenvalues of W_QK. Exact.

    det(W_Q W_Q^T) is a product of independent chi^2 variables with d, d - 1, ..., d - h + 1 degrees of freedom, so for
    the raw sigma = 1 product the mean is 2 sum_{i<h} [ln 2 + digamma((d - i)/2)] and the variance
    2 sum_{i<h} trigamma((d - i)/2). The sigmas add h ln(sigma_q^2 sigma_k^2), ``sqrt_d`` subtracts h ln d.

    Raises:
        ParameterError: as :func:`rmtbase.laws.low_rank_product`.
    """
    width, head = require_head_shape(d_model, d_head)
    log_sigma = math.log(require_positive_number("sigma_q", sigma_q)) + math.log(
        require_positive_number("sigma_k", sigma_k)
    )
    shift = 2.0 * log_sigma - (math.log(width) if require_normalization(normalization) == "sqrt_d" else 0.0)
    halves = [0.5 * (width - i) for i in range(head)]
    mean = 2.0 * math.fsum(math.log(2.0) + float(digamma(x)) for x in halves) + head * shift
    return Moments(mean, math.sqrt(2.0 * math.fsum(float(polygamma(1, x)) for x in halves)), _EXACT)
