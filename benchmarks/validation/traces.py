"""Exact moments of the traces beyond mean and standard deviation, on the draws of heads: shape and covariance."""

from collections.abc import Iterator
from typing import Any

from effort import Effort
from heads import draws_of, shapes

from comparison import Row, Subject
from rmtbase.laws import trace_cumulant, trace_cumulants

SECTION = "traces"
TRACES = {"trace": 1, "trace_of_square": 2}


def run(effort: Effort) -> tuple[list[Row], dict[str, Any]]:
    """Skewness, kurtosis and covariance of the sums of lambda and lambda^2."""
    return [row for shape, group in shapes(effort) if group != "outside" for row in _of_shape(effort, shape)], {}


def _of_shape(effort: Effort, shape: tuple[int, int]) -> Iterator[Row]:
    draws, dims = draws_of(effort, shape), (shape[0], shape[1], shape[0])
    for own in (False, True):
        parameters = {"d_model": shape[0], "d_head": shape[1], "self_normalized": own}
        for statistic, power in TRACES.items():
            subject, sample = Subject(SECTION, statistic, parameters), draws.of(statistic, own)
            moments = trace_cumulants(power, dims=dims, self_normalized=own, normalization="none")
            yield subject.skewness(sample, moments.skewness)
            yield subject.excess_kurtosis(sample, moments.excess_kurtosis)
        if not own:
            pair = Subject(SECTION, "trace, trace_of_square", parameters)
            first, second = (draws.of(statistic, own) for statistic in TRACES)
            yield pair.covariance(first, second, float(trace_cumulant((2, 1), dims=dims, normalization="none")))
