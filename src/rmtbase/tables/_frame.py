"""A table as a pandas frame: one row for each thing measured, one column for each variable that has one value of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Bool

from rmtbase.errors import ParameterError
from rmtbase.tables._circuits import CIRCUITS
from rmtbase.tables._layers import heads_present, matrices_present

if TYPE_CHECKING:
    import pandas as pd

_OF_A_ROW = ("case", "layer", "head", "expert", "component", "statistic")
_WORDS = ("symbol", "formula", "convention", "scaling")  # of the statistic alone; its name says which


def to_pandas(table: xr.Dataset | xr.DataTree, group: str = "heads") -> pd.DataFrame:
    """A table or scores tree as a tidy frame.

    A row is one (case, statistic) of a baseline, spectra or elements table; one (layer, head, statistic) of the heads
    of a scores tree, (layer, component, statistic) of its matrices, (layer, expert, component, statistic) of those of
    experts; one (layer, component) of effective depths. The columns are those of its place, then every coordinate and
    variable that has one value of it or of a part of it: ``d_model``, ``stack`` and ``omnibus_p_value`` come again in
    each row. A quantile is one column for each probability, ``quantile_0.5`` say. Draws, densities and eigenvalues have
    other dimensions and are left out.

    Args:
        table: of any kind, as made or opened.
        group: of a tree: ``"heads"``, ``"matrices"`` or ``"experts"``; or a further circuit that was scored, ``"ov"``
            say, of whose heads a row then is.

    Raises:
        ParameterError: a tree without that group; a dataset without any of the dimensions of a row.
    """
    dataset = _group(table, group) if isinstance(table, xr.DataTree) else table
    if not isinstance(dataset, xr.Dataset):
        raise ParameterError("table", type(table).__name__, "a table or a scores tree; open a file by open_table")
    rows = [dim for dim in _OF_A_ROW if dim in dataset.sizes]
    if not rows:
        raise ParameterError("table", tuple(dataset.sizes), f"a dimension among {', '.join(_OF_A_ROW)}")
    columns: dict[str, xr.Variable] = {}
    for name in map(str, (*dataset.coords, *dataset.data_vars)):
        variable = dataset[name].variable
        dims = set(variable.dims)
        if name in (*rows, *_WORDS) or not dims <= {*rows, "probability"} or not dims - {"probability"}:
            continue
        if "probability" in dims:
            levels: list[float] = dataset.coords["probability"].values.tolist()
            columns |= {f"{name}_{level:g}": variable.isel(probability=k) for k, level in enumerate(levels)}
        else:
            columns[name] = variable
    coordinates = {dim: dataset[dim].variable for dim in rows if dim in dataset.variables}
    frame = xr.Dataset(columns, coordinates).to_dataframe(dim_order=rows).reset_index()
    there = _present(dataset, rows)
    return frame if there.all() else frame.loc[there].reset_index(drop=True)


def _present(dataset: xr.Dataset, rows: list[str]) -> Bool[np.ndarray, " row"]:
    """Which rows are heads or matrices that the model has: where layers differ the others are padding."""
    there = np.ones([dataset.sizes[dim] for dim in rows], dtype=bool)
    of_layers = heads_present if rows[:2] == ["layer", "head"] else matrices_present
    if rows[0] == "layer" and len(rows) > 2:
        there &= of_layers(dataset)[..., None]
    return there.ravel()


def _group(tree: xr.DataTree, name: str) -> xr.Dataset:
    there = [group for group in ("heads", "matrices", "experts") if group in tree.children]
    circuits = tree.children["circuits"].children if "circuits" in tree.children else {}
    there += [circuit for circuit in CIRCUITS if circuit in circuits]
    if name in circuits:
        return circuits[name].children["heads"].to_dataset(inherit=False)
    if name not in there:
        raise ParameterError("group", name, f"one of {', '.join(there) or 'heads and matrices, of a scores tree'}")
    return tree.children[name].to_dataset(inherit=False)
