"""Distribution of the squared norm of a residual path over the lengths of its paths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import bdtr, bdtrc, gammaln

from rmtbase.laws._distribution import DiscreteDistribution, FloatArray
from rmtbase.laws._parameters import as_float
from rmtbase.laws._residual._residual_path import ResidualParameters
from rmtbase.parameters import require_integer, require_real_numbers


@dataclass(frozen=True)
class PathLength(ResidualParameters, DiscreteDistribution):
    """Law of the length k of a path through L residual blocks, each path weighted by its expected squared norm.

    P = Π_l (I + σ G_l / √d) = Σ_k O_k, where O_k is the sum of the binom(L, k) products T of exactly k blocks. If a
    block enters only one of two products, E tr(T T'ᵀ) = 0, since G and -G have the same law. So the products are
    orthogonal in expectation, each product of k blocks has E ||T||_F² / d = σ^(2k), and

        E tr(O_j O_kᵀ) / d = binom(L, k) σ^(2k) [j = k],    E ||P||_F² / d = (1 + σ²)^L.

    The length therefore has the law Binomial(L, σ²/(1 + σ²)), exactly at every d. For σ² = t/L and L → infinity it is
    Poisson(t).

    Attributes and errors are those of :class:`ResidualPath`.
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
        """Probability of length ``x``, same shape; 0 unless x is an integer from 0 to L, nan at nan.

        The relative error is a few units of rounding times ln L!.
        """
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
