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
from rmtbase.results.comparison._groups import Columns, between_of, contrast_of, require_members
from rmtbase.results.comparison._measures import departure_measures, headlines, measures_along, measures_of
from rmtbase.results.trajectory.schema import STEP
from rmtbase.statistics import benjamini_hochberg
from rmtbase.tables import groups_of

Tables = dict[str, xr.Dataset]


def require_groups(groups: Mapping[str, Sequence[str]], paired: bool) -> None:
    """Raise :class:`~rmtbase.errors.ParameterError` unless there are 2 or more disjoint groups of 2 or more."""
    for first, second in combinations(groups, 2):
        if both := sorted(set(groups[first]) & set(groups[second])):
            raise ParameterError("groups", both, f"models in only one of {first} and {second}")
    if groups or paired:
        require_members(groups, paired)


def grouped_tables(
    models: Sequence[ComparedModel],
    groups: Mapping[str, Sequence[str]],
    paired: bool,
    permutations: int,
    seed: int,
    progress: Progress,
    warnings: list[str],
) -> Tables:
    """Return ``/members``, ``/between`` and ``/groups``, and the same under ``/along`` at each common step.

    Appends a line to ``warnings`` for everything that cannot be compared.
    """
    named = {one.name: one for one in models}
    members = [named[name] for names in groups.values() for name in names]
    tests = (groups, paired, permutations, seed)
    runs = [one.trajectory for one in members if one.trajectory is not None]
    if len(runs) < len(members):
        if runs:
            warnings.append("groups are compared only at the end: not all of their models are trajectories")
        return _tables(_Measured.of([[measures_of(one.scores)] for one in members], ()), members, *tests)
    each = [groups_of(run)["/heads"][STEP].values.tolist() for run in runs]
    steps = [step for step in each[0] if all(step in other for other in each)]
    done = progress.bar("measuring", len(runs))
    along = []
    for run in runs:
        along.append(measures_along(run, steps))
        done(1)
    if all(one == steps for one in each):
        at_end = [[of[-1] | departure_measures(run)] for of, run in zip(along, runs, strict=True)]
    else:
        warnings.append(f"groups are compared at the {len(steps)} steps that all of their trajectories have")
        at_end = [[measures_of(one.scores)] for one in members]
    tables = _tables(_Measured.of(at_end, ()), members, *tests)
    if len(steps) > 1:
        of_steps = _tables(_Measured.of(along, steps), members, *tests)
        tables |= {f"/along{name}": table for name, table in of_steps.items()}
    return tables


@dataclass(frozen=True)
class _Measured:
    """Measures of several models, at the end or at each step, that are tested as one family."""

    names: list[str]  # names of the measures, headlines first
    n_headlines: int  # number of headlines
    steps: Sequence[int]  # the steps; empty at the end of training
    # values, errors: one row for each model; the columns run over (step and) measure
    values: Columns
    errors: Columns

    @classmethod
    def of(cls, measured: Sequence[Sequence[Mapping[str, tuple[float, float]]]], steps: Sequence[int]) -> _Measured:
        """Arrange each model's measures at each step, or only at the end, in columns."""
        every = list(dict.fromkeys(name for row in measured for one in row for name in one))
        first = headlines(every)
        names = [*first, *(name for name in every if name not in first)]
        cube = np.array([[[one.get(name, (np.nan, np.nan)) for name in names] for one in row] for row in measured])
        columns = cube.reshape(len(measured), -1, 2)
        return cls(names, len(first), steps, columns[..., 0], columns[..., 1])

    def dataset(self, by_column: Mapping[str, np.ndarray], dim: str = "", **others: Any) -> xr.Dataset:
        """Dataset of numbers along (``dim`` and) column as variables along step and measure, with further variables."""
        table = xr.Dataset(others, {"measure": self.names} | ({STEP: list(self.steps)} if self.steps else {}))
        shape = (*([len(self.steps)] if self.steps else []), len(self.names))
        dims = (*([STEP] if self.steps else []), "measure")
        for name, numbers in by_column.items():
            full = numbers.reshape(*numbers.shape[:-1], *shape)
            lead = (dim,) if numbers.ndim > 1 else ()
            table[name] = xr.Variable((*lead, *dims), full)
            if lead and self.steps:
                table[name] = table[name].transpose(STEP, dim, "measure")
        return table


def _tables(
    measured: _Measured,
    members: Sequence[ComparedModel],
    groups: Mapping[str, Sequence[str]],
    paired: bool,
    permutations: int,
    seed: int,
) -> Tables:
    """Test one set of measures, with p-values adjusted for all of them together."""
    sizes, values = [len(one) for one in groups.values()], measured.values
    ends = np.cumsum([0, *sizes])
    rows_of = {name: np.arange(*ends[k : k + 2]) for k, name in enumerate(groups)}
    whole = between_of(values, sizes, paired, permutations, seed)
    shown_first = np.arange(len(measured.names)) < measured.n_headlines
    between = measured.dataset(
        {name: numbers for name, numbers in whole.items() if name != "smallest_p_value"},
        "group",
        n_models=("group", sizes),
        headline=("measure", shown_first.astype(int)),
        smallest_p_value=whole["smallest_p_value"],
    )
    pairs = list(combinations(groups, 2))
    found = []
    for first, second in pairs:
        both, two = np.concatenate([rows_of[first], rows_of[second]]), (len(rows_of[first]), len(rows_of[second]))
        head_error = np.sqrt((measured.errors[both] ** 2).mean(axis=0))
        found.append(contrast_of(values[both], two, paired, permutations, seed) | {"head_error": head_error})
    each = {name: np.stack([one[name] for one in found]) for name in found[0]}
    contrasts = measured.dataset(
        {name: numbers for name, numbers in each.items() if numbers.ndim > 1}
        | {"t_q_value": benjamini_hochberg(each["t_p_value"])},
        "contrast",
        first_group=("contrast", [first for first, _ in pairs]),
        second_group=("contrast", [second for _, second in pairs]),
        n_first=("contrast", [len(groups[first]) for first, _ in pairs]),
        n_second=("contrast", [len(groups[second]) for _, second in pairs]),
        paired=("contrast", [int(paired)] * len(pairs)),
        smallest_p_value=("contrast", each["smallest_p_value"]),
    )
    of_models = measured.dataset(
        {"value": values, "head_error": measured.errors},
        "model",
        group_of=("model", [name for name, one in groups.items() for _ in one]),
    )
    return {
        "/members": of_models.assign_coords(model=[one.name for one in members]),
        "/between": between.assign_coords(group=list(groups)),
        "/groups": contrasts.assign_coords(contrast=[" | ".join(pair) for pair in pairs]),
    }
