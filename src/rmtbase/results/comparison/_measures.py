"""Measures of a whole model, by which several seeds can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.results.comparison._classes import SELECTION, TRANSMISSION
from rmtbase.results.comparison._matrices import WEIBULL, values_of, weibull_scales, weight_matrices
from rmtbase.results.comparison._two_models import head_units
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at
from rmtbase.tables import groups_of

_NPR = "normalized_participation_ratio"
HEADLINES = (
    *("transmission weibull_shape", "transmission scale", "selection weibull_shape", "selection scale"),
    *(f"median {_NPR}", "heads_departed", "departure_step"),
)
"""Measures that are shown first: those with these names, also followed by the name of a null, if models have them."""

Measures = dict[str, tuple[float, float]]
"""Value of each measure, and its standard error from head to head, NaN if it is not a mean over heads."""


def measures_of(scores: xr.DataTree) -> Measures:
    """Measure a whole model.

    The measures are, for each spectral statistic, the mean over key heads of the signed distance from the null, in
    standard deviations of the null; the median NPR over the heads; the share of heads that differ from the null, with
    an omnibus q-value under 5 %. For each component: the median over layers of each Weibull statistic, and the mean
    ``scale`` λ in the units of the weights. The same for the classes: ``transmission``, pooled over its components, and
    ``selection``, pooled over queries and keys, or over fused projections where these were not scored separately.
    """
    require_scores(scores)
    units, heads = head_units(scores), scores["heads"].to_dataset()
    mean, error = np.full((2, units.shape[1]), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        if len(units):
            mean = units.mean(axis=0)
        if len(units) > 1:
            error = units.std(axis=0, ddof=1) / np.sqrt(np.isfinite(units).sum(axis=0))
    statistics = heads["statistic"].values.tolist()
    measures = {name: (float(mean[k]), float(error[k])) for k, name in enumerate(statistics)}
    if _NPR in statistics:
        ratio = heads["observed"].sel(statistic=_NPR).values
        measures[f"median {_NPR}"] = _without_error(np.median, ratio[np.isfinite(ratio)])
    measures["heads_departed"] = _departed(heads["omnibus_q_value"].values)
    matrices = weight_matrices(scores)
    return measures if matrices is None else measures | _of_matrices(matrices)


def measures_along(trajectory: xr.DataTree, steps: Sequence[int]) -> list[Measures]:
    """Compute :func:`measures_of` at given steps of a trajectory, with the share of departed heads for each null."""
    departures = groups_of(trajectory)["/departures"]
    q_value = departures["omnibus_q_value"].sel({STEP: list(steps)}).transpose(STEP, "null", "layer", "head").values
    along = []
    for place, step in enumerate(steps):
        measures = measures_of(scores_at(trajectory, step))
        del measures["heads_departed"]  # for the first null; added below under its name
        nulls = zip(departures["null"].values.tolist(), q_value[place], strict=True)
        along.append(measures | {f"heads_departed {null}": _departed(of_null) for null, of_null in nulls})
    return along


def departure_measures(trajectory: xr.DataTree) -> Measures:
    """Mean step of departure from each null for good: exp ⟨ln(1 + step)⟩ − 1, the geometric mean of 1 + step, minus 1.

    The mean is over the heads that could be tested at the last step. A head that has not departed counts with the last
    step scored.
    """
    departures = groups_of(trajectory)["/departures"]
    tested = np.isfinite(departures["omnibus_q_value"].transpose(STEP, "null", "layer", "head").values[-1])
    step = departures["lasting_step"].transpose("null", "layer", "head").values
    logs = np.log1p(np.where(np.isnan(step), float(departures[STEP].values[-1]), step))
    return {
        f"departure_step {null}": _without_error(lambda values: np.expm1(values.mean()), logs[place][tested[place]])
        for place, null in enumerate(departures["null"].values.tolist())
    }


def _of_matrices(matrices: xr.Dataset) -> Measures:
    statistics = matrices["statistic"].values.tolist()
    components = matrices["component"].values.tolist()
    selection = [name for name in SELECTION[:2] if name in components] or SELECTION[2:]
    columns = {name: matrices["observed"].sel(statistic=name) for name in WEIBULL if name in statistics}
    if {"weibull_scale", "mean"} <= {*statistics}:
        columns["scale"] = weibull_scales(matrices)
    measures: Measures = {}
    owners = {"transmission": TRANSMISSION, "selection": selection} | {name: (name,) for name in components}
    for owner, members in owners.items():
        for column, values in columns.items():
            by_member = [values_of(matrices, values, member) for member in members]
            if column == "scale":  # mean over layers, then over components, as in the paper
                measure = _without_error(np.mean, np.array([member.mean() for member in by_member if member.size]))
            else:
                measure = _without_error(np.median, np.concatenate(by_member))
            if np.isfinite(measure[0]):
                measures[f"{owner} {column}"] = measure
    return measures


def _departed(q_value: Float[np.ndarray, "layer head"]) -> tuple[float, float]:
    return _without_error(np.mean, (q_value < FOR_GOOD)[np.isfinite(q_value)])


def _without_error(reduce: Callable[[np.ndarray], Any], values: Float[np.ndarray, " value"]) -> tuple[float, float]:
    """Reduce values to a measure without an error from head to head; NaN if there are no values."""
    return (float(reduce(values)) if values.size else float("nan"), float("nan"))
