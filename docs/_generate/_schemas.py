"""The kinds of file: every group, attribute and variable, from the schemas that files are checked against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from _generate import as_plain, table, write_page
from rmtbase.results import register_all
from rmtbase.tables import KINDS, SCHEMA_VERSION, Kind
from rmtbase.tables._schema import COORDINATES, Variable
from rmtbase.tables.domain import Domain

register_all()

_INTRODUCTION = f"""# Kinds of file

Every file that rmtbase writes is netCDF-4, of schema {SCHEMA_VERSION}, with a SHA-256 of its content;
whatever reads netCDF or HDF5 opens it. These are the tables that a file is checked against when rmtbase writes or opens
it. A file of another schema version is refused by name. Texts are arrays of characters of a fixed width. Variables have
no units unless some are named, and NaN stands only where the values say so."""


def write_schemas() -> None:
    """Write the page of all kinds."""
    parts = [_INTRODUCTION, *(part for kind in KINDS.values() for part in _kind(kind))]
    parts += ["## Coordinates", "What the coordinates of a file can be, whatever its kind.", _variables(COORDINATES)]
    write_page("schemas.md", "\n\n".join(parts) + "\n")


def _kind(kind: Kind) -> Iterator[str]:
    yield f"## {kind.name}"
    rows = [_attribute(name, domain, "always") for name, domain in kind.attributes.items()]
    rows += [_attribute(name, domain, "where it applies") for name, domain in kind.may_have.items()]
    yield table(("attribute", "values", "there"), rows)
    alike: dict[tuple[str, ...], list[str]] = {}
    for group, schema in kind.groups.items():
        if schema:
            alike.setdefault(tuple(schema), []).append(group)
    for groups in alike.values():
        yield f"**{', '.join(f'`{group}`' if group else 'the root' for group in groups)}**" + (
            " (may be missing)" if kind.optional.issuperset(groups) else ""
        )
        yield _variables(kind.groups[groups[0]])


def _attribute(name: str, domain: Domain, there: str) -> tuple[str, ...]:
    return f"`{name}`", as_plain(domain.words), there


def _variables(schema: Mapping[str, Variable]) -> str:
    rows = [
        (
            f"`{name}`",
            ", ".join(f"`{dim}`" for dim in variable.dims) or "–",
            as_plain(_meaning(variable)),
            as_plain(variable.domain.words),
        )
        for name, variable in schema.items()
    ]
    return table(("variable", "dimensions", "meaning", "values"), rows)


def _meaning(variable: Variable) -> str:
    """Return the long name, with the units if there are any."""
    return variable.long_name + f", in {variable.units}" * bool(variable.units)
