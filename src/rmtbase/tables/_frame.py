"""A table as a pandas frame: one row for each thing measured, one column for each variable that has one value of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import xarray as xr
from jaxtyping import Bool

from rmtbase.errors import ParameterError
from rmtbase.tables._circuits import CIRCUITS

if TYPE_CHECKING:
    import pandas as pd

_OF_A_ROW = (
    "case", "step", "model", "pair", "group", "contrast", "published_model", "null", "layer", "head", "expert",
    "super_weight", "test", "component", "measure", "statistic", "kind", "earlier", "later",
)  # fmt: skip
_WORDS = ("symbol", "formula", "convention", "scaling")  # of the statistic alone; its name says which
_OF_COMPARISONS = ("models", "components", "pairs", "drifts", "members", "between", "groups", "published")
_GROUPS = {
    "heads": "heads",
    "elements": "heads/elements",
    "matrices": "matrices",
    "experts": "experts",
    "super_weights": "super_weights",
    "why": "why",
    "departures": "departures",
    **{name: name for name in _OF_COMPARISONS},
    **{f"{name}_along": f"along/{name}" for name in ("members", "between", "groups")},
}
"""What frames can be made of in a tree, by the name of each, with its path."""

_ONE_OF_ALL = {"departures": ("null", "layer", "head")}  # dimensions of a row where there are others beside


def to_pandas(table: xr.Dataset | xr.DataTree, group: str | None = None) -> pd.DataFrame:
    """A table, or a group of a tree, as a tidy frame.

    A row is one

    * (case, statistic) of a baseline, of spectra, of elements or of the atlas; (layer, component) of effective depths;
    * (kind, earlier, later) of compositions;
    * of scores: (layer, head, statistic) of ``"heads"``; (layer, head, component, statistic) of their ``"elements"``;
      (layer, component, statistic) of ``"matrices"``, with the expert of ``"experts"``; one of ``"super_weights"``;
      (layer, head, test) of ``"why"``;
    * of a trajectory the same at each step, which comes first; (null, layer, head) of its ``"departures"``;
    * of a comparison: one of ``"models"``; (model, component) of ``"components"``; (pair, statistic) of ``"pairs"``;
      (pair, component) of ``"drifts"``; (model, measure) of ``"members"``, measure of
      ``"between"`` and (contrast, measure) of ``"groups"``, and along the steps the same of ``"groups_along"`` say.

    Of further circuits that were scored the heads of each are a group, ``"ov"`` say. The columns are those of its
    place, then every coordinate and variable that has one value of it or of a part of it: ``d_model``, ``stack`` and
    ``omnibus_p_value`` come again in each row. A quantile is one column for each probability, ``quantile_0.5`` say.
    Draws, densities and eigenvalues have other dimensions and are left out, and so are heads and matrices that the
    model lacks.

    Args:
        table: of any kind, as made or opened.
        group: of a tree, as above; its first one if None.

    Raises:
        ParameterError: a tree without that group; a dataset without any of the dimensions of a row.
    """
    dataset = _group(table, group) if isinstance(table, xr.DataTree) else table
    if not isinstance(dataset, xr.Dataset):
        raise ParameterError("table", type(table).__name__, "a table or a scores tree; open a file by open_table")
    if "element_statistic" in dataset.dims:
        dataset = dataset.rename(element_statistic="statistic")
    wanted = _ONE_OF_ALL.get(group or "", _OF_A_ROW)
    rows = [dim for dim in wanted if dim in dataset.sizes]
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
    there = _present(dataset, rows)
    return frame if there.all() else frame.loc[there].reset_index(drop=True)


def _encodable(variable: xr.Variable) -> xr.Variable:
    r"""A variable whose texts UTF-8 can hold: half of a surrogate pair, which pandas refuses, as its escape."""
    if variable.dtype.kind not in "OU":
        return variable
    texts = [
        one.encode(errors="backslashreplace").decode() if isinstance(one, str) else one
        for one in variable.values.ravel().tolist()
    ]
    return xr.Variable(variable.dims, np.array(texts, dtype=object).reshape(variable.shape), variable.attrs)


def frame_groups(table: xr.Dataset | xr.DataTree) -> list[str]:
    """The groups of a tree that a frame can be made of, the first by default; none of a dataset, which is one."""
    if not isinstance(table, xr.DataTree):
        return []
    held = {path for path, node in table.subtree_with_keys if node.data_vars}
    circuits = [circuit for circuit in CIRCUITS if f"circuits/{circuit}/heads" in held]
    return [name for name, path in _GROUPS.items() if path in held] + circuits


def _present(dataset: xr.Dataset, rows: list[str]) -> Bool[np.ndarray, " row"]:
    """Which rows are heads, matrices or pairs that the model has: where layers differ the others are padding."""
    there = xr.DataArray(np.ones([dataset.sizes[dim] for dim in rows], dtype=bool), dims=rows)
    spreads = [name for name in map(str, dataset.data_vars) if name == "sigma" or name.startswith("sigma_")]
    known = "n_rows" if "n_rows" in dataset and "layer" in rows else next(iter(spreads), None)
    if known is not None and "layer" in rows:
        held = dataset[known].notnull()
        held = held.any([dim for dim in held.dims if dim not in rows]).drop_vars(list(held.coords))
        there = (there & held).transpose(*rows)
    if "earlier" in rows:
        there = dataset["score"].notnull().transpose(*rows)
    return there.values.ravel()


def _group(tree: xr.DataTree, name: str | None) -> xr.Dataset:
    there = frame_groups(tree)
    name = there[0] if name is None and there else name
    if name is None or name not in there:
        raise ParameterError("group", name, f"one of {', '.join(there) or 'heads and matrices, of a scores tree'}")
    path = _GROUPS.get(name, f"circuits/{name}/heads")
    return without_foreign_coordinates(tree[path].to_dataset())


def without_foreign_coordinates(group: xr.Dataset) -> xr.Dataset:
    """A group of a tree without the coordinates that it has from the groups around it, and none of its variables."""
    held = {dim for name in group.data_vars for dim in group[name].dims}
    return group.drop_vars([name for name in group.coords if not set(group[name].dims) <= held])
