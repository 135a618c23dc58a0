"""Heads with a long row: for the terminal, for JSON and for the page."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import xarray as xr
from rmtbase.results.row_norms.schema import ROW_NORMS_SCHEMA

from rmtbase.report import Column, Heading, Item, Rows
from rmtbase.results.attributes import result_json
from rmtbase.tables import rows_of
from rmtbase.words import of_tested

_COLUMNS = {"layer": "", "component": "", "head": "", "largest_share": ".2g", "p_value": ".2g", "q_value": ".2g"}
_LISTED = 5


def _tested(table: xr.Dataset) -> list[dict[str, Any]]:
    rows = rows_of(table, ROW_NORMS_SCHEMA, "layer", "component", "head")
    return sorted((row for row in rows if row["p_value"] <= 1), key=itemgetter("p_value"))  # NaN is not


def _headline(rows: list[dict[str, Any]]) -> str:
    long = sum(row["q_value"] < 0.05 for row in rows)
    return f"{of_tested(long, len(rows), [], 'matrix', 'of heads have a row longer than chance makes it')} (FDR 5 %)."


def as_json(table: xr.Dataset) -> dict[str, Any]:
    """Return the headline and every head as plain data."""
    rows = _tested(table)
    return result_json(table.attrs, ("model", "revision"), [], [_headline(rows)], heads=rows)


def report(table: xr.Dataset) -> Iterator[Item]:
    """Yield the headline, and the heads with the longest rows."""
    rows = _tested(table)
    yield Heading.of_model(table.attrs)
    yield _headline(rows)
    columns = [Column(name.replace("_", " "), form=form, cell=itemgetter(name)) for name, form in _COLUMNS.items()]
    yield Rows.of(rows[:_LISTED], *columns, named=3, title="Heads with the longest rows")
