"""Effective depths as a table for the terminal, and the same as JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import xarray as xr
from rich import box
from rich.console import Console
from rich.table import Table

from rmtbase.cli._terminal import cell

_FIELDS = (
    "n_rows",
    "n_columns",
    "effective_depth",
    "effective_depth_low",
    "effective_depth_high",
    "sigma",
    "scale",
    "distance",
    "p_value",
    "fits",
)


def depth_json(table: xr.Dataset) -> dict[str, Any]:
    """What was asked, and every matrix in the order of the model; null where a matrix was not fitted."""
    asked = ("model", "revision", "part", "distance", "level", "draws", "seed")
    return {
        **{name: table.attrs[name] for name in asked},
        "depths": table["depth"].values.tolist(),
        "warnings": json.loads(table.attrs["warnings"]),
        "matrices": _matrices(table),
    }


def print_depths(table: xr.Dataset, console: Console) -> None:
    """Each matrix with its nearest depth and whether it fits."""
    attributes, depths = table.attrs, table["depth"].values
    title = attributes["model"] + (f", revision {attributes['revision']}" if attributes["revision"] else "")
    rows = _matrices(table)
    fitted = [row for row in rows if row["effective_depth"] is not None]
    fitting = sum(row["fits"] for row in fitted)
    console.print(cell(title, "bold"))
    what = {"path": "residual path P", "update": "residual path without its direct term, P - I,"}[attributes["part"]]
    console.print(
        f"A {what} of some depth from {depths[0]} to {depths[-1]} fits {fitting} of {len(fitted)} weight matrices at "
        f"the {100 * attributes['level']:g} % level ({attributes['draws']} draws each)."
    )
    shown = Table(box=box.SIMPLE_HEAD, caption=cell(f"distance {attributes['distance']}"), caption_justify="left")
    shown.add_column("layer", justify="right")
    shown.add_column("matrix")
    for name in ("shape", "nearest depth", "interval", "sigma", "scale", "distance", "p"):
        shown.add_column(name, justify="right")
    shown.add_column("fits")
    for row in rows:
        shown.add_row(str(row["layer"]), cell(row["component"]), f"{row['n_rows']} × {row['n_columns']}", *_cells(row))
    console.print(shown)
    if any(row["n_rows"] != row["n_columns"] for row in fitted):
        console.print(
            "The laws are of square matrices: what a rectangular shape does to a spectrum counts against a fit."
        )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    if row["effective_depth"] is None:
        return ("",) * 7
    return (
        str(row["effective_depth"]),
        f"{row['effective_depth_low']}–{row['effective_depth_high']}" if row["fits"] else "",
        f"{row['sigma']:g}",
        f"{row['scale']:.3g}",
        f"{row['distance']:.4f}",
        f"{row['p_value']:.2g}",
        "yes" if row["fits"] else "no depth",
    )


def _matrices(table: xr.Dataset) -> list[dict[str, Any]]:
    return [
        {"layer": layer, "component": component}
        | {name: _plain(name, table[name].sel(layer=layer, component=component).item()) for name in _FIELDS}
        for layer in table["layer"].values.tolist()
        for component in table["component"].values.tolist()
    ]


def _plain(name: str, value: float) -> float | int | bool | None:
    """A value in its own type: NaN, which JSON lacks, as None."""
    if math.isnan(value):
        return None
    if name == "fits":
        return bool(value)
    return int(value) if name.startswith(("effective_depth", "n_")) else value
