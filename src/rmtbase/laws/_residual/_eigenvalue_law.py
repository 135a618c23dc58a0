"""Laws of eigenvalues λ > 0 given by an analytic map w → ln λ on its cut, and the inverse of the map there.

The physical branch, a curve of real ln λ from w_+ through the upper half plane, is followed once in small steps. The
first axis of a point lists its coordinates.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.optimize.elementwise import find_root

from rmtbase.arguments import checked
from rmtbase.laws._cut import Cut, CutLaw
from rmtbase.laws._distribution import ComplexArray, Distribution, FloatArray
from rmtbase.parameters import require_real_numbers

_NEWTON_STEPS = 4
_LONGEST_STEP = 0.04  # in χ, where it runs from 0 to π
_LAST_STEP = 1e-3  # distance in χ at which the nodes stop before the lower edge
_HALVINGS = 40
_PREDICTION = 0.02  # of Im w: largest difference of a node from its prediction
_NEGLIGIBLE_MASS = 1e-35  # negligible also in the mean of a function that grows as an inverse power of λ


class CutMap(Cut):
    """Map w → ln λ with a square-root branch point at the upper edge."""

    upper: ComplexArray  # w_+, the critical point of the upper edge; real
    lower: ComplexArray | None  # w_-, that of a soft lower edge; None for a hard edge, where the eigenvalues reach zero
    lowest_log: float  # for a hard edge, the ln λ below which the mass counts as zero
    # longest step in w between two nodes, for a curve that bends on a scale that its derivatives do not show
    longest_move: float = math.inf

    def start(self) -> ComplexArray:
        """Return a point above w_+, near enough for Newton's method to reach the curve; w_+ sets the scale."""
        return self.upper * (1.0 + 1e-3j)

    @abstractmethod
    def log_x(self, w: ComplexArray) -> ComplexArray:
        """Return ln λ at w in the closed upper half plane, on the branch that is real on the curve."""

    @abstractmethod
    def velocity(self, w: ComplexArray) -> ComplexArray:
        """Return dw / d ln λ, with one component for each coordinate."""

    @abstractmethod
    def density(self, w: ComplexArray) -> FloatArray:
        """Return the density of ln λ, |Im ψ| / π, at a point of the curve; cdf and sf are the masses on its sides."""

    @abstractmethod
    def cdf(self, w: ComplexArray) -> FloatArray: ...

    @abstractmethod
    def sf(self, w: ComplexArray) -> FloatArray: ...

    def newton_step(self, w: ComplexArray, log_x: FloatArray) -> ComplexArray:
        return (self.log_x(w) - log_x) * self.velocity(w)

    @property
    def has_hard_edge(self) -> bool:
        return self.lower is None

    @cached_property
    def log_upper(self) -> float:
        return float(self.log_x(self.upper).real)

    @cached_property
    def log_lower(self) -> float:
        return -math.inf if self.lower is None else float(self.log_x(self.lower).real)

    @property
    def last_angle(self) -> float:
        return math.sqrt(self.log_upper - self.lowest_log) if self.has_hard_edge else math.pi

    @cached_property
    def curve(self) -> tuple[FloatArray, ComplexArray]:
        """(χ, w) at nodes along the curve from the upper edge down, predicted and then corrected by Newton's method."""
        nodes, points = [0.0], [self.upper]
        w = self.start()
        chi = float(self.angle(self.log_x(w).real))
        w = self._newton(w, self.log_x_at_angle(np.asarray(chi)))
        last = self.last_angle if self.has_hard_edge else self.last_angle - _LAST_STEP
        longest = math.inf if self.has_hard_edge else _LONGEST_STEP
        step, before, rate_before = chi, 0.0, None
        while True:
            nodes.append(chi)
            points.append(w)
            if chi >= last:
                break
            rate = -self.log_x_slope_at_angle(np.asarray(chi)) * self.velocity(w)
            bend = 0.0 if rate_before is None else (rate - rate_before) / (chi - before)
            step = min(step, longest, last - chi + 0.5 * _LAST_STEP, self.longest_move / abs(complex(rate[0])))
            for _ in range(_HALVINGS):
                predicted = w + step * (rate + 0.5 * step * bend)
                corrected = self._newton(predicted, self.log_x_at_angle(np.asarray(chi + step)))
                error = abs(complex(corrected[0] - predicted[0])) / (_PREDICTION * abs(complex(predicted[0]).imag))
                if error < 1.0:
                    break
                step *= 0.5
            else:
                raise ArithmeticError(
                    f"{self!r}: the curve of the law is lost at chi = {chi}, before its end at {self.last_angle}"
                )
            before, rate_before = chi, rate
            chi, w = chi + step, corrected
            step *= 1.5 if error < 0.1 else 1.0
        if self.lower is not None:
            nodes.append(math.pi)
            points.append(self.lower)
        return np.array(nodes), np.stack(points, axis=-1)

    @cached_property
    def _guess(self) -> CubicSpline:
        return CubicSpline(*self.curve, axis=-1)

    def solve(self, log_x: FloatArray) -> ComplexArray:
        chi = np.minimum(self.angle(log_x), self.last_angle)
        return self._newton(self._guess(chi), log_x)

    def _newton(self, w: ComplexArray, log_x: FloatArray) -> ComplexArray:
        # Im w vanishes together with the slope at a soft edge and is the natural unit everywhere. A step that is not
        # small in this unit is rounding divided by a vanishing slope; the prediction is kept instead.
        longest = 0.5 * np.abs(w[0].imag)
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(_NEWTON_STEPS):
                step = self.newton_step(w, log_x)
                w = w - np.where(np.abs(step[0]) < longest, step, 0.0)
        return np.where(w[0].imag < 0.0, np.conj(w), w)

    @cached_property
    def curve_masses(self) -> tuple[FloatArray, FloatArray]:
        w = self.curve[1]
        below, above = self.cdf(w), self.sf(w)
        below[0], above[0] = 1.0, 0.0
        if not self.has_hard_edge:
            below[-1], above[-1] = 0.0, 1.0
        return np.minimum.accumulate(below), np.maximum.accumulate(above)


@dataclass(frozen=True)
class LogEigenvalue(CutLaw):
    """Law of y = ln λ, right to a few units of rounding in y; masses below 1e-100 may count as 0."""

    cut: CutMap  # the map that defines the law; see the corresponding law of λ

    @property
    def support(self) -> tuple[float, float]:
        return self.cut.log_lower, self.cut.log_upper

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
        resolved = y > (self.cut.lowest_log if self.cut.has_hard_edge else -math.inf)
        result[resolved] = function(self.cut.solve(y[resolved]))
        return result

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._inverse(q, from_below=True)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._inverse(q, from_below=False)

    def _inverse(self, mass: FloatArray, from_below: bool) -> FloatArray:
        """Find y with ``mass`` below (or above) it, by bracketing between the nodes of the curve."""
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
    """Law of eigenvalues λ > 0, from that of ln λ; inf and 0 beyond the doubles, unlike in :attr:`log_eigenvalue`."""

    @property
    @abstractmethod
    def _map(self) -> CutMap: ...

    @property
    def log_eigenvalue(self) -> LogEigenvalue:
        """Law of ln λ, with the same methods; use it where λ itself overflows."""
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
        return self.log_eigenvalue.cdf(_logarithm(require_real_numbers("x", x)))

    def sf(self, x: ArrayLike) -> FloatArray:
        return self.log_eigenvalue.sf(_logarithm(require_real_numbers("x", x)))

    @checked
    def expect(self, f: Callable[[FloatArray], ArrayLike], rtol: float = 1e-12) -> float:
        return self.log_eigenvalue.expect(lambda y: f(_exponentials(y)), rtol)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.cdf(x)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return _exponentials(self.log_eigenvalue.ppf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return _exponentials(self.log_eigenvalue.isf(q))

    def _density_at_zero_singular_value(self) -> float:
        return 0.0


def exponential(y: float) -> float:
    return float(_exponentials(np.asarray(y)))


def _exponentials(y: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(y)


def _logarithm(x: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x < 0.0, -np.inf, np.log(x))


def _per_unit(density: FloatArray, x: FloatArray) -> FloatArray:
    with np.errstate(over="ignore"):
        return np.divide(density, x, out=density, where=density > 0.0)
