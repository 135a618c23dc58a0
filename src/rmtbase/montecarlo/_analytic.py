"""The analytic value beside each simulated one, with how it is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rmtbase import laws
from rmtbase.statistics import SPECTRAL_STATISTICS

NONE = "none"
_ASYMPTOTIC_FROM = 8  # below this d_head an expansion in 1/d_head says nothing


class AnalyticValue(NamedTuple):
    """Mean and standard deviation at σ = 1 for the raw product; NaN where no formula is offered."""

    mean: float
    std: float
    method: str


def analytic_values(d_model: int, d_head: int) -> dict[str, AnalyticValue]:
    """The analytic mean and sd of every registered statistic of the raw W_QK at (d_model, d_head), σ = 1."""
    known = _exact(d_model, d_head)
    if d_head >= _ASYMPTOTIC_FROM:
        known |= _limits(d_model, d_head) | _edges(d_model, d_head) | _ratios(d_model, d_head)
    nothing = AnalyticValue(np.nan, np.nan, NONE)
    return {name: known.get(name, nothing) for name in SPECTRAL_STATISTICS}


def _exact(d_model: int, d_head: int) -> dict[str, AnalyticValue]:
    traces = laws.trace_moments(d_model, d_head, 1.0, 1.0, "none")
    log_determinant = laws.log_determinant(d_model, d_head, 1.0, 1.0, "none")
    return {
        "trace": AnalyticValue(traces.mean_trace, traces.std_trace, "exact"),
        "trace_of_square": AnalyticValue(traces.mean_trace_of_square, traces.std_trace_of_square, "exact"),
        "log_determinant": AnalyticValue(log_determinant.mean, log_determinant.std, "exact"),
    }


def _ratios(d_model: int, d_head: int) -> dict[str, AnalyticValue]:
    values = {}
    for law in (laws.participation_ratio, laws.normalized_participation_ratio):
        moments = law(d_model, d_head)
        method = f"second-order delta method; error of the mean about {moments.error:.1g}"
        values[law.__name__] = AnalyticValue(moments.mean, moments.std, method)
    return values


def _edges(d_model: int, d_head: int) -> dict[str, AnalyticValue]:
    dims = (d_model, d_head, d_model)
    method = "asymptotic: Tracy-Widom edge with half-shift"
    upper = laws.largest_eigenvalue(dims)
    values = {"largest_eigenvalue": AnalyticValue(upper.mean(), upper.std(), method)}
    if d_head < d_model:
        lower = laws.smallest_eigenvalue(dims)
        values["smallest_eigenvalue"] = AnalyticValue(lower.mean(), lower.std(), method)
    return values


def _limits(d_model: int, d_head: int) -> dict[str, AnalyticValue]:
    # At d_head = d_model the smallest eigenvalue has a hard edge, and the condition number no mean.
    names = [name for name in laws.LIMIT_STATISTICS if d_head < d_model or not name.startswith("condition_number")]
    means = {name: laws.limit_mean(name, d_model, d_head) for name in names}
    return {name: AnalyticValue(limit.mean, np.nan, limit.method) for name, limit in means.items()}
