"""Group of a file that is filled in entry by entry."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.tables import Schema

Entries = dict[tuple[int, ...], dict[str, Any]]  # values of variables by their place along the first dimensions


def filled(
    schema: Schema, coordinates: Mapping[str, Any], entries: Entries, names: Iterable[str] | None = None
) -> xr.Dataset:
    """Make a dataset of entries by their place; the values of other places are NaN, 0 or the empty text.

    ``names`` are the variables, by default all that any entry has. Their dimensions and types are those of the schema.
    Arrays that are shorter than a dimension are padded.
    """
    sizes = {name: len(values[1] if isinstance(values, tuple) else values) for name, values in coordinates.items()}
    variables = {}
    for name in dict.fromkeys(name for entry in entries.values() for name in entry) if names is None else names:
        variable, domain = schema[name], schema[name].domain
        missing: tuple[Any, type] = ("", object) if "U" in domain.kinds else (np.nan, float)
        if "U" not in domain.kinds and (domain.kinds == "iu" or (domain.whole and not domain.missing)):
            missing = 0, int
        values = np.full([sizes[dim] for dim in variable.dims], *missing)
        for place, entry in entries.items():
            if name in entry:
                values[(*place, *map(slice, np.shape(entry[name])))] = entry[name]
        variables[name] = variable.dims, values
    return xr.Dataset(variables, coordinates)
