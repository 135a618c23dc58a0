"""Schema of a trajectory file: the groups of a scores file along ``step``, and ``/departures`` from each null."""

import json
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import xarray as xr
from jaxtyping import Float, Int

from rmtbase.errors import ParameterError
from rmtbase.results.scores.schema import SCORES, heads_schema
from rmtbase.tables import COORDINATES, QK, Fault, Kind, Outline, Schema, Variable, groups_of, register
from rmtbase.tables.domain import (
    COUNT,
    COUNT_OR_NAN,
    JSON_LIST,
    NAMES,
    NON_NEGATIVE_OR_NAN,
    PLACES,
    PROBABILITY,
    TEXT,
    Domain,
)

STEP = "step"
STEP_OF_ENTRY = "at_step"  # step of each entry, in a group whose number of entries varies, like super-weights

KEPT_PROBABILITIES = (0.025, 0.5, 0.975)
"""Probabilities of the null quantiles that a trajectory keeps: the median and the ends of the central 95 %."""

FOR_GOOD = 0.05
"""False discovery rate, over the heads of a step, at which a head counts as departed from a null."""

_PLACES_AGAIN = Domain("integers of at least 0, rising", kinds="iu", least=0, order="rising")
_ONCE = frozenset({"key_head", "n_rows", "n_columns", "layer_shape"})
STEP_COORDINATES: dict[str, Variable] = {
    STEP: Variable((STEP,), "optimizer steps taken", PLACES),
    "revision": Variable((STEP,), "revision of the model, or its folder", TEXT),
    "fingerprint": Variable((STEP,), "SHA-256 of all weights", TEXT),
    "duplicate_of": Variable((STEP,), "earlier revision with the same weights, or nothing", TEXT),
}
"""Coordinates that identify the checkpoint of each step. The last two are only in ``/heads``."""

_LAYER_HEAD = ("null", "layer", "head")
_OF_EVERY_GROUP = {name: STEP_COORDINATES[name] for name in (STEP, "revision")}
_LEVEL = f"the head's omnibus_q_value is at most {FOR_GOOD:g}"
_AT_EVERY = f"{_LEVEL} at every step; NaN where it is not at the last one"
_EVIDENCE = "evidence of all looks so far against the null, whose expectation under it is at most 1"
_RAISED = "step at which the alarm was raised for the head, by the e-Benjamini-Hochberg procedure; NaN where it was not"


def has_step(name: str, dims: tuple[str, ...]) -> bool:
    """Test whether a variable of scores gets the dimension ``step``, as those along layers do, except for sizes."""
    return dims[:1] == ("layer",) and name not in _ONCE


def _along_steps(group: str, schema: Schema) -> dict[str, Variable]:
    """Entries of a group without layers are concatenated, with the step of each; a null is stored once."""
    stepped = {
        name: replace(variable, dims=(STEP, *variable.dims))
        for name, variable in schema.items()
        if has_step(name, variable.dims)
    }
    if not stepped:
        if not schema or group.endswith("/null"):
            return dict(schema)
        (entry,) = {variable.dims[0] for variable in schema.values()}
        return {**schema, STEP_OF_ENTRY: Variable((entry,), "optimizer steps taken", _PLACES_AGAIN)}
    if group.endswith("/heads"):
        stepped["null_scale"] = replace(COORDINATES["null_scale"], dims=(STEP, "layer", "head"), part="null_scale")
    return {**schema, **stepped, **(STEP_COORDINATES if group == "/heads" else _OF_EVERY_GROUP)}


DEPARTURES_SCHEMA: dict[str, Variable] = {
    **_OF_EVERY_GROUP,
    "null": Variable(("null",), "null that the heads were scored against", NAMES),
    **{
        name: replace(heads_schema(QK)[name], dims=(STEP, *_LAYER_HEAD, *heads_schema(QK)[name].dims[2:]))
        for name in ("p_value", "omnibus_p_value", "omnibus_q_value")
    },
    "first_step": Variable(_LAYER_HEAD, f"first step at which {_LEVEL}; NaN where none is", COUNT_OR_NAN),
    "lasting_step": Variable(_LAYER_HEAD, f"first step from which on {_AT_EVERY}", COUNT_OR_NAN),
    "e_value": Variable((STEP, "layer", "head"), _EVIDENCE, NON_NEGATIVE_OR_NAN, part="alarm"),
    "alarm_step": Variable(("layer", "head"), _RAISED, COUNT_OR_NAN, part="alarm"),
}
"""The variables of ``/departures``. ``omnibus_q_value`` corrects only for the heads of a step."""

ALARM_VARIABLES = ("e_value", "alarm_step")  # those that only a watched run has


def departure_steps(
    q_value: Float[np.ndarray, "step null layer head"], step: Int[np.ndarray, " step"]
) -> tuple[Float[np.ndarray, "null layer head"], Float[np.ndarray, "null layer head"]]:
    """Find the first step at which each head departs from the null (q ≤ 0.05), and that from which for good.

    Untested steps are ignored, except the last one: those that depart for good are exactly those flagged at the last.
    """
    untested, departs = np.isnan(q_value), np.nan_to_num(q_value, nan=1.0) <= FOR_GOOD
    for_good = departs & departs[-1] & np.logical_and.accumulate((departs | untested)[::-1])[::-1]

    def first(where: np.ndarray) -> np.ndarray:
        return np.where(where.any(axis=0), step[np.argmax(where, axis=0)].astype(float), np.nan)

    return first(departs), first(for_good)


def steps_before(
    q_value: Float[np.ndarray, "step null layer head"], step: Int[np.ndarray, " step"]
) -> Float[np.ndarray, "null layer head"]:
    """Find the last step at which each head that departs for good was tested and did not differ; NaN if none."""
    stays = np.isfinite(q_value) & (q_value > FOR_GOOD)
    last = step[len(step) - 1 - np.argmax(stays[::-1], axis=0)]
    return np.where(stays.any(axis=0) & (np.nan_to_num(q_value[-1], nan=1.0) <= FOR_GOOD), last.astype(float), np.nan)


def scores_at(trajectory: xr.DataTree, step: int) -> xr.DataTree:
    """Return one step of a trajectory as a scores tree."""
    heads = trajectory.children["heads"].to_dataset()
    steps = heads[STEP].values.tolist()
    if step not in steps:
        raise ParameterError("step", step, f"one of {', '.join(map(str, steps))}")
    groups = groups_of(trajectory)
    for name in ("", "/departures"):
        del groups[name]
    for name, group in groups.items():
        if STEP_OF_ENTRY in group.variables:
            (entry,) = group[STEP_OF_ENTRY].dims
            group = group.isel({entry: np.flatnonzero(group[STEP_OF_ENTRY].values == step)})
        elif STEP in group.sizes:
            group = group.isel({STEP: steps.index(step)})
        groups[name] = group.drop_vars(STEP_COORDINATES, errors="ignore")
    tree: xr.DataTree = xr.DataTree.from_dict(groups)
    revision = str(heads["revision"].values[steps.index(step)])
    record = json.loads(trajectory.attrs["provenance"])
    record["weights"] = record.get("weights", {}).get(revision, {})
    tree.attrs = {**trajectory.attrs, "kind": "scores", "revision": revision, "provenance": json.dumps(record)}
    return tree


def _steps_agree(groups: Mapping[str, xr.Dataset]) -> Fault:
    steps = groups["/heads"][STEP].values
    for name, group in groups.items():
        if STEP in group.coords and not np.array_equal(group[STEP].values, steps):
            return f"other steps in {name}", "those of /heads"
    return None


def _schema_of(group: str, groups: Mapping[str, Outline]) -> Schema:
    if not group.endswith("/null") or SCORES.schema_of is None:
        return _TRAJECTORY.groups[group]
    return _along_steps(group, SCORES.schema_of(group, groups))


_TRAJECTORY = register(
    Kind(
        "trajectory",
        {name: _along_steps(name, schema) for name, schema in SCORES.groups.items()}
        | {"/departures": DEPARTURES_SCHEMA},
        {**SCORES.attributes, "nulls": JSON_LIST, "failed": JSON_LIST},
        {name: domain for name, domain in SCORES.may_have.items() if name != "revision"}
        | {"planned_looks": COUNT, "alarm_level": PROBABILITY},
        SCORES.optional,
        relations=(_steps_agree, *SCORES.relations),
        described=SCORES.described,
        schema_of=_schema_of,
    )
)
