"""Exact finite-size moments of the traces of a residual path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from rmtbase.laws._exact._zonal import Partition, power_sum_in_zonals, zonal_at_identity, zonal_binomials
from rmtbase.laws._parameters import as_float
from rmtbase.laws._residual._residual_path import require_residual
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import in_one_line


@in_one_line
@dataclass(frozen=True)
class TraceMoments:
    """Exact first and second moments of Σ λ and Σ λ² over the eigenvalues.

    Attributes:
        mean_trace, std_trace: mean and standard deviation of Σ λ.
        mean_trace_of_square, std_trace_of_square: mean and standard deviation of Σ λ².
        covariance: covariance of the two sums.
    """

    mean_trace: float
    std_trace: float
    mean_trace_of_square: float
    std_trace_of_square: float
    covariance: float


def residual_trace_moments(depth: int, sigma: float, d_model: int) -> TraceMoments:
    """Return the moments of tr P Pᵀ = ||P||_F² and tr (P Pᵀ)² at width d_model, exact and rounded once.

    Divide by d_model to get means over eigenvalues: E ||P||_F² / d = (1 + σ²)^L. Errors as for :class:`ResidualPath`,
    and for a width that is not a positive integer.
    """
    checked_depth, checked_sigma = require_residual(depth, sigma)
    width = require_positive_integer("d_model", d_model)

    def moment(*mu: int) -> Fraction:
        return _trace_moment(mu, checked_depth, checked_sigma, width)

    first, second = moment(1), moment(2)
    return TraceMoments(
        as_float(first),
        _square_root(moment(1, 1) - first**2),
        as_float(second),
        _square_root(moment(2, 2) - second**2),
        as_float(moment(2, 1) - first * second),
    )


@lru_cache(maxsize=1024)
def _trace_moment(mu: Partition, depth: int, sigma: float, d_model: int) -> Fraction:
    """Return E Π_i tr (P Pᵀ)^(μ_i) exactly, by E J_kappa(A S Aᵀ) = g_kappa J_kappa(S) for a block A (Muirhead 1982).

    E p_mu(P Pᵀ) = Σ_kappa a_{μ κ} J_kappa(I) g_kappa^L,    p_mu = Σ_kappa a_{μ κ} J_kappa,
    g_kappa = Σ_tau binom(κ, τ) (2 σ²/d)^(|κ| - |τ|) (d/2)_kappa / (d/2)_tau,    g_(1) = 1 + σ².
    """
    variance = Fraction(sigma) ** 2
    return sum(
        (
            a * zonal_at_identity(kappa, d_model) * _growth(kappa, variance, d_model) ** depth
            for kappa, a in power_sum_in_zonals(mu).items()
            if len(kappa) <= d_model
        ),
        Fraction(0),
    )


def _growth(kappa: Partition, variance: Fraction, d_model: int) -> Fraction:
    """Return the factor g_kappa of one block, with Pochhammer symbols from J_kappa(I) = 2^k (d/2)_kappa."""
    size, step = sum(kappa), variance / d_model
    at_kappa = zonal_at_identity(kappa, d_model)
    return sum(
        (
            binomial * step ** (size - sum(tau)) * Fraction(at_kappa, zonal_at_identity(tau, d_model))
            for tau, binomial in zonal_binomials(kappa).items()
        ),
        Fraction(0),
    )


def _square_root(value: Fraction) -> float:
    shift = (value.numerator.bit_length() - value.denominator.bit_length()) // 2
    root = math.sqrt(value / Fraction(4) ** shift) if value else 0.0
    try:
        return math.ldexp(root, shift)
    except OverflowError:
        return math.inf
