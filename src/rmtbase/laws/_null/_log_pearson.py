"""Laws of numbers that Pearson's type III has the logarithm of, or of their distance to an end, or the exponential."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import root

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._null._pearson import Pearson3

_FAITHFUL = 0.6  # relative spread up to which three moments say more than two
_NARROW = 1e-4  # relative spread below which the leading order of the moments of e^y is all that a double holds
_LARGEST = 50.0  # logarithm of a moment


@dataclass(frozen=True)
class LogPearson3(Distribution):
    """The law of e^y, y Pearson's type III: for a positive statistic of exactly known mean, std and skewness.

    With y = a + b G for a gamma variable G, E e^(py) = e^(pa) (1 - p b)^(-k).

    Attributes:
        exponent: the law of y.
        first, spread: mean and standard deviation of e^y.
    """

    exponent: Pearson3
    first: float
    spread: float

    @classmethod
    def matched(cls, mean: float, std: float, skewness: float, faithful: float = _FAITHFUL) -> LogPearson3:
        """The member with these three; with the first two only beyond a relative spread of ``faithful``."""
        relative = std / mean

        def excess(parameters: FloatArray) -> list[float]:
            sigma, shape = relative * parameters[0], float(parameters[1])
            second, third = (_log_moment(p, sigma, shape) - p * _log_moment(1, sigma, shape) for p in (2, 3))
            if max(second, third) > _LARGEST:
                return [math.inf, math.inf]
            variance = math.expm1(second)
            return [variance / relative**2 - 1.0, (math.expm1(third) - 3.0 * variance) / relative**3 - skewness]

        sigma, shape = math.sqrt(math.log1p(relative**2)), 0.0  # log-normal, where no member has that skewness
        if relative < _NARROW:
            shape = skewness - 3.0 * relative
        elif relative < faithful:
            found = root(excess, [1.0, skewness - 3.0 * relative], tol=1e-9)
            if max(map(abs, excess(found.x))) < 1e-5:
                sigma, shape = relative * float(found.x[0]), float(found.x[1])
        location = math.log(mean) - _log_moment(1, sigma, shape)
        return cls(Pearson3(location, sigma, shape), mean, std)

    @classmethod
    def with_inverse(cls, mean: float, std: float, log_product: float) -> LogPearson3:
        """The member with this mean, std and ln (E e^-y) (E e^y): of a wide law, whose third moment is far out.

        Log-normal where no member has them.
        """
        second = math.log1p((std / mean) ** 2)

        def excess(parameters: FloatArray) -> list[float]:
            below, first, above = (_log_moment(p, *map(float, parameters)) for p in (-1, 1, 2))
            if max(below, above) > _LARGEST:
                return [math.inf, math.inf]
            return [above - 2.0 * first - second, below + first - log_product]

        sigma, shape = math.sqrt(second), 0.0
        found = root(excess, [sigma, shape], tol=1e-10)
        if max(map(abs, excess(found.x))) < 1e-6:
            sigma, shape = map(float, found.x)
        return cls(Pearson3(math.log(mean) - _log_moment(1, sigma, shape), sigma, shape), mean, std)

    @classmethod
    def of(cls, exponent: Pearson3) -> LogPearson3:
        """That of e^y for this law of y."""
        first, second = (_log_moment(p, exponent.spread, exponent.skewness) for p in (1, 2))
        mean = math.exp(exponent.centre + first)
        return cls(exponent, mean, mean * math.sqrt(math.expm1(second - 2.0 * first)))

    @property
    def support(self) -> tuple[float, float]:
        """(0, ∞), or narrower where y is bounded."""
        with np.errstate(over="ignore"):
            lower, upper = np.exp(self.exponent.support)
        return float(lower), float(upper)

    def mean(self) -> float:
        return self.first

    def var(self) -> float:
        return self.spread**2

    def std(self) -> float:
        return self.spread

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.exponent.cdf(np.log(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.exponent.sf(np.log(x))

    def _ppf(self, q: FloatArray) -> FloatArray:
        return np.exp(self.exponent.ppf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return np.exp(self.exponent.isf(q))


@dataclass(frozen=True)
class BelowEnd(Distribution):
    """The law of end − e^y, y Pearson's type III: of a statistic that cannot reach its end.

    Attributes:
        end: the largest value.
        distance: the law of e^y.
    """

    end: float
    distance: LogPearson3

    @classmethod
    def matched(cls, end: float, law: Pearson3) -> BelowEnd:
        """With mean, standard deviation and skewness of another law."""
        return cls(end, LogPearson3.matched(end - law.centre, law.spread, -law.skewness, faithful=1.0))

    @property
    def support(self) -> tuple[float, float]:
        low, high = self.distance.support
        return self.end - high, self.end - low

    def mean(self) -> float:
        return self.end - self.distance.mean()

    def var(self) -> float:
        return self.distance.var()

    def std(self) -> float:
        return self.distance.std()

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.distance.sf(self.end - x)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.distance.cdf(self.end - x)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self.end - self.distance.isf(q)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.end - self.distance.ppf(q)


@dataclass(frozen=True)
class AboveEnd(Distribution):
    """The law of end + e^y, y Pearson's type III: of a statistic that cannot fall to its end.

    Attributes:
        end: the smallest value.
        exponent: the law of y.
    """

    end: float
    exponent: Pearson3

    @property
    def support(self) -> tuple[float, float]:
        low, high = self._distance.support
        return self.end + low, self.end + high

    def mean(self) -> float:
        return self.end + self._distance.mean()

    def var(self) -> float:
        return self._distance.var()

    def std(self) -> float:
        return self._distance.std()

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self._distance.cdf(x - self.end)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self._distance.sf(x - self.end)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self.end + self._distance.ppf(q)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self.end + self._distance.isf(q)

    @cached_property
    def _distance(self) -> LogPearson3:
        return LogPearson3.of(self.exponent)


@dataclass(frozen=True)
class Logarithm(Distribution):
    """The law of ln x, x Pearson's type III: of a number that is never below 1.

    Attributes:
        number: the law of x.
        first, spread: mean and standard deviation of ln x.
    """

    number: Pearson3
    first: float
    spread: float

    @property
    def support(self) -> tuple[float, float]:
        """From 0, or where the number's law begins, to where that ends."""
        low, high = self.number.support
        return math.log(max(low, 1.0)), math.log(high)

    def mean(self) -> float:
        return self.first

    def std(self) -> float:
        return self.spread

    def var(self) -> float:
        return self.spread**2

    def _cdf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return self.number.cdf(np.exp(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return self.number.sf(np.exp(x))

    def _ppf(self, q: FloatArray) -> FloatArray:
        return np.log(np.maximum(self.number.ppf(q), 1.0))

    def _isf(self, q: FloatArray) -> FloatArray:
        return np.log(np.maximum(self.number.isf(q), 1.0))


def _log_moment(p: int, sigma: float, skewness: float) -> float:
    """ln E e^(p y) of type III with mean 0: -k (ln(1 - u) + u), k = 4/skewness², u = p σ skewness/2."""
    u = 0.5 * p * sigma * skewness
    if abs(u) < 0.03:  # ln(1 - u) + u loses digits
        return 0.5 * (p * sigma) ** 2 * math.fsum(2.0 * u**n / (n + 2) for n in range(10))
    if u >= 1.0:
        return math.inf
    return -4.0 / skewness**2 * (math.log1p(-u) + u)
