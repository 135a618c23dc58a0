"""Law of one element of a product of two factors with any entries, given its row or not, and what rows share."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Float
from scipy.interpolate import BSpline, PchipInterpolator, make_interp_spline
from scipy.linalg import eigh_tridiagonal

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._expansion import (
    Expansion,
    Panels,
    curvature_form,
    even_directions,
    panels,
    quadratic_cumulants,
)
from rmtbase.laws._element._product_element import chi_square_rule
from rmtbase.laws._element.parents import FLOAT, Arithmetic, Normal, Number, Parent, VarianceGamma

_FEWEST_TERMS = 8
_NORMAL_TAIL = 1.6  # limit on the ratio of the quantiles at 1e-12 and 1e-6: 1.46 for a normal, 2 for an exponential law
_OF_ENTRY, _OF_PRODUCT, _OF_SUM = 64, 160, 32  # nodes of Gauss rules
_REMOTEST = 50.0  # -ln of the bound on the tail at the end of the table
_POINTS, _PERIODS = 256, 4.0
_NEGLIGIBLE, _MOST_FREQUENCIES = 28.0, 1 << 12
_LEGENDRE, _GAUSS = np.polynomial.legendre.leggauss(12)
_NEWTON_STEPS = 40


@dataclass(frozen=True)
class RowLaw:
    """Law of the elements of W_QK in one row, given the factor q of the row."""

    degrees: float  # degrees of freedom for which χ²/degrees has the same variance as |q|²/h
    # log_variance, weight: nodes ln(|q|²/h), the logarithm of the variance of the elements, and weights for a mean over
    # it, (norm,)
    log_variance: FloatArray
    weight: FloatArray
    excess: FloatArray  # mean excess kurtosis of the elements in a row of that norm, (norm,); zero for normal factors
    excess_variance: float = 0.0  # variance of the excess kurtosis among rows of the same norm


@dataclass(frozen=True)
class ProductSum(Parent):
    """w = h^(-1/2) Σ_{i≤h} aᵢbᵢ with independent entries of one law at σ = 1: :class:`VarianceGamma` for any entries.

    With K(s) = ln E e^(s w), the density is ∫ e^(K(s) − s w) ds/(2πi) through the saddle point K' = w, the tail that
    with 1/s; tabulated down to a tail of 1e-20. Errors: 1e-11 for bounded entries, 1e-6 in the tail of others.
    """

    entry: Parent  # the law of an entry, at any σ
    h: int  # number of terms, at least 8

    def __post_init__(self) -> None:
        if self.h < _FEWEST_TERMS:
            raise ParameterError("d_head", self.h, f"at least {_FEWEST_TERMS} for factors whose entries are not normal")
        outer, inner = self.entry.isf(np.array([1e-12, 1e-6]))
        if not outer < _NORMAL_TAIL * inner:
            raise ParameterError(
                "distribution", self.entry, "a law of the factors' entries whose tails fall as fast as a normal one's"
            )

    def unit(self, fn: Arithmetic) -> Number:
        return fn.number(Fraction(1))

    def law(self, x: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        if fn is not FLOAT:
            raise ParameterError("distribution", self, "a law that is known to more digits than a double has")
        table, x = _table(self.entry, self.h), np.asarray(x, dtype=np.float64)
        central = np.minimum(x, 1.0)
        half = 0.5 * central[..., None]
        cdf = half[..., 0] * (np.exp(table.log_density(half * (1.0 + _LEGENDRE))) @ _GAUSS)
        inside = np.minimum(x, table.end)
        with np.errstate(under="ignore"):
            fall = np.exp(-table.slope * (x - inside))
            density, tail = (np.exp(log(inside)) * fall for log in (table.log_density, table.log_tail))
        middle = x < 1.0
        return density, np.where(middle, cdf, 1.0 - tail), np.where(middle, 1.0 - cdf, tail)

    @cached_property
    def rows(self) -> RowLaw:
        """Law of a row: a Gauss rule of Σ q², Σ q⁴ from its regression on Σ q², excess kurtosis κ₄(b) Σ q⁴/|q|⁴."""
        square, weight = _entry_rule(self.entry)
        fourth, sixth, eighth = (float(weight @ square**power) for power in (2, 3, 4))
        slope = (sixth - fourth) / (fourth - 1.0)
        left = eighth - fourth**2 - slope**2 * (fourth - 1.0)
        per_term = (fourth - 3.0) / self.h
        total, share = _sum_rule(self.entry, self.h)
        g = total / self.h
        shape = np.maximum((fourth + slope * (g - 1.0)) / g**2, 1.0)  # h Σ q⁴/(Σ q²)² is at least 1
        return RowLaw(2.0 * self.h / (fourth - 1.0), np.log(g), share, per_term * shape, per_term**2 * left / self.h)


Element = VarianceGamma | ProductSum
"""Law of an element of W_QK."""


def element_of_product(entry: Parent, h: int) -> Element:
    return VarianceGamma(1.0, h) if isinstance(entry, Normal) else ProductSum(entry, h)


def row_law(element: Element) -> RowLaw:
    if isinstance(element, ProductSum):
        return element.rows
    log_variance, weight = chi_square_rule(element.h)
    return RowLaw(element.h, log_variance, weight, np.zeros_like(weight))


@dataclass(frozen=True)
class _Table:
    """Logarithms of density and tail of |w| up to ``end``, beyond which they fall as e^(−slope x)."""

    log_density: BSpline
    log_tail: BSpline
    end: float

    @cached_property
    def slope(self) -> float:
        return -float(self.log_tail(self.end, 1))


@lru_cache(maxsize=32)
def _table(entry: Parent, h: int) -> _Table:
    square, share = _entry_rule(entry)  # for a Gauss rule of the law of the products, with nodes |ab|
    products, weight = _gauss_rule(np.outer(square, square).ravel(), np.outer(share, share).ravel(), _OF_PRODUCT)
    y = np.sqrt(products) / math.sqrt(h)

    def cumulants(c: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        exponent = np.abs(np.multiply.outer(c, y))
        even, odd = (0.5 * weight * (1.0 + sign * np.exp(-2.0 * exponent)) for sign in (1.0, -1.0))
        top = exponent.max(axis=-1)
        scale = np.exp(exponent - top[..., None])
        mass = (even * scale).sum(axis=-1)
        first = (odd * scale * y).sum(axis=-1) / mass
        return h * (np.log(mass) + top), h * first, h * ((even * scale * y**2).sum(axis=-1) / mass - first**2)

    c = np.geomspace(1e-3, 1e3, 400)
    value, mean, _ = cumulants(c)
    last = int(np.argmax(value - c * mean < -_REMOTEST)) or c.size - 1
    end = float(mean[last])
    x = end * np.linspace(0.0, 1.0, _POINTS + 1) ** 1.5
    saddle = np.interp(x, np.append(0.0, mean), np.append(0.0, c))
    for _ in range(_NEWTON_STEPS):
        _, mean, curvature = cumulants(saddle)
        saddle = np.maximum(saddle - (mean - x) / np.maximum(curvature, 1e-12), 0.0)
    step = 2.0 * math.pi / (_PERIODS * end)
    # Until the characteristic function is negligible; that of the rule recurs.
    coarse = step * np.arange(0, _MOST_FREQUENCIES, 16)
    power = h * np.log(np.maximum(np.abs(np.cos(np.multiply.outer(coarse, y)) @ weight), 1e-300))
    t = step * np.arange(16 * int(np.argmax(power < -_NEGLIGIBLE) or coarse.size))
    ends = np.where(t == 0.0, 0.5, 1.0)
    density, tail = np.empty_like(x), np.ones_like(x)
    for place, (at, tilt) in enumerate(zip(x, saddle, strict=True)):
        log_mean = float(cumulants(np.array(tilt))[0])
        ratio = (np.cosh(np.multiply.outer(tilt + 1j * t, y)) @ weight) / math.exp(log_mean / h)
        transform = ends * np.exp(-1j * t * at) * ratio**h
        height = 2.0 * step / math.pi * math.exp(log_mean - tilt * at)
        density[place] = height * transform.real.sum()
        if at:
            tail[place] = height * (transform / (tilt + 1j * t)).real.sum()
    outer = x >= 0.5
    splines = make_interp_spline(x, np.log(density), 5), make_interp_spline(x[outer], np.log(tail[outer]), 5)
    return _Table(*splines, end)


@lru_cache(maxsize=32)
def _entry_rule(entry: Parent) -> tuple[FloatArray, FloatArray]:
    grid = panels(entry)
    square, weight = _gauss_rule(np.exp(2.0 * grid.log_x), grid.probability, _OF_ENTRY)
    return square / float(weight @ square), weight


@lru_cache(maxsize=64)
def _sum_rule(entry: Parent, h: int) -> tuple[FloatArray, FloatArray]:
    if h == 1:
        return _entry_rule(entry)
    (first, weight), (second, second_weight) = _sum_rule(entry, h // 2), _sum_rule(entry, h - h // 2)
    return _gauss_rule(np.add.outer(first, second).ravel(), np.outer(weight, second_weight).ravel(), _OF_SUM)


def _gauss_rule(nodes: FloatArray, weights: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the Gauss rule of a discrete positive law by orthogonalised Lanczos iteration (Gautschi 2004)."""
    total = weights.sum()
    basis = [np.sqrt(weights / total)]
    diagonal, beside = [], []
    for _ in range(count):
        new = nodes * basis[-1]
        diagonal.append(float(new @ basis[-1]))
        for _ in range(2):
            vectors_before = np.array(basis)
            new = new - (vectors_before @ new) @ vectors_before
        beside.append(float(np.linalg.norm(new)))
        if beside[-1] < 1e-13 * abs(diagonal[0]):
            break
        basis.append(new / beside[-1])
    values, vectors = eigh_tridiagonal(np.array(diagonal), np.array(beside[: len(diagonal) - 1]))
    return np.maximum(values, 0.0), vectors[0] ** 2


_LIGHT = 1e-12  # norms of smaller weight do not change a cumulant
_MOST = 2.0  # largest exponent that the fourth cumulant of a row adds in the tails
_ROUNDS = 4


@dataclass(frozen=True)
class DependentStatistic:
    """Statistic of the elements of W_QK, with the averages of :class:`SharedNorms` that its cumulants need."""

    statistic: Expansion  # expansion about the law of an element
    curved: float  # E curvature(φ_g)
    # a2, a3, abc, ac2, c3: E a², E a³, E abc, E ac², E c³
    a2: float
    a3: float
    abc: float
    ac2: float
    c3: float
    along: FloatArray  # E a φ_g at the nodes

    def cumulants(self, d_query: int, d_key: int) -> tuple[float, float, float]:
        """Return N times the bias, N Var T and N² κ₃(T) for N = d_query × d_key elements."""
        statistic, partners = self.statistic, d_query + d_key - 2
        linear = self.c3 + 3.0 * (d_query + d_key) * self.ac2
        linear += 6.0 * d_query * d_key * self.abc + (d_query**2 + d_key**2) * self.a3
        return (
            statistic.drift + 0.5 * partners * self.curved,
            statistic.variance + partners * self.a2,
            linear + 3.0 * statistic.curvature(statistic.influence + partners * self.along),
        )


class SharedNorms:
    """Elements w_ij = q_i · k_j of a d_query × d_key W_QK; given q_i, row i is independent (:class:`RowLaw`).

    With a = E(IF | |q|²), b the same for columns, IF = a + b + c, φ_g the relative change of the law in a row of norm
    g, M = d_key + d_query, and to a relative order 1/d_head in the drift and the third cumulant (Hoeffding 1948),

        N × bias = drift + (M − 2) E curvature(φ_g)/2,    N Var = E IF² + (M − 2) E a²,
        N² κ₃ = E c³ + 3 M E ac² + 6 N E abc + (d_key² + d_query²) E a³ + 3 curvature(IF + (M − 2) E a φ_g).
    """

    def __init__(self, grid: Panels) -> None:
        assert isinstance(grid.parent, Element)
        self.grid = grid  # quadrature over the law of an element
        self._row = row_law(grid.parent)

    @cached_property
    def _relative(self) -> Float[np.ndarray, "norm node"]:
        """Density of |w| in a row of given norm, divided by the density of |w|."""
        log_variance, weights = self._row.log_variance[:, None], self._row.weight
        u = self._in_deviations(log_variance)
        density = np.exp(-0.5 * u * u - 0.5 * log_variance)
        if not self._row.excess.any():
            return density / (weights @ density)
        density *= np.exp(np.minimum(self._row.excess[:, None] * _fourth_cumulant(u), _MOST))
        for _ in range(_ROUNDS):  # until each row has mass 1 and the mean over the rows is the law of |w|
            density /= weights @ density
            density /= (density @ self.grid.probability)[:, None]
        return density

    def _in_deviations(self, log_variance: FloatArray | float) -> FloatArray:
        return np.exp(self.grid.log_x - 0.5 * log_variance) / float(self.grid.parent.unit(FLOAT))

    @cached_property
    def _shape(self) -> FloatArray:
        """Relative change of the density of |w| with the excess kurtosis of a row, at fixed mass and variance."""
        probability, square = self.grid.probability, self._in_deviations(0.0) ** 2
        change = _fourth_cumulant(np.sqrt(square))
        change = change - probability @ change
        square = square - probability @ square
        return change - square * (probability @ (change * square)) / (probability @ square**2)

    def given_norm(self, values: FloatArray) -> FloatArray:
        return self._relative @ (self.grid.probability * values)

    def shared(self, first: FloatArray, second: FloatArray) -> float:
        a, b, weights = self.given_norm(first), self.given_norm(second), self._row.weight
        return float(weights @ ((a - weights @ a) * (b - weights @ b)))

    def __call__(self, statistic: Expansion) -> DependentStatistic:
        weights, influence = self._row.weight, statistic.influence
        a = self.given_norm(influence)
        a = a - weights @ a
        heavy = np.flatnonzero(weights > _LIGHT)
        changes = self._relative - 1.0
        curved = float(weights[heavy] @ [statistic.curvature(changes[index]) for index in heavy])
        a2 = float(weights @ a**2)
        if self._row.excess_variance:  # rows of the same norm differ in shape
            curved += self._row.excess_variance * statistic.curvature(self._shape)
            a2 += self._row.excess_variance * statistic.along(self._shape) ** 2
        # abc = E[a(|q|²) b(|k|²) IF(w)], where k has the component w/|q| along q, and h − 1 others.
        h, log_variance = self._row.degrees, self._row.log_variance
        points = np.geomspace(1e-8, max(60.0, 8.0 * h), 160)
        squares, share = points[:, None] / h, np.ones(1)
        if h > 1.0:
            others, share = chi_square_rule(h - 1.0)
            squares = (points[:, None] + (h - 1.0) * np.exp(others)) / h
        of_norm = PchipInterpolator(log_variance, a)
        across = of_norm(np.clip(np.log(squares), log_variance[0], log_variance[-1])) @ share
        along_q = self._in_deviations(log_variance[:, None]) ** 2
        of_column = np.interp(np.log(np.maximum(along_q, 1e-8)), np.log(points), across)
        joint = (self._relative * of_column) @ (self.grid.probability * influence)
        a3, abc = float(weights @ a**3), float(weights @ (a * joint))
        ac2 = float(weights @ (a * self.given_norm(influence**2))) - a3 - 2.0 * abc
        c3 = float(self.grid.probability @ influence**3) - 2.0 * a3 - 6.0 * abc - 6.0 * ac2
        along = (weights * a) @ changes
        return DependentStatistic(statistic, curved, a2, a3, abc, ac2, c3, along)

    def noise(self, statistic: Expansion, d_query: int, d_key: int) -> tuple[float, float]:
        """Return what the covariance (1 + (M − 2) E φ_g φ_g)/N adds to n² κ₂ and n³ κ₃ of the quadratic term."""
        directions = even_directions(self.grid)
        form = curvature_form(statistic.curvature, directions)
        rows = (self._relative - 1.0) @ (self.grid.probability * directions).T
        shared = (d_query + d_key - 2) * (rows.T * self._row.weight) @ rows
        second, third = quadratic_cumulants(form + form @ shared) - quadratic_cumulants(form)
        return float(second), float(third)


def _fourth_cumulant(u: FloatArray) -> FloatArray:
    """He₄/24, the relative change of a normal density per unit of the fourth cumulant."""
    return (u**2 * (u**2 - 6.0) + 3.0) / 24.0
