"""Heads with a long row, for the terminal and for JSON."""

from typing import Any

import numpy as np
import xarray as xr


def row_norm_rows(table: xr.Dataset) -> list[dict[str, Any]]:
    """Return a record for each head and matrix that was tested, the smallest p-value first."""
    places = np.argwhere(table["p_value"].notnull().values)
    rows = [
        {
            "layer": int(table["layer"][layer]),
            "component": str(table["component"][component].item()),
            "head": int(head),
            **{name: float(table[name][layer, component, head]) for name in ("largest_share", "p_value", "q_value")},
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
