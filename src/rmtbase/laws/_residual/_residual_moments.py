"""Exact finite-size moments of the traces of a residual path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrc, gammaln

from rmtbase.laws._distribution import DiscreteDistribution, FloatArray
from rmtbase.laws._exact._zonal import Partition, power_sum_in_zonals, zonal_at_identity, zonal_binomials
from rmtbase.laws._parameters import as_float
from rmtbase.laws._residual._residual_path import ResidualParameters, require_residual
from rmtbase.parameters import require_integer, require_positive_integer, require_real_numbers
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


@dataclass(frozen=True)
class PathLength(ResidualParameters, DiscreteDistribution):
    """Law of the length k of a path through L residual blocks, each path weighted by its expected squared norm.

    P = Π_l (I + σ G_l / √d) = Σ_k O_k, O_k the sum of the binom(L, k) products of exactly k blocks, which are
    orthogonal in expectation, since G and -G have the same law. Each has E ||T||_F² / d = σ^(2k), hence

        E tr(O_j O_kᵀ) / d = binom(L, k) σ^(2k) [j = k],    E ||P||_F² / d = (1 + σ²)^L:

    the law Binomial(L, σ²/(1 + σ²)), exactly at every d. Attributes and errors are those of :class:`ResidualPath`.
    """

    @property
    def support(self) -> tuple[int, int]:
        """(0, L): from the direct path to the path through every block."""
        return 0, self.depth

    @property
    def points(self) -> Float[np.ndarray, " length"]:
        """Possible lengths 0, 1, ..., L."""
        return np.arange(self.depth + 1.0)

    def pmf(self, x: ArrayLike) -> FloatArray:
        """Probability of length ``x``, same shape, to a few units of rounding times ln L!; nan at nan."""
        values = require_real_numbers("x", x)
        inside = (values >= 0.0) & (values <= self.depth) & (values == np.floor(values))
        length = np.where(inside, values, 0.0)
        rest, variance = self.depth - length, self.sigma**2
        log_weight = (
            gammaln(self.depth + 1.0) - gammaln(length + 1.0) - gammaln(rest + 1.0)
            - length * math.log1p(1.0 / variance) - rest * math.log1p(variance)
        )  # fmt: skip
        return np.where(inside, np.exp(log_weight), np.where(np.isnan(values), np.nan, 0.0))[()]

    def cdf(self, x: ArrayLike) -> FloatArray:
        return self._tail(x, from_above=False)

    def sf(self, x: ArrayLike) -> FloatArray:
        return self._tail(x, from_above=True)

    def mean(self) -> float:
        """Mean length L σ² / (1 + σ²): the effective depth of the paths that carry the norm."""
        return self.depth * self._probability

    def var(self) -> float:
        """Variance of the length: L σ² / (1 + σ²)²."""
        return self.depth * self._probability / (1.0 + self.sigma**2)

    def squared_norm(self, k: int) -> float:
        """E ||O_k||_F² / d = binom(L, k) σ^(2k), exact at every d; inf if it is too large for a double."""
        length = require_integer("k", k, 0, self.depth)
        return as_float(math.comb(self.depth, length) * Fraction(self.sigma) ** (2 * length))

    @property
    def _probability(self) -> float:
        return 1.0 / (1.0 + 1.0 / self.sigma**2)

    def _tail(self, x: ArrayLike, from_above: bool) -> FloatArray:
        values = require_real_numbers("x", x)
        floor = np.clip(np.floor(values), 0.0, self.depth - 1.0)
        if self.sigma <= 1.0:
            inside = (bdtrc if from_above else bdtr)(floor, self.depth, self._probability)
        else:  # count the blocks that are passed by: their probability is the small one, and is not rounded
            passed = 1.0 / (1.0 + self.sigma**2)
            inside = (bdtr if from_above else bdtrc)(self.depth - floor - 1.0, self.depth, passed)
        outside = np.where((values < 0.0) == from_above, 1.0, 0.0)
        mass = np.where((values >= 0.0) & (values < self.depth), inside, outside)
        return np.where(np.isnan(values), np.nan, mass)[()]
