"""The law of ln λ where the eigenvalues λ > 0 follow a law given by its map on the cut."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize.elementwise import find_root

from rmtbase.laws._arrays import FloatArray
from rmtbase.laws._cut import CutLaw
from rmtbase.laws._residual._cut_map import CutMap
from rmtbase.parameters import require_order

_NEGLIGIBLE_MASS = 1e-35  # and a function that grows as an inverse power of λ still has none of it


@dataclass(frozen=True)
class LogEigenvalue(CutLaw):
    """Law of y = ln λ, for eigenvalues that span more orders of magnitude than a double holds.

    Numerical, to rounding: functions of y have a backward error of a few units of rounding in y. The cdf is in closed
    form on the curve; masses below 1e-100 may count as 0.

    Attributes:
        cut: the map that defines the law; see the law of λ that this belongs to.
    """

    cut: CutMap

    @property
    def support(self) -> tuple[float, float]:
        """(ln λ_-, ln λ_+); -inf where the eigenvalues reach zero."""
        return self.cut.log_lower, self.cut.log_upper

    def moment(self, k: int) -> float:
        """E[(ln λ)^k], by :meth:`expect`."""
        order = require_order(k)
        return self.expect(lambda y: y**order)

    def var(self) -> float:
        """Variance of ln λ."""
        mean = self.mean()
        return self.expect(lambda y: (y - mean) ** 2)

    def entropy(self) -> float:
        """Differential entropy of ln λ, in nats. Numerical: by the double exponential rule, to about 1e-10."""
        return self._log_entropy()

    @property
    def _last_angle(self) -> float:
        if not self.cut.has_hard_edge:
            return math.pi
        nodes, masses = self.cut.curve[0], self.cut.curve_masses[0]
        return float(nodes[min(np.searchsorted(-masses, -_NEGLIGIBLE_MASS), nodes.size - 1)])

    def _at_angle(self, chi: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        y = self.cut.log_x_at_angle(chi)
        return y, self.cut.density(self.cut.solve(y)), self.cut.log_x_slope_at_angle(chi)

    def _pdf(self, x: FloatArray) -> FloatArray:
        return self._on_curve(x, "density", 0.0)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self._on_curve(x, "cdf", 0.0)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self._on_curve(x, "sf", 1.0)

    def _on_curve(self, y: FloatArray, function: str, at_zero: float) -> FloatArray:
        result = np.full(y.shape, at_zero)
        held = y > (self.cut.lowest_log if self.cut.has_hard_edge else -math.inf)
        result[held] = getattr(self.cut, function)(self.cut.solve(y[held]))
        return result

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._inverse(q, from_below=True)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._inverse(q, from_below=False)

    def _inverse(self, mass: FloatArray, from_below: bool) -> FloatArray:
        """The y whose mass below (or above) it is ``mass``, by bracketing between the nodes of the curve."""
        cut = self.cut
        nodes, (below, above) = cut.curve[0], cut.curve_masses
        function = self.cdf if from_below else self.sf
        right = np.searchsorted(-below, -mass) if from_below else np.searchsorted(above, mass)
        # Rounding may leave a value just across a node; one node of slack on both sides covers it.
        lower, upper = nodes[np.clip(right - 2, 0, None)], nodes[np.clip(right + 1, None, nodes.size - 1)]

        def excess(chi: FloatArray, target: FloatArray) -> FloatArray:
            at = function(cut.log_x_at_angle(chi))
            if cut.has_hard_edge:
                at[chi >= nodes[-1]] = 0.0 if from_below else 1.0
            return at - target

        result = find_root(excess, (lower, upper), args=(mass,), tolerances={"xrtol": 4e-16, "xatol": 1e-16})
        return cut.log_x_at_angle(result.x)
