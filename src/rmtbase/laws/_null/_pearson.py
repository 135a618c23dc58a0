"""Pearson's type III, and the law whose logarithm it is: by mean, standard deviation and skewness."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from scipy.optimize import root
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv, ndtr, ndtri

from rmtbase.laws._distribution import Distribution, FloatArray

_FAITHFUL = 0.6  # relative spread up to which three moments say more than two
_NARROW = 1e-4  # relative spread below which the leading order of the moments of e^y is all that a double holds
_LEAST = 1e-6  # skewness that is one, and part of the gamma variable's mean that is left of it at its end
_SYMMETRIC = 5e-3  # skewness below which gammainc loses its tails, and a cube root of the gamma variable is normal


@dataclass(frozen=True)
class ThreeMoments(Distribution):
    """A law that its first three moments determine.

    Attributes:
        centre, spread, skewness: mean, standard deviation, and third central moment over std³.
    """

    centre: float
    spread: float
    skewness: float

    @classmethod
    def of(cls, mean: float, variance: float, third: float) -> Self:
        """The law with these cumulants."""
        return cls(mean, math.sqrt(variance), third / variance**1.5)

    def mean(self) -> float:
        return self.centre

    def std(self) -> float:
        return self.spread

    def var(self) -> float:
        return self.spread**2


class Pearson3(ThreeMoments):
    """The gamma distribution, shifted and perhaps reversed, with these moments (Pearson's type III).

    For d_head/d_model → 0 it is the law itself of the scale-free statistics: they are then those of a traceless matrix
    of the Gaussian orthogonal ensemble, whose sum of squares is χ² of h(h + 1)/2 - 1 degrees of freedom.
    """

    @property
    def support(self) -> tuple[float, float]:
        """The real line, cut where the gamma variable is zero."""
        if self.skewness == 0.0:
            return -math.inf, math.inf
        end = self.centre - 2.0 * self.spread / self.skewness
        return (end, math.inf) if self.skewness > 0.0 else (-math.inf, end)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self._mass(x, 1.0)

    def _sf(self, x: FloatArray) -> FloatArray:
        return self._mass(x, -1.0)

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._quantile(q, 1.0)

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._quantile(q, -1.0)

    # With k = 4/skewness² and G a gamma variable of mean and variance k: x = mean + std (G - k) skewness/2. Below
    # _SYMMETRIC Wilson & Hilferty (1931): (G/k)^(1/3) is normal, to 3e-4 of the tail's mass at eight deviations.

    def _mass(self, x: FloatArray, sign: float) -> FloatArray:
        """The mass on the side of x that is lower (1) or upper (-1)."""
        with np.errstate(over="ignore", divide="ignore"):
            score = (x - self.centre) / self.spread
            if self.skewness == 0.0:
                return ndtr(sign * score)
            rise = np.maximum(0.5 * self.skewness * score, -1.0)  # G/k - 1
            if abs(self.skewness) >= _SYMMETRIC:
                shape = 4.0 / self.skewness**2
                return (gammainc if sign * self.skewness > 0.0 else gammaincc)(shape, shape + shape * rise)
            root = np.expm1(np.log1p(rise) / 3.0)
            return ndtr(sign * (6.0 / self.skewness * root + self.skewness / 6.0))

    def _quantile(self, q: FloatArray, sign: float) -> FloatArray:
        if self.skewness == 0.0:
            return self.centre + self.spread * sign * ndtri(q)
        if abs(self.skewness) >= _SYMMETRIC:
            shape = 4.0 / self.skewness**2
            inverse = gammaincinv if sign * self.skewness > 0.0 else gammainccinv
            rise = (inverse(shape, q) - shape) / shape
        else:
            root = np.maximum(self.skewness / 6.0 * (sign * ndtri(q) - self.skewness / 6.0), -1.0)
            rise = root * (3.0 + root * (3.0 + root))
        return self.centre + self.spread * 2.0 / self.skewness * rise


@dataclass(frozen=True)
class Pearson3Mixture(Distribution):
    """A mixture of type III laws of |skewness| < 1, each by the cube root of its gamma variable, nearly normal.

    Source: E. B. Wilson and M. M. Hilferty, Proc. Natl. Acad. Sci. 17, 684 (1931).

    Attributes:
        centre, spread, skewness: of the parts, (part,) or one for all.
        weight: of sum 1, (part,).
    """

    centre: FloatArray
    spread: FloatArray | float
    skewness: FloatArray | float
    weight: FloatArray

    @property
    def support(self) -> tuple[float, float]:
        return -math.inf, math.inf

    def mean(self) -> float:
        return float(self.weight @ self.centre)

    def var(self) -> float:
        return float(self.weight @ ((self.centre - self.mean()) ** 2 + np.square(self.spread)))

    def _cdf(self, x: FloatArray) -> FloatArray:
        return ndtr(self._scores(x)) @ self.weight

    def _sf(self, x: FloatArray) -> FloatArray:
        return ndtr(-self._scores(x)) @ self.weight

    def _scores(self, x: FloatArray) -> FloatArray:
        score = (x[..., None] - self.centre) / self.spread
        skewness = np.where(np.abs(self.skewness) < _LEAST, _LEAST, self.skewness)
        rise = np.maximum(0.5 * skewness * score, _LEAST - 1.0)
        return 6.0 / skewness * np.expm1(np.log1p(rise) / 3.0) + skewness / 6.0


class ShiftedLogNormal(ThreeMoments):
    """±(e^y − c) with a normal y: the law with these moments that has no end where its thin tail is.

    With ω = e^(Var y), |skewness| = (ω + 2)(ω − 1)^(1/2), not zero.
    """

    @cached_property
    def _shape(self) -> tuple[float, float]:
        """Standard deviation of y, and the median of e^y in units of the spread."""
        # (ω + 2)²(ω − 1) = skewness², a cubic: with ω + 1 = 2 cosh v it is cosh 3v = 1 + skewness²/2.
        omega = 2.0 * math.cosh(math.acosh(1.0 + 0.5 * self.skewness**2) / 3.0) - 1.0
        return math.sqrt(math.log(omega)), 1.0 / math.sqrt(omega * (omega - 1.0))

    @property
    def support(self) -> tuple[float, float]:
        """From, or up to, its end on the thin side."""
        sigma, median = self._shape
        end = self.centre - math.copysign(median * math.exp(0.5 * sigma**2) * self.spread, self.skewness)
        return (end, math.inf) if self.skewness > 0.0 else (-math.inf, end)

    def _cdf(self, x: FloatArray) -> FloatArray:
        return ndtr(self._score(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        return ndtr(-self._score(x))

    def _score(self, x: FloatArray) -> FloatArray:
        sigma, median = self._shape
        sign = math.copysign(1.0, self.skewness)
        rise = sign * (x - self.centre) / self.spread + median * math.exp(0.5 * sigma**2)
        return sign * np.log(np.maximum(rise, 1e-300) / median) / sigma


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
            if max(second, third) > 50.0:
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


def _log_moment(p: int, sigma: float, skewness: float) -> float:
    """ln E e^(p y) of type III with mean 0: -k (ln(1 - u) + u), k = 4/skewness², u = p σ skewness/2."""
    u = 0.5 * p * sigma * skewness
    if abs(u) < 0.03:  # ln(1 - u) + u loses digits
        return 0.5 * (p * sigma) ** 2 * math.fsum(2.0 * u**n / (n + 2) for n in range(10))
    if u >= 1.0:
        return math.inf
    return -4.0 / skewness**2 * (math.log1p(-u) + u)
