"""Trajectories of one step from the scores of a checkpoint, and the joining of trajectories."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.trajectory._attributes import (
    StepName,
    attributes_of_one,
    joined_attributes,
    renamed_attributes,
    revisions_of,
)
from rmtbase.results.trajectory.schema import (
    DEPARTURES_SCHEMA,
    KEPT_PROBABILITIES,
    STEP,
    STEP_COORDINATES,
    STEP_OF_ENTRY,
    departure_steps,
    has_step,
)
from rmtbase.shown import quoted
from rmtbase.tables import describe, groups_of, tree_of

_OF_NULLS = ("p_value", "omnibus_p_value", "omnibus_q_value")


def one_step(scores: Mapping[str, xr.DataTree], at: StepName, options: Mapping[str, Any] | None = None) -> xr.DataTree:
    """Build the trajectory of a single step."""
    first = next(iter(scores.values()))
    groups: dict[str, xr.Dataset] = {}
    for group, dataset in groups_of(first).items():
        if group:
            groups[group] = _stepped(group, dataset, at) if dataset.variables else dataset
    fingerprint = {"fingerprint": (STEP, [at.fingerprint]), "duplicate_of": (STEP, [""])}
    groups["/heads"] = groups["/heads"].assign_coords(fingerprint)
    groups["/departures"] = _by_null(scores, at)
    return _described(groups, attributes_of_one(scores, at, options or {}))


def renamed(tree: xr.DataTree, at: StepName) -> xr.DataTree:
    """Copy the step of a trajectory that has the same weights as ``at``, under the step and revision of ``at``."""
    part = _only(tree, [next(one.step for one in revisions_of(tree).values() if one.fingerprint == at.fingerprint)])
    groups = groups_of(part.copy(deep=True))
    for name, group in groups.items():
        if STEP_OF_ENTRY in group.variables:
            group[STEP_OF_ENTRY][...] = at.step
        elif STEP in group.dims:
            # Assigned alone, an index would come last, and the bytes of a file depend on the order of its variables.
            named = group.assign_coords(_of_step(at)).variables
            groups[name] = group.drop_vars(list(group.coords)).assign_coords({one: named[one] for one in group.coords})
    groups["/departures"] = _with_departures(groups["/departures"])
    return _described(groups, renamed_attributes(part, at))


def joined(
    parts: Sequence[xr.DataTree], failed: Mapping[str, str] | None = None, like: xr.DataTree | None = None
) -> xr.DataTree:
    """Join trajectories in the order of their steps; those whose shape differs from most are left out and named.

    Checkpoints with the same weights, and the steps at which each head departs from each null, are determined anew. The
    result depends only on the steps, not on the order or the number of the parts.
    """
    if not parts:
        raise ParameterError("parts", "none", "one trajectory at least")
    shapes: dict[str, list[xr.DataTree]] = {}
    for part in sorted(parts, key=lambda part: _steps(part)[-1]):
        shapes.setdefault(_shape(part), []).append(part)
    most = max(reversed(shapes.values()), key=lambda parts: sum(len(_steps(part)) for part in parts))
    alike = most if like is None else shapes[_shape(like)]
    other = {
        revision: f"other sizes than {'most' if alike is most else 'before'}: {differing(part, alike[-1])}"
        for unlike in shapes.values()
        if unlike is not alike
        for part in unlike
        for revision in revisions_of(part)
    }
    steps = sorted(at[:2] for part in alike for at in revisions_of(part).values())
    if any(len({*column}) < len(steps) for column in zip(*steps, strict=True)):
        raise ParameterError("parts", steps, "trajectories of which each step is in one")
    each = [groups_of(part) for part in alike]
    groups = {name: _concatenated([groups[name] for groups in each]) for name in each[-1]}
    groups["/heads"] = _with_duplicates(groups["/heads"])
    groups["/departures"] = _with_departures(groups["/departures"])
    revisions = groups["/heads"]["revision"].values.tolist()
    return _described(groups, joined_attributes(alike, revisions, {**(failed or {}), **other}))


def until(tree: xr.DataTree, step: int) -> xr.DataTree | None:
    """Drop the steps of a trajectory after a given one; None if no step is left.

    A trajectory whose departures and duplicates follow from the remaining steps.
    """
    kept = [one for one in _steps(tree) if one <= step]
    return _only(tree, kept) if kept else None


def _only(tree: xr.DataTree, steps: Sequence[int]) -> xr.DataTree:
    """Select steps of a trajectory, as if there were no others."""
    groups = groups_of(tree)
    for name, group in groups.items():
        if along := _along(group):
            groups[name] = group.isel({along[0]: np.flatnonzero(np.isin(along[1], steps))})
    groups["/heads"] = _with_duplicates(groups["/heads"])
    groups["/departures"] = _with_departures(groups["/departures"])
    return _described(groups, joined_attributes([tree], groups["/heads"]["revision"].values.tolist()))


def _along(group: xr.Dataset) -> tuple[str, np.ndarray] | None:
    """Return the dimension along which a group changes with the step, and the steps along it; None if there is none."""
    if STEP_OF_ENTRY in group.variables:
        return str(group[STEP_OF_ENTRY].dims[0]), group[STEP_OF_ENTRY].values
    return (STEP, group[STEP].values) if STEP in group.dims else None


def _stepped(group: str, dataset: xr.Dataset, at: StepName) -> xr.Dataset:
    """Add the first dimension ``step`` to those variables of a group of scores that change with the step."""
    made_of_weights = [*dataset.data_vars, *(name for name in dataset.coords if name == "null_scale")]
    moving = [name for name in made_of_weights if has_step(str(name), tuple(map(str, dataset[name].dims)))]
    if not moving:
        return dataset if group.endswith("/null") else _entries(dataset, at)
    if "probability" in dataset.sizes:
        dataset = dataset.sel(probability=list(KEPT_PROBABILITIES))
    moved = {name: dataset.variables[name].expand_dims(STEP) for name in moving}
    coordinates = {name: moved.pop(name) for name in moving if name in dataset.coords}
    return dataset.drop_vars(coordinates).assign(moved).assign_coords(coordinates | _of_step(at))


def _entries(dataset: xr.Dataset, at: StepName) -> xr.Dataset:
    """Add the step of each entry to a group whose number of entries varies."""
    (entry,) = dataset.dims
    return dataset.assign({STEP_OF_ENTRY: (entry, np.full(dataset.sizes[entry], at.step))})


def _of_step(at: StepName) -> dict[str, Any]:
    return {STEP: (STEP, [at.step]), "revision": (STEP, [at.revision])}


def _by_null(scores: Mapping[str, xr.DataTree], at: StepName) -> xr.Dataset:
    """Collect the p-values of each null, from which the departures follow."""
    each = []
    for tree in scores.values():
        heads = groups_of(tree)["/heads"]
        kept = heads[list(_OF_NULLS)].reset_coords(drop=True)
        facts = {name: heads.coords[name] for name in ("stack", "stack_layer") if name in heads.coords}
        each.append(kept.assign_coords(facts).expand_dims("null"))
    group: xr.Dataset = xr.concat(each, dim="null").expand_dims(STEP)  # type: ignore[assignment]
    group = group.assign_coords({"null": list(scores), **_of_step(at)})
    return _with_departures(group.transpose(STEP, "null", "layer", "head", ...))


def _with_departures(group: xr.Dataset) -> xr.Dataset:
    steps = departure_steps(group["omnibus_q_value"].values, group[STEP].values)
    dims = ("null", "layer", "head")
    return group.assign({name: (dims, one) for name, one in zip(("first_step", "lasting_step"), steps, strict=True)})


def _with_duplicates(heads: xr.Dataset) -> xr.Dataset:
    earlier: dict[str, str] = {}
    named = zip(heads["fingerprint"].values.tolist(), heads["revision"].values.tolist(), strict=True)
    first = [(earlier.setdefault(fingerprint, revision), revision) for fingerprint, revision in named]
    return heads.assign_coords(duplicate_of=(STEP, ["" if one == own else one for one, own in first]))


def _concatenated(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Concatenate a group of all parts in the order of the steps; constant variables are taken from the last part."""
    if (along := _along(datasets[-1])) is None:
        return datasets[-1]
    whole: xr.Dataset = xr.concat(  # type: ignore[assignment]  # the concat of datasets is a dataset
        datasets, dim=along[0], data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    (dim, steps) = _along(whole) or along
    return whole if (np.diff(steps) >= 0).all() else whole.isel({dim: np.argsort(steps, kind="stable")})


def _described(groups: Mapping[str, xr.Dataset], attributes: Mapping[Any, Any]) -> xr.DataTree:
    """Build the tree of the groups, and describe the variables that a trajectory adds to scores."""
    words = {name: DEPARTURES_SCHEMA if name == "/departures" else STEP_COORDINATES for name in groups}
    return tree_of({name: describe(one, words[name]) for name, one in groups.items()}, attributes)


def _steps(part: xr.DataTree) -> list[int]:
    return groups_of(part)["/heads"][STEP].values.tolist()


def _shape(part: xr.DataTree) -> str:
    """Return a key that is equal for trajectories that can be joined."""
    return json.dumps(_sizes(part), sort_keys=True)


def _sizes(part: xr.DataTree) -> dict[str, list[Any]]:
    """Dimensions of the variables of each group, and the values of those that do not depend on the step."""
    sizes: dict[str, list[Any]] = {}
    for path, group in groups_of(part).items():
        if STEP not in group.dims:
            sizes[path] = []  # a null, which follows from the others, or a varying number of entries
            continue
        for name, variable in group.variables.items():
            if STEP not in variable.dims:
                sizes[f"{path}/{name}"] = [list(map(str, variable.dims)), variable.values.tolist()]
            else:
                sizes[f"{path}/{name}"] = [list(map(str, variable.dims))]
    for name in ("first_step", "lasting_step", "alarm_step"):
        sizes.pop(f"/departures/{name}", None)
    return sizes


def differing(part: xr.DataTree, other: xr.DataTree) -> str:
    """Describe in words how the shapes of two trajectories differ; "" if they are the same."""
    here, there = _sizes(part), _sizes(other)
    names = [name for name in {**there, **here} if here.get(name) != there.get(name)]
    found, expected = (groups_of(one)["/heads"].sizes for one in (part, other))
    lengths = {
        str(dim): (size, expected.get(dim, 0))
        for dim, size in found.items()
        if dim != STEP and size != expected.get(dim, 0)
    }
    if lengths:
        return ", ".join(f"{size} of {dim} and not {expected}" for dim, (size, expected) in lengths.items())
    return f"{quoted(names[0])} is not the same" if names else ""
