"""Comparisons as comma-separated values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.tables import csv_text


def comparison_csv(comparison: xr.DataTree) -> str:
    """Format a row for each model and component, in the units of the weights; models without fits have one row.

    The columns are ``model``, ``component``, the variables of ``/components``, and the variables of ``/models``.

    Raises:
        ParameterError: it is not a comparison.
    """
    if "models" not in comparison.children:
        raise ParameterError("comparison", list(comparison.children), "a comparison, with a group models")
    models = comparison["models"].to_dataset()
    components = comparison["components"].to_dataset() if "components" in comparison.children else None
    titles = ["model", "component", *(components.data_vars if components is not None else ()), *models.data_vars]
    return csv_text(map(str, titles), _rows(models, components))


def _rows(models: xr.Dataset, components: xr.Dataset | None) -> Iterator[dict[str, Any]]:
    for name in models["model"].values.tolist():
        of_model = models.sel(model=name)
        cells = {"model": name} | {str(key): value.item() for key, value in of_model.data_vars.items()}
        each = components.sel(model=name) if components is not None else xr.Dataset()
        there = np.flatnonzero(each["n_matrices"].values) if each.data_vars else []
        for place in there:
            one = each.isel(component=int(place))
            own = {str(key): value.item() for key, value in one.data_vars.items()}
            yield cells | {"component": one["component"].item()} | own
        if not len(there):
            yield cells
