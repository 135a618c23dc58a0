"""Attributes of a trajectory that record its origin, for single checkpoints and for joined ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import xarray as xr

from rmtbase.results.trajectory.schema import STEP
from rmtbase.shown import in_one_line
from rmtbase.tables import groups_of

COMMIT = "hub commit "
"""Prefix of the note that names the hub commit of a model."""

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
    lines = {name: _once(line for tree in scores.values() for line in json.loads(tree.attrs[name])) for name in NOTED}
    return {
        **_without(next(iter(scores.values())).attrs, *_OF_REVISION),
        "kind": "trajectory",
        "nulls": json.dumps(list(scores)),
        "failed": "[]",
        # without the commit: the same weights may have several
        **{name: json.dumps([line for line in lines[name] if not line.startswith(COMMIT)]) for name in NOTED},
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
            if further := sorted(line for line in lines if line not in common):
                weights[revision][name] = further
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
    own = {revision: weights[revision].get(name, ()) for revision in revisions_of(part)}
    common = lines[: len(lines) - len(_once(line for of_revision in own.values() for line in of_revision))]
    return {revision: [*common, *of_revision] for revision, of_revision in own.items()}


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
