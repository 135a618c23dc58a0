"""Laws of numbers of which an increasing function has a known law."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rmtbase.laws._distribution import Distribution, FloatArray
from rmtbase.laws._null._pearson import TwoMoments


class Scale(ABC):
    """An increasing function of a statistic, in which its law is nearer to normal.

    Attributes:
        domain: where it is defined.
        image: the values that it takes.
    """

    image: ClassVar[tuple[float, float]] = (-math.inf, math.inf)

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, math.inf

    @abstractmethod
    def of(self, x: FloatArray) -> FloatArray:
        """Its values inside the domain."""

    @abstractmethod
    def inverse(self, u: FloatArray) -> FloatArray:
        """Where it has these values, inside the image or at its ends."""

    @abstractmethod
    def derivatives(self, x: float) -> tuple[float, float, float]:
        """Its value and first two derivatives."""


@dataclass(frozen=True)
class Identity(Scale):
    """x."""

    def of(self, x: FloatArray) -> FloatArray:
        return x

    def inverse(self, u: FloatArray) -> FloatArray:
        return u

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return x, 1.0, 0.0


IDENTITY = Identity()


@dataclass(frozen=True)
class Logarithm(Scale):
    """ln(x − origin)."""

    origin: float = 0.0

    @property
    def domain(self) -> tuple[float, float]:
        return self.origin, math.inf

    def of(self, x: FloatArray) -> FloatArray:
        return np.log(x - self.origin)

    def inverse(self, u: FloatArray) -> FloatArray:
        return self.origin + np.exp(u)

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return math.log(x - self.origin), 1.0 / (x - self.origin), -1.0 / (x - self.origin) ** 2


@dataclass(frozen=True)
class Inverse(Scale):
    """−1/(x − origin)."""

    origin: float
    image: ClassVar[tuple[float, float]] = (-math.inf, -0.0)

    @property
    def domain(self) -> tuple[float, float]:
        return self.origin, math.inf

    def of(self, x: FloatArray) -> FloatArray:
        return -1.0 / (x - self.origin)

    def inverse(self, u: FloatArray) -> FloatArray:
        return self.origin - 1.0 / u

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return -1.0 / (x - self.origin), 1.0 / (x - self.origin) ** 2, -2.0 / (x - self.origin) ** 3


@dataclass(frozen=True)
class Nearness(Scale):
    """−ln(end − x)."""

    end: float

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, self.end

    def of(self, x: FloatArray) -> FloatArray:
        return -np.log(self.end - x)

    def inverse(self, u: FloatArray) -> FloatArray:
        return self.end - np.exp(-u)

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return -math.log(self.end - x), 1.0 / (self.end - x), 1.0 / (self.end - x) ** 2


@dataclass(frozen=True)
class Exponential(Scale):
    """e^x, for the logarithm of a number that is never below 1."""

    image: ClassVar[tuple[float, float]] = (1.0, math.inf)

    @property
    def domain(self) -> tuple[float, float]:
        return 0.0, math.inf

    def of(self, x: FloatArray) -> FloatArray:
        return np.exp(x)

    def inverse(self, u: FloatArray) -> FloatArray:
        return np.log(u)

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return math.exp(x), math.exp(x), math.exp(x)


@dataclass(frozen=True)
class OnScale(TwoMoments):
    """The law of a statistic T of which an increasing function has a known law.

    Attributes:
        centre, spread: mean and standard deviation of T.
        scale: the function.
        law: of scale(T).
    """

    scale: Scale
    law: Distribution

    @property
    def support(self) -> tuple[float, float]:
        """Of the function's domain what its law has probability for."""
        low, high = self._from(np.array(self.law.support))
        return float(low), float(high)

    def _cdf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return self.law.cdf(self.scale.of(x))

    def _sf(self, x: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return self.law.sf(self.scale.of(x))

    def _ppf(self, q: FloatArray) -> FloatArray:
        return self._from(self.law.ppf(q))

    def _isf(self, q: FloatArray) -> FloatArray:
        return self._from(self.law.isf(q))

    def _from(self, u: FloatArray) -> FloatArray:
        """T at values of the function; what an approximate law has beyond its image lies at its ends."""
        with np.errstate(over="ignore", divide="ignore"):
            return self.scale.inverse(np.clip(u, *self.scale.image))
