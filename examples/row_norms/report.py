"""Heads with a long row: for the terminal, for JSON and for the page."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.report import Column, Heading, Item, Rows

_LISTED = 5
_NUMBERS = ("largest_share", "p_value", "q_value")


def row_norm_rows(table: xr.Dataset) -> list[dict[str, Any]]:
    """Return a record for each head and matrix that was tested, the smallest p-value first."""
    places = np.argwhere(table["p_value"].notnull().values)
    rows = [
        {
            "layer": int(table["layer"][layer]),
            "component": str(table["component"][component].item()),
            "head": int(head),
            **{name: float(table[name][layer, component, head]) for name in _NUMBERS},
        }
        for layer, component, head in places
    ]
    return sorted(rows, key=lambda row: row["p_value"])


def headline(table: xr.Dataset, level: float = 0.05) -> str:
    """Return a sentence that says how many matrices have a row longer than chance makes it."""
    tested = int(table["p_value"].notnull().sum())
    if not tested:
        return "No matrix can be tested."
    found = int((table["q_value"] < level).sum())
    return f"{found} of {tested} matrices of heads have a row longer than chance makes it (FDR {level:.0%})."


def as_json(table: xr.Dataset) -> dict[str, Any]:
    """Return the headline and every head as plain data."""
    return {"sentence": headline(table), "heads": row_norm_rows(table)}


def report(table: xr.Dataset) -> Iterator[Item]:
    """Yield the headline, and the heads with the longest rows."""
    yield Heading(f"{table.attrs['model']} {table.attrs['revision']}".strip())
    yield headline(table)
    columns = [Column("layer"), Column("component", "left"), Column("head"), *map(Column, ("share", "p", "q"))]
    rows = [
        (*(str(row[name]) for name in ("layer", "component", "head")), *(f"{row[name]:.2g}" for name in _NUMBERS))
        for row in row_norm_rows(table)[:_LISTED]
    ]
    yield Rows(columns, rows, named=3, title="Heads with the longest rows")
