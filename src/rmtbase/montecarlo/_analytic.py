"""The analytic value beside each simulated one, with how it is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.statistics import SPECTRAL_STATISTICS

NONE = "none"


class AnalyticValue(NamedTuple):
    """Mean and standard deviation at σ = 1 for the raw product; NaN where no formula is offered."""

    mean: float
    std: float
    method: str


def analytic_values(d_model: int, d_head: int) -> dict[str, AnalyticValue]:
    """The analytic mean and sd of every registered statistic of the raw W_QK at (d_model, d_head), σ = 1."""
    return {name: _value(name, (d_model, d_head, d_model)) for name in SPECTRAL_STATISTICS}


def _value(statistic: str, dims: tuple[int, ...]) -> AnalyticValue:
    try:
        null = laws.null(statistic, dims)
    except ParameterError:  # the dimensions lie outside the null's domain
        return AnalyticValue(np.nan, np.nan, NONE)
    return AnalyticValue(null.mean(), null.std(), f"{null.method}: {null.accuracy}")
