"""Rows of tables: a pandas frame with a column for each variable, or plain values, which terminal and pages show."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from jaxtyping import Bool

from rmtbase.errors import ParameterError
from rmtbase.tables._circuits import CIRCUITS
from rmtbase.tables._layers import layer_numbers, layer_stacks
from rmtbase.tables._schema import Schema

if TYPE_CHECKING:
    import pandas as pd

_OF_A_ROW = (
    "case", "step", "model", "pair", "group", "contrast", "published_model", "null", "layer", "head", "expert",
    "super_weight", "test", "component", "measure", "statistic", "kind", "earlier", "later",
)  # fmt: skip
_WORDS = ("symbol", "formula", "convention", "scaling")  # they depend only on the statistic, whose name is in the row
_OF_COMPARISONS = ("models", "components", "pairs", "drifts", "members", "between", "groups", "published")
_GROUPS = {
    "heads": "heads",
    "by_head": "heads",
    "elements": "heads/elements",
    "matrices": "matrices",
    "experts": "experts",
    "super_weights": "super_weights",
    "why": "why",
    "departures": "departures",
    **{name: name for name in _OF_COMPARISONS},
    **{f"{name}_along": f"along/{name}" for name in ("members", "between", "groups")},
}  #: Groups of a tree from which frames can be made: name and path

_BY_HEAD = "by_head"
_ROWS = {"departures": ("null", "layer", "head"), _BY_HEAD: ("step", "layer", "head")}
"""Dimensions of a row in groups that also have others."""


def to_pandas(table: xr.Dataset | xr.DataTree, group: str | None = None) -> pd.DataFrame:
    """Convert a table, or a group of a tree, to a tidy frame.

    There is a row for each

    * (case, statistic) of a baseline, of spectra, of elements or of the atlas; (layer, component) of effective depths;
      (kind, earlier, later) of compositions;
    * for scores: (layer, head, statistic) of ``"heads"``, or (layer, head) of ``"by_head"``; (layer, head, component,
      statistic) of their ``"elements"``; (layer, component, statistic) of ``"matrices"``, and with the expert of
      ``"experts"``; entry of ``"super_weights"``; (layer, head, test) of ``"why"``; heads of circuits as ``"ov"``;
    * for changes: (layer, head, component) of ``"heads"``, or (layer, head) of ``"by_head"``;
    * for a trajectory, the same at each step, which comes first; (null, layer, head) of its ``"departures"``;
    * for a comparison: entry of ``"models"``; (model, component) of ``"components"``; (pair, statistic) of ``"pairs"``;
      (pair, component) of ``"drifts"``; (model, measure) of ``"members"``; measure of ``"between"``; (contrast,
      measure) of ``"groups"``; and the same along the steps, such as ``"groups_along"``.

    Columns are the place of the row, then all coordinates and variables with one value for it, or for a part of its
    place; a quantile has one for each probability, such as ``quantile_0.5``. Draws, densities and eigenvalues are left
    out, and so are heads and matrices that the model does not have.

    Args:
        table: a table of any kind, as made or opened.
        group: group of a tree, as above; the first one if None.

    Raises:
        ParameterError: the tree does not have that group, or the dataset has no dimension of a row.
    """
    dataset = _group(table, group) if isinstance(table, xr.DataTree) else table
    if "element_statistic" in dataset.dims:
        dataset = dataset.rename(element_statistic="statistic")
    by_head = group is not None and group.endswith(_BY_HEAD)
    row_dims = _ROWS.get(_BY_HEAD if by_head else group or "", _OF_A_ROW)
    rows = [dim for dim in row_dims if dim in dataset.sizes]
    if not rows:
        raise ParameterError("table", tuple(dataset.sizes), f"a dimension among {', '.join(_OF_A_ROW)}")
    columns: dict[str, xr.Variable] = {}
    for name in map(str, (*dataset.coords, *dataset.data_vars)):
        variable = _encodable(dataset[name].variable)
        dims = set(variable.dims)
        if name in (*rows, *_WORDS) or not dims <= {*rows, "probability"} or not dims - {"probability"}:
            continue
        if "probability" in dims:
            levels: list[float] = dataset.coords["probability"].values.tolist()
            columns |= {f"{name}_{level:g}": variable.isel(probability=k) for k, level in enumerate(levels)}
        else:
            columns[name] = variable
    coordinates = {dim: _encodable(dataset[dim].variable) for dim in rows if dim in dataset.variables}
    frame = xr.Dataset(columns, coordinates).to_dataframe(dim_order=rows).reset_index()
    mask = present(dataset, rows)
    return frame if mask.all() else frame.loc[mask].reset_index(drop=True)


def _encodable(variable: xr.Variable) -> xr.Variable:
    r"""Escape unpaired surrogates in texts, which UTF-8 cannot encode and pandas refuses."""
    if variable.dtype.kind not in "OU":
        return variable
    texts = [
        text.encode(errors="backslashreplace").decode() if isinstance(text, str) else text
        for text in variable.values.ravel().tolist()
    ]
    return xr.Variable(variable.dims, np.array(texts, dtype=object).reshape(variable.shape), variable.attrs)


def frame_groups(table: xr.Dataset | xr.DataTree) -> list[str]:
    """List the groups of a tree from which a frame can be made, the default first; empty for a dataset."""
    if not isinstance(table, xr.DataTree):
        return []
    sizes = {path: {*node.sizes} for path, node in table.subtree_with_keys if node.data_vars}
    ends = ("", f"_{_BY_HEAD}")
    paths = _GROUPS | {f"{circuit}{end}": f"circuits/{circuit}/heads" for circuit in CIRCUITS for end in ends}
    finer = {*_OF_A_ROW} - {*_ROWS[_BY_HEAD]}  # a group without these has a row for each head anyway
    present = {name: sizes[path] for name, path in paths.items() if path in sizes}
    return [name for name, dims in present.items() if not name.endswith(_BY_HEAD) or dims & finer]


def present(dataset: xr.Dataset, rows: list[str]) -> Bool[np.ndarray, " row"]:
    """Mask of the rows that are heads, matrices or pairs of the model; the others are padding, if layers differ."""
    mask = xr.DataArray(np.ones([dataset.sizes[dim] for dim in rows], dtype=bool), dims=rows)
    spreads = [name for name in map(str, dataset.data_vars) if name == "sigma" or name.startswith("sigma_")]
    marker = "n_rows" if "n_rows" in dataset and "layer" in rows else next(iter(spreads), None)
    if marker is not None and "layer" in rows:
        exists = dataset[marker].notnull()
        exists = exists.any([dim for dim in exists.dims if dim not in rows]).reset_coords(drop=True)
        mask = (mask & exists).transpose(*rows)
    if "earlier" in rows:
        mask = dataset["score"].notnull().transpose(*rows)
    return mask.values.ravel()


def _group(tree: xr.DataTree, name: str | None) -> xr.Dataset:
    names = frame_groups(tree)
    name = names[0] if name is None and names else name
    if name is None or name not in names:
        raise ParameterError("group", name, f"one of {', '.join(names) or 'heads and matrices, of a scores tree'}")
    path = _GROUPS.get(name, f"circuits/{name.removesuffix(f'_{_BY_HEAD}')}/heads")
    return without_foreign_coordinates(tree[path].to_dataset())


def without_foreign_coordinates(group: xr.Dataset) -> xr.Dataset:
    """Drop coordinates that a group inherits from other groups of a tree and that none of its variables has."""
    dims = {dim for name in group.data_vars for dim in group[name].dims}
    return group.drop_vars([name for name in group.coords if not set(group[name].dims) <= dims])


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
        values = ((name, column[at]) for name, column in columns.items())
        row |= {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values}
        rows.append(row)
    return rows
