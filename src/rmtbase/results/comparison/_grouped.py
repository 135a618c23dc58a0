"""Measures of whole models, and tables of groups of them, at the end of training and along its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.progress import Progress
from rmtbase.results.comparison._classes import SELECTION, TRANSMISSION
from rmtbase.results.comparison._each_model import ComparedModel
from rmtbase.results.comparison._groups import Columns, GroupTest, between_of, contrast_of, require_members
from rmtbase.results.comparison._matrices import WEIBULL, values_of, weibull_scales, weight_matrices
from rmtbase.results.comparison._two_models import head_units
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.scores._heads import require_scores
from rmtbase.results.trajectory.schema import FOR_GOOD, STEP, scores_at
from rmtbase.statistics import benjamini_hochberg
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


Groups = Mapping[str, Sequence[str]]


def require_groups(groups: Groups, paired: bool) -> None:
    """Raise :class:`~rmtbase.errors.ParameterError` unless there are 2 or more disjoint groups of 2 or more."""
    for first, second in combinations(groups, 2):
        if both := sorted(set(groups[first]) & set(groups[second])):
            raise ParameterError("groups", both, f"models in only one of {first} and {second}")
    if groups or paired:
        require_members(groups, paired)


def grouped_tables(
    models: Sequence[ComparedModel], groups: Groups, test: GroupTest, progress: Progress, warnings: list[str]
) -> dict[str, xr.Dataset]:
    """Return ``/members``, ``/between`` and ``/groups``, and the same under ``/along`` at each common step.

    Appends a line to ``warnings`` for everything that cannot be compared.
    """
    by_name = {model.name: model for model in models}
    members = [by_name[name] for names in groups.values() for name in names]
    runs = [model.trajectory for model in members if model.trajectory is not None]
    if len(runs) < len(members):
        if runs:
            warnings.append("groups are compared only at the end: not all of their models are trajectories")
        return _tables(_Measured.of([[measures_of(model.scores)] for model in members]), groups, test)
    steps_of_runs = [groups_of(run)["/heads"][STEP].values.tolist() for run in runs]
    steps = [step for step in steps_of_runs[0] if all(step in others for others in steps_of_runs)]
    advance = progress.bar("measuring", len(runs))
    along = []
    for run in runs:
        along.append(measures_along(run, steps))
        advance(1)
    if all(steps_of_run == steps for steps_of_run in steps_of_runs):
        at_end = [[measures[-1] | departure_measures(run)] for measures, run in zip(along, runs, strict=True)]
    else:
        warnings.append(f"groups are compared at the {len(steps)} steps that all of their trajectories have")
        at_end = [[measures_of(model.scores)] for model in members]
    tables = _tables(_Measured.of(at_end), groups, test)
    return tables | (_tables(_Measured.of(along, steps), groups, test) if len(steps) > 1 else {})


@dataclass(frozen=True)
class _Measured:
    """Measures of several models, at the end or at each step, that are tested as one family."""

    names: list[str]  # names of the measures, headlines first
    n_headlines: int
    steps: Sequence[int]  # empty at the end of training
    # values, errors: one row for each model; the columns run over (step and) measure
    values: Columns
    errors: Columns

    @classmethod
    def of(cls, measured: Sequence[Sequence[Measures]], steps: Sequence[int] = ()) -> _Measured:
        """Arrange each model's measures at each step, or only at the end, in columns."""
        names = list(dict.fromkeys(name for row in measured for measures in row for name in measures))
        first = [
            name for headline in HEADLINES for name in names if name == headline or name.startswith(f"{headline} ")
        ]
        names = list(dict.fromkeys([*first, *names]))
        missing = np.nan, np.nan
        cube = np.array([[[measures.get(name, missing) for name in names] for measures in row] for row in measured])
        columns = cube.reshape(len(measured), -1, 2)
        return cls(names, len(first), steps, columns[..., 0], columns[..., 1])

    def table(self, group: str, numbers: Mapping[str, Any], /, **coordinates: Sequence[str]) -> dict[str, xr.Dataset]:
        """Make a group of the file of numbers whose last axis runs over the columns, and of further variables."""
        path = f"/along{group}" if self.steps else group
        variables = {}
        for name, values in numbers.items():
            dims = COMPARISON_SCHEMA[path][name].dims
            if STEP in dims:
                values = np.moveaxis(np.reshape(values, (*np.shape(values)[:-1], len(self.steps), -1)), -2, 0)
            variables[name] = dims, values
        steps = {STEP: list(self.steps)} if self.steps else {}
        return {path: xr.Dataset(variables, {**coordinates, "measure": self.names, **steps})}


def _tables(measured: _Measured, groups: Groups, test: GroupTest) -> dict[str, xr.Dataset]:
    """Test one set of measures, with p-values adjusted for all of them together."""
    values, sizes = measured.values, [len(names) for names in groups.values()]
    rows = dict(zip(groups, np.split(np.arange(len(values)), np.cumsum(sizes)[:-1]), strict=True))
    contrasts = []
    for first, second in combinations(groups, 2):
        both = np.concatenate([rows[first], rows[second]])
        n_first, n_second = len(groups[first]), len(groups[second])
        contrasts.append(
            contrast_of(values[both], (n_first, n_second), test)
            | {"head_error": np.sqrt((measured.errors[both] ** 2).mean(axis=0)), "paired": int(test.paired)}
            | {"first_group": first, "second_group": second, "n_first": n_first, "n_second": n_second}
        )
    stacked = {name: np.stack([contrast[name] for contrast in contrasts]) for name in contrasts[0]}
    stacked["t_q_value"] = benjamini_hochberg(stacked["t_p_value"])
    headline = (np.arange(len(measured.names)) < measured.n_headlines).astype(int)
    between = between_of(values, sizes, test) | {"n_models": sizes, "headline": headline}
    group_of = [group for group, names in groups.items() for _ in names]
    of_models = {"value": values, "head_error": measured.errors, "group_of": group_of}
    return {
        **measured.table("/members", of_models, model=[name for names in groups.values() for name in names]),
        **measured.table("/between", between, group=list(groups)),
        **measured.table("/groups", stacked, contrast=[" | ".join(pair) for pair in combinations(groups, 2)]),
    }
