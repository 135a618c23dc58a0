"""Laws of numbers given by the law of an increasing function of them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from rmtbase.laws._distribution import Distribution, FloatArray, TransformedLaw
from rmtbase.laws._null._pearson import TwoMoments


class Scale(ABC):
    """Increasing function of a statistic whose law is nearer to normal than that of the statistic.

    Attributes:
        domain: interval on which it is defined.
    """

    image: ClassVar[tuple[float, float]] = (-math.inf, math.inf)  # interval of its values

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, math.inf

    @abstractmethod
    def transform(self, x: FloatArray) -> FloatArray:
        """Return its values inside the domain."""

    @abstractmethod
    def inverse(self, u: FloatArray) -> FloatArray:
        """Return the points with these values, inside the image or at its ends."""

    @abstractmethod
    def derivatives(self, x: float) -> tuple[float, float, float]:
        """Return its value and first two derivatives."""


@dataclass(frozen=True)
class Identity(Scale):
    """Identity, x."""

    def transform(self, x: FloatArray) -> FloatArray:
        return x

    def inverse(self, u: FloatArray) -> FloatArray:
        return u

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return x, 1.0, 0.0


IDENTITY = Identity()


@dataclass(frozen=True)
class Logarithm(Scale):
    """Logarithm, ln(x − origin)."""

    origin: float = 0.0

    @property
    def domain(self) -> tuple[float, float]:
        return self.origin, math.inf

    def transform(self, x: FloatArray) -> FloatArray:
        return np.log(x - self.origin)

    def inverse(self, u: FloatArray) -> FloatArray:
        return self.origin + np.exp(u)

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return math.log(x - self.origin), 1.0 / (x - self.origin), -1.0 / (x - self.origin) ** 2


@dataclass(frozen=True)
class Inverse(Scale):
    """Negative inverse, −1/(x − origin)."""

    origin: float
    image: ClassVar[tuple[float, float]] = (-math.inf, -0.0)

    @property
    def domain(self) -> tuple[float, float]:
        return self.origin, math.inf

    def transform(self, x: FloatArray) -> FloatArray:
        return -1.0 / (x - self.origin)

    def inverse(self, u: FloatArray) -> FloatArray:
        return self.origin - 1.0 / u

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return -1.0 / (x - self.origin), 1.0 / (x - self.origin) ** 2, -2.0 / (x - self.origin) ** 3


@dataclass(frozen=True)
class Nearness(Scale):
    """Negative logarithm of the distance to an end, −ln(end − x)."""

    end: float

    @property
    def domain(self) -> tuple[float, float]:
        return -math.inf, self.end

    def transform(self, x: FloatArray) -> FloatArray:
        return -np.log(self.end - x)

    def inverse(self, u: FloatArray) -> FloatArray:
        return self.end - np.exp(-u)

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return -math.log(self.end - x), 1.0 / (self.end - x), 1.0 / (self.end - x) ** 2


@dataclass(frozen=True)
class Exponential(Scale):
    """Exponential, e^x, for the logarithm of a number that is never below 1."""

    image: ClassVar[tuple[float, float]] = (1.0, math.inf)

    @property
    def domain(self) -> tuple[float, float]:
        return 0.0, math.inf

    def transform(self, x: FloatArray) -> FloatArray:
        return np.exp(x)

    def inverse(self, u: FloatArray) -> FloatArray:
        return np.log(u)

    def derivatives(self, x: float) -> tuple[float, float, float]:
        return math.exp(x), math.exp(x), math.exp(x)


@dataclass(frozen=True)
class OnScale(TwoMoments, TransformedLaw):
    """Law of a statistic T, given by the law of an increasing function of T.

    Attributes:
        centre, spread: mean and standard deviation of T.
    """

    scale: Scale  # the function
    law: Distribution  # the law of scale(T)

    @property
    def support(self) -> tuple[float, float]:
        """Image of the support of the law of scale(T), within the domain of the function."""
        low, high = self._to(np.array(self.law.support))
        return float(low), float(high)

    def _from(self, x: FloatArray) -> FloatArray:
        return self.scale.transform(x)

    def _to(self, x: FloatArray) -> FloatArray:
        """T at values of the function; values of an approximate law beyond the image are clipped to its ends."""
        with np.errstate(over="ignore", divide="ignore"):
            return self.scale.inverse(np.clip(x, *self.scale.image))
