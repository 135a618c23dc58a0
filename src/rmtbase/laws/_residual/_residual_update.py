"""The limiting eigenvalue law of a residual path without its direct path."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from rmtbase.errors import ParameterError
from rmtbase.laws._rational import as_float
from rmtbase.laws._residual._eigenvalue_law import EigenvalueLaw
from rmtbase.laws._residual._log_eigenvalue import LogEigenvalue
from rmtbase.laws._residual._residual_path import ResidualParameters, ResidualPath
from rmtbase.laws._residual._residual_update_map import ResidualUpdateMap
from rmtbase.parameters import require_order

_LARGEST_LOG = 16.0  # beyond about 20 the equations lose their digits near zero


@dataclass(frozen=True)
class ResidualUpdate(ResidualParameters, EigenvalueLaw):
    """Limiting law of the eigenvalues λ of (P - I)(P - I)ᵀ, P = Π_{l=1..L} (I + σ G_l / √d).

    P - I is what the blocks add to the residual stream: the sum over all paths but the direct one. For L = 1 it is
    σ G/√d, Marchenko–Pastur. There is no S-transform and no explicit map for L > 1: the law follows from two
    equations for two unknowns, with a closed form of the cdf, derived in ``_residual_update_map``.
    The lower edge is hard, at zero, with a mass ~ λ^(1/2).

    Asymptotic, d → infinity, as :class:`ResidualPath`. Numerical: the total mass, the mean and the second moment agree
    with their exact values to 1e-12 relative.

    Attributes:
        depth: L, a positive integer.
        sigma: the standard deviation of the entries of a block is σ / √d.

    Raises:
        ParameterError: for a depth that is not a positive integer, a σ outside [1e-7, 20], or parameters for which
            the largest eigenvalue of P Pᵀ is above e^16 = 9e6: there I is little beside P, and
            :class:`ResidualPath` is the law.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        depth, sigma = self.depth, self.sigma
        if not 1e-7 <= sigma <= 20.0:
            raise ParameterError("sigma", sigma, "a number in [1e-7, 20]")
        if ResidualPath(depth, sigma).log_eigenvalue.support[1] > _LARGEST_LOG:
            raise ParameterError(
                "sigma", sigma, f"less at depth {depth}: eigenvalues of P P^T up to 9e6 (ResidualPath has none)"
            )

    @property
    def log_eigenvalue(self) -> LogEigenvalue:
        """The law of ln λ, with the same methods."""
        return LogEigenvalue(_residual_update_map(self.depth, self.sigma))

    def moment(self, k: int) -> float:
        """E[λ^k]: exact for k ≤ 2, rounded once; numerical above.

        With M = (1 + σ²)^L: m_1 = M - 1 and
        m_2 = M² (1 + L (1 - (1 + σ²)^(-2))) - 4 L σ² M / (1 + σ²) - 1, from the mixed moments
        E tr P Pᵀ P Pᵀ / d, E tr P P Pᵀ / d = M + L σ² M / (1 + σ²) and E tr P P / d = 1 in the limit.
        """
        order = require_order(k)
        if order == 0:
            return 1.0
        if order == 1:
            return as_float(self._growth - 1)
        if order == 2:
            return as_float(self._second)
        upper = self.log_eigenvalue.support[1]
        scaled = self.log_eigenvalue.expect(lambda y: np.exp(order * (y - upper)))
        return math.exp(math.log(scaled) + order * upper) if math.log(scaled) + order * upper < 709.0 else math.inf

    def mean(self) -> float:
        """E[λ] = (1 + σ²)^L - 1, exact at every d."""
        return self.moment(1)

    def var(self) -> float:
        """Variance of λ, exact for the law, rounded once."""
        return as_float(self._second - (self._growth - 1) ** 2)

    @property
    def _growth(self) -> Fraction:
        return (1 + Fraction(self.sigma) ** 2) ** self.depth

    @property
    def _second(self) -> Fraction:
        variance, growth = Fraction(self.sigma) ** 2, self._growth
        excess = self.depth * (1 - 1 / (1 + variance) ** 2)
        return growth**2 * (1 + excess) - 4 * self.depth * variance * growth / (1 + variance) - 1

    def _density_at_zero_singular_value(self) -> float:
        # s pdf(s²) is even in s: its value where s² is nothing.
        y = self.log_eigenvalue.cut.lowest_log + 1.0
        return 2.0 * float(self.log_eigenvalue.pdf(y)) * math.exp(-0.5 * y)


@lru_cache(maxsize=256)
def _residual_update_map(depth: int, sigma: float) -> ResidualUpdateMap:
    return ResidualUpdateMap(depth, sigma)
