"""Law of the smallest eigenvalue at a hard or nearly hard lower edge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rmtbase.laws._distribution import FloatArray, InvertedScore
from rmtbase.laws._edge._edge_coordinate import Side
from rmtbase.laws._edge._extreme_law import ExtremeLaw
from rmtbase.laws._edge._hard_edge_coordinate import HardEdgeCoordinate

_STEP, _REACH = 1.0 / 16.0, 37.0  # trapezoidal rule in the normal score, down to the smallest double


@dataclass(frozen=True)
class HardEdgeLaw(ExtremeLaw, InvertedScore):
    """Law of the smallest eigenvalue where the second smallest dimension exceeds the smallest by ν < 16.

    It is the law of the Bessel edge (``laws.BesselEdge``) in a coordinate of ln λ, to second order:
    P(value ≤ λ) = Φ(score(ln λ)), with the score derived in ``rmtbase/laws/_edge/_hard_edge_coordinate.py``. The
    probability falls as λ^((ν + 1)/2) towards zero, so E value^-p is finite only for p < (ν + 1)/2.
    """

    coordinate: HardEdgeCoordinate

    @property
    def side(self) -> Side:
        """Side of the spectrum, ``"lower"``."""
        return "lower"

    def expect_power(self, power: float) -> float:
        """E[value^power], by quadrature; inf for power ≤ -(ν + 1)/2."""
        if power <= -self.coordinate.order:
            return math.inf
        log_values, weights = self.quadrature()
        return float(weights @ np.exp(power * log_values))

    def own_quadrature(self) -> tuple[FloatArray, FloatArray]:
        """Return nodes ln λ and weights of total mass 1 for expectations over the law of λ itself."""
        return self._rule

    @cached_property
    def _rule(self) -> tuple[FloatArray, FloatArray]:
        score = np.arange(-_REACH + 0.5 * _STEP, _REACH, _STEP)
        weight = np.exp(-0.5 * score**2)
        return self.log_unit + self.coordinate.log_eigenvalue(score), weight / weight.sum()

    def _pdf(self, x: FloatArray) -> FloatArray:
        log_own, steepness = self._own(x)
        density = np.zeros(x.shape)
        inside = np.isfinite(log_own)
        at = log_own[inside]
        height = np.exp(-0.5 * self.coordinate.score(at) ** 2) / math.sqrt(2.0 * math.pi)
        density[inside] = height * self.coordinate.slope(at) * steepness[inside] / x[inside]
        return density

    def _score(self, x: FloatArray) -> FloatArray:
        score = self._own(x)[0].copy()
        inside = np.isfinite(score)
        score[inside] = self.coordinate.score(score[inside])
        return score

    def at_score(self, z: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", under="ignore"):
            return np.exp(self._derived(self.log_unit + self.coordinate.log_eigenvalue(z)))
