"""Parent laws, from which weights are drawn, given by density, cdf and survival function of |w|.

The same formulas serve two arithmetics: NumPy arrays in double precision, and mpmath at its working precision.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import elementwise

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._element._product_element import chi_square_rule
from rmtbase.parameters import require_order, require_positive_integer, require_positive_number

__all__ = [
    "FLOAT", "Arithmetic", "Laplace", "Logistic", "Mixture", "Normal", "Parent", "StudentT", "TruncatedNormal",
    "Uniform", "VarianceGamma", "multiprecision",
]  # fmt: skip

_LOG_RANGE = 700.0  # quantiles are searched within exp(±700) times σ
_TINY = 1e-300
_STRUVE_LIMIT = 256  # for larger orders mpmath sums the Struve functions slowly, and finally fails
GUARD = 15  # decimal digits carried beyond the requested ones

Number = Any
"""A float array in double precision, or an mpf in mpmath; the formulas work with either."""


@dataclass(frozen=True)
class Arithmetic:
    """Functions for the formulas of the laws of |w|. Those not listed below are as in NumPy and SciPy."""

    number: Callable[[Fraction], Number]  # converts an exact rational number to this arithmetic
    pi: Number
    sqrt: Callable[[Number], Number]
    exp: Callable[[Number], Number]
    expm1: Callable[[Number], Number]
    tanh: Callable[[Number], Number]
    erf: Callable[[Number], Number]
    erfc: Callable[[Number], Number]
    beta: Callable[[Number, Number], Number]
    # (a, b, x) ↦ I_x(a, b), the regularised incomplete beta function
    beta_cdf: Callable[[Number, Number, Number], Number]
    # returns the second argument where the first is true, else the third
    where: Callable[[Any, Number, Number], Number]


FLOAT = Arithmetic(
    float, np.pi, np.sqrt, np.exp, np.expm1, np.tanh,
    special.erf, special.erfc, special.beta, special.betainc, np.where,
)  # fmt: skip


@cache
def multiprecision() -> Arithmetic:
    from mpmath import mp

    return Arithmetic(
        number=lambda value: mp.mpf(value.numerator) / value.denominator,
        beta_cdf=lambda a, b, x: mp.betainc(a, b, 0, x, regularized=True),
        where=lambda condition, a, b: a if condition else b,
        **{name: getattr(mp, name) for name in ("pi", "sqrt", "exp", "expm1", "tanh", "erf", "erfc", "beta")},
    )


def as_written(value: float | Fraction) -> Fraction:
    """Return a parameter as the rational number of its decimal form: 0.1 is 1/10, not the nearest double."""
    return value if isinstance(value, Fraction) else Fraction(repr(float(value)))


def decimal(value: Number, digits: int) -> str:
    from mpmath import mp

    return str(mp.nstr(value, digits, strip_zeros=False))


def require_number(name: str, value: object, low: float, high: float) -> float | Fraction:
    number = require_positive_number(name, value)
    if not low <= number <= high:
        raise ParameterError(name, value, f"a number from {low:g} to {high:g}")
    return value if isinstance(value, Fraction) else number


class Parent(Distribution):
    """Law of weights, symmetric about zero. As a :class:`Distribution` it is the law of the magnitude |w|.

    A parent defines its formulas once, in :meth:`law`; they are evaluated both in double precision and by mpmath.
    Parameters are taken as decimals: σ = 0.1 is 1/10 in every arithmetic.
    """

    @abstractmethod
    def law(self, x: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        """Return density f, cdf F and survival function S of |w| at x, 0 < x < upper, in the arithmetic ``fn``."""

    @abstractmethod
    def unit(self, fn: Arithmetic) -> Number:
        """Return the scale parameter, the unit of |w|."""

    def upper(self, fn: Arithmetic) -> Number:
        """Return the largest magnitude, infinite unless the support is bounded."""
        return fn.number(Fraction(1)) * math.inf

    def kinks(self, fn: Arithmetic) -> tuple[Number, ...]:
        """Return the interior points where the density jumps, ascending."""
        return ()

    def landmarks(self, logit: FloatArray) -> FloatArray:
        """Return magnitudes between which the law is smooth: its quantiles at these logits."""
        return self.quantile_at_logit(logit)

    def moment_order(self) -> float:
        """Return the order below which every E|w|ˢ, s > 0, is finite."""
        return math.inf

    @property
    def support(self) -> tuple[float, float]:
        """(0, largest magnitude)."""
        return 0.0, float(self.upper(FLOAT))

    def moment(self, k: int) -> float:
        """E|w|^k by quadrature; inf for k ≥ :meth:`moment_order`."""
        return math.inf if 0 < require_order(k) >= self.moment_order() else super().moment(k)

    def var(self) -> float:
        return math.inf if self.moment_order() <= 2 else super().var()

    def _pdf(self, x: FloatArray) -> FloatArray:
        return self.law(x, FLOAT)[0]

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.law(x, FLOAT)[1]

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.law(x, FLOAT)[2]

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self.quantile_at_logit(np.log(q) - np.log1p(-q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.quantile_at_logit(np.log1p(-q) - np.log(q))

    def quantile_at_logit(self, logit: ArrayLike) -> FloatArray:
        """Find x with ln(F(x)/S(x)) = ``logit``, accurate in both tails."""
        logit = np.asarray(logit, dtype=np.float64)
        upper, start = float(self.upper(FLOAT)), math.log(self.unit(FLOAT))
        quantile = np.where(np.isnan(logit), np.nan, np.where(logit > 0, upper, 0.0))
        if (inside := np.isfinite(logit)).any():
            bracket = (start - _LOG_RANGE, min(start + _LOG_RANGE, math.log(upper)))
            tolerances = {"xatol": 4e-16, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0}
            root = elementwise.find_root(self._logit_misfit, bracket, args=(logit[inside],), tolerances=tolerances)
            beyond = logit[inside] > self._logit_misfit(np.array(bracket[1]), np.zeros(1))  # logit of the last double
            quantile[inside] = np.where(beyond, upper, np.exp(root.x))
        return quantile

    def _logit_misfit(self, log_x: FloatArray, logit: FloatArray) -> FloatArray:
        with np.errstate(over="ignore", divide="ignore"):
            _, cdf, sf = self.law(np.exp(log_x), FLOAT)
        return np.log(np.maximum(cdf, _TINY)) - np.log(np.maximum(sf, _TINY)) - logit


@dataclass(frozen=True)
class _ScaledParent(Parent):
    """Parent whose law depends only on |w|/σ, with σ the standard deviation of w unless the class says otherwise."""

    sigma: float | Fraction = 1.0

    _ranges: ClassVar[dict[str, tuple[float, float]]] = {"sigma": (1e-50, 1e50)}

    def __post_init__(self) -> None:
        for name, (low, high) in self._ranges.items():
            object.__setattr__(self, name, require_number(name, getattr(self, name), low, high))

    @abstractmethod
    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        """Return density, cdf and survival function of |w|/σ."""

    def law(self, x: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        sigma = self.unit(fn)
        density, cdf, sf = self.standard_law(x / sigma, fn)
        return density / sigma, cdf, sf

    def unit(self, fn: Arithmetic) -> Number:
        return fn.number(as_written(self.sigma))


@dataclass(frozen=True)
class Normal(_ScaledParent):
    """w ~ N(0, σ²): F = erf(x/(σ√2))."""

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        return fn.sqrt(2 / fn.pi) * fn.exp(-z * z / 2), fn.erf(z / fn.sqrt(2)), fn.erfc(z / fn.sqrt(2))


@dataclass(frozen=True)
class Uniform(_ScaledParent):
    """w ~ U(−σ√3, σ√3), as in PyTorch's default and in Kaiming and Glorot uniform initialization."""

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        bound = fn.sqrt(3)
        return 1 / bound + 0 * z, z / bound, 1 - z / bound

    def upper(self, fn: Arithmetic) -> Number:
        return self.unit(fn) * fn.sqrt(3)


@dataclass(frozen=True)
class TruncatedNormal(_ScaledParent):
    """w ~ N(0, σ²) given |w| < bσ: F = erf(x/(σ√2)) / erf(b/√2).

    σ is the standard deviation before truncation, as initializers take it; that of w is 0.87962566 σ at b = 2.
    """

    # b, in units of σ, from 0.01 to 40. ``trunc_normal_`` of PyTorch and timm takes absolute limits, a = -2 and b = 2:
    # at std = 0.02 it truncates at 100 σ, which is :class:`Normal`.
    bound: float | Fraction = 2.0

    _ranges: ClassVar = _ScaledParent._ranges | {"bound": (0.01, 40.0)}

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        cut = fn.number(as_written(self.bound))
        mass, tail = fn.erf(cut / fn.sqrt(2)), fn.erfc(cut / fn.sqrt(2))
        density = fn.sqrt(2 / fn.pi) * fn.exp(-z * z / 2) / mass
        return density, fn.erf(z / fn.sqrt(2)) / mass, (fn.erfc(z / fn.sqrt(2)) - tail) / mass

    def upper(self, fn: Arithmetic) -> Number:
        return self.unit(fn) * fn.number(as_written(self.bound))


@dataclass(frozen=True)
class Laplace(_ScaledParent):
    """w ~ Laplace: S = exp(−x√2/σ), so |w| is Weibull with shape 1 and scale σ/√2."""

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        sf = fn.exp(-fn.sqrt(2) * z)
        return fn.sqrt(2) * sf, -fn.expm1(-fn.sqrt(2) * z), sf


@dataclass(frozen=True)
class Logistic(_ScaledParent):
    """w ~ logistic: F = tanh(x/(2s)), s = σ√3/π."""

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        scale = fn.sqrt(3) / fn.pi
        tail = fn.exp(-z / scale)
        return 2 * tail / (scale * (1 + tail) ** 2), fn.tanh(z / (2 * scale)), 2 * tail / (1 + tail)


@dataclass(frozen=True)
class StudentT(_ScaledParent):
    """w/σ ~ Student's t with ν = df degrees of freedom: F = I_y(1/2, ν/2), y = x²/(νσ² + x²).

    σ is the scale parameter; the standard deviation of w is σ√(ν/(ν−2)) for ν > 2.
    """

    df: float | Fraction = 4.0

    _ranges: ClassVar = _ScaledParent._ranges | {"df": (0.1, 1e4)}  # where both arithmetics work

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        nu, half = fn.number(as_written(self.df)), fn.number(Fraction(1, 2))
        rest = 1 / (1 + z * z / nu)
        density = 2 * rest ** ((nu + 1) / 2) / (fn.sqrt(nu) * fn.beta(half, nu / 2))
        sf = fn.beta_cdf(nu / 2, half, rest)
        return density, fn.where(z * z < nu, fn.beta_cdf(half, nu / 2, 1 / (1 + nu / (z * z))), 1 - sf), sf

    def moment_order(self) -> float:
        return float(self.df)


@dataclass(frozen=True)
class VarianceGamma(_ScaledParent):
    """Element w = σ h^(-1/2) Σ_{i≤h} aᵢbᵢ of a product of two Gaussian factors, aᵢ, bᵢ ~ N(0, 1); σ is its spread.

    Given g ~ χ²_h, w is normal with variance σ²g/h. In double precision the normal law is averaged by the trapezoidal
    rule in ln g, to 2e-14 relatively for |w| > 0.01 σ (and to 1e-17 of the total probability below). mpmath evaluates
    closed forms up to h = 256: the density of z = |w|√h/σ is 2 z^ν K_ν(z) / (√π Γ(h/2) 2^ν), ν = (h−1)/2, and
    F = z (K_ν L_{ν−1} + K_{ν−1} L_ν)(z), L the Struve function (DLMF 10.43.2); :class:`rmtbase.laws.ProductElement`.
    """

    h: int = 64  # number of terms, the head dimension

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "h", require_positive_integer("h", self.h))

    def standard_law(self, z: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        if fn is FLOAT:
            log_variance, weight = chi_square_rule(self.h)
            std = np.exp(log_variance / 2)
            ratio = np.asarray(z, dtype=np.float64)[..., None] / std
            density, cdf, sf = Normal().law(ratio, fn)
            return (density / std) @ weight, cdf @ weight, sf @ weight
        from mpmath import mp

        if self.h <= _STRUVE_LIMIT:
            root, nu = mp.sqrt(self.h), mp.mpf(self.h - 1) / 2
            z = z * root
            k, k_below = mp.besselk(nu, z), mp.besselk(nu - 1, z)
            density = root * z**nu * k / (mp.sqrt(mp.pi) * mp.gamma(nu + 0.5) * mp.mpf(2) ** (nu - 1))
            cdf = z * (k * mp.struvel(nu - 1, z) + k_below * mp.struvel(nu, z))
            return density, cdf, 1 - cdf
        density = cdf = 0 * z
        for std, weight in zip(*_chi_square_nodes(self.h, mp.dps), strict=True):
            ratio = z / std
            density += weight * fn.sqrt(2 / fn.pi) * fn.exp(-ratio * ratio / 2) / std
            cdf += weight * fn.erf(ratio / fn.sqrt(2))
        return density, cdf, 1 - cdf


@lru_cache(maxsize=8)
def _chi_square_nodes(h: int, digits: int) -> tuple[list[Number], list[Number]]:
    """Return nodes √(g/h) and weights for a mean over g ~ χ²_h, to ``digits`` digits, as in ``chi_square_rule``."""
    from mpmath import mp

    log_error = digits * math.log(10.0)
    reach = math.sqrt(4 * log_error / h)
    angle = min(1.0, reach)
    step = 2 * math.pi * angle / (log_error - (h / 2) * math.log(math.cos(angle)))
    below, above = math.ceil((reach + 5 * log_error / h) / step), math.ceil(reach / step)
    u = [mp.mpf(step) * index for index in range(-below, above + 1)]
    weight = [mp.exp(mp.mpf(h) / 2 * (value - mp.expm1(value))) for value in u]
    total = mp.fsum(weight)
    return [mp.exp(value / 2) for value in u], [value / total for value in weight]


@dataclass(frozen=True)
class Mixture(Parent):
    """Weights pooled from several parents, such as matrices with different initial standard deviations."""

    components: tuple[Parent, ...]  # the parents
    weights: tuple[float | Fraction, ...]  # positive weight of each parent; normalised to sum to one

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        weights = (
            require_number(f"weights[{index}]", weight, 1e-15, 1e15) for index, weight in enumerate(self.weights)
        )
        object.__setattr__(self, "weights", tuple(weights))
        if not self.components or len(self.components) != len(self.weights):
            raise ParameterError(
                "weights", self.weights, f"one share for each of {len(self.components)} >= 1 components"
            )

    def law(self, x: Number, fn: Arithmetic) -> tuple[Number, Number, Number]:
        shares = [as_written(weight) for weight in self.weights]
        density = cdf = sf = 0 * x
        for component, share in zip(self.components, shares, strict=True):
            weight, end = fn.number(share / sum(shares)), component.upper(fn)
            if fn is FLOAT:  # beyond the upper end of a component F = 1
                f, below, above = component.law(np.minimum(x, end), fn)
                parts = np.where(x < end, f, 0.0), np.where(x < end, below, 1.0), np.where(x < end, above, 0.0)
            else:
                parts = component.law(x, fn) if x < end else (0 * x, 0 * x + 1, 0 * x)
            density, cdf, sf = density + weight * parts[0], cdf + weight * parts[1], sf + weight * parts[2]
        return density, cdf, sf

    def unit(self, fn: Arithmetic) -> Number:
        return max(component.unit(fn) for component in self.components)

    def upper(self, fn: Arithmetic) -> Number:
        return max(component.upper(fn) for component in self.components)

    def kinks(self, fn: Arithmetic) -> tuple[Number, ...]:
        upper = self.upper(fn)
        ends = {end for component in self.components for end in (component.upper(fn), *component.kinks(fn))}
        return tuple(sorted(end for end in ends if end < upper))

    def landmarks(self, logit: FloatArray) -> FloatArray:
        return np.concatenate([component.landmarks(logit) for component in self.components])

    def moment_order(self) -> float:
        return min(component.moment_order() for component in self.components)


PARENTS: dict[str, Parent] = {
    "normal": Normal(),
    "uniform": Uniform(),
    "truncated_normal": TruncatedNormal(),
    "laplace": Laplace(),
    "logistic": Logistic(),
}
"""Parents that need no parameter, by name."""


def require_parent(distribution: object) -> Parent:
    if isinstance(distribution, Parent):
        return distribution
    if isinstance(distribution, str) and distribution in PARENTS:
        return PARENTS[distribution]
    names = ", ".join(repr(name) for name in PARENTS)
    raise ParameterError(
        "distribution", distribution, f"{names}, or a parent law such as StudentT(df=4), VarianceGamma(h=64), Mixture"
    )
