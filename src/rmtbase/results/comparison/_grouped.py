"""Tables of a comparison of groups of models, at the end of training and along its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.progress import Progress
from rmtbase.results.comparison._each_model import ComparedModel
from rmtbase.results.comparison._groups import Columns, GroupTest, between_of, contrast_of, require_members
from rmtbase.results.comparison._measures import HEADLINES, Measures, departure_measures, measures_along, measures_of
from rmtbase.results.comparison.schema import COMPARISON_SCHEMA
from rmtbase.results.trajectory.schema import STEP
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import groups_of

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
