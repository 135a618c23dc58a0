"""Trajectories of one step from the scores of a checkpoint, the joining of trajectories, and their provenance."""

from __future__ import annotations

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

_OF_NULLS = ("p_value", "omnibus_p_value", "omnibus_q_value")


def one_step(scores: Mapping[str, xr.DataTree], at: StepName, options: Mapping[str, Any] | None = None) -> xr.DataTree:
    """Build the trajectory of a single step."""
    first = groups_of(next(iter(scores.values())))
    groups = {name: _stepped(name, group, at) if group.variables else group for name, group in first.items() if name}
    fingerprint = {"fingerprint": (STEP, [at.fingerprint]), "duplicate_of": (STEP, [""])}
    groups["/heads"] = groups["/heads"].assign_coords(fingerprint)
    groups["/departures"] = _by_null(scores, at)
    return _described(groups, attributes_of_one(scores, at, options or {}))


def renamed(tree: xr.DataTree, at: StepName) -> xr.DataTree:
    """Copy the step of a trajectory that has the same weights as ``at``, under the step and revision of ``at``."""
    part = _only(tree, [next(twin.step for twin in revisions_of(tree).values() if twin.fingerprint == at.fingerprint)])
    groups = groups_of(part.copy(deep=True))
    for name, group in groups.items():
        if STEP_OF_ENTRY in group.variables:
            group[STEP_OF_ENTRY][...] = at.step
        elif STEP in group.dims:
            # Assigned alone, an index would come last, and the bytes of a file depend on the order of its variables.
            variables = group.assign_coords(_of_step(at)).variables
            coordinates = {coordinate: variables[coordinate] for coordinate in group.coords}
            groups[name] = group.drop_vars(list(group.coords)).assign_coords(coordinates)
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
    matching = most if like is None else shapes[_shape(like)]
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
    groups = {name: _concatenated([groups[name] for groups in groups_of_parts]) for name in groups_of_parts[-1]}
    return _completed(groups, matching, {**(failed or {}), **mismatched})


def until(tree: xr.DataTree, step: int) -> xr.DataTree | None:
    """Drop the steps of a trajectory after a given one; None if no step is left."""
    remaining = [earlier for earlier in _steps(tree) if earlier <= step]
    return _only(tree, remaining) if remaining else None


def _only(tree: xr.DataTree, steps: Sequence[int]) -> xr.DataTree:
    """Select steps of a trajectory, as if there were no others."""
    groups = groups_of(tree)
    for name, group in groups.items():
        if along := _along(group):
            groups[name] = group.isel({along[0]: np.flatnonzero(np.isin(along[1], steps))})
    return _completed(groups, [tree])


def _completed(
    groups: dict[str, xr.Dataset], parts: Sequence[xr.DataTree], failed: Mapping[str, str] | None = None
) -> xr.DataTree:
    """Make a trajectory of the groups of parts, whose departures and duplicates follow from its steps."""
    groups["/heads"] = _with_duplicates(groups["/heads"])
    groups["/departures"] = _with_departures(groups["/departures"])
    return _described(groups, joined_attributes(parts, groups["/heads"]["revision"].values.tolist(), failed))


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
        if group.endswith("/null"):
            return dataset
        (entry,) = dataset.dims  # the number of entries varies
        return dataset.assign({STEP_OF_ENTRY: (entry, np.full(dataset.sizes[entry], at.step))})
    if "probability" in dataset.sizes:
        dataset = dataset.sel(probability=list(KEPT_PROBABILITIES))
    moved = {name: dataset.variables[name].expand_dims(STEP) for name in moving}
    coordinates = {name: moved.pop(name) for name in moving if name in dataset.coords}
    return dataset.drop_vars(coordinates).assign(moved).assign_coords(coordinates | _of_step(at))


def _of_step(at: StepName) -> dict[str, Any]:
    return {STEP: (STEP, [at.step]), "revision": (STEP, [at.revision])}


def _by_null(scores: Mapping[str, xr.DataTree], at: StepName) -> xr.Dataset:
    """Collect the p-values of each null, from which the departures follow."""
    by_null = []
    for tree in scores.values():
        heads = groups_of(tree)["/heads"]
        stacks = {name: heads.coords[name] for name in ("stack", "stack_layer") if name in heads.coords}
        p_values = heads[list(_OF_NULLS)].reset_coords(drop=True)
        by_null.append(p_values.assign_coords(stacks).expand_dims("null"))
    group: xr.Dataset = xr.concat(by_null, dim="null").expand_dims(STEP)  # type: ignore[assignment]
    group = group.assign_coords({"null": list(scores), **_of_step(at)})
    return _with_departures(group.transpose(STEP, "null", "layer", "head", ...))


def _with_departures(group: xr.Dataset) -> xr.Dataset:
    first, lasting = departure_steps(group["omnibus_q_value"].values, group[STEP].values)
    dims = ("null", "layer", "head")
    return group.assign(first_step=(dims, first), lasting_step=(dims, lasting))


def _with_duplicates(heads: xr.Dataset) -> xr.Dataset:
    first: dict[str, str] = {}
    names = zip(heads["fingerprint"].values.tolist(), heads["revision"].values.tolist(), strict=True)
    originals = [(first.setdefault(fingerprint, revision), revision) for fingerprint, revision in names]
    return heads.assign_coords(
        duplicate_of=(STEP, ["" if original == name else original for original, name in originals])
    )


def _concatenated(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    """Concatenate a group of all parts in the order of the steps; constant variables are taken from the last part."""
    if (along := _along(datasets[-1])) is None:
        return datasets[-1]
    joined_group: xr.Dataset = xr.concat(  # type: ignore[assignment]  # the concat of datasets is a dataset
        datasets, dim=along[0], data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    dim, steps = _along(joined_group) or along
    if (np.diff(steps) >= 0).all():
        return joined_group
    return joined_group.isel({dim: np.argsort(steps, kind="stable")})


def _described(groups: Mapping[str, xr.Dataset], attributes: Mapping[Any, Any]) -> xr.DataTree:
    """Build the tree of the groups, and describe the variables that a trajectory adds to scores."""
    schemas = {name: DEPARTURES_SCHEMA if name == "/departures" else STEP_COORDINATES for name in groups}
    return tree_of({name: describe(group, schemas[name]) for name, group in groups.items()}, attributes)


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
            if path != "/departures" or name not in ("first_step", "lasting_step", "alarm_step"):
                values = [] if STEP in variable.dims else [variable.values.tolist()]
                sizes[f"{path}/{name}"] = [list(map(str, variable.dims)), *values]
    return sizes


def _differing(part: xr.DataTree, expected: xr.DataTree) -> str:
    """Describe how the shapes of two trajectories differ."""
    sizes, expected_sizes = (groups_of(tree)["/heads"].sizes for tree in (part, expected))
    lengths = {str(dim): (size, expected_sizes.get(dim, 0)) for dim, size in sizes.items() if dim != STEP}
    words = [f"{size} of {dim} and not {other}" for dim, (size, other) in lengths.items() if size != other]
    if words:
        return ", ".join(words)
    shape, expected_shape = _sizes(part), _sizes(expected)
    names = (name for name in {**expected_shape, **shape} if shape.get(name) != expected_shape.get(name))
    return f"{quoted(next(names))} is not the same"


NOTED = ("notes", "warnings")
_OF_REVISION = ("revision", "sha256", "sha256_of_variables")
_INSTALLATION = ("software", "platform")


@in_one_line
class StepName(NamedTuple):
    """Checkpoint of a step of a trajectory."""

    step: int  # number of optimizer steps taken
    revision: str  # revision of the model, or the name of its folder
    fingerprint: str  # SHA-256 of the weights
    commit: str = ""  # commit on the hub, if the checkpoint is from there


def revisions_of(tree: xr.DataTree) -> dict[str, StepName]:
    """Return the checkpoints of a trajectory by revision, in the order of their steps."""
    heads, weights = groups_of(tree)["/heads"], json.loads(tree.attrs["provenance"])["weights"]
    steps, revisions, fingerprints = (heads[name].values.tolist() for name in (STEP, "revision", "fingerprint"))
    return {
        revision: StepName(step, revision, fingerprint, weights.get(revision, {}).get("commit", ""))
        for step, revision, fingerprint in zip(steps, revisions, fingerprints, strict=True)
    }


def options_of(tree: xr.DataTree) -> dict[str, Any] | None:
    """Return the :meth:`Scoring.options` by which the checkpoints were scored; None if they are not recorded."""
    return json.loads(tree.attrs["provenance"]).get("options")


def failures(tree: xr.DataTree) -> dict[str, str]:
    """Return the revisions that could not be scored, with the reasons."""
    return {failure["revision"]: failure["reason"] for failure in json.loads(tree.attrs["failed"])}


def attributes_of_one(scores: Mapping[str, xr.DataTree], at: StepName, options: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of the scores of a checkpoint by the first null, with the provenance of the scores by every null."""
    records = {null: json.loads(tree.attrs["provenance"]) for null, tree in scores.items()}
    record = next(iter(records.values()))
    provenance = {
        **record,
        "call": {null: _without(of_null["call"], "revision") for null, of_null in records.items()},
        "null": {null: of_null["null"] for null, of_null in records.items()},
        "weights": {at.revision: {**record["weights"], "fingerprint": at.fingerprint, **_commit(at)}},
        **({"options": dict(options)} if options else {}),
    }
    lines = {name: [line for tree in scores.values() for line in json.loads(tree.attrs[name])] for name in NOTED}
    return {
        **_without(next(iter(scores.values())).attrs, *_OF_REVISION),
        "kind": "trajectory",
        "nulls": json.dumps(list(scores)),
        "failed": "[]",
        **{name: json.dumps(_once(lines[name])) for name in NOTED},
        "provenance": _json(provenance),
    }


def renamed_attributes(part: xr.DataTree, at: StepName) -> dict[str, Any]:
    """Attributes of a step, rewritten for another step that has the same weights."""
    record = json.loads(part.attrs["provenance"])
    (weights,) = record["weights"].values()
    record["weights"] = {at.revision: _without(weights, "commit") | _commit(at)}
    return {**_without(part.attrs), "provenance": _json(record)}


def joined_attributes(
    parts: Sequence[xr.DataTree], revisions: Sequence[str], failed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Attributes of a trajectory that is joined from some revisions of others, however these were made."""
    records = [json.loads(part.attrs["provenance"]) for part in parts]
    recorded = {revision: weights for record in records for revision, weights in record["weights"].items()}
    weights = {revision: _without(recorded[revision], *NOTED) for revision in revisions}
    noted = {}
    for name in NOTED:
        by_revision = {revision: lines for part in parts for revision, lines in _lines(part, name).items()}
        columns = [by_revision[revision] for revision in revisions]
        common = _once(line for line in columns[-1] if all(line in lines for lines in columns))
        for revision, lines in zip(revisions, columns, strict=True):
            if lines_of_some := sorted(line for line in lines if line not in common):
                weights[revision][name] = lines_of_some
        noted[name] = json.dumps(
            [*common, *_prefixed({revision: weights[revision].get(name, ()) for revision in revisions})]
        )
    last = records[-1]
    installations = [
        installation
        for record in records
        for installation in (*record.get("earlier", ()), {name: record[name] for name in _INSTALLATION})
        if any(installation[name] != last[name] for name in _INSTALLATION)
    ]
    earlier = [installation for k, installation in enumerate(installations) if installation not in installations[:k]]
    reasons = {name: reason for part in parts for name, reason in failures(part).items()} | dict(failed or {})
    missing = sorted(reasons.keys() - {*revisions}, key=_natural)
    return {
        **_without(parts[-1].attrs),
        **noted,
        "failed": json.dumps([{"revision": name, "reason": reasons[name]} for name in missing]),
        "provenance": _json(
            {**_without(last, "earlier"), "weights": weights, **({"earlier": earlier} if earlier else {})}
        ),
    }


def _lines(part: xr.DataTree, name: str) -> dict[str, list[str]]:
    """Collect the notes or warnings about each revision of a trajectory; those about all of them come first."""
    weights, lines = json.loads(part.attrs["provenance"])["weights"], json.loads(part.attrs[name])
    by_revision = {revision: weights[revision].get(name, ()) for revision in revisions_of(part)}
    common = lines[: len(lines) - len(_once(line for of_some in by_revision.values() for line in of_some))]
    return {revision: [*common, *of_some] for revision, of_some in by_revision.items()}


def _prefixed(own: Mapping[str, Sequence[str]]) -> list[str]:
    """Write each line with the revisions that it is about; consecutive ones by the first and the last."""
    prefixed = []
    for line in _once(line for lines in own.values() for line in lines):
        runs = [
            [revision for revision, _ in run]
            for has, run in groupby(own.items(), lambda item, line=line: line in item[1])
            if has
        ]
        names = ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)
        prefixed.append(f"{names}: {line}")
    return prefixed


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key of names in natural order, step-9 before step-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,15})", name)]


def _once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _commit(at: StepName) -> dict[str, str]:
    return {"commit": at.commit} if at.commit else {}


def _without(record: Mapping[Any, Any], *names: str) -> dict[str, Any]:
    return {str(name): value for name, value in record.items() if name not in names}


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, indent=1)
