"""Effective depths on the terminal, and as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows

if TYPE_CHECKING:
    import xarray as xr

    from rmtbase.tables import NotTestable

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
    "reason",
)

_INTERVAL = "where no depth fits a matrix, its interval is that of draws of the nearest path: no confidence interval"


def as_json(table: xr.Dataset) -> dict[str, Any]:
    """Return the settings and every matrix, in the order of the model, as plain data; null for one without a fit."""
    from rmtbase.tables import not_testable_json

    rows = _matrices(table)
    asked = ("model", "revision", "part", "distance", "level", "draws", "seed")
    return {
        **{name: table.attrs[name] for name in asked},
        "depths": table["depth"].values.tolist(),
        "interval": _INTERVAL,
        "not_testable": not_testable_json(_not_testable(rows)),
        "sentences": [_headline(table, rows)],
        "warnings": json.loads(table.attrs["warnings"]),
        "matrices": rows,
    }


def report(table: xr.Dataset, components: Sequence[str] = ()) -> Iterator[Item]:
    """Yield each matrix with its nearest depth and whether it fits; ``components`` are all that the model has."""
    attributes = table.attrs
    rows = _matrices(table)
    fitted = [row for row in rows if row["effective_depth"] is not None]
    fitting = sum(row["fits"] for row in fitted)
    yield Heading.of_model(attributes)
    yield _headline(table, rows)
    yield _scope(table, components)
    if fitted:
        nearest = sorted(row["effective_depth"] for row in fitted)
        yield f"Nearest depths: from {nearest[0]} to {nearest[-1]}, median {nearest[len(nearest) // 2]}."
    yield DETAILS
    columns = [Column("layer"), Column("matrix", "left")]
    columns += map(Column, ("shape", "nearest depth", "interval", "sigma", "scale", "distance", "p"))
    columns.append(Column("fits", "left"))
    floor = 1 / (attributes["draws"] + 1)
    texts = [
        (
            f"{row.get('stack', '')} {row['layer']}".lstrip(),
            row["component"],
            f"{row['n_rows']} × {row['n_columns']}",
            *_cells(row, floor),
        )
        for row in rows
    ]
    yield Rows(columns, texts, named=2)
    yield f"distance {attributes['distance']}"
    if fitting < len(fitted):
        yield f"( ): {_INTERVAL}."
    if any(row["n_rows"] != row["n_columns"] for row in fitted):
        yield "The laws are of square matrices: what a rectangular shape does to a spectrum counts against a fit."


def _headline(table: xr.Dataset, rows: Sequence[dict[str, Any]]) -> str:
    """Count the testable matrices that no depth fits, and say why others could not be tested."""
    from rmtbase.tables import headline

    attributes, depths = table.attrs, table["depth"].values
    what = {"path": "residual path P", "update": "residual path without its direct term, P - I,"}[attributes["part"]]
    fitted = [row for row in rows if row["effective_depth"] is not None]
    differ = (
        f"differ from a {what} of any depth from {depths[0]} to {depths[-1]} at the "
        f"{100 * attributes['level']:g} % level ({attributes['draws']} draws each)"
    )
    differing = sum(not row["fits"] for row in fitted)
    return f"{headline(differing, len(fitted), _not_testable(rows), 'weight matrix', differ)}."


def _not_testable(rows: Sequence[dict[str, Any]]) -> list[NotTestable]:
    """List the matrices that were not compared with any path, each with its reason."""
    from rmtbase.tables import NotTestable, recorded

    return [
        NotTestable(
            f"{row.get('stack', '')} layer {row['layer']} {row['component']}".lstrip(), recorded(row.get("reason", ""))
        )
        for row in rows
        if row["effective_depth"] is None
    ]


def _scope(table: xr.Dataset, components: Sequence[str]) -> str:
    """Say which layers and matrices are shown, and how to get others."""
    layers, chosen = table.sizes["layer"], table["component"].values.tolist()
    where = f"all {layers} layers" if layers > 1 else "the one layer"
    others = [name for name in components if name not in chosen]
    more = f"; --component also takes {', '.join(others)}" if others else ""
    return f"Matrices of {where}: {', '.join(chosen)}{more}."


def _cells(row: dict[str, Any], floor: float) -> tuple[str, ...]:
    """Format the cells of a fit; a p-value at its floor is only a bound."""
    from rmtbase.results.scores._distance import at_p_value_floor

    if row["effective_depth"] is None:
        return (*(UNTESTED,) * 6, "not testable")
    interval = f"{row['effective_depth_low']}–{row['effective_depth_high']}"
    return (
        str(row["effective_depth"]),
        interval if row["fits"] else f"({interval})",
        f"{row['sigma']:g}",
        f"{row['scale']:.3g}",
        f"{row['distance']:.4f}",
        f"{'≤ ' if at_p_value_floor(row['p_value'], floor) else ''}{row['p_value']:.2g}",
        "yes" if row["fits"] else "no depth",
    )


def _matrices(table: xr.Dataset) -> list[dict[str, Any]]:
    """List the matrices that the model has, each with its stack if there are several."""
    from rmtbase.tables import layer_numbers, layer_stacks

    numbers, stacks = layer_numbers(table), layer_stacks(table)
    return [
        {"layer": numbers[row]}
        | ({"stack": stacks[row]} if stacks[row] else {})
        | {"component": component}
        | {name: _plain(name, table[name].sel(component=component)[row].item()) for name in _FIELDS if name in table}
        for row in range(table.sizes["layer"])
        for component in table["component"].values.tolist()
        if not math.isnan(table["n_rows"].sel(component=component)[row].item())
    ]


def _plain(name: str, value: Any) -> float | int | bool | str | None:
    """Convert a value to its own type, with None for NaN, which JSON lacks."""
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return None
    if name == "fits":
        return bool(value)
    return int(value) if name.startswith(("effective_depth", "n_")) else value
