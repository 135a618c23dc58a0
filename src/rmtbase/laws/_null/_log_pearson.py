"""Laws of numbers whose logarithm, or logarithmic distance from an end, follows Pearson's type III."""

from __future__ import annotations

import math
from typing import Self

from scipy.optimize import root

from rmtbase.laws._distribution import FloatArray
from rmtbase.laws._null._on_scale import Logarithm, Nearness, OnScale
from rmtbase.laws._null._pearson import Pearson3

_FAITHFUL = 0.6  # relative spread up to which three moments determine the law better than two
_NARROW = 1e-4  # relative spread below which a double holds only the leading order of the moments of e^y
_LARGEST = 50.0  # largest logarithm of a moment


class LogPearson3(OnScale):
    """Law of e^y, origin + e^y or end − e^y with y of Pearson's type III, for a number that cannot reach an end.

    With y = a + b G for a gamma variable G of shape k, E e^(py) = e^(pa) (1 - p b)^(-k).
    """

    @classmethod
    def matched(cls, mean: float, std: float, skewness: float, faithful: float = _FAITHFUL) -> Self:
        """Return the member with these three moments; beyond a relative spread of ``faithful``, with the first two."""
        return cls(mean, std, Logarithm(), _matched(mean, std, skewness, faithful))

    @classmethod
    def with_inverse(cls, mean: float, std: float, log_product: float) -> Self:
        """Return the member with this mean, std and ln (E e^-y) (E e^y), for a wide law with a remote third moment.

        If no member has them, the law is log-normal.
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
        return cls(mean, std, Logarithm(), Pearson3(math.log(mean) - _log_moment(1, sigma, shape), sigma, shape))

    @classmethod
    def above(cls, origin: float, exponent: Pearson3) -> Self:
        """Return the law of origin + e^y for this law of y."""
        first, second = (_log_moment(p, exponent.spread, exponent.skewness) for p in (1, 2))
        mean = math.exp(exponent.centre + first)
        return cls(origin + mean, mean * math.sqrt(math.expm1(second - 2.0 * first)), Logarithm(origin), exponent)

    @classmethod
    def below(cls, end: float, law: Pearson3) -> Self:
        """Return the law of end − e^y with mean, standard deviation and skewness of another law."""
        y = _matched(end - law.centre, law.spread, -law.skewness, faithful=1.0)
        return cls(law.centre, law.spread, Nearness(end), Pearson3(-y.centre, y.spread, -y.skewness))


def _matched(mean: float, std: float, skewness: float, faithful: float) -> Pearson3:
    """Return the law of y for which e^y has these moments."""
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
        found = root(excess, [1.0, skewness - 3.0 * relative], tol=1e-9)
        if max(map(abs, excess(found.x))) < 1e-5:
            sigma, shape = relative * float(found.x[0]), float(found.x[1])
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
