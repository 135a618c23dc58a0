"""The first moments of a statistic, with how they were obtained."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Moments:
    """Mean, spread and shape of a statistic over independent draws of the matrix.

    Attributes:
        mean: the expectation.
        std: the standard deviation.
        method: ``"exact"``, or the approximation in words with the order of the neglected term.
        error: estimated absolute error of the mean; 0 where exact (to rounding).
        std_error: estimated absolute error of the standard deviation; 0 where exact.
        skewness: third central moment over std³; nan where it is not offered, or std is 0.
        excess_kurtosis: fourth central moment over std⁴, minus 3; nan likewise.
    """

    mean: float
    std: float
    method: str
    error: float = 0.0
    std_error: float = 0.0
    skewness: float = math.nan
    excess_kurtosis: float = math.nan
