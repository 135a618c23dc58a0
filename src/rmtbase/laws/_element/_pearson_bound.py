"""Pearson's lower bound on kurtosis, given the skewness, and the laws that reach it.

Kurtosis is the fourth standardized moment throughout, 3 for a normal law; subtract 3 for the excess kurtosis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws._distribution import DiscreteDistribution, FloatArray
from rmtbase.parameters import require_finite_number, require_order, require_positive_number, require_real_numbers


def pearson_bound(skewness: ArrayLike) -> FloatArray:
    """Return the smallest kurtosis, skewness² + 1, that a law with this skewness can have; exact, same shape.

    Only two-point laws reach it (Pearson 1916); see :class:`TwoPoint`. The bound also holds for samples, if both
    statistics are the plain moments with 1/n. nan gives nan; an infinite skewness raises a ParameterError.
    """
    values = require_real_numbers("skewness", skewness)
    if np.isinf(values).any():
        raise ParameterError("skewness", skewness, "finite numbers, NaN where not known")
    with np.errstate(over="ignore"):
        return values**2 + 1.0


@dataclass(frozen=True)
class TwoPoint(DiscreteDistribution):
    """Two-point law with a given skewness; it reaches Pearson's bound.

    With t = √(skewness² + 4), the standardized points are (skewness ∓ t)/2, and the upper point has probability
    (1 - skewness/t)/2.

    Attributes:
        skewness: any finite number.
        center: the mean, finite.
        scale: the standard deviation, positive.
    """

    skewness: float
    center: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name in ("skewness", "center"):
            object.__setattr__(self, name, require_finite_number(name, getattr(self, name)))
        object.__setattr__(self, "scale", require_positive_number("scale", self.scale))

    @property
    def points(self) -> Float[np.ndarray, "2"]:
        """Both points, in ascending order."""
        return np.array([self.center + self.scale * point for point in sorted(self._standardized)])

    @property
    def weights(self) -> tuple[float, float]:
        """Probabilities of the two points, in ascending order."""
        low, high = sorted(self._standardized)
        return high / (high - low), -low / (high - low)

    def pmf(self, x: ArrayLike) -> FloatArray:
        values = require_real_numbers("x", x)
        (low, high), (below, above) = self.support, self.weights
        return np.select([np.isnan(values), values == low, values == high], [np.nan, below, above], 0.0)[()]

    def moment(self, k: int) -> float:
        order = require_order(k)
        return math.fsum(weight * point**order for weight, point in zip(self.weights, self.support, strict=True))

    def mean(self) -> float:
        return self.center

    def var(self) -> float:
        return self.scale**2

    def std(self) -> float:
        return self.scale

    def kurtosis(self) -> float:
        """Return the kurtosis, skewness² + 1."""
        return self.skewness**2 + 1.0

    @property
    def _standardized(self) -> tuple[float, float]:
        """Both points for mean 0 and variance 1; their product is -1."""
        far = 0.5 * (self.skewness + math.copysign(math.hypot(self.skewness, 2.0), self.skewness))
        return -1.0 / far, far
