"""Laws of an extreme eigenvalue: powers, logarithms and derived laws of any, and the law at a hard lower edge."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, FloatArray, InvertedScore
from rmtbase.laws._edge._edge_coordinate import EdgeCoordinate, Side
from rmtbase.laws._edge._hard_edge_coordinate import HardEdgeCoordinate
from rmtbase.parameters import require_order

_STEP, _REACH = 1.0 / 16.0, 37.0  # trapezoidal rule in the normal score, down to the smallest double
_STRONGEST_BEND = 1.0  # in units of 1/(standard deviation of ln λ)
_LARGEST_EXPONENT = 200.0  # the cube of its exponential is a finite double


@dataclass(frozen=True)
class ExtremeLaw(Distribution):
    """Law of an extreme eigenvalue λ, or a Box-Cox transform: ln value = offset + linear · bent(ln λ - centre)."""

    coordinate: EdgeCoordinate | HardEdgeCoordinate
    log_unit: float  # ln of the eigenvalue at which the logarithm in the coordinate is 0
    centre: float = 0.0
    offset: float = 0.0
    linear: float = 1.0
    bend: float = 0.0

    @property
    @abstractmethod
    def side(self) -> Side: ...

    @abstractmethod
    def own_quadrature(self) -> tuple[FloatArray, FloatArray]:
        """Return nodes ln λ and weights of total mass 1 for the law of λ itself."""

    @abstractmethod
    def expect_power(self, power: float) -> float: ...

    @property
    def support(self) -> tuple[float, float]:
        return 0.0, math.inf

    def var(self) -> float:
        log_values, weights = self.quadrature()
        centre = float(weights @ log_values)
        relative = np.exp(log_values - centre)
        return math.exp(2.0 * centre) * float(weights @ (relative - weights @ relative) ** 2)

    def moment(self, k: int) -> float:
        return self.expect_power(float(require_order(k)))

    def log_cumulants(self) -> tuple[float, float, float]:
        log_values, weights = self.quadrature()
        mean = float(weights @ log_values)
        return mean, float(weights @ (log_values - mean) ** 2), float(weights @ (log_values - mean) ** 3)

    def with_log_cumulants(self, mean: float, variance: float, third: float) -> Self:
        """Return the one transform with these log-cumulants: its skewness grows with ``bend`` (van Zwet 1964)."""
        if not variance > 0.0:
            raise ParameterError("variance", variance, "a positive number")
        log_values, weights = self.own_quadrature()
        centre = float(weights @ log_values)
        u = log_values - centre
        size = math.sqrt(float(weights @ u**2))

        def standardized(bend: float) -> tuple[float, float, float]:
            value = bent(u, bend)
            first = float(weights @ value)
            spread = math.sqrt(float(weights @ (value - first) ** 2))
            return first, spread, float(weights @ ((value - first) / spread) ** 3)

        def excess(bend: float) -> float:
            return standardized(bend)[2] - third / variance**1.5

        strongest = min(_STRONGEST_BEND / size, _LARGEST_EXPONENT / float(np.abs(u).max()))
        if not excess(-strongest) < 0.0 < excess(strongest):
            raise ParameterError("third", third, "a third cumulant that a Box-Cox transform of the eigenvalue can have")
        bend: float = brentq(excess, -strongest, strongest, xtol=1e-15 / size)  # type: ignore[assignment]
        first, spread, _ = standardized(bend)
        linear = math.sqrt(variance) / spread
        return replace(self, centre=centre, offset=mean - linear * first, linear=linear, bend=bend)

    def quadrature(self) -> tuple[FloatArray, FloatArray]:
        log_values, weights = self.own_quadrature()
        return self._derived(log_values), weights

    def _derived(self, log_eigenvalue: FloatArray) -> FloatArray:
        return self.offset + self.linear * bent(log_eigenvalue - self.centre, self.bend)

    def _own(self, value: FloatArray) -> tuple[FloatArray, FloatArray]:
        """ln λ - ``log_unit`` at a value of the transform (infinite outside its range), and d ln λ / d ln value."""
        with np.errstate(divide="ignore", invalid="ignore"):
            rise = (np.log(np.maximum(value, 0.0)) - self.offset) / self.linear
            lifted = np.maximum(self.bend * rise, -1.0)
            u = np.log1p(lifted) / self.bend if self.bend else rise
            return np.asarray(self.centre + u - self.log_unit), np.asarray(1.0 / (self.linear * (1.0 + lifted)))


def bent(u: FloatArray, bend: float) -> FloatArray:
    return np.expm1(bend * u) / bend if bend else u


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
        return "lower"

    def expect_power(self, power: float) -> float:
        """E[value^power], by quadrature; inf for power ≤ -(ν + 1)/2."""
        if power <= -self.coordinate.order:
            return math.inf
        log_values, weights = self.quadrature()
        return float(weights @ np.exp(power * log_values))

    def own_quadrature(self) -> tuple[FloatArray, FloatArray]:
        return self._own_rule

    @cached_property
    def _own_rule(self) -> tuple[FloatArray, FloatArray]:
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
