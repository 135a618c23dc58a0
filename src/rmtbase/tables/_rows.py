"""Rows of a group of a file as plain values, by its schema: what the terminal, pages and JSON show."""

from collections.abc import Collection
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.tables._frame import present
from rmtbase.tables._layers import layer_numbers, layer_stacks
from rmtbase.tables._schema import Schema


def rows_of(
    dataset: xr.Dataset, schema: Schema, *dims: str, along: Collection[str] = (), part: str | None = None
) -> list[dict[str, Any]]:
    """Rows of a group: place, and values of the schema with the types of their domains."""
    columns = {
        name: variable.domain.plain(dataset[name].values)
        for name, variable in schema.items()
        if name in dataset
        and variable.dims[: len(dims)] == dims
        and set(variable.dims[len(dims) :]) <= set(along)
        and part in (None, variable.part)
    }
    coordinates = {dim: layer_numbers(dataset) if dim == "layer" else dataset[dim].values.tolist() for dim in dims}
    stacks = layer_stacks(dataset) if "layer" in dims else []
    mask = present(dataset, list(dims)).reshape([dataset.sizes[dim] for dim in dims])
    rows = []
    for at in map(tuple, np.argwhere(mask).tolist()):
        place = dict(zip(dims, at, strict=True))
        stack = stacks[place["layer"]] if "layer" in dims else ""
        row = {"stack": stack} if stack else {}
        row |= {dim: coordinates[dim][index] for dim, index in place.items()}
        rows.append(row | {name: _plain(column[at]) for name, column in columns.items()})
    return rows


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
