"""What is measured of a model as a whole: numbers that several seeds of it can be compared by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.results.comparison._classes import SELECTION, TRANSMISSION
from rmtbase.results.comparison._diagnose import WEIBULL, matrices_of, of_matrices, weibull_scales, weight_matrices
from rmtbase.results.comparison._two_models import head_units
from rmtbase.results.scores import require_scores
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at
from rmtbase.tables import groups_of

MEDIAN_NPR = "median normalized_participation_ratio"
HEADLINES = (
    *("transmission weibull_shape", "transmission scale", "selection weibull_shape", "selection scale"),
    *(MEDIAN_NPR, "heads_departed", "departure_step"),
)
"""Measures that are shown first: with these beginnings, where models have them."""


def headlines(measures: Sequence[str]) -> list[str]:
    """Those of them that are :data:`HEADLINES`, in that order."""
    return [name for headline in HEADLINES for name in measures if name == headline or name.startswith(f"{headline} ")]


def measures_of(scores: xr.DataTree) -> dict[str, tuple[float, float]]:
    """What is measured of a model as a whole, each with its error from head to head (NaN where it is no mean of heads).

    Of each spectral statistic the mean over key heads of the signed distance from the null, in standard deviations of
    it; the median NPR over the heads; the share of heads that left the null, their omnibus q-value under 5 %. Of each
    component the median over layers of each Weibull statistic and the mean ``scale`` λ in the units of the weights; the
    same of the classes: ``transmission`` pooled, ``selection`` of queries and keys, which a fused projection stands for
    where they were not scored by themselves.

    Raises:
        ParameterError: it is no scores tree.
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
    """:func:`measures_of` at each of those steps of a trajectory, with the share of heads that left each null."""
    departures = groups_of(trajectory)["/departures"]
    left = departures["omnibus_q_value"].sel({STEP: list(steps)}).transpose(STEP, "null", "layer", "head")
    found = []
    for place, step in enumerate(steps):
        each = measures_of(scores_at(trajectory, step))
        del each["heads_departed"]  # of the first null, which comes by its name
        for null, q in zip(departures["null"].values.tolist(), left.values[place], strict=True):
            each[f"heads_departed {null}"] = _alone(np.mean, (q < FOR_GOOD)[np.isfinite(q)])
        found.append(each)
    return found


def departure_measures(trajectory: xr.DataTree) -> dict[str, tuple[float, float]]:
    """When heads left each null for good: exp ⟨ln(1 + step)⟩ − 1 over them, the geometric mean of 1 + step less 1.

    A head that has not stands with the last step scored: the mean is restricted to that time, and to heads that could
    be tested at that step.
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
            if column == "scale":  # the mean over layers, then over components, as the published ones are
                value = _alone(np.mean, np.array([one.mean() for one in each if one.size]))
            else:
                value = _alone(np.median, np.concatenate(each) if each else np.empty(0))
            if np.isfinite(value[0]):
                found[f"{owner} {column}"] = value
    return found


def _alone(of: Callable[[np.ndarray], Any], values: Float[np.ndarray, " value"]) -> tuple[float, float]:
    """A number that has no error from head to head; NaN of nothing."""
    return (float(of(values)) if values.size else float("nan"), float("nan"))
