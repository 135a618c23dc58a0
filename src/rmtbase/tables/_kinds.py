"""The kinds of table, and the one check that all of them go through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.errors import TableError
from rmtbase.parameters import INITIALIZATIONS, NORMALIZATIONS
from rmtbase.shown import in_one_line, quoted, shown
from rmtbase.tables._changes_schema import CHANGES_SCHEMA, changes_fit
from rmtbase.tables._circuits import CIRCUITS
from rmtbase.tables._comparison_schema import COMPARISON_RELATIONS, COMPARISON_SCHEMA
from rmtbase.tables._composition_schema import COMPOSITION_SCHEMA, pairs_fit
from rmtbase.tables._domain import (
    COUNT,
    DRAWS,
    INTEGER,
    JSON_LIST,
    JSON_OBJECT,
    PROBABILITY,
    SIZE,
    TEXT,
    Domain,
)
from rmtbase.tables._draws_schema import ATLAS_SCHEMA, BASELINE_SCHEMA, ELEMENTS_SCHEMA, SPECTRA_SCHEMA
from rmtbase.tables._effective_depth_schema import EFFECTIVE_DEPTH_SCHEMA, untested_matrices_have_reasons
from rmtbase.tables._relations import (
    Fault,
    Relation,
    checksums_fit,
    density_is_one,
    draws_agree,
    draws_differ,
    edges_enclose_bins,
    formulas_fit,
    heads_fit,
    moments_fit,
    padded_from,
    sample_fits,
    scales_fit,
    standard_error_fits,
    trace_fits,
)
from rmtbase.tables._schema import (
    COORDINATES,
    REQUIRED_COORDINATES,
    SCHEMA_VERSION,
    Outline,
    Schema,
    Variable,
    require_version,
)
from rmtbase.tables._scores_relations import (
    circuit_group,
    circuits_whole,
    heads_padded,
    shapes_fit,
    sizes_known,
    untested_heads_have_reasons,
)
from rmtbase.tables._scores_schema import (
    SCORES_SCHEMA,
    SUPER_WEIGHTS_SCHEMA,
    WHY_SCHEMA,
    experts_schema,
    head_elements_schema,
    heads_schema,
    null_schema,
    own_null_schema,
)
from rmtbase.tables._signal_schema import (
    SIGNAL_SCHEMA,
    directions_fit,
    floors_fit,
    signals_whole,
    tails_fit,
    untested_have_reasons,
)
from rmtbase.tables._trajectory_schema import DEPARTURES_SCHEMA, TRAJECTORY_RELATIONS, along_steps, at_each_step

_EVERY = {"schema_version": TEXT, "rmtbase_version": TEXT, "kind": TEXT, "provenance": JSON_OBJECT}
_NORMALIZATION = {"normalization": Domain("'sqrt_d' or 'none'", kinds="OUT", choices=tuple(NORMALIZATIONS))}
_SIMULATED = {"draws": DRAWS, "seed": INTEGER}
_LEAST = {
    "draw": 2,
    "index": 0,
    "depth": 0,
    "super_weight": 0,
    "direction": 0,
}  # entries of a dimension; 1 of any other


@in_one_line
@dataclass(frozen=True)
class Kind:
    """One kind of table.

    Attributes:
        name: as the attribute ``kind`` says it.
        groups: the schema of each group; "" is the root.
        attributes: those of the root that must be there.
        may_have: those that are checked where they are there.
        optional: groups that need not be there.
        relations: what the variables of the root owe to one another.
        scores_relations: what its groups owe to one another.
    """

    name: str
    groups: Mapping[str, Schema]
    attributes: Mapping[str, Domain]
    may_have: Mapping[str, Domain] = field(default_factory=dict)
    optional: frozenset[str] = frozenset()
    relations: tuple[Relation, ...] = ()
    scores_relations: tuple[Callable[[Mapping[str, xr.Dataset]], Fault], ...] = ()


_CIRCUIT_OF = {circuit_group(circuit): circuit for circuit in CIRCUITS.values()}
_HEADS = {
    f"{group}/{name}": schema
    for group, circuit in _CIRCUIT_OF.items()
    for name, schema in (("heads", heads_schema(circuit)), ("null", null_schema(circuit)))
}
_OPTIONAL = ("/matrices", "/experts", "/heads/elements", "/super_weights", "/why")
_OF_HEADS = {
    **dict.fromkeys(("d_model", "d_query", "d_head", "d_key", "d_value", "d_output"), SIZE),
    **dict.fromkeys(("n_heads", "n_key_heads"), SIZE),
    **dict.fromkeys(("p_value_floor", "edge_level"), PROBABILITY),
    **dict.fromkeys(("null", "table"), TEXT),
    "null_draws": COUNT,
    "null_method": Domain("a null", kinds="OUT", choices=("analytic", "simulated", "resampled")),
    "circuit": Domain("a circuit", kinds="OUT", choices=tuple(CIRCUITS)),
}
_OF_DRAWS = (edges_enclose_bins, draws_agree, moments_fit, standard_error_fits, density_is_one)

KINDS: dict[str, Kind] = {
    one.name: one
    for one in (
        Kind(
            "baseline",
            {"": BASELINE_SCHEMA},
            _EVERY | _NORMALIZATION | _SIMULATED,
            relations=(
                *(heads_fit, *_OF_DRAWS, draws_differ, padded_from("d_head")),
                *(trace_fits, scales_fit, sample_fits),
            ),
        ),
        Kind(
            "spectra",
            {"": SPECTRA_SCHEMA},
            _EVERY | _NORMALIZATION | _SIMULATED,
            relations=(*_OF_DRAWS, padded_from("rank"), sample_fits),
        ),
        Kind(
            "elements",
            {"": ELEMENTS_SCHEMA},
            _EVERY | _SIMULATED,
            relations=(heads_fit, *_OF_DRAWS, formulas_fit, sample_fits),
        ),
        Kind(
            "effective_depth",
            {"": EFFECTIVE_DEPTH_SCHEMA},
            _EVERY
            | {"model": TEXT, "distance": TEXT, "level": PROBABILITY, "draws": SIZE, "seed": INTEGER}
            | {"part": Domain("'path' or 'update'", kinds="OUT", choices=("path", "update"))},
            {"revision": TEXT, "family": TEXT, "notes": JSON_LIST, "warnings": JSON_LIST},
            relations=(untested_matrices_have_reasons,),
        ),
        Kind(
            "changes",
            {"": {}, **CHANGES_SCHEMA},
            _EVERY | {"model": TEXT, "level": PROBABILITY},
            {"family": TEXT, "notes": JSON_LIST},
            frozenset({"/heads"}),
            scores_relations=(changes_fit,),
        ),
        Kind(
            "composition",
            {"": COMPOSITION_SCHEMA},
            _EVERY | {"model": TEXT, "null": TEXT},
            {"revision": TEXT, "family": TEXT} | dict.fromkeys(("notes", "warnings", "folded"), JSON_LIST),
            relations=(pairs_fit,),
        ),
        Kind(
            "signal",
            {"": {}, **SIGNAL_SCHEMA},
            _EVERY | {"model": TEXT, "level": PROBABILITY},
            {
                **_OF_HEADS,
                **dict.fromkeys(("notes", "warnings", "folded"), JSON_LIST),
                **dict.fromkeys(("revision", "family", "initialization"), TEXT),
            },
            frozenset(SIGNAL_SCHEMA),
            scores_relations=(signals_whole, directions_fit, floors_fit, untested_have_reasons, tails_fit),
        ),
        Kind(
            "scores",
            {
                "": {},
                **_HEADS,
                "/matrices": SCORES_SCHEMA["matrices"] | SCORES_SCHEMA["spectra"],
                "/experts": experts_schema(),
                "/heads/elements": head_elements_schema(),
                "/super_weights": SUPER_WEIGHTS_SCHEMA,
                "/why": WHY_SCHEMA,
            },
            _EVERY
            | dict.fromkeys(("model", "family", "null", "table"), TEXT)
            | {"null_method": _OF_HEADS["null_method"]},
            {
                **_NORMALIZATION,
                **_OF_HEADS,
                **dict.fromkeys(("notes", "warnings", "folded"), JSON_LIST),
                "n_layers": SIZE,
                "revision": TEXT,
                "initialization": Domain("an initialisation", kinds="OUT", choices=INITIALIZATIONS),
            },
            frozenset(
                {"/matrices", "/experts", "/heads/elements", "/super_weights", "/why", *_HEADS} - {"/heads", "/null"}
            ),
            scores_relations=(circuits_whole, sizes_known, heads_padded, shapes_fit, untested_heads_have_reasons),
        ),
        Kind(
            "comparison",
            {"": {}, **COMPARISON_SCHEMA},
            _EVERY,
            {"warnings": JSON_LIST},
            frozenset({*COMPARISON_SCHEMA} - {"/models"}),
            scores_relations=COMPARISON_RELATIONS,
        ),
        Kind(
            "atlas",
            {"": ATLAS_SCHEMA},
            _EVERY
            | dict.fromkeys(("title", "creator", "license", "version"), TEXT)
            | {"seed": INTEGER}
            | {"normalization": Domain("'none'", kinds="OUT", choices=("none",))},
            relations=(heads_fit, padded_from("d_head"), standard_error_fits, checksums_fit),
        ),
    )
}
"""Every kind of table by name."""


def _trajectory(scores: Kind) -> Kind:
    """The scores of many checkpoints of one model."""
    groups = {name: along_steps(name, schema) for name, schema in scores.groups.items()}
    return Kind(
        "trajectory",
        groups | {"/departures": DEPARTURES_SCHEMA},
        {**scores.attributes, "nulls": JSON_LIST, "failed": JSON_LIST},
        {name: domain for name, domain in scores.may_have.items() if name != "revision"}
        | {"planned_looks": COUNT, "alarm_level": PROBABILITY},
        scores.optional,
        scores_relations=(*TRAJECTORY_RELATIONS, *map(at_each_step, scores.scores_relations)),
    )


KINDS["trajectory"] = _trajectory(KINDS["scores"])


def validate(table: xr.Dataset | xr.DataTree, path: Path | str, *kinds: str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is a table of one of those kinds, and can be.

    That is: of this schema's version, with every attribute and variable that the schema names, of the type, the
    range and the dimensions that it says, and such that the variables fit one another.
    """
    groups = groups_of(table)
    require_values(groups, require_outline(groups, path, kinds), path)


def groups_of(table: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """The groups of a tree by name, each with all its coordinates; or a dataset as the root, "", and all there is."""
    if isinstance(table, xr.DataTree):
        return {node.path.rstrip("/"): node.to_dataset() for node in table.subtree}
    return {"": table}


def tree_of(groups: Mapping[str, xr.Dataset], attributes: Mapping[Any, Any]) -> xr.DataTree:
    """The tree of those groups, with attributes of its root; in the order of names, however the groups came to be."""
    tree: xr.DataTree = xr.DataTree.from_dict({name: groups[name] for name in sorted(groups) if name})
    tree.attrs = dict(attributes)
    return tree


def require_outline(groups: Mapping[str, Outline], path: Path | str, kinds: tuple[str, ...]) -> Kind:
    """The kind of a table, told without a value of its variables.

    Raises:
        TableError: it is none of those kinds, of another schema version, or its attributes, variables and dimensions
            are not the schema's.
    """
    kind = _kind(groups[""].attrs, path, kinds)
    for group in ("", *(name for name in groups if name in _CIRCUIT_OF)):
        for name, domain in {**kind.attributes, **kind.may_have}.items():
            if name in groups[group].attrs and (fault := domain.fault(groups[group].attrs[name])) is not None:
                value = shown(groups[group].attrs[name], 80)
                raise TableError(path, f"attribute {name} = {value}: {fault}", domain.words)
    for name in kind.groups:
        if name in groups:
            _check_group(groups[name], name, _schema(kind, name, groups), path)
        elif name not in kind.optional:
            raise TableError(path, f"no group {name}", f"the groups of a {kind.name} file, {name} among them")
    return kind


def require_values(groups: Mapping[str, xr.Dataset], kind: Kind, path: Path | str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless every value lies in its domain, and all fit one another."""
    for group, dataset in groups.items():
        schema = _schema(kind, group, groups) if group in kind.groups else {}
        for name, variable in dataset.variables.items():
            known = _known(str(name), schema, dataset)
            if known is not None and (fault := known.domain.fault(variable.values)) is not None:
                raise TableError(path, f"{fault} in variable {_place(group, name)}", known.domain.words)
    for fault in kind.relations:
        if (broken := fault(groups[""])) is not None:
            raise TableError(path, *broken)
    for fault_of_all in kind.scores_relations:
        if (broken := fault_of_all(groups)) is not None:
            raise TableError(path, *broken)


def _kind(found: Mapping[Any, Any], path: Path | str, kinds: tuple[str, ...]) -> Kind:
    others = f" (or {', '.join(kinds[1:])})" if kinds[1:] else ""
    want = f"a {kinds[0]} file{others} written by rmtbase (schema {SCHEMA_VERSION})"
    require_version(found, path)
    if not isinstance(found.get("kind"), str) or found["kind"] not in kinds:
        raise TableError(path, f"a file of kind {quoted(str(found.get('kind')))}", want)
    kind = KINDS[found["kind"]]
    missing = [name for name in kind.attributes if name not in found]
    if missing:
        raise TableError(path, f"attributes {', '.join(missing)} missing", want)
    return kind


def _schema(kind: Kind, group: str, groups: Mapping[str, Outline]) -> Schema:
    if not group.endswith("/null"):
        return kind.groups[group]
    circuit = _CIRCUIT_OF[group.removesuffix("/null")]
    own = groups[""].attrs.get("null_method") == "resampled"
    schema = own_null_schema(circuit) if own else null_schema(circuit, several="shape" in groups[group].sizes)
    return along_steps(group, schema) if kind.name == "trajectory" else schema


def _check_group(group: Outline, name: str, schema: Schema, path: Path | str) -> None:
    dims = {dim for known in schema.values() for dim in known.dims}
    for dim in dims & set(group.sizes):
        if group.sizes[dim] < _LEAST.get(dim, 1):
            raise TableError(path, f"{group.sizes[dim]} entries of {dim}", f"at least {_LEAST.get(dim, 1)}")
    there = {schema[variable].part for variable in group.variables if variable in schema}
    for variable, known in schema.items():
        if variable not in group.variables and known.part in {*there, ""}:
            raise TableError(path, f"no variable '{variable}'", f"{variable}{known.dims}")
    for dim in sorted(dims & REQUIRED_COORDINATES & set(group.sizes) - set(group.variables)):
        raise TableError(path, f"no coordinate '{dim}'", f"{dim}{COORDINATES[dim].dims}")
    for variable, found in group.variables.items():
        known = _known(variable, schema, group)
        if known is not None and found.dims != known.dims:
            raise TableError(
                path, f"variable {quoted(variable)} with dims {quoted(found.dims)}", f"{variable}{known.dims}"
            )
        if known is not None and found.dtype.kind not in known.domain.kinds:
            what = "text" if found.dtype.kind == "O" else found.dtype
            raise TableError(path, f"variable {_place(name, variable)} of type {what}", known.domain.words)


def _known(name: str, schema: Schema, group: Outline) -> Variable | None:
    """What the schema, or else what every table's coordinates, say of a variable."""
    if name in schema:
        return schema[name]
    known = COORDINATES.get(name)
    return known if known is not None and set(known.dims) <= set(group.sizes) else None


def _place(group: str, name: object) -> str:
    return quoted(f"{group}/{name}" if group else name)
