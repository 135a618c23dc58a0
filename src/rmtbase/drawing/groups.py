"""What of a table a picture is of: its groups, statistics and cases, or an error that says what there is."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.tables import without_foreign_coordinates

Group = Literal["heads", "elements", "matrices"]


def heads_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """The /heads dataset, with a layer axis, of a scores tree, of its /heads, or of plain arrays' scores.

    Raises:
        ParameterError: it holds no scores of heads.
    """
    heads = _group(scores, "heads", "z_score", "head", "a scores tree (rmtbase.score) or its /heads dataset")
    return heads if "layer" in heads.dims else heads.expand_dims(layer=[0])


def matrices_of(scores: xr.DataTree | xr.Dataset, group: str = "matrices") -> xr.Dataset:
    """The /matrices dataset of a scores tree, or its /experts, or the dataset itself.

    Raises:
        ParameterError: it holds no scores of matrices, or of experts.
    """
    dim = "expert" if group == "experts" else "component"
    return _group(scores, group, "z_score", dim, f"a scores tree with /{group}, or its /{group} dataset")


def null_of(scores: xr.DataTree) -> xr.Dataset:
    """The /null dataset of a scores tree.

    Raises:
        ParameterError: it has none.
    """
    return _group(scores, "null", "eigenvalue_quantile", "probability", "a scores tree with /null")


def _group(scores: xr.DataTree | xr.Dataset, name: str, variable: str, dim: str, expected: str) -> xr.Dataset:
    """The group of a tree, or the dataset itself, if it has that variable and that dimension."""
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
    """The name, or :class:`~rmtbase.errors.ParameterError` if the table does not hold that statistic."""
    held = table["statistic"].values.tolist()
    if name not in held:
        raise ParameterError("statistic", name, f"one that the table holds: {', '.join(held)}")
    return name


def require_case(table: xr.Dataset, case: int) -> xr.Dataset:
    """That row of a baseline table, or :class:`~rmtbase.errors.ParameterError` if there is no such row."""
    if "case" not in table.dims:
        raise ParameterError("table", _kind(table), "a baseline table or a scores tree")
    if not 0 <= case < table.sizes["case"]:
        raise ParameterError("case", case, f"0 to {table.sizes['case'] - 1}")
    return table.isel(case=case)


def elements_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """The /heads/elements dataset of a scores tree, or the dataset itself, its statistics along ``statistic``.

    Raises:
        ParameterError: it holds no elements of heads.
    """
    found = scores
    if isinstance(scores, xr.DataTree):
        heads = scores.children.get("heads")
        found = heads.children["elements"].to_dataset() if heads is not None and "elements" in heads.children else None
    if not isinstance(found, xr.Dataset) or not {"element_statistic", "component", "head"} <= set(found.dims):
        raise ParameterError("scores", _kind(scores), "a scores tree with /heads/elements, or that dataset")
    return without_foreign_coordinates(found).rename(element_statistic="statistic")


def group_of(scores: xr.DataTree | xr.Dataset, group: Group, component: str | None) -> xr.Dataset:
    """A group of a scores tree, of one component where that is asked for.

    Raises:
        ParameterError: no such group or component.
    """
    if group == "elements":
        return require_component(elements_of(scores), component or "W_QK")
    if group == "heads":
        return heads_of(scores)
    if group != "matrices":
        raise ParameterError("group", group, "heads, elements or matrices")
    matrices = matrices_of(scores)
    return matrices if component is None else require_component(matrices, component)


def require_component(table: xr.Dataset, name: str) -> xr.Dataset:
    """The table's rows of that component, or :class:`~rmtbase.errors.ParameterError` if it holds none of the name."""
    held = table["component"].values.tolist()
    if name not in held:
        raise ParameterError("component", name, f"one of {', '.join(held)}")
    return table.sel(component=name)


def column_of(table: xr.Dataset, name: str) -> xr.DataArray:
    """A statistic that the table observed, or one of its other numbers, ``sigma`` say, or ``entropy``, in nats.

    The differential entropy is ½ ln(2πe σ²) + ΔS, of the elements' σ and entropy residual.

    Raises:
        ParameterError: it holds neither.
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
