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

SAID = ("notes", "warnings")
_OF_REVISION = frozenset({"revision", "sha256", "sha256_of_variables"})
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
    return {one["revision"]: one["reason"] for one in json.loads(tree.attrs["failed"])}


def attributes_of_one(scores: Mapping[str, xr.DataTree], at: StepName, options: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of the scores of a checkpoint by the first null, with the provenance of the scores by every null."""
    first = next(iter(scores.values())).attrs
    records = {name: json.loads(tree.attrs["provenance"]) for name, tree in scores.items()}
    whole = next(iter(records.values()))
    commit = {"commit": at.commit} if at.commit else {}
    weights = {**whole.pop("weights"), "fingerprint": at.fingerprint, **commit}
    calls = {name: {**record["call"]} for name, record in records.items()}
    for call in calls.values():
        call.pop("revision", None)
    provenance = {
        **whole,
        "call": calls,
        "null": {name: record["null"] for name, record in records.items()},
        "weights": {at.revision: weights},
        **({"options": dict(options)} if options else {}),
    }
    said = {name: _once(line for tree in scores.values() for line in json.loads(tree.attrs[name])) for name in SAID}
    return {
        **{str(name): value for name, value in first.items() if name not in _OF_REVISION},
        "kind": "trajectory",
        "nulls": json.dumps(list(scores)),
        "failed": "[]",
        # without the commit: the same weights may have several
        **{name: json.dumps([one for one in lines if not one.startswith(COMMIT)]) for name, lines in said.items()},
        "provenance": _json(provenance),
    }


def renamed_attributes(part: xr.DataTree, at: StepName) -> dict[str, Any]:
    """Attributes of a step, rewritten for another step that has the same weights."""
    record = json.loads(part.attrs["provenance"])
    (weights,) = record["weights"].values()
    weights.pop("commit", None)
    record["weights"] = {at.revision: weights | ({"commit": at.commit} if at.commit else {})}
    return {**_plain(part.attrs), "provenance": _json(record)}


def joined_attributes(
    parts: Sequence[xr.DataTree], revisions: Iterable[str], failed: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Attributes of a trajectory that is joined from some revisions of others, however these were made."""
    records, there = [json.loads(part.attrs["provenance"]) for part in parts], list(revisions)
    weights = {name: one for record in records for name, one in record["weights"].items()}
    weights = {name: {key: one for key, one in weights[name].items() if key not in SAID} for name in there}
    said = {}
    for kind in SAID:
        each = {name: lines for part in parts for name, lines in _lines(part, kind).items()}
        of_all = _of_all([each[name] for name in there])
        for name in there:
            if own := sorted(line for line in each[name] if line not in of_all):
                weights[name][kind] = own
        said[kind] = json.dumps([*of_all, *_of_some(weights, kind)])
    whole = {**records[-1], "weights": weights}
    whole.pop("earlier", None)
    earlier = [
        one
        for record in records
        for one in (*record.get("earlier", ()), {name: record[name] for name in _INSTALLATION})
        if any(one[name] != whole[name] for name in _INSTALLATION)
    ]
    if earlier:
        whole["earlier"] = [one for k, one in enumerate(earlier) if one not in earlier[:k]]
    reasons = {name: one for part in parts for name, one in failures(part).items()} | dict(failed or {})
    return {
        **_plain(parts[-1].attrs),
        **said,
        "failed": json.dumps(
            [{"revision": name, "reason": reasons[name]} for name in sorted(reasons, key=_natural) if name not in there]
        ),
        "provenance": _json(whole),
    }


def _lines(part: xr.DataTree, name: str) -> dict[str, list[str]]:
    """Collect the notes or warnings about each revision of a trajectory."""
    weights = json.loads(part.attrs["provenance"])["weights"]
    of_some = set(_of_some({key: weights[key] for key in revisions_of(part)}, name))
    of_all = [line for line in json.loads(part.attrs[name]) if line not in of_some]
    return {key: [*of_all, *weights[key].get(name, ())] for key in revisions_of(part)}


def _of_all(each: Sequence[Sequence[str]]) -> list[str]:
    return _once(line for line in each[-1] if all(line in lines for lines in each))


def _of_some(weights: Mapping[str, Mapping[str, Any]], name: str) -> list[str]:
    """List the lines about only some revisions, prefixed with these revisions."""
    own = {key: one.get(name, ()) for key, one in weights.items()}
    return [f"{_words(own, line)}: {line}" for line in _once(line for lines in own.values() for line in lines)]


def _words(own: Mapping[str, Sequence[str]], line: str) -> str:
    """Name the revisions that a line is about; consecutive ones by the first and the last."""
    runs = [[key for key, _ in run] for was, run in groupby(own.items(), key=lambda one: line in one[1]) if was]
    return ", ".join(run[0] if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key of names in natural order, step-9 before step-10."""
    return [(int(one), "") if one.isdecimal() else (-1, one) for one in re.split(r"(\d{1,15})", name)]


def _once(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))


def _plain(attributes: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in attributes.items()}


def _json(record: Mapping[str, Any]) -> str:
    return json.dumps(record, sort_keys=True, indent=1)
