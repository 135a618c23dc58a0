"""Effective depths on the terminal, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from rmtbase.reasons import NOT_RECORDED, NotTestable
from rmtbase.report import DETAILS, UNTESTED, Column, Heading, Item, Rows
from rmtbase.results.attributes import result_json
from rmtbase.results.depth.schema import EFFECTIVE_DEPTH_SCHEMA
from rmtbase.shown import json_safe
from rmtbase.tables import rows_of
from rmtbase.words import of_tested, place_name

if TYPE_CHECKING:
    import xarray as xr

_INTERVAL = "where no depth fits a matrix, its interval is that of draws of the nearest path: no confidence interval"
_PARTS = {"path": "residual path P", "update": "residual path without its direct term, P - I,"}


def as_json(table: xr.Dataset) -> dict[str, Any]:
    """Return the settings and every matrix, in the order of the model, as plain data; null for one without a fit."""
    rows = _matrices(table)
    matrices = [row | ({"reason": row["reason"].words} if "reason" in row else {}) for row in rows]
    return result_json(
        table.attrs,
        ("model", "revision", "part", "distance", "level", "draws", "seed"),
        _untested(rows),
        [_headline(table, rows)],
        depths=table["depth"].values.tolist(),
        interval=_INTERVAL,
        matrices=json_safe(matrices),
    )


def report(table: xr.Dataset, components: Sequence[str] = ()) -> Iterator[Item]:
    """Yield each matrix with its nearest depth and whether it fits; ``components`` are all that the model has."""
    rows = _matrices(table)
    fitted = [row for row in rows if row["effective_depth"] is not None]
    yield Heading.of_model(table.attrs)
    yield _headline(table, rows)
    layers, chosen = table.sizes["layer"], table["component"].values.tolist()
    where = f"all {layers} layers" if layers > 1 else "the one layer"
    others = ", ".join(name for name in components if name not in chosen)
    yield f"Matrices of {where}: {', '.join(chosen)}{f'; --component also takes {others}' if others else ''}."
    if fitted:
        depths = sorted(row["effective_depth"] for row in fitted)
        yield f"Nearest depths: from {depths[0]} to {depths[-1]}, median {depths[len(depths) // 2]}."
    yield DETAILS

    def interval(row: dict[str, Any]) -> str:
        ends = f"{row['effective_depth_low']}–{row['effective_depth_high']}"
        return _of_fit(row, ends if row["fits"] else f"({ends})")

    yield Rows.of(
        rows,
        Column("layer", cell=lambda row: f"{row.get('stack', '')} {row['layer']}".lstrip()),
        Column("matrix", "left", cell=lambda row: row["component"]),
        Column("shape", cell=lambda row: f"{row['n_rows']} × {row['n_columns']}"),
        Column("nearest depth", cell=lambda row: _of_fit(row, str(row["effective_depth"]))),
        Column("interval", cell=interval),
        Column("sigma", cell=lambda row: _of_fit(row, f"{row['sigma']:g}")),
        Column("scale", cell=lambda row: _of_fit(row, f"{row['scale']:.3g}")),
        Column("distance", cell=lambda row: _of_fit(row, f"{row['distance']:.4f}")),
        Column("p", cell=partial(_p_value, floor=1 / (table.attrs["draws"] + 1))),
        Column("fits", "left", cell=lambda row: {True: "yes", False: "no depth", None: "not testable"}[row["fits"]]),
        named=2,
    )
    yield f"distance {table.attrs['distance']}"
    if not all(row["fits"] for row in fitted):
        yield f"( ): {_INTERVAL}."
    if any(row["n_rows"] != row["n_columns"] for row in fitted):
        yield "The laws are of square matrices: what a rectangular shape does to a spectrum counts against a fit."


def _of_fit(row: dict[str, Any], text: str) -> str:
    return UNTESTED if row["effective_depth"] is None else text


def _p_value(row: dict[str, Any], floor: float) -> str:
    at_floor = row["p_value"] <= floor * (1 + 1e-9)  # then it is only a bound
    return _of_fit(row, f"{'≤ ' * bool(at_floor)}{row['p_value']:.2g}")


def _headline(table: xr.Dataset, rows: Sequence[dict[str, Any]]) -> str:
    """Count the testable matrices that no depth fits, and say why others could not be tested."""
    attributes, depths = table.attrs, table["depth"].values
    differ = (
        f"differ from a {_PARTS[attributes['part']]} of any depth from {depths[0]} to {depths[-1]} at the "
        f"{100 * attributes['level']:g} % level ({attributes['draws']} draws each)"
    )
    fits, untested = [row["fits"] for row in rows if row["fits"] is not None], _untested(rows)
    return f"{of_tested(fits.count(False), len(fits), untested, 'weight matrix', differ)}."


def _untested(rows: Sequence[dict[str, Any]]) -> list[NotTestable]:
    """List the matrices that were not compared with any path, each with its reason."""
    without = [row for row in rows if row["effective_depth"] is None]
    names = [place_name(row["layer"], row["component"], stack=row.get("stack", "")) for row in without]
    return [NotTestable(name, row.get("reason") or NOT_RECORDED) for name, row in zip(names, without, strict=True)]


def _matrices(table: xr.Dataset) -> list[dict[str, Any]]:
    return rows_of(table, EFFECTIVE_DEPTH_SCHEMA, "layer", "component")
