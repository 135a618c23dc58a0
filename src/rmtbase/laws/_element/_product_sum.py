"""Law of one element of a product of two factors with independent entries of any law, and its law given the row."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
from scipy.interpolate import BSpline, make_interp_spline
from scipy.linalg import eigh_tridiagonal

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._element._arithmetic import FLOAT, Arithmetic, Number
from rmtbase.laws._element._expansion import panels
from rmtbase.laws._element._product_element import chi_square_rule
from rmtbase.laws._element.parents import Normal, Parent, VarianceGamma

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
    """Return nodes a² and weights of a Gauss rule of the law of the entries at σ = 1."""
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
