"""Laws on a cut: a coordinate in which the edges of a spectrum are not singular, and quadrature in it."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import IntegrationWarning
from scipy.optimize import brentq

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import ComplexArray, Distribution, FloatArray

_MOST_NODES = 2**16
_SERIES_RADIUS, _SERIES_TERMS = 0.3, 29  # 0.3^29 is below the rounding of a double


class Cut(ABC):
    """Cut of a map to x > 0, from a soft upper edge to a lower edge that is soft or hard (at zero)."""

    @property
    @abstractmethod
    def has_hard_edge(self) -> bool: ...

    @cached_property
    @abstractmethod
    def log_upper(self) -> float: ...

    @cached_property
    @abstractmethod
    def log_lower(self) -> float: ...

    @cached_property
    def log_span(self) -> float:
        return self.log_upper - self.log_lower

    def angle(self, log_x: FloatArray) -> FloatArray:
        """Angle χ, in which the map is analytic: ln(x_+/x) = ln(x_+/x_-) sin²(χ/2), or χ² at a hard edge."""
        above = np.maximum(self.log_upper - log_x, 0.0)
        if self.has_hard_edge:
            return np.sqrt(above)
        return 2.0 * np.arctan2(np.sqrt(above), np.sqrt(np.maximum(log_x - self.log_lower, 0.0)))

    def log_x_at_angle(self, chi: FloatArray) -> FloatArray:
        if self.has_hard_edge:
            return self.log_upper - chi**2
        return self.log_upper - self.log_span * np.sin(0.5 * chi) ** 2

    def log_x_slope_at_angle(self, chi: FloatArray) -> FloatArray:
        return 2.0 * chi if self.has_hard_edge else 0.5 * self.log_span * np.sin(chi)


class CutLaw(Distribution):
    """Law of x, or of ln x, on a :class:`Cut`, given by its density in the angle χ."""

    @abstractmethod
    def _at_angle(self, chi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return x (or ln x) at each χ, the density of ln x there, and -d ln x / d χ."""

    @property
    @abstractmethod
    def _last_angle(self) -> float: ...

    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """Return E[f(X)], f from an array to finite numbers of the same shape, by the trapezoidal rule in χ.

        Nodes double until three results agree to ``rtol`` of E|f|; IntegrationWarning if 65 536 do not suffice.
        """
        total, previous, agreed, count = 0.0, math.nan, 0, 32
        while count <= _MOST_NODES:
            step = self._last_angle / count
            x, density, slope = self._at_angle(step * np.arange(0.5, count, dtype=np.float64))
            weights = step * (density * slope)
            values = np.asarray(f(x), dtype=np.float64)
            if values.shape != x.shape or not np.isfinite(values).all():
                raise ParameterError("f", f, "a function that returns one finite number per eigenvalue")
            total, size = float(weights @ values), float(weights @ np.abs(values))
            agreed = agreed + 1 if abs(total - previous) <= rtol * size else 0
            if agreed == 2:
                break
            previous, count = total, 2 * count
        else:
            warnings.warn(f"expect: {_MOST_NODES} nodes do not reach rtol = {rtol}", IntegrationWarning, stacklevel=3)
        return total

    def _average(self, f: Callable[[FloatArray], FloatArray]) -> float:
        return self.expect(f)


def find_edge(function: Callable[[float], float], low: float, high: float) -> float:
    return brentq(function, low, high, xtol=1e-15, rtol=1e-15)  # type: ignore[arg-type, return-value]


def log_excess(z: ComplexArray, ratio: ComplexArray) -> ComplexArray:
    """Return ln(1 + z) - z with small relative error at small z; ``ratio`` is 1 + z, accurate near zero."""
    result = np.log(ratio) - z
    small = np.abs(z) < _SERIES_RADIUS
    terms = (-1.0) ** np.arange(1, _SERIES_TERMS) / np.arange(2, _SERIES_TERMS + 1)
    result[small] = z[small] ** 2 * np.polyval(terms[::-1], z[small])
    return result
