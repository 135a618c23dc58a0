"""Scores of single checkpoints as a trajectory of one step, and trajectories joined to one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.shown import quoted
from rmtbase.tables import (
    DEPARTURES_SCHEMA,
    KEPT_PROBABILITIES,
    STEP,
    STEP_COORDINATES,
    STEP_OF_ENTRY,
    departure_steps,
    describe,
    groups_of,
    has_step,
    tree_of,
)

_OF_NULLS = ("p_value", "omnibus_p_value", "omnibus_q_value")
COMMIT = "hub commit "
"""How the note of a model begins that says which commit of the hub it is."""
_OF_REVISION = frozenset({"revision", "sha256", "sha256_of_variables"})


@dataclass(frozen=True)
class StepName:
    """What a step of a trajectory is of.

    Attributes:
        step: optimizer steps taken.
        revision: of the model, or the name of its folder.
        fingerprint: SHA-256 of its weights.
        commit: of the hub, if it is from there.
    """

    step: int
    revision: str
    fingerprint: str
    commit: str = ""


def one_step(scores: Mapping[str, xr.DataTree], at: StepName) -> xr.DataTree:
    """The trajectory of a single step.

    Args:
        scores: of one checkpoint by each null, in the order in which the file is to name them; ``/heads`` is by the
            first.
        at: which checkpoint.
    """
    first = next(iter(scores.values()))
    groups: dict[str, xr.Dataset] = {}
    for group, dataset in groups_of(first).items():
        if group:
            groups[group] = _stepped(group, dataset, at) if dataset.variables else dataset
    fingerprint = {"fingerprint": (STEP, [at.fingerprint]), "duplicate_of": (STEP, [""])}
    groups["/heads"] = groups["/heads"].assign_coords(fingerprint)
    groups["/departures"] = _by_null(scores, at)
    return _described(groups, _attributes(scores, at))


def renamed(part: xr.DataTree, at: StepName) -> xr.DataTree:
    """The trajectory of a step as that of another one at which the weights were the same."""
    groups = groups_of(part.copy(deep=True))
    for name, group in groups.items():
        if STEP_OF_ENTRY in group.variables:
            group[STEP_OF_ENTRY][...] = at.step
        elif STEP in group.dims:
            groups[name] = group.assign_coords(_of_step(at))
    groups["/departures"] = _with_departures(groups["/departures"])
    record = json.loads(part.attrs["provenance"])
    (weights,) = record["weights"].values()
    record["weights"] = {at.revision: weights | _commit(at)}
    return _described(groups, {**_plain(part.attrs), "provenance": json.dumps(record, sort_keys=True, indent=1)})


def joined(parts: Sequence[xr.DataTree], failed: Mapping[str, str] | None = None) -> xr.DataTree:
    """One trajectory of several, in the order of their steps. Those of another shape than most are left out, and named.

    Which checkpoints hold the same weights, and when each head left each null, is found out anew.

    Args:
        parts: trajectories of one model by the same nulls, of no common step.
        failed: revisions that could not be scored, and why not.

    Raises:
        ParameterError: there are none, or two of one step.
    """
    if not parts:
        raise ParameterError("parts", "none", "one trajectory at least")
    shapes = [_shape(part) for part in parts]
    most = Counter(shapes).most_common(1)[0][1]
    chosen = next(shape for shape in reversed(shapes) if shapes.count(shape) == most)
    alike = sorted(
        (part for part, shape in zip(parts, shapes, strict=True) if shape == chosen), key=lambda part: _steps(part)[0]
    )
    other = {
        revision: f"other sizes than most: {_differing(part, alike[0])}"
        for part, shape in zip(parts, shapes, strict=True)
        if shape != chosen
        for revision in _revisions(part)
    }
    steps = [step for part in alike for step in _steps(part)]
    if steps != sorted(set(steps)):
        raise ParameterError("parts", steps, "trajectories of which each step is in one")
    each = [groups_of(part) for part in alike]
    groups = {name: _concatenated([groups[name] for groups in each]) for name in each[-1]}
    groups["/heads"] = _with_duplicates(groups["/heads"])
    groups["/departures"] = _with_departures(groups["/departures"])
    left_out = {"failed": json.dumps(_failures(alike, {**(failed or {}), **other}))}
    return _described(groups, _joined_attributes(alike) | left_out)


def until(tree: xr.DataTree, step: int) -> xr.DataTree | None:
    """A trajectory without its steps beyond one; None where it has no other."""
    steps = np.array(_steps(tree))
    if (steps > step).all():
        return None
    groups = groups_of(tree)
    for name, group in groups.items():
        if STEP_OF_ENTRY in group.variables:
            (entry,) = group[STEP_OF_ENTRY].dims
            groups[name] = group.isel({entry: np.flatnonzero(group[STEP_OF_ENTRY].values <= step)})
        elif STEP in group.dims:
            groups[name] = group.isel({STEP: np.flatnonzero(steps <= step)})
    groups["/departures"] = _with_departures(groups["/departures"])
    return _described(groups, tree.attrs)


def failures(tree: xr.DataTree) -> dict[str, str]:
    """The revisions that could not be scored, and why not."""
    return {one["revision"]: one["reason"] for one in json.loads(tree.attrs["failed"])}


def _stepped(group: str, dataset: xr.Dataset, at: StepName) -> xr.Dataset:
    """A group of scores with its first dimension ``step``, where it has one."""
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
    """A group whose entries come and go: each with its step."""
    (entry,) = dataset.dims
    return dataset.assign({STEP_OF_ENTRY: (entry, np.full(dataset.sizes[entry], at.step))})


def _of_step(at: StepName) -> dict[str, Any]:
    return {STEP: (STEP, [at.step]), "revision": (STEP, [at.revision])}


def _by_null(scores: Mapping[str, xr.DataTree], at: StepName) -> xr.Dataset:
    """The p-values of each null, from which the departures follow."""
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
    """A group of all parts: along ``step``, or entry after entry; of what is the same at all steps that of the last."""
    last = datasets[-1]
    entries = last[STEP_OF_ENTRY].dims[0] if STEP_OF_ENTRY in last.variables else None
    if entries is None and STEP not in last.dims:
        return last
    along = STEP if entries is None else entries
    return xr.concat(  # type: ignore[return-value]  # of datasets a dataset
        datasets, dim=along, data_vars="minimal", coords="minimal", compat="override", join="override"
    )


def _described(groups: Mapping[str, xr.Dataset], attributes: Mapping[Any, Any]) -> xr.DataTree:
    """The tree of those groups, with words for what a trajectory has beside scores."""
    words = {name: DEPARTURES_SCHEMA if name == "/departures" else STEP_COORDINATES for name in groups}
    return tree_of({name: describe(one, words[name]) for name, one in groups.items()}, attributes)


def _steps(part: xr.DataTree) -> list[int]:
    return groups_of(part)["/heads"][STEP].values.tolist()


def _revisions(part: xr.DataTree) -> list[str]:
    return groups_of(part)["/heads"]["revision"].values.tolist()


def _shape(part: xr.DataTree) -> str:
    """What the checkpoints of a trajectory have in common with those that they can be joined to."""
    return json.dumps(_sizes(part), sort_keys=True)


def _sizes(part: xr.DataTree) -> dict[str, list[Any]]:
    """Of each group what is there once: places, names, sizes."""
    sizes: dict[str, list[Any]] = {}
    for path, group in groups_of(part).items():
        if STEP not in group.dims:
            sizes[path] = []  # a null, whose numbers follow, or entries that come and go
            continue
        for name, variable in group.variables.items():
            if STEP not in variable.dims:
                sizes[f"{path}/{name}"] = [list(map(str, variable.dims)), variable.values.tolist()]
            else:
                sizes[f"{path}/{name}"] = [list(map(str, variable.dims))]
    for name in ("first_step", "lasting_step", "alarm_step"):
        sizes.pop(f"/departures/{name}", None)
    return sizes


def _differing(part: xr.DataTree, other: xr.DataTree) -> str:
    """Where two trajectories of different shapes differ, in words."""
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
    return f"{quoted(names[0])} is not the same"


def _attributes(scores: Mapping[str, xr.DataTree], at: StepName) -> dict[str, Any]:
    """Of the scores by the first null, with what says how all of them came to be."""
    first = next(iter(scores.values())).attrs
    records = {name: json.loads(tree.attrs["provenance"]) for name, tree in scores.items()}
    whole = next(iter(records.values()))
    weights = {**whole.pop("weights"), "fingerprint": at.fingerprint, **_commit(at)}
    null = {name: record["null"] for name, record in records.items()}
    calls = {name: _without_revision(record["call"]) for name, record in records.items()}
    provenance = {**whole, "call": calls, "null": null, "weights": {at.revision: weights}}
    said = {
        name: json.dumps(list(dict.fromkeys(line for tree in scores.values() for line in _said(tree, name))))
        for name in ("notes", "warnings")
    }
    return {
        **{str(name): value for name, value in first.items() if name not in _OF_REVISION},
        "kind": "trajectory",
        "nulls": json.dumps(list(scores)),
        "failed": "[]",
        **said,
        "provenance": json.dumps(provenance, sort_keys=True, indent=1),
    }


def _commit(at: StepName) -> dict[str, str]:
    return {"commit": at.commit} if at.commit else {}


def _said(tree: xr.DataTree, name: str) -> list[str]:
    """What was recorded, but for the commit, which the same weights may have several of."""
    return [line for line in json.loads(tree.attrs[name]) if not line.startswith(COMMIT)]


def _without_revision(call: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in call.items() if name != "revision"}


def _joined_attributes(parts: Sequence[xr.DataTree]) -> dict[str, Any]:
    """Those of the last part, with what was said of each, and the weights of all."""
    records = [json.loads(part.attrs["provenance"]) for part in parts]
    weights = {revision: one for record in records for revision, one in record["weights"].items()}
    whole = {**records[-1], "weights": weights}
    others = [
        {name: record[name] for name in ("software", "platform")}
        for record in records
        if any(record[name] != whole[name] for name in ("software", "platform"))
    ]
    if others:
        whole["earlier"] = [one for k, one in enumerate(others) if one not in others[:k]]
    said = {name: json.dumps(_lines(parts, name)) for name in ("notes", "warnings")}
    return {**_plain(parts[-1].attrs), **said, "provenance": json.dumps(whole, sort_keys=True, indent=1)}


def _plain(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in attributes.items()}


def _lines(parts: Sequence[xr.DataTree], name: str) -> list[str]:
    """What was said of every part, then of each alone, with its revision in front."""
    each = [json.loads(part.attrs[name]) for part in parts]
    common = [line for line in each[-1] if all(line in lines for lines in each)]
    alone = [
        line if len(_steps(part)) > 1 else f"{_revisions(part)[0]}: {line}"
        for part, lines in zip(parts, each, strict=True)
        for line in lines
        if line not in common
    ]
    return list(dict.fromkeys((*common, *alone)))


def _failures(parts: Sequence[xr.DataTree], failed: Mapping[str, str]) -> list[dict[str, str]]:
    """Those of before that have not been scored since, and those of now."""
    before = {name: reason for part in parts for name, reason in failures(part).items()}
    scored = {name for part in parts for name in _revisions(part)}
    return [
        {"revision": name, "reason": reason} for name, reason in (before | dict(failed)).items() if name not in scored
    ]
