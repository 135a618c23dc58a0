"""The law of a smooth statistic of n independent weights, from its expansion about the parent's law."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._null._pearson import Pearson3
from rmtbase.laws._weibull._expansion import Expansion, quadratic_noise


@dataclass(frozen=True)
class Scale:
    """An increasing function of a statistic, in which its law is nearer to normal.

    Attributes:
        of: the function.
        derivatives: x ↦ its value and first two derivatives.
        domain: where it is defined.
    """

    of: Callable[[FloatArray], FloatArray]
    derivatives: Callable[[float], tuple[float, float, float]]
    domain: tuple[float, float] = (-math.inf, math.inf)


IDENTITY = Scale(lambda x: x, lambda x: (x, 1.0, 0.0))
LOGARITHM = Scale(np.log, lambda x: (math.log(x), 1.0 / x, -1.0 / x**2), (0.0, math.inf))


def shifted_logarithm(origin: float) -> Scale:
    """Ln(x − origin)."""

    def derivatives(x: float) -> tuple[float, float, float]:
        return math.log(x - origin), 1.0 / (x - origin), -1.0 / (x - origin) ** 2

    return Scale(lambda x: np.log(x - origin), derivatives, (origin, math.inf))


def shifted_inverse(origin: float) -> Scale:
    """−1/(x − origin)."""

    def derivatives(x: float) -> tuple[float, float, float]:
        return -1.0 / (x - origin), 1.0 / (x - origin) ** 2, -2.0 / (x - origin) ** 3

    return Scale(lambda x: -1.0 / (x - origin), derivatives, (origin, math.inf))


@dataclass(frozen=True)
class Cumulants:
    """Mean ``limit`` + ``drift``/n, variance ``second``/n + ``second_next``/n², third cumulant likewise from n⁻² on."""

    limit: float
    drift: float
    second: float
    third: float
    second_next: float = 0.0
    third_next: float = 0.0

    @classmethod
    def of(cls, statistic: Expansion, corrections: tuple[float, float] = (0.0, 0.0)) -> Cumulants:
        """Those of a statistic of n independent weights; n times the relative corrections of κ₂ and κ₃ are given."""
        second, third = statistic.variance, statistic.third
        return cls(
            statistic.value,
            0.0 if math.isnan(statistic.drift) else statistic.drift,
            second,
            third,
            second * corrections[0],
            third * corrections[1],
        )

    @classmethod
    def with_noise(cls, statistic: Expansion) -> Cumulants:
        """Those with what the curvature alone adds, for a statistic whose influence is small."""
        second_next, third_next = quadratic_noise(statistic)
        return replace(cls.of(statistic), second_next=second_next, third_next=third_next)

    def at(self, n: float) -> Pearson3:
        """The law with these three at n."""
        second, third = self.second + self.second_next / n, self.third + self.third_next / n
        return Pearson3.of(self.limit + self.drift / n, second / n, third / n**2)


@dataclass(frozen=True)
class OnScale(Distribution):
    """The law of a statistic of which an increasing function has a known law.

    Attributes:
        scale: the function.
        law: of scale(T).
        first, spread: mean and standard deviation of T.
    """

    scale: Scale
    law: Distribution
    first: float
    spread: float

    @property
    def support(self) -> tuple[float, float]:
        """Of the function's domain what its law has probability for."""
        return self.scale.domain

    def mean(self) -> float:
        return self.first

    def std(self) -> float:
        return self.spread

    def var(self) -> float:
        return self.spread**2

    def _cdf(self, x: FloatArray) -> FloatArray:
        return self.law.cdf(self.scale.of(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        return self.law.sf(self.scale.of(x))
