"""Measures of a whole model, by which several seeds can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.results.comparison._classes import SELECTION, TRANSMISSION
from rmtbase.results.comparison._diagnose import WEIBULL, matrices_of, of_matrices, weibull_scales, weight_matrices
from rmtbase.results.comparison._two_models import head_units
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at
from rmtbase.tables import groups_of

MEDIAN_NPR = "median normalized_participation_ratio"
HEADLINES = (
    *("transmission weibull_shape", "transmission scale", "selection weibull_shape", "selection scale"),
    *(MEDIAN_NPR, "heads_departed", "departure_step"),
)
"""Measures that are shown first: those with these names or beginning with them, if models have them."""


def headlines(measures: Sequence[str]) -> list[str]:
    """Select the measures that are :data:`HEADLINES`, in that order."""
    return [name for headline in HEADLINES for name in measures if name == headline or name.startswith(f"{headline} ")]


def measures_of(scores: xr.DataTree) -> dict[str, tuple[float, float]]:
    """Measure a whole model; each value has its standard error from head to head (NaN if it is not a mean over heads).

    The measures are, for each spectral statistic, the mean over key heads of the signed distance from the null, in
    standard deviations of the null; the median NPR over the heads; the share of heads that differ from the null, with
    an omnibus q-value under 5 %. For each component: the median over layers of each Weibull statistic, and the mean
    ``scale`` λ in the units of the weights. The same for the classes: ``transmission``, pooled over its components, and
    ``selection``, pooled over queries and keys, or over fused projections where these were not scored separately.
    """
    require_scores(scores)
    units = head_units(scores)
    heads = scores["heads"].to_dataset()
    count = np.isfinite(units).sum(axis=0)
    mean, error = np.full((2, units.shape[1]), np.nan)
    with np.errstate(invalid="ignore", divide="ignore"):
        if len(units):
            mean = units.mean(axis=0)
        if len(units) > 1:
            error = units.std(axis=0, ddof=1) / np.sqrt(count)
    names = heads["statistic"].values.tolist()
    found = {name: (float(mean[k]), float(error[k])) for k, name in enumerate(names)}
    if MEDIAN_NPR.split()[1] in names:
        ratio = heads["observed"].sel(statistic=MEDIAN_NPR.split()[1]).values
        found[MEDIAN_NPR] = _alone(np.median, ratio[np.isfinite(ratio)])
    omnibus = heads["omnibus_q_value"].values
    found["heads_departed"] = _alone(np.mean, (omnibus < FOR_GOOD)[np.isfinite(omnibus)])
    matrices = weight_matrices(scores)
    return found if matrices is None else found | _of_matrices(matrices)


def measures_along(trajectory: xr.DataTree, steps: Sequence[int]) -> list[dict[str, tuple[float, float]]]:
    """Compute :func:`measures_of` at given steps of a trajectory, with the share of departed heads for each null."""
    departures = groups_of(trajectory)["/departures"]
    left = departures["omnibus_q_value"].sel({STEP: list(steps)}).transpose(STEP, "null", "layer", "head")
    found = []
    for place, step in enumerate(steps):
        each = measures_of(scores_at(trajectory, step))
        del each["heads_departed"]  # for the first null; added below under its name
        for null, q in zip(departures["null"].values.tolist(), left.values[place], strict=True):
            each[f"heads_departed {null}"] = _alone(np.mean, (q < FOR_GOOD)[np.isfinite(q)])
        found.append(each)
    return found


def departure_measures(trajectory: xr.DataTree) -> dict[str, tuple[float, float]]:
    """Mean step of departure from each null for good: exp ⟨ln(1 + step)⟩ − 1, the geometric mean of 1 + step, minus 1.

    The mean is over the heads that could be tested at the last step. A head that has not departed counts with the last
    step scored.
    """
    departures = groups_of(trajectory)["/departures"]
    last, found = float(departures[STEP].values[-1]), {}
    q_value = departures["omnibus_q_value"].transpose(STEP, "null", "layer", "head").values
    scored = np.isfinite(q_value[-1])
    step = departures["lasting_step"].transpose("null", "layer", "head").values
    for null, own, there in zip(departures["null"].values.tolist(), step, scored, strict=True):
        logs = np.log1p(np.where(np.isnan(own), last, own))[there]
        found[f"departure_step {null}"] = (float(np.expm1(logs.mean())) if logs.size else float("nan"), float("nan"))
    return found


def _of_matrices(matrices: xr.Dataset) -> dict[str, tuple[float, float]]:
    statistics = matrices["statistic"].values.tolist()
    components = matrices["component"].values.tolist()
    selection = [name for name in SELECTION[:2] if name in components] or list(SELECTION[2:])
    columns = {name: matrices["observed"].sel(statistic=name) for name in WEIBULL if name in statistics}
    if {"weibull_scale", "mean"} <= {*statistics}:
        columns["scale"] = weibull_scales(matrices)
    found: dict[str, tuple[float, float]] = {}
    classes = {"transmission": TRANSMISSION, "selection": tuple(selection)}
    for owner, members in (*classes.items(), *((name, (name,)) for name in components)):
        for column, values in columns.items():
            each = [of_matrices(values, matrices_of(matrices, (member,))) for member in members]
            each = [one[np.isfinite(one)] for one in each]
            if column == "scale":  # mean over layers, then over components, as in the paper
                value = _alone(np.mean, np.array([one.mean() for one in each if one.size]))
            else:
                value = _alone(np.median, np.concatenate(each) if each else np.empty(0))
            if np.isfinite(value[0]):
                found[f"{owner} {column}"] = value
    return found


def _alone(of: Callable[[np.ndarray], Any], values: Float[np.ndarray, " value"]) -> tuple[float, float]:
    """Pair a number with a NaN error from head to head; the number is NaN if there are no values."""
    return (float(of(values)) if values.size else float("nan"), float("nan"))
