"""The normal law that a smooth statistic of N independent weights follows for large N."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from rmtbase.laws._arrays import FloatArray
from rmtbase.parameters import require_positive_integer


@dataclass(frozen=True)
class LargeSampleLaw:
    """Mean ``limit`` + ``drift``/N and standard deviation ``spread``/√N. Asymptotic: O(N^(-3/2)) is left out of both.

    Attributes:
        limit: the value that N → ∞ gives, that of the parent law itself.
        spread: √N times the standard deviation; nan where the variance is infinite.
        drift: N times the bias; nan where it is not known or not of the order 1/N, and then left out of the mean.
    """

    limit: float
    spread: float
    drift: float = math.nan

    def mean(self, n: int) -> float:
        """Mean over samples of n weights."""
        n = require_positive_integer("n", n)
        return self.limit + (0.0 if math.isnan(self.drift) else self.drift / n)

    def std(self, n: int) -> float:
        """Standard deviation over samples of n weights."""
        return self.spread / math.sqrt(require_positive_integer("n", n))

    def z_score(self, observed: ArrayLike, n: int) -> FloatArray:
        """(observed − mean)/std, same shape as ``observed``."""
        return (np.asarray(observed, dtype=np.float64) - self.mean(n)) / self.std(n)

    def p_value(self, observed: ArrayLike, n: int) -> FloatArray:
        """Two-sided P(|Z| ≥ |z|), same shape as ``observed``."""
        return 2.0 * ndtr(-np.abs(self.z_score(observed, n)))
