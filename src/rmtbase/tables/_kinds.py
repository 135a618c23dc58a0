"""Kinds of table, and the check that all tables pass through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.errors import TableError
from rmtbase.parameters import NORMALIZATIONS
from rmtbase.shown import in_one_line, quoted, shown
from rmtbase.tables._digest import case_checksums
from rmtbase.tables._draws_schema import ATLAS_SCHEMA, BASELINE_SCHEMA, ELEMENTS_SCHEMA, SPECTRA_SCHEMA
from rmtbase.tables._schema import (
    COORDINATES,
    REQUIRED_COORDINATES,
    SCHEMA_VERSION,
    Outline,
    Schema,
    Variable,
    require_version,
)
from rmtbase.tables.domain import DRAWS, INTEGER, JSON_OBJECT, TEXT, Domain

Groups = Mapping[str, xr.Dataset]
Fault = tuple[str, str] | None
#: Check of names and sizes across a table, whose values have a digest: None, or what was found and what was expected
Relation = Callable[[Groups], Fault]

EVERY_FILE = {"schema_version": TEXT, "rmtbase_version": TEXT, "kind": TEXT, "provenance": JSON_OBJECT}
"""Attributes of every table."""

NORMALIZATION = {"normalization": Domain("'sqrt_d' or 'none'", kinds="OUT", choices=tuple(NORMALIZATIONS))}
"""Attribute of tables whose matrices may be divided by √d."""

_SIMULATED = {"draws": DRAWS, "seed": INTEGER}
_LEAST = {"draw": 2, "index": 0, "depth": 0, "super_weight": 0, "direction": 0}  # entries; 1 of other dimensions


@in_one_line
@dataclass(frozen=True)
class Kind:
    """Kind of table."""

    name: str  #: value of the attribute ``kind``
    groups: Mapping[str, Schema]  #: the schema of each group; "" is the root
    attributes: Mapping[str, Domain]  #: required attributes of the root
    may_have: Mapping[str, Domain] = field(default_factory=dict)  #: optional attributes, which are checked if present
    optional: frozenset[str] = frozenset()  #: names of groups that may be missing
    relations: tuple[Relation, ...] = ()  #: checks of the sizes and names that variables and groups share
    described: frozenset[str] = frozenset()  #: further groups whose attributes are checked as the root's, if present
    #: schema of a group, given its name and all groups, if ``groups`` does not determine it
    schema_of: Callable[[str, Mapping[str, Outline]], Schema] | None = None


def edges_enclose_bins(groups: Groups) -> Fault:
    sizes = groups[""].sizes
    bins, edges = sizes["bin"], sizes["edge"]
    return None if edges == bins + 1 else (f"{edges} edges of {bins} bins", f"{bins + 1} edges")


def sample_has_all_draws(groups: Groups) -> Fault:
    """Check that the sample, if there is one, has the number of draws of every case."""
    table = groups[""]
    if "draw" not in table.sizes:
        return None
    size = table.sizes["draw"]
    counts = table["draws"].values.tolist() if "draws" in table else [int(table.attrs["draws"])]
    mismatch = next((count for count in counts if count != size), None)
    return None if mismatch is None else (f"a sample of {size} draws", f"{mismatch}, the draws of its case")


def checksums_fit(groups: Groups) -> Fault:
    """Check each case of an atlas against its checksum, which serves as its digest when only that case is read."""
    atlas = groups[""]
    wrong = atlas["checksum"].values != case_checksums(atlas)
    return ("contents that do not fit their checksum", "an atlas as it was written") if wrong.any() else None


_OF_DRAWS = (edges_enclose_bins, sample_has_all_draws)

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("baseline", {"": BASELINE_SCHEMA}, EVERY_FILE | NORMALIZATION | _SIMULATED, relations=_OF_DRAWS),
        Kind("spectra", {"": SPECTRA_SCHEMA}, EVERY_FILE | NORMALIZATION | _SIMULATED, relations=_OF_DRAWS),
        Kind("elements", {"": ELEMENTS_SCHEMA}, EVERY_FILE | _SIMULATED, relations=_OF_DRAWS),
        Kind(
            "atlas",
            {"": ATLAS_SCHEMA},
            EVERY_FILE
            | dict.fromkeys(("title", "creator", "license", "version"), TEXT)
            | {"seed": INTEGER}
            | {"normalization": Domain("'none'", kinds="OUT", choices=("none",))},
            relations=(checksums_fit,),
        ),
    )
}  #: Known kinds of table by name: those of draws, and those of the result packages imported so far


def register(kind: Kind) -> Kind:
    """Register a kind for opening and validating tables."""
    KINDS[kind.name] = kind
    return kind


def validate(table: xr.Dataset | xr.DataTree, path: Path | str, *kinds: str) -> None:
    """Raise :class:`~rmtbase.errors.TableError` unless this is a valid table of one of those kinds."""
    groups = groups_of(table)
    require_values(groups, require_outline(groups, path, kinds), path)


def groups_of(table: xr.Dataset | xr.DataTree) -> dict[str, xr.Dataset]:
    """Return the groups of a tree by name, each with all its coordinates; a dataset is its own root, ""."""
    if isinstance(table, xr.DataTree):
        return {node.path.rstrip("/"): node.to_dataset() for node in table.subtree}
    return {"": table}


def tree_of(groups: Mapping[str, xr.Dataset], attributes: Mapping[Any, Any]) -> xr.DataTree:
    tree: xr.DataTree = xr.DataTree.from_dict({name: groups[name] for name in sorted(groups) if name})
    tree.attrs = dict(attributes)
    return tree


def require_outline(groups: Mapping[str, Outline], path: Path | str, kinds: tuple[str, ...]) -> Kind:
    attributes = groups[""].attrs
    alternatives = f" (or {', '.join(kinds[1:])})" if kinds[1:] else ""
    expected = f"a {kinds[0]} file{alternatives} written by rmtbase (schema {SCHEMA_VERSION})"
    require_version(attributes, path)
    if not isinstance(attributes.get("kind"), str) or attributes["kind"] not in kinds:
        raise TableError(path, f"a file of kind {quoted(str(attributes.get('kind')))}", expected)
    kind = KINDS[attributes["kind"]]
    if missing := [name for name in kind.attributes if name not in attributes]:
        raise TableError(path, f"attributes {', '.join(missing)} missing", expected)
    for group in ("", *(name for name in groups if name in kind.described)):
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
    """Raise :class:`~rmtbase.errors.TableError` unless every value is in its domain and sizes agree."""
    for group, dataset in groups.items():
        schema = _schema(kind, group, groups) if group in kind.groups else {}
        for name, variable in dataset.variables.items():
            expected = _known(str(name), schema, dataset)
            if expected is not None and (fault := expected.domain.fault(variable.values)) is not None:
                raise TableError(path, f"{fault} in variable {_place(group, name)}", expected.domain.words)
    for fault in kind.relations:
        if (broken := fault(groups)) is not None:
            raise TableError(path, *broken)


def _schema(kind: Kind, group: str, groups: Mapping[str, Outline]) -> Schema:
    return kind.groups[group] if kind.schema_of is None else kind.schema_of(group, groups)


def _check_group(group: Outline, name: str, schema: Schema, path: Path | str) -> None:
    dims = {dim for expected in schema.values() for dim in expected.dims}
    for dim in dims & set(group.sizes):
        if group.sizes[dim] < _LEAST.get(dim, 1):
            raise TableError(path, f"{group.sizes[dim]} entries of {dim}", f"at least {_LEAST.get(dim, 1)}")
    parts = {schema[variable].part for variable in group.variables if variable in schema}
    for variable, expected in schema.items():
        if variable not in group.variables and expected.part in {*parts, ""}:
            raise TableError(path, f"no variable '{variable}'", f"{variable}{expected.dims}")
    for dim in sorted(dims & REQUIRED_COORDINATES & set(group.sizes) - set(group.variables)):
        raise TableError(path, f"no coordinate '{dim}'", f"{dim}{COORDINATES[dim].dims}")
    for variable, stored in group.variables.items():
        expected = _known(variable, schema, group)
        if expected is not None and stored.dims != expected.dims:
            fault = f"variable {quoted(variable)} with dims {quoted(stored.dims)}"
            raise TableError(path, fault, f"{variable}{expected.dims}")
        if expected is not None and stored.dtype.kind not in expected.domain.kinds:
            dtype = "text" if stored.dtype.kind == "O" else stored.dtype
            raise TableError(path, f"variable {_place(name, variable)} of type {dtype}", expected.domain.words)


def _known(name: str, schema: Schema, group: Outline) -> Variable | None:
    """Return the entry of a variable in the schema or, failing that, among the coordinates of every table."""
    if name in schema:
        return schema[name]
    coordinate = COORDINATES.get(name)
    return coordinate if coordinate is not None and set(coordinate.dims) <= set(group.sizes) else None


def _place(group: str, name: object) -> str:
    return quoted(f"{group}/{name}" if group else name)
