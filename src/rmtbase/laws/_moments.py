"""Mean and spread of a statistic, with how they were obtained."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moments:
    """Mean and standard deviation of a statistic over independent draws of the matrix.

    Attributes:
        mean: the expectation.
        std: the standard deviation.
        method: ``"exact"``, or the approximation in words with the order of the neglected term.
        error: estimated absolute error of the mean; 0 where exact (to rounding).
        std_error: estimated absolute error of the standard deviation; 0 where exact.
    """

    mean: float
    std: float
    method: str
    error: float = 0.0
    std_error: float = 0.0
