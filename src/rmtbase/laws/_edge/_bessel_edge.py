"""Law of the point nearest to a hard edge, for a Gaussian matrix that is square or nearly square."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln, jv

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._tabulated import Tabulated
from rmtbase.parameters import require_finite_number

LARGEST_INDEX = 32.0

_NODES = 96  # of the table, on each side of its middle
_FURTHEST = 80.0  # -ln of the tail probability at the ends of the table, beyond a score of 12
_FAR, _FARTHER = 14.0, 18.0  # -ln of the upper tail at the points that fix its expansion, which is used from the first


@dataclass(frozen=True)
class BesselEdge(Tabulated):
    """Law of the smallest point of the hard-edge Bessel process of β = 1.

    For a real m × (m + ν) Gaussian matrix it is the law of 2 (2 m + ν - 1) λ_min / σ², up to order 1/m². P(S > s) =
    det(1 - V) on L²(0, 1), V(x, y) = (√s/2) J_ν(√(s x y)), by quadrature (Bornemann 2010); in the upper tail, below
    e^-14, by ln P = τ - s/8 + (ν - 1)√s/2 - ν(ν - 1)(ln s)/8 + c/√s with τ and c from the determinant. The table has
    an error relative to the smaller tail within 1e-8 down to 1e-6, and 1e-4 down to 1e-30 (Forrester 2006; Edelman
    1988; Ramírez, Rider and Zeitouni 2011, for the tail).
    """

    index: float  # ν, from 0 to 32; an integer for a matrix

    def __post_init__(self) -> None:
        if not 0.0 <= require_finite_number("index", self.index) <= LARGEST_INDEX:
            raise ParameterError("index", self.index, f"a number from 0 to {LARGEST_INDEX:g}; beyond, the edge is soft")

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def _points(self) -> FloatArray:
        nu = self.index
        low = math.log(4.0) + 2.0 * (gammaln(nu + 2.0) - _FURTHEST) / (nu + 1.0)
        middle, high = (nu + 1.0) ** 2, self._where(self._far_out, -_FURTHEST)
        left = np.exp(np.linspace(low, math.log(middle), _NODES, endpoint=False))
        return np.append(left, np.linspace(math.sqrt(middle), math.sqrt(high), _NODES) ** 2)

    def _tails(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        far = self._ends[0][0]
        log_sf = np.array([self._log_determinant(s) if s < far else self._far_out(s) for s in x])
        return -np.expm1(log_sf), np.exp(log_sf)

    def _log_determinant(self, s: float) -> float:
        """ln det(1 - V) by the eigenvalues of V, so that a small 1 - det(1 - V) has a small relative error."""
        nodes, weights = np.polynomial.legendre.leggauss(30 + int(math.sqrt(s)))
        root = 0.5 * (nodes + 1.0)  # of x
        weight = root * weights
        kernel = 0.5 * math.sqrt(s) * jv(self.index, math.sqrt(s) * np.outer(root, root))
        values = np.linalg.eigvalsh(kernel * np.sqrt(np.outer(weight, weight)))
        return float(np.log1p(-values).sum())

    def _expansion(self, s: float) -> float:
        nu = self.index
        return -s / 8.0 + (nu - 1.0) * math.sqrt(s) / 2.0 - nu * (nu - 1.0) * math.log(s) / 8.0

    def _far_out(self, s: float) -> float:
        """ln P(S > s) by the expansion, with τ and c fixed by two values of the determinant."""
        (low, at_low), (high, at_high) = self._ends
        share = (s**-0.5 - low**-0.5) / (high**-0.5 - low**-0.5)
        return self._expansion(s) + at_low + share * (at_high - at_low)

    @cached_property
    def _ends(self) -> list[tuple[float, float]]:
        ends = [self._where(self._log_determinant, level) for level in (-_FAR, -_FARTHER)]
        return [(s, self._log_determinant(s) - self._expansion(s)) for s in ends]

    def _where(self, log_sf: Callable[[float], float], level: float) -> float:
        low = high = self.index + 1.0  # √s near the middle of the law
        while log_sf(high**2) > level:
            low, high = high, high + 2.0
        root: float = brentq(lambda root: log_sf(root**2) - level, low, high, xtol=1e-3)  # type: ignore[assignment]
        return root**2


bessel_edge = lru_cache(maxsize=64)(BesselEdge)
