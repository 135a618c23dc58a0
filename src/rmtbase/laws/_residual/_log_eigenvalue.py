"""The law of ln lambda where the eigenvalues lambda > 0 follow a law given by its map on the cut."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import IntegrationWarning, tanhsinh
from scipy.optimize.elementwise import find_root
from scipy.special import xlogy

from rmtbase.errors import ParameterError
from rmtbase.laws._residual._cut_map import ComplexArray, CutMap, FloatArray

_MOST_NODES = 2**16
_NEGLIGIBLE_MASS = 1e-35  # and a function that grows as an inverse power of lambda still has none of it


@dataclass(frozen=True)
class LogEigenvalue:
    """Law of y = ln lambda, for eigenvalues that span more orders of magnitude than a double holds.

    Numerical, to rounding: functions of y have a backward error of a few units of rounding in y.

    Attributes:
        cut: the map that defines the law; see the law of lambda that this belongs to.
    """

    cut: CutMap

    @property
    def support(self) -> tuple[float, float]:
        """(ln lambda_-, ln lambda_+); -inf where the eigenvalues reach zero."""
        return self.cut.log_lower, self.cut.log_upper

    def pdf(self, y: ArrayLike) -> FloatArray:
        """Density of ln lambda at ``y``, same shape; 0 outside the support, nan at nan."""
        return self._evaluated(y, self.cut.density, 0.0, 0.0)

    def cdf(self, y: ArrayLike) -> FloatArray:
        """P(ln lambda <= y), in closed form on the curve; masses below 1e-100 may count as 0."""
        return self._evaluated(y, self.cut.cdf, 0.0, 1.0)

    def sf(self, y: ArrayLike) -> FloatArray:
        """P(ln lambda > y) = 1 - cdf(y), without the cancellation."""
        return self._evaluated(y, self.cut.sf, 1.0, 0.0)

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Quantile: the y with cdf(y) = q; the edges at 0 and 1, nan outside [0, 1]."""
        return self._quantile(q, from_below=True)

    def isf(self, q: ArrayLike) -> FloatArray:
        """Upper quantile: the y with sf(y) = q; the edges at 1 and 0, nan outside [0, 1]."""
        return self._quantile(q, from_below=False)

    def mean(self) -> float:
        """E[ln lambda]."""
        return self.expect(lambda y: y)

    def var(self) -> float:
        """Variance of ln lambda."""
        mean = self.mean()
        return self.expect(lambda y: (y - mean) ** 2)

    def std(self) -> float:
        """Standard deviation of ln lambda."""
        return math.sqrt(self.var())

    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """E[f(ln lambda)] for a function that maps an array to an array of the same shape.

        Numerical. The trapezoidal rule in the coordinate of :class:`CutMap`, in which both edges are removed and
        an analytic f gives geometric convergence; the number of nodes doubles until three results in a row agree to
        ``rtol`` relative to E|f| (two may agree by chance). A kink or a jump in f costs nodes.

        Raises:
            ParameterError: if f does not return one finite number per value.

        Warns:
            scipy.integrate.IntegrationWarning: if 65 536 nodes do not reach ``rtol``.
        """
        total, previous, agreed, count = 0.0, math.nan, 0, 32
        while count <= _MOST_NODES:
            step = self._end() / count
            chi = step * np.arange(0.5, count, dtype=np.float64)
            y = self.cut.log_x_at_angle(chi)
            weights = step * self._density_in_angle(chi)
            values = np.asarray(f(y), dtype=np.float64)
            if values.shape != y.shape or not np.isfinite(values).all():
                raise ParameterError("f", f, "a function that returns one finite number per eigenvalue")
            total, size = float(weights @ values), float(weights @ np.abs(values))
            agreed = agreed + 1 if abs(total - previous) <= rtol * size else 0
            if agreed == 2:
                break
            previous, count = total, 2 * count
        else:
            warnings.warn(f"expect: {_MOST_NODES} nodes do not reach rtol = {rtol}", IntegrationWarning, stacklevel=2)
        return total

    def entropy(self) -> float:
        """Differential entropy of ln lambda, in nats. Numerical: by the double exponential rule, to about 1e-10."""

        def integrand(chi: FloatArray) -> FloatArray:
            density = self.cut.density(self.cut.solve(self.cut.log_x_at_angle(chi)))
            return -xlogy(density, density) * self.cut.log_x_slope_at_angle(chi)

        return float(tanhsinh(integrand, 0.0, self._end(), rtol=1e-11).integral)

    def _end(self) -> float:
        """The chi beyond which no mass is left."""
        if not self.cut.has_hard_edge:
            return math.pi
        nodes, masses = self.cut.curve[0], self.cut.curve_masses[0]
        return float(nodes[min(np.searchsorted(-masses, -_NEGLIGIBLE_MASS), nodes.size - 1)])

    def _density_in_angle(self, chi: FloatArray) -> FloatArray:
        point = self.cut.solve(self.cut.log_x_at_angle(chi))
        return self.cut.density(point) * self.cut.log_x_slope_at_angle(chi)

    def _evaluated(
        self, y: ArrayLike, function: Callable[[ComplexArray], FloatArray], below: float, above: float
    ) -> FloatArray:
        values = np.asarray(y, dtype=np.float64)
        low, high = self.support
        if self.cut.has_hard_edge:
            low = self.cut.lowest_log
        result = np.where(np.isnan(values), np.nan, np.where(values >= high, above, below))
        inside = (values > low) & (values < high)
        result[inside] = function(self.cut.solve(values[inside]))
        return result if result.ndim else result[()]

    def _quantile(self, q: ArrayLike, from_below: bool) -> FloatArray:
        mass = np.asarray(q, dtype=np.float64)
        low, high = self.support if from_below else self.support[::-1]
        quantile = np.full(mass.shape, np.nan)
        quantile[mass == 0.0], quantile[mass == 1.0] = low, high
        between = (mass > 0.0) & (mass < 1.0)
        if between.any():
            quantile[between] = self._inverse(mass[between], from_below)
        return quantile if quantile.ndim else quantile[()]

    def _inverse(self, mass: FloatArray, from_below: bool) -> FloatArray:
        """The y whose mass below (or above) it is ``mass``, by bracketing between the nodes of the curve."""
        cut = self.cut
        nodes, (below, above) = cut.curve[0], cut.curve_masses
        function = cut.cdf if from_below else cut.sf
        right = np.searchsorted(-below, -mass) if from_below else np.searchsorted(above, mass)
        # Rounding may leave a value just across a node; one node of slack on both sides covers it.
        lower, upper = nodes[np.clip(right - 2, 0, None)], nodes[np.clip(right + 1, None, nodes.size - 1)]

        def excess(chi: FloatArray, target: FloatArray) -> FloatArray:
            y = cut.log_x_at_angle(chi)
            inside = (y > cut.log_lower) & (y < cut.log_upper)
            at = np.where(y >= cut.log_upper, float(from_below), float(not from_below))
            at[inside] = function(cut.solve(y[inside]))
            if cut.has_hard_edge:
                at[chi >= nodes[-1]] = 0.0 if from_below else 1.0
            return at - target

        result = find_root(excess, (lower, upper), args=(mass,), tolerances={"xrtol": 4e-16, "xatol": 1e-16})
        return cut.log_x_at_angle(result.x)
