"""Laws of numbers given by the law of an increasing function of them, such as a logarithm of Pearson's type III."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import root

from rmtbase.laws._distribution import Distribution, FloatArray, TransformedLaw
from rmtbase.laws._null._pearson import Pearson3, TwoMoments

_FAITHFUL = 0.6  # relative spread up to which three moments determine the law better than two
_NARROW = 1e-4  # relative spread below which a double holds only the leading order of the moments of e^y
_LARGEST = 50.0  # largest logarithm of a moment


class Scale(NamedTuple):
    """Increasing function of a statistic whose law is nearer to normal than that of the statistic."""

    transform: Callable[[FloatArray], FloatArray]
    inverse: Callable[[FloatArray], FloatArray]
    image: tuple[float, float] = (-math.inf, math.inf)  # interval of its values
    derivatives: Any = None  # x ↦ its value and first two derivatives, where expansions are made on it


IDENTITY = Scale(lambda x: x, lambda u: u, derivatives=lambda x: (x, 1.0, 0.0))
EXPONENTIAL = Scale(np.exp, np.log, (1.0, math.inf))  # for ln of a number of 1 or more


def logarithm(origin: float = 0.0) -> Scale:
    """ln(x − origin)."""
    return Scale(
        lambda x: np.log(x - origin),
        lambda u: origin + np.exp(u),
        derivatives=lambda x: (math.log(x - origin), 1.0 / (x - origin), -1.0 / (x - origin) ** 2),
    )


def nearness(end: float) -> Scale:
    """−ln(end − x)."""
    return Scale(lambda x: -np.log(end - x), lambda u: end - np.exp(-u))


def reciprocal(origin: float) -> Scale:
    """−1/(x − origin)."""
    return Scale(
        lambda x: -1.0 / (x - origin),
        lambda u: origin - 1.0 / u,
        (-math.inf, -0.0),
        lambda x: (-1.0 / (x - origin), 1.0 / (x - origin) ** 2, -2.0 / (x - origin) ** 3),
    )


@dataclass(frozen=True)
class OnScale(TwoMoments, TransformedLaw):
    """Law of a statistic T with this mean and standard deviation, given by the law of an increasing function of T."""

    scale: Scale  # the function
    law: Distribution  # the law of scale(T)

    @property
    def support(self) -> tuple[float, float]:
        low, high = self._to(np.array(self.law.support))
        return float(low), float(high)

    def _from(self, x: FloatArray) -> FloatArray:
        return self.scale.transform(x)

    def _to(self, x: FloatArray) -> FloatArray:
        # Values of an approximate law beyond the image are clipped to its ends.
        with np.errstate(over="ignore", divide="ignore"):
            return self.scale.inverse(np.clip(x, *self.scale.image))


class LogPearson3(OnScale):
    """Law of e^y, origin + e^y or end − e^y with y of Pearson's type III, for a number that cannot reach an end."""

    @classmethod
    def matched(cls, mean: float, std: float, skewness: float, faithful: float = _FAITHFUL) -> Self:
        """Return the member with these three moments; beyond a relative spread of ``faithful``, with the first two."""
        return cls(mean, std, logarithm(), _matched(mean, std, skewness, faithful))

    @classmethod
    def with_inverse(cls, mean: float, std: float, log_product: float) -> Self:
        """Return the member with this mean, std and ln (E e^-y) (E e^y), for a wide law; log-normal if none has."""
        second = math.log1p((std / mean) ** 2)

        def excess(parameters: FloatArray) -> list[float]:
            below, first, above = (_log_moment(p, *map(float, parameters)) for p in (-1, 1, 2))
            if max(below, above) > _LARGEST:
                return [math.inf, math.inf]
            return [above - 2.0 * first - second, below + first - log_product]

        sigma, shape = math.sqrt(second), 0.0
        solution = root(excess, [sigma, shape], tol=1e-10)
        if max(map(abs, excess(solution.x))) < 1e-6:
            sigma, shape = map(float, solution.x)
        return cls(mean, std, logarithm(), Pearson3(math.log(mean) - _log_moment(1, sigma, shape), sigma, shape))

    @classmethod
    def above(cls, origin: float, exponent: Pearson3) -> Self:
        """Return the law of origin + e^y for this law of y."""
        first, second = (_log_moment(p, exponent.spread, exponent.skewness) for p in (1, 2))
        mean = math.exp(exponent.centre + first)
        return cls(origin + mean, mean * math.sqrt(math.expm1(second - 2.0 * first)), logarithm(origin), exponent)

    @classmethod
    def below(cls, end: float, law: Pearson3) -> Self:
        """Return the law of end − e^y with mean, standard deviation and skewness of another law."""
        y = _matched(end - law.centre, law.spread, -law.skewness, faithful=1.0)
        return cls(law.centre, law.spread, nearness(end), Pearson3(-y.centre, y.spread, -y.skewness))


def _matched(mean: float, std: float, skewness: float, faithful: float) -> Pearson3:
    relative = std / mean

    def excess(parameters: FloatArray) -> list[float]:
        sigma, shape = relative * parameters[0], float(parameters[1])
        second, third = (_log_moment(p, sigma, shape) - p * _log_moment(1, sigma, shape) for p in (2, 3))
        if max(second, third) > _LARGEST:
            return [math.inf, math.inf]
        variance = math.expm1(second)
        return [variance / relative**2 - 1.0, (math.expm1(third) - 3.0 * variance) / relative**3 - skewness]

    sigma, shape = math.sqrt(math.log1p(relative**2)), 0.0  # log-normal, if no member has that skewness
    if relative < _NARROW:
        shape = skewness - 3.0 * relative
    elif relative < faithful:
        solution = root(excess, [1.0, skewness - 3.0 * relative], tol=1e-9)
        if max(map(abs, excess(solution.x))) < 1e-5:
            sigma, shape = relative * float(solution.x[0]), float(solution.x[1])
    location = math.log(mean) - _log_moment(1, sigma, shape)
    return Pearson3(location, sigma, shape)


def _log_moment(p: int, sigma: float, skewness: float) -> float:
    """ln E e^(p y) for type III of mean 0: -k (ln(1 - u) + u) with k = 4/skewness² and u = p σ skewness/2."""
    u = 0.5 * p * sigma * skewness
    if abs(u) < 0.03:  # ln(1 - u) + u loses digits
        return 0.5 * (p * sigma) ** 2 * math.fsum(2.0 * u**n / (n + 2) for n in range(10))
    if u >= 1.0:
        return math.inf
    return -4.0 / skewness**2 * (math.log1p(-u) + u)
