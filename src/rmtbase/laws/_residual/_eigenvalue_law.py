"""Laws of eigenvalues λ > 0 that are known by the law of ln λ, which a map gives on its cut."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize.elementwise import find_root

from rmtbase.laws._cut import CutLaw
from rmtbase.laws._distribution import ComplexArray, Distribution, FloatArray
from rmtbase.laws._residual._cut_map import CutMap
from rmtbase.parameters import require_order, require_real_numbers

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
        return self._on_curve(x, self.cut.density, 0.0)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self._on_curve(x, self.cut.cdf, 0.0)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self._on_curve(x, self.cut.sf, 1.0)

    def _on_curve(self, y: FloatArray, function: Callable[[ComplexArray], FloatArray], at_zero: float) -> FloatArray:
        result = np.full(y.shape, at_zero)
        held = y > (self.cut.lowest_log if self.cut.has_hard_edge else -math.inf)
        result[held] = function(self.cut.solve(y[held]))
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


class EigenvalueLaw(Distribution):
    """A law of eigenvalues λ > 0, all of whose functions follow from the law of ln λ.

    What is too large for a double is inf, what is too small is 0; :attr:`log_eigenvalue` knows neither limit.
    """

    @property
    @abstractmethod
    def _map(self) -> CutMap:
        """The map whose cut holds ln λ."""

    @property
    def log_eigenvalue(self) -> LogEigenvalue:
        """The law of ln λ, with the same methods: use it where λ itself overflows."""
        return LogEigenvalue(self._map)

    @property
    def has_hard_edge(self) -> bool:
        return self._map.has_hard_edge

    @property
    def support(self) -> tuple[float, float]:
        lower, upper = self.log_eigenvalue.support
        return exponential(lower), exponential(upper)

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at eigenvalue ``x``, same shape, in 1/eigenvalue; inf at a hard edge, 0 outside the support."""
        values = require_real_numbers("x", x)
        density = _per_unit(np.asarray(self.log_eigenvalue.pdf(_logarithm(values))), values)
        if self.has_hard_edge:
            density[values == 0.0] = math.inf
        return density[()]

    def pdf_singular_values(self, s: ArrayLike) -> FloatArray:
        """Density 2 s pdf(s²) of the singular value s = √λ, s ≥ 0."""
        values = require_real_numbers("s", s)
        density = _per_unit(np.asarray(2.0 * self.log_eigenvalue.pdf(2.0 * _logarithm(values))), values)
        density[values == 0.0] = self._density_at_zero_singular_value()
        return density[()]

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(λ ≤ x), in closed form on the curve of the map."""
        return self.log_eigenvalue.cdf(_logarithm(require_real_numbers("x", x)))

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(λ > x) = 1 - cdf(x), without the cancellation."""
        return self.log_eigenvalue.sf(_logarithm(require_real_numbers("x", x)))

    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        """E[f(λ)], as :meth:`LogEigenvalue.expect`, for a function of an array of eigenvalues."""
        return self.log_eigenvalue.expect(lambda y: f(_exponentials(y)), rtol)

    def entropy(self) -> float:
        """Differential entropy of λ, in nats: that of ln λ, plus E[ln λ]. Numerical, to about 1e-10."""
        return self.log_eigenvalue.entropy() + self.log_eigenvalue.mean()

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.cdf(x)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return _exponentials(self.log_eigenvalue.ppf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return _exponentials(self.log_eigenvalue.isf(q))

    def _density_at_zero_singular_value(self) -> float:
        """The limit of the density of s = √λ at 0."""
        return 0.0


def exponential(y: float) -> float:
    """Return exp(y): inf and 0 beyond the range of doubles."""
    return float(_exponentials(np.asarray(y)))


def _exponentials(y: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(y)


def _logarithm(x: FloatArray) -> FloatArray:
    """ln x, -inf for x ≤ 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x < 0.0, -np.inf, np.log(x))


def _per_unit(density: FloatArray, x: FloatArray) -> FloatArray:
    """The density of what has this one of its logarithm."""
    with np.errstate(over="ignore"):
        return np.divide(density, x, out=density, where=density > 0.0)
