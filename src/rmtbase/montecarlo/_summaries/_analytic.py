"""The analytic value beside each simulated one, with how it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmtbase import laws
from rmtbase.ensembles import Ensemble, IndependentMatrix
from rmtbase.errors import ParameterError
from rmtbase.statistics import SPECTRAL_STATISTICS

NONE = "none"


class AnalyticValue(NamedTuple):
    """Mean and standard deviation at σ = 1 for the raw matrix; NaN where no formula is offered."""

    mean: float
    std: float
    method: str


class SpectralLaw(Protocol):
    """What a table needs of a limiting law."""

    @property
    def support(self) -> tuple[float, float]:
        """Lower and upper edge."""
        ...

    def cdf(self, x: ArrayLike) -> NDArray[np.float64]:
        """Distribution function of the nonzero eigenvalues."""
        ...


_UNKNOWN = AnalyticValue(np.nan, np.nan, NONE)


def analytic_values(ensemble: str, case: Mapping[str, Any]) -> dict[str, AnalyticValue]:
    """The analytic mean and sd of every registered statistic, raw and at σ = 1, for a case of a plan."""
    dims = _chain(ensemble, case)
    if dims is not None:
        return {name: _chain_value(name, dims) for name in SPECTRAL_STATISTICS}
    values = dict.fromkeys(SPECTRAL_STATISTICS, _UNKNOWN)
    if ensemble == "residual_path" and case.get("part", "path") == "path":
        moments = laws.residual_trace_moments(case["depth"], case.get("sigma", 1.0), case["d_model"])
        exact = "exact: joint moments of traces at finite width"
        values["trace"] = AnalyticValue(moments.mean_trace, moments.std_trace, exact)
        values["trace_of_square"] = AnalyticValue(moments.mean_trace_of_square, moments.std_trace_of_square, exact)
    return values


def analytic_law(ensemble: str, case: Mapping[str, Any], drawn: Ensemble) -> SpectralLaw | None:
    """The limiting law of the nonzero eigenvalues of a case of a plan, raw; None where none is offered.

    That of a matrix of independent elements is Marchenko-Pastur's at their variance, whatever else their law.

    Args:
        ensemble: its name.
        case: its parameters.
        drawn: the ensemble itself.
    """
    dims = _chain(ensemble, case)
    try:
        if isinstance(drawn, IndependentMatrix) and np.isfinite(drawn.element_std):
            return laws.GaussianChain(drawn.element_shape, (drawn.element_std,))
        if dims is not None:
            return laws.GaussianChain(dims, (1.0,) * (len(dims) - 1))
        if ensemble == "residual_path" and case.get("part", "path") != "order":
            law = laws.ResidualPath if case.get("part", "path") == "path" else laws.ResidualUpdate
            return law(case["depth"], case.get("sigma", 1.0))
    except ParameterError:  # outside the law's domain
        return None
    return None


def _chain(ensemble: str, case: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The dimensions of a Gaussian chain, or None for any other ensemble."""
    if ensemble == "low_rank_product":
        return case["d_model"], case["d_head"], case["d_model"]
    if ensemble == "gaussian_matrix":
        return case["n_rows"], case["n_columns"]
    return tuple(case["dims"]) if ensemble == "gaussian_chain" else None


def _chain_value(statistic: str, dims: tuple[int, ...]) -> AnalyticValue:
    try:
        null = laws.null(statistic, dims)
    except ParameterError:  # the dimensions lie outside the null's domain
        return _UNKNOWN
    return AnalyticValue(null.mean(), null.std(), f"{null.method}: {null.accuracy}")
