"""Second-order expansions of sample statistics about the law of the sample, by quadrature over that law in panels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float
from scipy.interpolate import CubicHermiteSpline

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element.parents import FLOAT, Parent

_ORDER = 16
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(_ORDER)
_LEGENDRE = np.polynomial.legendre.legvander(_NODES, _ORDER - 1)
_SPREAD = 1.0  # logits per panel, so that the nearest singularity is farther from a panel than its width
_TINY = 1e-300
_FAR = 42.0  # logit of the outermost panels; the probability beyond is 1e-18


# Row i integrates the polynomial through the nodes from −1 to node i.
_TO_COEFFICIENTS = (np.arange(_ORDER)[:, None] + 0.5) * (_LEGENDRE * _WEIGHTS[:, None]).T
_INTEGRATED = np.polynomial.legendre.legint(_TO_COEFFICIENTS, lbnd=-1)
_RUNNING = np.polynomial.legendre.legvander(_NODES, _ORDER) @ _INTEGRATED


class Panels:
    """Gauss–Legendre panels in ln x between quantiles of a parent one logit apart, with running integrals."""

    def __init__(self, edges: Float[np.ndarray, " end"], parent: Parent) -> None:
        self.edges = edges  # ln x at the ends of the panels, ascending
        self.parent = parent  # the law that is integrated over
        self._half = np.diff(edges)[:, None] / 2
        self.log_x = (edges[:-1, None] + self._half + self._half * _NODES).ravel()
        density, self.cdf, self.sf = parent.law(np.exp(self.log_x), FLOAT)
        self.density = density * np.exp(self.log_x)  # dF/d ln x at the nodes
        self.width = (self._half * _WEIGHTS).ravel()  # quadrature weights d ln x of the nodes
        self.probability = self.density * self.width  # quadrature weights dF

    @cached_property
    def log_hazard(self) -> FloatArray:
        """Y = ln(−ln S) at the nodes, the ordinate of the Weibull plot."""
        with np.errstate(divide="ignore"):
            upper = -np.log(np.clip(self.sf, _TINY, 0.5))
            return np.log(np.where(self.cdf < 0.5, -np.log1p(-np.minimum(self.cdf, 0.5)), upper))

    def running_integral(self, values: FloatArray) -> FloatArray:
        """∫ values d ln x from the first edge to each node."""
        panel = values.reshape(-1, _ORDER) * self._half
        before = np.concatenate([[0.0], np.cumsum(panel @ _WEIGHTS)[:-1]])
        return (before[:, None] + panel @ _RUNNING.T).ravel()


def panels(parent: Parent, breaks: Sequence[float] = ()) -> Panels:
    """Return panels with ends also at ``breaks`` and kinks, as far as the moments of |w| have converged."""
    order = parent.moment_order()
    far = _FAR if math.isinf(order) else max(_FAR, min(650.0, 230.0 * order))
    ends = parent.landmarks(np.arange(-_FAR, far + _SPREAD / 2, _SPREAD))
    inner = [x for x in (*breaks, *parent.kinks(FLOAT)) if 0.0 < x < parent.upper(FLOAT)]
    return Panels(np.log(np.unique(np.concatenate([ends, inner]))), parent)


POWERS = np.arange(7)  # of the partial moments


class PartialMoments:
    """∫ x^k dF from 0 to c for k = 0 … 6, with F the law of |w|/σ, as splines in ln c that are right to 1e-9."""

    def __init__(self, parent: Parent) -> None:
        grid = panels(parent)
        self.sigma = math.sqrt(float(grid.probability @ np.exp(2.0 * grid.log_x)))
        self.kurtosis = float(grid.probability @ np.exp(4.0 * grid.log_x)) / self.sigma**4
        upper = float(parent.upper(FLOAT)) / self.sigma
        log_x = grid.edges - math.log(self.sigma)
        x = np.exp(log_x)
        per_panel = grid.probability.reshape(log_x.size - 1, -1)
        powers = (np.exp(grid.log_x) / self.sigma)[:, None] ** POWERS
        running = np.zeros((log_x.size, POWERS.size))
        np.cumsum(np.einsum("pn,pnk->pk", per_panel, powers.reshape(*per_panel.shape, -1)), axis=0, out=running[1:])
        inside = np.minimum(np.exp(grid.edges), np.nextafter(parent.upper(FLOAT), 0.0))
        slope = (parent.law(inside, FLOAT)[0] * inside)[:, None] * x[:, None] ** POWERS
        apart = np.append(True, np.diff(log_x) > 0.0)  # near the end of a law rounding can make two edges equal
        self._spline = CubicHermiteSpline(log_x[apart], running[apart], slope[apart])
        self._ends = float(log_x[0]), min(float(log_x[-1]), math.log(upper))
        self._parent, self.upper = parent, upper

    def __call__(self, c: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            log_c = np.clip(np.log(np.maximum(c, 0.0)), *self._ends)
        return np.moveaxis(self._spline(log_c), -1, 0)

    def beyond(self, c: FloatArray) -> FloatArray:
        inside = np.clip(c, 1e-300, np.nextafter(self.upper, 0.0))
        return np.where(c <= 0.0, 1.0, np.where(c >= self.upper, 0.0, self._parent.law(inside * self.sigma, FLOAT)[2]))


partial_moments = lru_cache(maxsize=64)(PartialMoments)

_STEP = 1e-4  # of a parameter, for finite differences of functions that are analytic in it
_TERMS = np.arange(1, 25)  # directions in which a quadratic form is evaluated


Quadratic = Callable[[FloatArray], float]


def _flat(_: FloatArray) -> float:
    return 0.0


@dataclass(frozen=True)
class Expansion:
    """Statistic T of n numbers as a functional of their empirical law F_n, expanded about the law F of the parent.

        T(F_n) = T(F) + Σ IF(w_i)/n + curvature(F_n/F − 1)/2 + …    (von Mises 1947; Fernholz 1983)
        n E(T − T(F)) → drift,    n Var T → E IF²,    n² κ₃(T) → E IF³ + 3 curvature(IF)    for independent numbers

    F is symmetric and T is the same for w and −w, so the sign of w enters only to second order.
    """

    grid: Panels  # quadrature over the law of the parent
    value: float  # T(F)
    influence: FloatArray  # IF at the nodes of the grid, of mean zero
    drift: float  # n times the bias
    # φ ↦ d²/dε² T((1 + εφ)F) at ε = 0, for φ at the nodes, even in w and of mean zero under F
    curvature: Quadratic
    odd_curvature: Quadratic = _flat  # the same for a φ that is odd in w, given for w > 0

    def along(self, direction: FloatArray) -> float:
        return float(self.grid.probability @ (self.influence * direction))

    def covariance(self, other: Expansion) -> float:
        return self.along(other.influence)

    @property
    def variance(self) -> float:
        return self.covariance(self)

    @property
    def third(self) -> float:
        return float(self.grid.probability @ self.influence**3) + 3.0 * self.curvature(self.influence)

    def map(self, value: float, slope: float, curvature: float) -> Expansion:
        """f(T), from f, f' and f'' at T(F)."""
        return Expansion(
            self.grid,
            value,
            slope * self.influence,
            slope * self.drift + 0.5 * curvature * self.variance,
            lambda direction: slope * self.curvature(direction) + curvature * self.along(direction) ** 2,
            lambda direction: slope * self.odd_curvature(direction),
        )

    def power(self, exponent: float) -> Expansion:
        value, slope = self.value**exponent, exponent * self.value ** (exponent - 1.0)
        return self.map(value, slope, (exponent - 1.0) * slope / self.value)

    def log(self) -> Expansion:
        return self.map(math.log(self.value), 1.0 / self.value, -1.0 / self.value**2)

    def exp(self) -> Expansion:
        value = math.exp(self.value)
        return self.map(value, value, value)

    def drifting(self, drift: float) -> Expansion:
        """Return T + drift/n, another finite-sample version of the same functional."""
        return replace(self, drift=self.drift + drift)

    def __add__(self, other: Expansion | float) -> Expansion:
        if not isinstance(other, Expansion):
            return self.map(self.value + other, 1.0, 0.0)
        return Expansion(
            self.grid,
            self.value + other.value,
            self.influence + other.influence,
            self.drift + other.drift,
            lambda direction: self.curvature(direction) + other.curvature(direction),
            lambda direction: self.odd_curvature(direction) + other.odd_curvature(direction),
        )

    def __mul__(self, other: Expansion | float) -> Expansion:
        if not isinstance(other, Expansion):
            return self.map(self.value * other, other, 0.0)
        return Expansion(
            self.grid,
            self.value * other.value,
            self.value * other.influence + other.value * self.influence,
            self.value * other.drift + other.value * self.drift + self.covariance(other),
            lambda direction: (
                self.value * other.curvature(direction)
                + other.value * self.curvature(direction)
                + 2.0 * self.along(direction) * other.along(direction)
            ),
            lambda direction: self.value * other.odd_curvature(direction) + other.value * self.odd_curvature(direction),
        )

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Expansion:
        return self * -1.0

    def __sub__(self, other: Expansion | float) -> Expansion:
        return self + -1.0 * other

    def __rsub__(self, other: float) -> Expansion:
        return -1.0 * self + other

    def __truediv__(self, other: Expansion | float) -> Expansion:
        return self * (other.power(-1.0) if isinstance(other, Expansion) else 1.0 / other)


def average(grid: Panels, values: FloatArray) -> Expansion:
    mean = float(grid.probability @ values)
    return Expansion(grid, mean, values - mean, 0.0, _flat)


def mean_square(grid: Panels) -> Expansion:
    return average(grid, np.exp(2.0 * grid.log_x))


def variance(grid: Panels) -> Expansion:
    """s² = Σ(w − w̄)²/(n − 1)."""
    x = np.exp(grid.log_x)
    return replace(
        mean_square(grid), odd_curvature=lambda direction: -2.0 * float(grid.probability @ (x * direction)) ** 2
    )


def ordered_average(
    grid: Panels,
    values: FloatArray,
    slope: FloatArray,
    weight: FloatArray,
    weight_slope: FloatArray,
    jumps: Sequence[tuple[float, float]] = (),
    signed: bool = False,
) -> Expansion:
    """∫ h(x(p)) J(p) dp: the average of h over the order statistics, with weight J((i − 1/2)/n) for the i-th.

    δF changes it to first order by −∫ J δF dh, to second by −∫ J'(F) δF² dh/2, n E δF² = F(1 − F) (Serfling 1980,
    8.1.1). Given are h, dh/d ln x, J, dJ/dp at the nodes, and ``jumps`` (x, ΔJ dh/dp) of J at ends of panels. If
    ``signed``, numbers are ordered by w, not |w|, h is odd, and the weight at p is J(2p − 1) with an odd J.
    """
    raised = grid.running_integral(weight * slope)
    bend = grid.width * weight_slope * slope
    places = [(int(np.searchsorted(grid.log_x, math.log(x))), height) for x, height in jumps]

    def second(square: FloatArray, at_jumps: Sequence[float]) -> float:
        heights = (height for _, height in places)
        return float(bend @ square) + math.fsum(height * at for height, at in zip(heights, at_jumps, strict=True))

    def curvature(direction: FloatArray) -> float:
        running, mass = grid.running_integral(grid.density * direction), grid.probability * direction
        return -second(running**2, [float(mass[:node].sum()) ** 2 for node, _ in places])

    def odd_curvature(direction: FloatArray) -> float:
        mass = grid.probability * direction
        beyond = mass.sum() - grid.running_integral(grid.density * direction)
        return -second(beyond**2, [float(mass[node:].sum()) ** 2 for node, _ in places])

    below = [float(grid.probability[:node].sum()) for node, _ in places]
    noise = grid.cdf * grid.sf + signed * grid.sf
    jump_noise = [(mass + signed) * (1.0 - mass) for mass in below]
    return Expansion(
        grid,
        float(grid.probability @ (values * weight)),
        raised - float(grid.probability @ raised),
        -0.5 * second(noise, jump_noise),
        curvature,
        odd_curvature if signed else _flat,
    )


def root(equation: Callable[[float], Expansion], at: float) -> Expansion:
    """Return the root k of equation(k) = 0, where equation(k) is an expansion; ``at`` is the root of its value."""
    f, slope, bend = _differences(equation, at)
    influence = -f.influence / slope.value
    drift = -(f.drift + float(f.grid.probability @ (slope.influence * influence)))
    variance = float(f.grid.probability @ influence**2)

    def curvature(direction: FloatArray) -> float:
        change = float(f.grid.probability @ (influence * direction))
        return -(f.curvature(direction) + 2.0 * slope.along(direction) * change + bend * change**2) / slope.value

    return Expansion(f.grid, at, influence, (drift - 0.5 * bend * variance) / slope.value, curvature)


def substituted(function: Callable[[float], Expansion], k: Expansion) -> Expansion:
    f, slope, bend = _differences(function, k.value)
    change = k + -k.value  # its value is 0, so the product below is of second order
    return f + change * slope + 0.5 * bend * change * change


def _differences(function: Callable[[float], Expansion], at: float) -> tuple[Expansion, Expansion, float]:
    f, above, below = function(at), function(at + _STEP), function(at - _STEP)
    return f, (above - below) / (2.0 * _STEP), (above.value + below.value - 2.0 * f.value) / _STEP**2


def quadratic_noise(statistic: Expansion) -> tuple[float, float]:
    """Return tr K²/2 and tr K³, K the curvature in orthonormal directions: n² κ₂ and n³ κ₃ of the quadratic term."""
    # √2 sin(π(j − 1/2)F): orthonormal relative changes of a law that are odd in w, (direction, node).
    odd = math.sqrt(2.0) * np.sin(math.pi * (_TERMS[:, None] - 0.5) * statistic.grid.cdf)
    forms = (
        curvature_form(statistic.curvature, even_directions(statistic.grid)),
        curvature_form(statistic.odd_curvature, odd),
    )
    second, third = np.sum([quadratic_cumulants(form) for form in forms], axis=0)
    return float(second), float(third)


def quadratic_cumulants(form: FloatArray) -> FloatArray:
    """tr K²/2 and tr K³, the second and third cumulants of zᵀK z/2 with z standard normal."""
    square = form @ form
    return np.array([0.5 * np.trace(square), np.sum(square * form.T)])


def even_directions(grid: Panels) -> FloatArray:
    """√2 cos(πjF): orthonormal relative changes of a law that are even in w, (direction, node)."""
    return math.sqrt(2.0) * np.cos(math.pi * _TERMS[:, None] * grid.cdf)


def curvature_form(curvature: Quadratic, directions: FloatArray) -> FloatArray:
    diagonal = np.array([curvature(direction) for direction in directions])
    form = np.diag(diagonal)
    for i, j in zip(*np.triu_indices(len(diagonal), 1), strict=True):
        form[i, j] = form[j, i] = 0.5 * (curvature(directions[i] + directions[j]) - diagonal[i] - diagonal[j])
    return form
