"""Selection of a table's groups, statistics and cases for a figure, with errors that list what the table holds."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.tables import without_foreign_coordinates

Group = Literal["heads", "elements", "matrices"]


def heads_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """Return the /heads dataset, with a layer axis, of a scores tree, of its /heads, or of scores of plain arrays."""
    heads = _group(scores, "heads", "z_score", "head", "a scores tree (rmtbase.score) or its /heads dataset")
    return heads if "layer" in heads.dims else heads.expand_dims(layer=[0])


def matrices_of(scores: xr.DataTree | xr.Dataset, group: str = "matrices") -> xr.Dataset:
    """Return the /matrices (or /experts) dataset of a scores tree, or the dataset itself."""
    dim = "expert" if group == "experts" else "component"
    return _group(scores, group, "z_score", dim, f"a scores tree with /{group}, or its /{group} dataset")


def null_of(scores: xr.DataTree) -> xr.Dataset:
    """Return the /null dataset of a scores tree."""
    return _group(scores, "null", "eigenvalue_quantile", "probability", "a scores tree with /null")


def _group(scores: xr.DataTree | xr.Dataset, name: str, variable: str, dim: str, expected: str) -> xr.Dataset:
    """Return the group of a tree, or the dataset itself, if it has that variable and that dimension."""
    is_tree = isinstance(scores, xr.DataTree)
    found = (scores[name].to_dataset() if name in scores.children else None) if is_tree else scores
    if found is None or variable not in found or dim not in found.dims:
        raise ParameterError("scores", _kind(scores), expected)
    return found


def _kind(table: object) -> str:
    if isinstance(table, xr.DataTree):
        return f"a tree with {sorted(table.children)}"
    if isinstance(table, xr.Dataset):
        return f"a dataset with {sorted(map(str, table.data_vars))}"
    return type(table).__name__


def require_statistic(table: xr.Dataset, name: str) -> str:
    """Return the name; raise :class:`~rmtbase.errors.ParameterError` if the table does not have that statistic."""
    held = table["statistic"].values.tolist()
    if name not in held:
        raise ParameterError("statistic", name, f"one that the table holds: {', '.join(held)}")
    return name


def require_case(table: xr.Dataset, case: int) -> xr.Dataset:
    """Return a row of a baseline table; raise :class:`~rmtbase.errors.ParameterError` if there is no such row."""
    if "case" not in table.dims:
        raise ParameterError("table", _kind(table), "a baseline table or a scores tree")
    if not 0 <= case < table.sizes["case"]:
        raise ParameterError("case", case, f"0 to {table.sizes['case'] - 1}")
    return table.isel(case=case)


def elements_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """Return /heads/elements of a scores tree, or the dataset itself, with statistics along ``statistic``."""
    found = scores
    if isinstance(scores, xr.DataTree):
        heads = scores.children.get("heads")
        found = heads.children["elements"].to_dataset() if heads is not None and "elements" in heads.children else None
    if not isinstance(found, xr.Dataset) or not {"element_statistic", "component", "head"} <= set(found.dims):
        raise ParameterError("scores", _kind(scores), "a scores tree with /heads/elements, or that dataset")
    return without_foreign_coordinates(found).rename(element_statistic="statistic")


def group_of(scores: xr.DataTree | xr.Dataset, group: Group, component: str | None) -> xr.Dataset:
    """Return a group of a scores tree, restricted to one component if that is asked for."""
    if group == "elements":
        return require_component(elements_of(scores), component or "W_QK")
    if group == "heads":
        return heads_of(scores)
    if group != "matrices":
        raise ParameterError("group", group, "heads, elements or matrices")
    matrices = matrices_of(scores)
    return matrices if component is None else require_component(matrices, component)


def require_component(table: xr.Dataset, name: str) -> xr.Dataset:
    """Return the rows of a component; raise :class:`~rmtbase.errors.ParameterError` if the table has none."""
    held = table["component"].values.tolist()
    if name not in held:
        raise ParameterError("component", name, f"one of {', '.join(held)}")
    return table.sel(component=name)


def column_of(table: xr.Dataset, name: str) -> xr.DataArray:
    """Return an observed statistic of the table, another of its numbers such as ``sigma``, or ``entropy`` in nats.

    The differential entropy is ½ ln(2πe σ²) + ΔS, from the σ and the entropy residual of the elements.
    """
    held = table["statistic"].values.tolist()
    if name in held:
        return table["observed"].sel(statistic=name)
    if name == "entropy" and "entropy_residual" in held and "sigma" in table:
        residual, unit = table["observed"].sel(statistic="entropy_residual", drop=True), 2 * np.pi * np.e
        return residual + 0.5 * xr.apply_ufunc(np.log, unit * table["sigma"].where(table["sigma"] > 0) ** 2)
    facts = [str(one) for one in table.data_vars if "statistic" not in table[one].dims]
    places = set(table["observed"].dims) - {"statistic"}
    facts = [one for one in facts if set(table[one].dims) <= places and table[one].dtype.kind in "fiu"]
    if name not in facts:
        raise ParameterError("statistic", name, f"one that the table holds: {', '.join([*held, *facts])}")
    return table[name]
