"""Selection of a table's groups, statistics and cases for a figure, with errors that list what the table holds."""

from typing import Literal

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.tables import without_foreign_coordinates

Group = Literal["heads", "elements", "matrices"]


def heads_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """Return /heads, with a layer axis, of a scores tree, or the dataset itself."""
    heads = _group(scores, "heads", "z_score", "head")
    return heads if "layer" in heads.dims else heads.expand_dims(layer=[0])


def matrices_of(scores: xr.DataTree | xr.Dataset, group: str = "matrices") -> xr.Dataset:
    """Return /matrices (or /experts) of a scores tree, or the dataset itself."""
    return _group(scores, group, "z_score", "expert" if group == "experts" else "component")


def null_of(scores: xr.DataTree) -> xr.Dataset:
    """Return /null of a scores tree."""
    return _group(scores, "null", "eigenvalue_quantile", "probability")


def _group(scores: xr.DataTree | xr.Dataset, name: str, variable: str, dim: str) -> xr.Dataset:
    is_tree = isinstance(scores, xr.DataTree)
    group = (scores[name].to_dataset() if name in scores.children else None) if is_tree else scores
    if group is None or variable not in group or dim not in group.dims:
        raise ParameterError("scores", _kind(scores), f"a scores tree (rmtbase.score) with /{name}, or that dataset")
    return group


def _kind(table: object) -> str:
    if isinstance(table, xr.DataTree):
        return f"a tree with {sorted(table.children)}"
    if isinstance(table, xr.Dataset):
        return f"a dataset with {sorted(map(str, table.data_vars))}"
    return type(table).__name__


def elements_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """Return /heads/elements of a scores tree, or the dataset itself, with statistics along ``statistic``."""
    elements: object = scores
    if isinstance(scores, xr.DataTree):
        group = dict(scores.subtree_with_keys).get("heads/elements")
        elements = None if group is None else group.to_dataset()
    if not isinstance(elements, xr.Dataset) or not {"element_statistic", "component", "head"} <= set(elements.dims):
        raise ParameterError("scores", _kind(scores), "a scores tree with /heads/elements, or that dataset")
    return without_foreign_coordinates(elements).rename(element_statistic="statistic")


def group_of(scores: xr.DataTree | xr.Dataset, group: Group, component: str = "W_QK") -> xr.Dataset:
    """Return a group of a scores tree; of the elements of heads, one component."""
    if group == "elements":
        return elements_of(scores).sel(component=component)
    return heads_of(scores) if group == "heads" else matrices_of(scores)


def column_of(table: xr.Dataset, name: str) -> xr.DataArray:
    """Return an observed statistic, another number such as ``sigma``, or ``entropy`` ½ ln(2πe σ²) + ΔS in nats."""
    if name in table["statistic"].values:
        return table["observed"].sel(statistic=name)
    if name == "entropy" and "sigma" in table:
        residual, unit = table["observed"].sel(statistic="entropy_residual", drop=True), 2 * np.pi * np.e
        return residual + 0.5 * xr.apply_ufunc(np.log, unit * table["sigma"].where(table["sigma"] > 0) ** 2)
    return table[name]
