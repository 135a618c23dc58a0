"""Trajectories of one step from the scores of a checkpoint, the joining of trajectories, and their provenance."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.trajectory.schema import (
    DEPARTURES_SCHEMA,
    KEPT_PROBABILITIES,
    STEP,
    STEP_COORDINATES,
    STEP_OF_ENTRY,
    departure_steps,
    has_step,
)
from rmtbase.shown import in_one_line, quoted
from rmtbase.tables import describe, groups_of, tree_of

_CONCAT: dict[str, Any] = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "override"}
_OF_NULLS = ("p_value", "omnibus_p_value", "omnibus_q_value")
_NOTED = ("notes", "warnings")
_OF_REVISION = ("revision", "sha256", "sha256_of_variables")
_INSTALLATION = ("software", "platform")


@in_one_line
class StepName(NamedTuple):
    """Checkpoint of a step of a trajectory."""

    step: int  # number of optimizer steps taken
    revision: str  # revision of the model, or the name of its folder
    fingerprint: str  # SHA-256 of the weights
    commit: str = ""  # commit on the hub, if the checkpoint is from there

    def coordinates(self) -> dict[str, Any]:
        return {STEP: (STEP, [self.step]), "revision": (STEP, [self.revision])}

    def of_commit(self) -> dict[str, str]:
        return {"commit": self.commit} if self.commit else {}


def one_step(scores: Mapping[str, xr.DataTree], at: StepName, options: Mapping[str, Any] | None = None) -> xr.DataTree:
    """Build the trajectory of a single step, whose attributes are those of the scores by the first null."""
    first = next(iter(scores.values()))
    groups = {name: _stepped(name, group, at) for name, group in groups_of(first).items() if name}
    fingerprint = {"fingerprint": (STEP, [at.fingerprint]), "duplicate_of": (STEP, [""])}
    groups["/heads"] = groups["/heads"].assign_coords(fingerprint)
    by_null = []  # p-values, from which the departures follow
    for tree in scores.values():
        heads = groups_of(tree)["/heads"]
        stacks = {name: heads.coords[name] for name in ("stack", "stack_layer") if name in heads.coords}
        p_values = heads[list(_OF_NULLS)].reset_coords(drop=True)
        by_null.append(p_values.assign_coords(stacks).expand_dims("null"))
    departures: xr.Dataset = xr.concat(by_null, dim="null").expand_dims(STEP)  # type: ignore[assignment]
    departures = departures.assign_coords({"null": list(scores), **at.coordinates()})
    groups["/departures"] = _with_departures(departures.transpose(STEP, "null", "layer", "head", ...))
    records = {null: json.loads(tree.attrs["provenance"]) for null, tree in scores.items()}
    record = next(iter(records.values()))
    provenance = {
        **record,
        "call": {null: _without(of_null["call"], "revision") for null, of_null in records.items()},
        "null": {null: of_null["null"] for null, of_null in records.items()},
        "weights": {at.revision: {**record["weights"], "fingerprint": at.fingerprint, **at.of_commit()}},
        **({"options": dict(options)} if options else {}),
    }
    lines = {name: _once(line for tree in scores.values() for line in json.loads(tree.attrs[name])) for name in _NOTED}
    attributes = {
        **_without(first.attrs, *_OF_REVISION),
        "kind": "trajectory",
        "nulls": json.dumps(list(scores)),
        "failed": "[]",
        **{name: json.dumps(noted) for name, noted in lines.items()},
    }
    return _described(groups, attributes, provenance)


def renamed(tree: xr.DataTree, at: StepName) -> xr.DataTree:
    """Copy the step that has the same weights as ``at``, under the step and revision of ``at``."""
    part = _only(tree, [next(twin.step for twin in revisions_of(tree).values() if twin.fingerprint == at.fingerprint)])
    groups = groups_of(part.copy(deep=True))
    for name, group in groups.items():
        if STEP_OF_ENTRY in group.variables:
            group[STEP_OF_ENTRY][...] = at.step
        elif STEP in group.dims:
            # Assigned alone, an index would come last, and the bytes of a file depend on the order of its variables.
            variables = group.assign_coords(at.coordinates()).variables
            coordinates = {coordinate: variables[coordinate] for coordinate in group.coords}
            groups[name] = group.drop_vars(list(group.coords)).assign_coords(coordinates)
    groups["/departures"] = _with_departures(groups["/departures"])
    record = json.loads(part.attrs["provenance"])
    (weights,) = record["weights"].values()
    record["weights"] = {at.revision: _without(weights, "commit") | at.of_commit()}
    return _described(groups, part.attrs, record)


def joined(
    parts: Sequence[xr.DataTree], failed: Mapping[str, str] | None = None, like: xr.DataTree | None = None
) -> xr.DataTree:
    """Join trajectories by step, however these were split; those whose shape differs from most are named as failed."""
    if not parts:
        raise ParameterError("parts", "none", "one trajectory at least")
    shapes: dict[str, list[xr.DataTree]] = {}
    for part in sorted(parts, key=lambda part: part["heads"].to_dataset()[STEP].values[-1]):
        shapes.setdefault(json.dumps(_sizes(part), sort_keys=True), []).append(part)
    most = max(reversed(shapes.values()), key=lambda parts: sum(part["heads"].sizes[STEP] for part in parts))
    matching = most if like is None else shapes[json.dumps(_sizes(like), sort_keys=True)]
    mismatched = {
        revision: f"other sizes than {'most' if matching is most else 'before'}: {_differing(part, matching[-1])}"
        for parts_of_shape in shapes.values()
        if parts_of_shape is not matching
        for part in parts_of_shape
        for revision in revisions_of(part)
    }
    steps = sorted(at[:2] for part in matching for at in revisions_of(part).values())
    if any(len({*column}) < len(steps) for column in zip(*steps, strict=True)):
        raise ParameterError("parts", steps, "trajectories of which each step is in one")
    groups_of_parts = [groups_of(part) for part in matching]
    groups = {}
    for name, group in groups_of_parts[-1].items():  # constant variables are taken from the last part
        if (along := _along(group)) is not None:
            group = xr.concat([groups_of_part[name] for groups_of_part in groups_of_parts], dim=along[0], **_CONCAT)
            dim, steps_of_group = _along(group) or along
            if (np.diff(steps_of_group) < 0).any():
                group = group.isel({dim: np.argsort(steps_of_group, kind="stable")})
        groups[name] = group
    return _completed(groups, matching, {**(failed or {}), **mismatched})


def until(tree: xr.DataTree, step: int) -> xr.DataTree | None:
    """Drop the steps of a trajectory after a given one; None if no step is left."""
    remaining = [earlier for earlier in tree["heads"].to_dataset()[STEP].values.tolist() if earlier <= step]
    return _only(tree, remaining) if remaining else None


def _only(tree: xr.DataTree, steps: Sequence[int]) -> xr.DataTree:
    groups = groups_of(tree)
    for name, group in groups.items():
        if along := _along(group):
            groups[name] = group.isel({along[0]: np.flatnonzero(np.isin(along[1], steps))})
    return _completed(groups, [tree])


def _completed(
    groups: dict[str, xr.Dataset], parts: Sequence[xr.DataTree], failed: Mapping[str, str] | None = None
) -> xr.DataTree:
    """Make a trajectory of groups; departures, duplicates and notes follow from its steps."""
    heads = groups["/heads"]
    revisions: list[str] = heads["revision"].values.tolist()
    first: dict[str, str] = {}
    originals = map(first.setdefault, heads["fingerprint"].values.tolist(), revisions)
    duplicates = ["" if original == name else original for original, name in zip(originals, revisions, strict=True)]
    groups["/heads"] = heads.assign_coords(duplicate_of=(STEP, duplicates))
    groups["/departures"] = _with_departures(groups["/departures"])
    records = [json.loads(part.attrs["provenance"]) for part in parts]
    recorded = {revision: weights for record in records for revision, weights in record["weights"].items()}
    weights = {revision: _without(recorded[revision], *_NOTED) for revision in revisions}
    noted = {}
    for name in _NOTED:
        by_revision = {revision: lines for part in parts for revision, lines in _lines(part, name).items()}
        common = _once(line for line in by_revision[revisions[-1]] if all(line in by_revision[at] for at in revisions))
        of_some = {at: sorted(line for line in by_revision[at] if line not in common) for at in revisions}
        for revision, lines in of_some.items():
            if lines:
                weights[revision][name] = lines
        for line in _once(line for lines in of_some.values() for line in lines):
            runs = groupby(revisions, lambda revision, line=line, of_some=of_some: line in of_some[revision])
            spans = [list(run) for has_line, run in runs if has_line]
            names = ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in spans)
            common.append(f"{names}: {line}")
        noted[name] = json.dumps(common)
    last = records[-1]
    earlier = []
    for record in records:
        for installation in (*record.get("earlier", ()), {name: record[name] for name in _INSTALLATION}):
            if installation not in earlier and any(installation[name] != last[name] for name in _INSTALLATION):
                earlier.append(installation)
    reasons = {name: reason for part in parts for name, reason in failures(part).items()} | dict(failed or {})

    def natural(name: str) -> list[tuple[int, str]]:  # step-9 before step-10
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,15})", name)]

    missing = sorted(reasons.keys() - {*revisions}, key=natural)
    failed_now = json.dumps([{"revision": name, "reason": reasons[name]} for name in missing])
    provenance = {**_without(last, "earlier"), "weights": weights, **({"earlier": earlier} if earlier else {})}
    return _described(groups, {**parts[-1].attrs, **noted, "failed": failed_now}, provenance)


def _along(group: xr.Dataset) -> tuple[str, np.ndarray] | None:
    """Return the dimension along which a group changes with the step, and the steps along it."""
    if STEP_OF_ENTRY in group.variables:
        return str(group[STEP_OF_ENTRY].dims[0]), group[STEP_OF_ENTRY].values
    return (STEP, group[STEP].values) if STEP in group.dims else None


def _stepped(group: str, dataset: xr.Dataset, at: StepName) -> xr.Dataset:
    made_of_weights = [*dataset.data_vars, *(name for name in dataset.coords if name == "null_scale")]
    moving = [name for name in made_of_weights if has_step(str(name), tuple(map(str, dataset[name].dims)))]
    if not moving:
        if group.endswith("/null") or not dataset.variables:
            return dataset
        (entry,) = dataset.dims  # the number of entries varies
        return dataset.assign({STEP_OF_ENTRY: (entry, np.full(dataset.sizes[entry], at.step))})
    if "probability" in dataset.sizes:
        dataset = dataset.sel(probability=list(KEPT_PROBABILITIES))
    moved = {name: dataset.variables[name].expand_dims(STEP) for name in moving}
    coordinates = {name: moved.pop(name) for name in moving if name in dataset.coords}
    return dataset.drop_vars(coordinates).assign(moved).assign_coords(coordinates | at.coordinates())


def _with_departures(group: xr.Dataset) -> xr.Dataset:
    first, lasting = departure_steps(group["omnibus_q_value"].values, group[STEP].values)
    dims = ("null", "layer", "head")
    return group.assign(first_step=(dims, first), lasting_step=(dims, lasting))


def _described(
    groups: Mapping[str, xr.Dataset], attributes: Mapping[Any, Any], provenance: Mapping[str, Any]
) -> xr.DataTree:
    schemas = {name: DEPARTURES_SCHEMA if name == "/departures" else STEP_COORDINATES for name in groups}
    record = json.dumps(provenance, sort_keys=True, indent=1)
    described = {name: describe(group, schemas[name]) for name, group in groups.items()}
    return tree_of(described, {**attributes, "provenance": record})


def _sizes(part: xr.DataTree) -> dict[str, list[Any]]:
    """Dimensions, and values that do not depend on the step: equal for trajectories that can be joined."""
    sizes: dict[str, list[Any]] = {}
    for path, group in groups_of(part).items():
        if STEP not in group.dims:
            sizes[path] = []  # a null, which follows from the others, or a varying number of entries
            continue
        for name, variable in group.variables.items():
            if path != "/departures" or name not in ("first_step", "lasting_step", "alarm_step"):
                values = [] if STEP in variable.dims else [variable.values.tolist()]
                sizes[f"{path}/{name}"] = [list(map(str, variable.dims)), *values]
    return sizes


def _differing(part: xr.DataTree, expected: xr.DataTree) -> str:
    sizes, expected_sizes = (groups_of(tree)["/heads"].sizes for tree in (part, expected))
    lengths = {str(dim): (size, expected_sizes.get(dim, 0)) for dim, size in sizes.items() if dim != STEP}
    words = [f"{size} of {dim} and not {other}" for dim, (size, other) in lengths.items() if size != other]
    if words:
        return ", ".join(words)
    shape, expected_shape = _sizes(part), _sizes(expected)
    names = (name for name in {**expected_shape, **shape} if shape.get(name) != expected_shape.get(name))
    return f"{quoted(next(names))} is not the same"


def revisions_of(tree: xr.DataTree) -> dict[str, StepName]:
    heads, weights = groups_of(tree)["/heads"], json.loads(tree.attrs["provenance"])["weights"]
    steps, revisions, fingerprints = (heads[name].values.tolist() for name in (STEP, "revision", "fingerprint"))
    return {
        revision: StepName(step, revision, fingerprint, weights.get(revision, {}).get("commit", ""))
        for step, revision, fingerprint in zip(steps, revisions, fingerprints, strict=True)
    }


def failures(tree: xr.DataTree) -> dict[str, str]:
    return {failure["revision"]: failure["reason"] for failure in json.loads(tree.attrs["failed"])}


def _lines(part: xr.DataTree, name: str) -> dict[str, list[str]]:
    """Collect the notes about each revision; those about all of them come first."""
    weights, lines = json.loads(part.attrs["provenance"])["weights"], json.loads(part.attrs[name])
    by_revision = {revision: weights[revision].get(name, ()) for revision in revisions_of(part)}
    common = lines[: len(lines) - len(_once(line for of_some in by_revision.values() for line in of_some))]
    return {revision: [*common, *of_some] for revision, of_some in by_revision.items()}


def _once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _without(record: Mapping[Any, Any], *names: str) -> dict[str, Any]:
    return {str(name): value for name, value in record.items() if name not in names}
