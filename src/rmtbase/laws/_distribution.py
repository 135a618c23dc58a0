"""Base class of all laws, with scipy's method names. It handles domains, shapes and bad input once for all."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from scipy.differentiate import derivative
from scipy.optimize.elementwise import bracket_root, find_root
from scipy.special import ndtr, ndtri

from rmtbase.parameters import require_order, require_real_numbers
from rmtbase.shown import in_one_line

FloatArray = Float[np.ndarray, "..."]  # functions of numbers keep the shape of their argument
ComplexArray = NDArray[np.complex128]  # pyright does not know the real and imaginary parts of jaxtyping's type

_TIGHT = {"xatol": 0.0, "xrtol": 4e-16, "fatol": 0.0, "frtol": 0.0}


class Distribution(ABC):
    """Law of one real number X.

    A subclass defines its :attr:`support` and ``_cdf`` at flat arrays of points strictly inside it. It may also define
    ``_sf``, ``_pdf``, ``_ppf`` and ``_isf`` (at probabilities strictly between 0 and 1), :meth:`moment` and
    :meth:`var`. The methods take arrays of real numbers and return float64 arrays of the same shape, nan where the
    argument is nan. Any other argument (complex or masked numbers, booleans, text) raises a ParameterError.
    """

    def __init_subclass__(cls) -> None:
        in_one_line(cls)

    @property
    def support(self) -> tuple[float, float]:
        """(lower, upper) end of the support; by default the real line."""
        return -math.inf, math.inf

    @abstractmethod
    def _cdf(self, x: FloatArray) -> FloatArray: ...

    def _sf(self, x: FloatArray) -> FloatArray:
        return 1.0 - self._cdf(x)

    def _pdf(self, x: FloatArray) -> FloatArray:
        """Differentiate the smaller tail, to about 1e-8 of the density."""
        below = self._cdf(x) < 0.5
        step = 1e-2 * self.std()
        density = np.empty(x.shape)
        for chosen, tail, sign in ((below, self.cdf, 1.0), (~below, self.sf, -1.0)):
            if chosen.any():
                density[chosen] = sign * derivative(tail, x[chosen], initial_step=step).df
        return np.maximum(density, 0.0)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._bracketed(np.where(q < 0.5, q, 1.0 - q), q < 0.5)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._bracketed(np.where(q < 0.5, q, 1.0 - q), q >= 0.5)

    def _bracketed(self, mass: FloatArray, from_below: NDArray[np.bool_]) -> FloatArray:
        """Find x with cdf(x) = ``mass`` where ``from_below``, else sf(x) = ``mass``, by bracketing."""

        def excess(x: FloatArray, mass: FloatArray, from_below: NDArray[np.bool_]) -> FloatArray:
            return np.where(from_below, self.cdf(x) - mass, mass - self.sf(x))

        (low, high), (mean, std) = self.support, (self.mean(), self.std())
        ends = np.maximum(mean - std, 0.5 * (low + mean)), np.minimum(mean + std, 0.5 * (high + mean))
        start = bracket_root(excess, *ends, xmin=low, xmax=high, args=(mass, from_below))
        roots = find_root(excess, start.bracket, args=(mass, from_below), tolerances=_TIGHT).x
        # Without a root x is an end: an approximate law may have some mass exactly there.
        return np.where(start.success, roots, np.where(from_below, low, high))

    def pdf(self, x: ArrayLike) -> FloatArray:
        """Density at ``x``, same shape; 0 outside the support. It leaves out an atom."""
        return self._inside(x, self._pdf, 0.0, 0.0)

    def cdf(self, x: ArrayLike) -> FloatArray:
        """P(X ≤ x), same shape as ``x``."""
        return self._inside(x, self._cdf, 0.0, 1.0)

    def sf(self, x: ArrayLike) -> FloatArray:
        """P(X > x) = 1 - cdf(x), same shape as ``x``; without the cancellation where the law's accuracy says so."""
        return self._inside(x, self._sf, 1.0, 0.0)

    def ppf(self, q: ArrayLike) -> FloatArray:
        """Quantile: the x with cdf(x) = q; the ends of the support at 0 and 1, nan outside [0, 1]."""
        return self._between(q, self._ppf, *self.support)

    def isf(self, q: ArrayLike) -> FloatArray:
        """Upper quantile: the x with sf(x) = q; the ends of the support at 1 and 0, nan outside [0, 1]."""
        return self._between(q, self._isf, *self.support[::-1])

    def p_value(self, observed: ArrayLike) -> FloatArray:
        """Two-sided p-value 2 min(cdf, sf), at most 1; nan where ``observed`` is nan."""
        values = _real_numbers("observed", observed)
        nearer = np.atleast_1d(self.cdf(values))
        beyond = nearer > 0.5
        nearer[beyond] = self.sf(np.atleast_1d(values)[beyond])
        return np.minimum(1.0, 2.0 * nearer).reshape(values.shape)[()]

    def moment(self, k: int) -> float:
        """E[X^k], k = 0, 1, 2, ...; by default by quadrature, to 1e-10 of E|X|^k for a smooth quantile function."""
        order = require_order(k)
        return self._average(lambda x: x**order)

    def mean(self) -> float:
        """Return the expectation."""
        return self.moment(1)

    def var(self) -> float:
        """Return the variance."""
        mean = self.mean()
        return self._average(lambda x: (x - mean) ** 2)

    def std(self) -> float:
        """Return the standard deviation."""
        return math.sqrt(self.var())

    def _average(self, f: Callable[[FloatArray], FloatArray]) -> float:
        """E[f(X)] by the trapezoidal rule in the normal score of X, over the nodes with a finite quantile."""
        mass, weight = _normal_rule()
        x, both = np.append(self.ppf(mass), self.isf(mass)), np.append(weight, weight)
        finite = np.isfinite(x)
        return float(both[finite] @ f(x[finite]))

    def _inside(
        self, x: ArrayLike, function: Callable[[FloatArray], FloatArray], below: float, above: float
    ) -> FloatArray:
        """Evaluate ``function`` strictly inside the support; ``below`` and ``above`` hold at its ends and beyond."""
        values = _real_numbers("x", x)
        low, high = self.support
        inside = (values > low) & (values < high)
        return _where(
            inside, values, function, lambda: np.where(np.isnan(values), np.nan, np.where(values >= high, above, below))
        )

    def _between(
        self, q: ArrayLike, function: Callable[[FloatArray], FloatArray], at_zero: float, at_one: float
    ) -> FloatArray:
        mass = _real_numbers("q", q)
        inside = (mass > 0.0) & (mass < 1.0)
        return _where(
            inside, mass, function, lambda: np.where(mass == 0.0, at_zero, np.where(mass == 1.0, at_one, np.nan))
        )


def _where(
    inside: NDArray[np.bool_],
    values: FloatArray,
    function: Callable[[FloatArray], FloatArray],
    outside: Callable[[], FloatArray],
) -> FloatArray:
    if inside.all():
        return function(values.reshape(-1)).reshape(values.shape)[()]
    result = outside()
    if inside.any():
        result[inside] = function(values[inside])
    return result[()]


def _real_numbers(name: str, value: ArrayLike) -> FloatArray:
    """Check as :func:`rmtbase.parameters.require_real_numbers`; one method has often checked what it gives another."""
    return value if type(value) is np.ndarray and value.dtype == np.float64 else require_real_numbers(name, value)


class KnownSpread(Distribution):
    """Law that defines its standard deviation, from which its variance follows."""

    def var(self) -> float:
        return self.std() ** 2


class ScoredLaw(Distribution):
    """Law given by the normal score z of each value, P(X ≤ x) = Φ(z)."""

    @abstractmethod
    def _score(self, x: FloatArray) -> FloatArray: ...

    def _cdf(self, x: FloatArray) -> FloatArray:
        return ndtr(self._score(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        return ndtr(-self._score(x))


class InvertedScore(ScoredLaw):
    """Law given by the normal score of each value, and by the value at each score."""

    @abstractmethod
    def at_score(self, z: FloatArray) -> FloatArray:
        """Return x with cdf(x) = Φ(z)."""

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self.at_score(ndtri(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.at_score(-ndtri(q))


class TransformedLaw(Distribution):
    """Law of a monotone function of a number that has another law, by the function and its inverse."""

    law: Distribution  # the other law

    @property
    def rising(self) -> bool:
        return True

    @abstractmethod
    def _to(self, x: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _from(self, x: FloatArray) -> FloatArray: ...

    def _cdf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return (self.law.cdf if self.rising else self.law.sf)(self._from(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return (self.law.sf if self.rising else self.law.cdf)(self._from(x))

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._to(self.law.ppf(q) if self.rising else self.law.isf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._to(self.law.isf(q) if self.rising else self.law.ppf(q))


def _delegated(name: str) -> Any:
    return lambda self, *arguments, **by_name: getattr(self.distribution, name)(*arguments, **by_name)


class StatedLaw(KnownSpread):
    """Law that delegates to another law and adds information about it."""

    distribution: Distribution

    support: Any = property(lambda self: self.distribution.support)
    moment, mean, std = map(_delegated, ("moment", "mean", "std"))
    _pdf, _cdf, _sf, _ppf, _isf = map(_delegated, ("_pdf", "_cdf", "_sf", "_ppf", "_isf"))


class DiscreteDistribution(Distribution):
    """Law of a number that takes finitely many values; it has a :meth:`pmf` in place of a density."""

    @property
    @abstractmethod
    def points(self) -> Float[np.ndarray, " value"]:
        """Possible values, ascending."""

    @abstractmethod
    def pmf(self, x: ArrayLike) -> FloatArray:
        """Probability of the value ``x``, same shape; 0 where ``x`` is not a possible value, nan at nan."""

    @property
    def support(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return float(self.points[0]), float(self.points[-1])

    def cdf(self, x: ArrayLike) -> FloatArray:
        return self._steps(x, np.append(0.0, np.cumsum(self.pmf(self.points))))

    def sf(self, x: ArrayLike) -> FloatArray:
        return self._steps(x, np.append(np.cumsum(self.pmf(self.points)[::-1])[::-1], 0.0))

    def _steps(self, x: ArrayLike, levels: FloatArray) -> FloatArray:
        """Evaluate the step function with these ``levels``: before the first value, ..., after the last."""
        at = _real_numbers("x", x)
        return np.where(np.isnan(at), np.nan, levels[np.searchsorted(self.points, at, side="right")])[()]

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.cdf(x)

    def _pdf(self, x: FloatArray) -> FloatArray:
        return np.zeros(x.shape)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self.points[np.minimum(np.searchsorted(self.cdf(self.points), q), self.points.size - 1)]

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.points[np.searchsorted(-self.sf(self.points), -q)]

    def _average(self, f: Callable[[FloatArray], FloatArray]) -> float:
        return float(self.pmf(self.points) @ f(self.points))


@in_one_line
@dataclass(frozen=True)
class Moments:
    """Mean, spread and shape of a statistic over independent draws of the matrix.

    Attributes:
        mean: the expectation.
        std: the standard deviation.
        method: ``"exact"``, or a description of the approximation with the order of the neglected term.
        error: estimated absolute error of the mean; 0 where exact (to rounding).
        std_error: estimated absolute error of the standard deviation; 0 where exact.
        skewness: third central moment over std³; nan where it is not available, or std is 0.
        excess_kurtosis: fourth central moment over std⁴, minus 3; nan likewise.
    """

    mean: float
    std: float
    method: str
    error: float = 0.0
    std_error: float = 0.0
    skewness: float = math.nan
    excess_kurtosis: float = math.nan


@cache
def _normal_rule() -> tuple[FloatArray, FloatArray]:
    """Return the lower tail masses of nodes z < 0, down to the smallest double, and the weights of z and -z."""
    step = 1.0 / 16.0
    z = np.arange(-37.0 + 0.5 * step, 0.0, step)
    return ndtr(z), step * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi)
