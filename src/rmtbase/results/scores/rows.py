"""Scores of heads and of matrices as comma-separated values, with one row for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError
from rmtbase.results.scores._heads import circuit_scores, circuits_of
from rmtbase.tables import csv_text, heads_present, layer_numbers, matrices_present

_BEFORE_SIGMA, _AFTER_SIGMA = (
    ("key_head",),
    ("outliers_above", "outliers_below", "omnibus_p_value", "omnibus_q_value", "farthest_statistic", "reason"),
)
_PER_STATISTIC = ("observed", "null_mean", "null_std", "z_score", "p_value", "q_value")
_OF_MATRICES = ("matrices", "experts")


def heads_csv(tree: xr.DataTree) -> str:
    """Write one row per head: layer, head, σ's and outliers, then ``STATISTIC.VARIABLE`` for each statistic.

    Numbers and texts are formatted by :func:`rmtbase.tables.csv_text`. If the model has several stacks, ``layer`` is
    the number within its ``stack``. Sizes that differ between layers have columns. The rows of further circuits follow,
    with the name in ``circuit``; cells that do not apply to a circuit are empty.

    Raises:
        ParameterError: ``tree`` is not a scores tree.
    """
    groups = {name: circuit_scores(tree, name)["heads"].to_dataset() for name in circuits_of(tree)}
    rows = [row for name, heads in groups.items() for row in _rows(name if len(groups) > 1 else "", heads)]
    first, last = rows[0], [title for title in rows[0] if title in _AFTER_SIGMA or "." in title]
    begin = [title for title in first if title not in last and not title.startswith("sigma_")]
    further = {title: None for row in rows for title in row if title not in {*begin, *last}}
    return csv_text([*begin, *further, *last], rows)


def matrices_csv(tree: xr.DataTree) -> str:
    """Write one row per matrix: layer, component, size, σ, outliers; ``STATISTIC.VARIABLE`` for each statistic.

    The last column gives the reason why statistics are missing. The rows are the matrices that were scored: of the
    layers, outside the layers (layer −1), and of experts. If experts were scored, the column ``expert`` has their
    number, and is empty for other matrices. Numbers and texts are as in :func:`heads_csv`.

    Raises:
        ParameterError: no matrices were scored.
    """
    groups = [tree.children[name].to_dataset(inherit=False) for name in _OF_MATRICES if name in tree.children]
    if not groups:
        raise ParameterError("tree", "scores of heads alone", "one of which matrices were scored")
    rows = [row for group in groups for row in _matrix_rows(group, any("expert" in one.dims for one in groups))]
    return csv_text(rows[0], rows)


def _matrix_rows(matrices: xr.Dataset, with_experts: bool) -> Iterator[dict[str, Any]]:
    """Yield the cells of each matrix by their titles."""
    sizes = [name for name in map(str, matrices.coords) if matrices[name].dims == ("layer",)]
    sizes = [name for name in sizes if name not in ("layer", "stack_layer")]
    axes = ("layer", *(("expert",) if "expert" in matrices.dims else ()), "component")
    facts = {
        name: matrices[name].transpose(*axes).values.astype(object)
        for name in map(str, matrices.data_vars)
        if set(matrices[name].dims) == set(axes)
    }
    shapes = {name: facts.pop(name) for name in ("n_rows", "n_columns")}
    reason = {"reason": facts.pop("reason")}
    facts |= {
        f"{name}.{field}": matrices[field].sel(statistic=name).transpose(*axes).values.astype(object)
        for name in matrices["statistic"].values.tolist()
        for field in _PER_STATISTIC
    } | reason
    numbers, components = layer_numbers(matrices), matrices["component"].values.tolist()
    for place in map(tuple, np.argwhere(matrices_present(matrices)).tolist()):
        cells = {"layer": numbers[place[0]], "component": components[place[-1]]}
        if with_experts:
            cells["expert"] = matrices["expert"].values[place[1]].item() if "expert" in axes else ""
        cells |= {name: matrices[name].values[place[0]].item() for name in sizes}
        cells |= {name: int(column[place]) for name, column in shapes.items()}
        yield cells | {name: column[place] for name, column in facts.items()}


def _rows(circuit: str, heads: xr.Dataset) -> Iterator[dict[str, Any]]:
    """Yield the cells of each head by their titles."""
    sigma = [name for name in map(str, heads.data_vars) if name.startswith("sigma_")]
    sizes = [name for name in map(str, heads.coords) if name != "layer" and heads[name].dims == ("layer",)]
    sizes = [name for name in sizes if name != "stack_layer"]
    names = [name for name in (*_BEFORE_SIGMA, *sigma, *_AFTER_SIGMA) if name in heads]
    facts = {name: heads[name].values for name in names} | {
        f"{name}.{field}": heads[field].sel(statistic=name).values
        for name in heads["statistic"].values.tolist()
        for field in _PER_STATISTIC
    }
    numbers, places = layer_numbers(heads), heads["head"].values.tolist()
    for i, j in np.argwhere(heads_present(heads)).tolist():
        cells = {"layer": numbers[i], "head": places[j]} | {name: heads[name].values[i].item() for name in sizes}
        cells |= {"circuit": circuit} if circuit else {}
        yield cells | {name: _whole(name, column[i, j].item()) for name, column in facts.items()}


def _whole(name: str, value: Any) -> Any:
    """Return a count as an integer, if it is known."""
    return int(value) if name.startswith("outliers_") and value == value else value
