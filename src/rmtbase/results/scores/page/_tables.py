"""Score tables with fixed columns, and with five columns for a statistic that the reader selects."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from rmtbase.drawing.color_scales import Z_LEVELS
from rmtbase.results.scores._distance import at_p_value_floor, farthest_distance, layer_p_value_floors, signed_distance
from rmtbase.results.scores._matrices import matrix_p_value_floors
from rmtbase.results.scores.page._numbers import mean_and_std, number, z_text
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import Circuit, circuit_of, heads_present, layer_numbers, layer_stacks, matrices_present, shapes_of

_ABOVE = "eigenvalues above the null's upper edge"
_BELOW = "eigenvalues below the null's lower edge"
_DISTANCE = (
    "null standard deviations from the null's mean, of ln where the statistic is positive and unbounded; where the "
    "null has none, those of a normal law at this p:"
)
_AMOUNTS = {
    "moved_share": ("moved share, %", "share of strength to move between the ordered directions to make it random"),
    "moved_share_equal_axes": ("equal axes, %", "moved share with each row of each factor scaled to one norm"),
    "relation": ("R, %", "relation: how much of its strength reads what the queries read, 0 by chance"),
}
"""Variables of how much a head differs, with the titles and the meanings of their columns."""

SCORE_COLUMNS = {
    "observed": "the statistic of this row",
    "null mean ± sd": "mean and standard deviation of the statistic under the null; its median where it has neither",
    "z": f"{_DISTANCE} below (−) or above",
    "p": "how often the null gives so extreme a value; ≤: the smallest that so many draws can show",
    "q": "the share of chance findings to expect among all rows whose q is as small",
}
"""The five columns of a statistic, with their meanings."""


UNKNOWN = -1
"""Colour index of an unknown z-score, which is hatched and not on the scale."""


class ZScore(NamedTuple):
    """z-score as text, with the index of its colour on the scale of the heat maps."""

    text: str
    colour: int


@dataclass(frozen=True)
class Column:
    """A fixed column."""

    title: str  # header
    cells: Sequence[Any]  # one cell per row: texts or numbers, z-scores, or statistics (None: a dash)
    # kind of the cells; texts and statistics are sorted as words and aligned left
    kind: Literal["number", "text", "z", "statistic"] = "number"
    tip: str = ""  # meaning of the header


@dataclass(frozen=True)
class ScoreTexts:
    """Texts of the five columns for one statistic, row by row."""

    observed: list[str]
    null: list[str]
    z: list[ZScore]
    p: list[str]
    q: list[str]


@dataclass(frozen=True)
class ScoreTable:
    """A table of scores."""

    name: str  # name, unique on the page
    caption: str  # caption of the table
    fixed: Sequence[Column]  # columns that do not depend on the statistic
    texts: dict[str, ScoreTexts]  # texts of the other columns, by statistic
    flagged: list[bool]  # whether the filter keeps each row
    filter_label: str  # label of the filter
    first: str  # statistic shown first

    def packed(self) -> dict[str, dict[str, list[Any]]]:
        """Join the five columns of each statistic into strings separated by bars, by the names of the options.

        A column with the same text in every row has it only once. Names are escaped by ``shown``.
        """
        return {shown(name): _packed(texts) for name, texts in self.texts.items()}


def _packed(texts: ScoreTexts) -> dict[str, list[Any]]:
    columns = (texts.observed, texts.null, [z.text for z in texts.z], texts.p, texts.q)
    return {
        "cells": ["|".join(column[:1] if len(set(column)) == 1 else column) for column in columns],
        "colour": [z.colour for z in texts.z],
    }


def _score_texts(scores: xr.Dataset, floors: Mapping[str, ArrayLike]) -> dict[str, ScoreTexts]:
    """Format the scores of each statistic, given their variables with dimensions (row, statistic).

    A p-value that is its statistic's floor, and its q-value, are shown as bounds.
    """
    found = {}
    for name in scores["statistic"].values.tolist():
        one = scores.sel(statistic=name)
        floor = floors.get(name, 0.0)
        moments = zip(one["null_mean"].values, one["null_std"].values, _medians(one), strict=True)
        found[name] = ScoreTexts(
            observed=_numbers(one["observed"]),
            null=[_null(*of) for of in moments],
            z=_z_scores(signed_distance(one)),
            p=_bounded(one["p_value"].values, one["p_value"].values, floor),
            q=_bounded(one["q_value"].values, one["p_value"].values, floor),
        )
    return found


def _null(mean: float, std: float, median: float) -> str:
    if np.isnan(std):
        return "–" if np.isnan(median) else f"median {number(median, 3)}"
    return mean_and_std(mean, std)


def _medians(one: xr.Dataset) -> Float[np.ndarray, " row"]:
    """Return the median of the null; NaN for whole matrices, whose quantiles are not kept."""
    if "null_quantile" not in one:
        return np.full(one.sizes["row"], np.nan)
    return one["null_quantile"].sel(probability=0.5).values


def _numbers(values: Iterable[Any], digits: int = 4) -> list[str]:
    return [number(float(value), digits) for value in np.asarray(values)]


def _percents(shares: xr.DataArray) -> list[str]:
    return ["–" if np.isnan(share) else f"{100.0 * share:.1f}" for share in shares.values]


def _bounded(values: Float[np.ndarray, " row"], p_value: Float[np.ndarray, " row"], floor: ArrayLike) -> list[str]:
    """Format numbers; those whose p-value is the floor become bounds, such as "≤ 2e−5"."""
    at_floor = at_p_value_floor(p_value, floor)
    return [f"≤ {text}" if bound else text for text, bound in zip(_numbers(values, 2), at_floor, strict=True)]


def _z_scores(z: Float[np.ndarray, " row"]) -> list[ZScore]:
    edges = np.array([*(-level for level in reversed(Z_LEVELS)), *Z_LEVELS])
    colours = np.searchsorted(edges, np.nan_to_num(z, nan=0.0, posinf=np.inf, neginf=-np.inf), side="right")
    colours = np.where(np.isnan(z), UNKNOWN, colours)
    return [ZScore(z_text(one), int(colour)) for one, colour in zip(z, colours, strict=True)]


def heads_table(scores: xr.DataTree, level: float, first: str, statistics: Sequence[str] | None = None) -> ScoreTable:
    """Return the table of heads, with the named statistics or all of them."""
    circuit, heads = circuit_of(scores.attrs), scores["heads"].to_dataset().transpose("layer", "head", ...)
    there = heads_present(heads)
    single, joint = (np.broadcast_to(each[:, None], there.shape)[there] for each in layer_p_value_floors(scores))
    flat = _rows(heads, "head", there)
    columns = [
        *_place(heads, there),
        Column(circuit.noun, flat["head"].values.tolist()),
        *_shapes(scores, circuit, there),
        Column(
            "omnibus q",
            _bounded(flat["omnibus_q_value"].values, flat["omnibus_p_value"].values, joint),
            tip="q-value of one test of all statistics together",
        ),
        *[
            Column(title, _percents(flat[name]), tip=tip)
            for name, (title, tip) in _AMOUNTS.items()
            if name in flat and flat[name].notnull().any()
        ],
        Column("λ above", _numbers(flat["outliers_above"]), tip=_ABOVE),
        Column("λ below", _numbers(flat["outliers_below"]), tip=_BELOW),
        Column(
            "farthest statistic",
            [SPECTRAL_STATISTICS.get(str(one)) for one in flat["farthest_statistic"].values],
            "statistic",
            "the statistic on which the head is most null standard deviations away",
        ),
        Column("its z", _z_scores(farthest_distance(heads)[there]), "z", f"{_DISTANCE} of the farthest statistic"),
    ]
    if "key_head" in heads and (heads["key_head"].values != heads["head"].values)[there].any():
        place = [column.title for column in columns].index("head")
        columns.insert(place + 1, Column("key head", flat["key_head"].values.astype(int).tolist()))
    flagged = np.asarray(flat["omnibus_q_value"].values < level)
    noun, of = circuit.noun, "" if circuit.name == "qk" else f" by {circuit.symbol}"
    caption = f"Every {noun}{of}: its farthest statistic, all statistics together (omnibus), and one of your choice"
    if not of:
        caption = caption.removesuffix("of your choice") + "statistic of your choice"
    label = f"only {noun}s that differ from random ones"
    held = flat["statistic"].values.tolist()
    shown_ones = flat.sel(statistic=[name for name in held if statistics is None or name in statistics])
    texts = _score_texts(shown_ones, dict.fromkeys(held, single))
    name = "heads-table" if circuit.name == "qk" else f"heads-table-{circuit.name}"
    return ScoreTable(name, caption, columns, texts, flagged.tolist(), label, first)


def _rows(group: xr.Dataset, across: str, there: Bool[np.ndarray, "layer across"]) -> xr.Dataset:
    """Flatten a group to one row for each head or matrix that is present."""
    flat = group.stack(row=("layer", across)).transpose("row", ...).reset_index("row")
    return flat if there.all() else flat.isel(row=np.flatnonzero(there))


def _place(group: xr.Dataset, there: Bool[np.ndarray, "layer across"]) -> list[Column]:
    """Return the columns that name the layer of a row."""
    rows = np.nonzero(there)[0].tolist()
    numbers, stacks = layer_numbers(group), layer_stacks(group)
    layer = Column("layer", [numbers[row] for row in rows], tip="−1: outside the layers" if -1 in numbers else "")
    return [layer] if "stack" not in group.coords else [Column("stack", [stacks[row] for row in rows], "text"), layer]


def _shapes(scores: xr.DataTree, circuit: Circuit, there: Bool[np.ndarray, "layer head"]) -> list[Column]:
    """Return the column of the sizes of each head's matrices, if they differ."""
    null, shapes = scores["null"].to_dataset(), shapes_of(scores)
    if "layer_shape" not in null:
        return []
    texts = [" × ".join(map(str, shapes[place])) for place in null["layer_shape"].values]
    tip = " × ".join(circuit.dims)
    return [Column("shape", [texts[row] for row in np.nonzero(there)[0]], "text", tip)]


def matrices_table(matrices: xr.Dataset, level: float, first: str) -> ScoreTable:
    """Return the table of weight matrices, with the known facts about their spectra."""
    matrices = matrices.transpose("layer", "component", ...)
    there = matrices_present(matrices)
    flat = _rows(matrices, "component", there)
    texts = _score_texts(flat, matrix_p_value_floors(matrices))
    flagged = np.asarray((flat["q_value"].values < level).any(axis=-1))
    caption = "Every weight matrix against independent Gaussian elements, one statistic of your choice"
    label = f"only matrices with q < {level:g} on some statistic"
    columns = _of_matrices(matrices, flat, there)
    return ScoreTable("matrices-table", caption, columns, texts, flagged.tolist(), label, first)


def experts_table(experts: xr.Dataset, level: float, first: str) -> ScoreTable:
    """Return the table of experts: for each layer and component their number, how many differ, and the farthest."""
    experts = experts.transpose("layer", "expert", "component", ...)
    distance = np.nan_to_num(np.abs(experts["z_score"].values), nan=-1.0).max(axis=-1)
    farthest = experts.isel(expert=xr.DataArray(distance.argmax(axis=1), dims=("layer", "component")))
    counts = matrices_present(experts).sum(axis=1)
    differing = (experts["q_value"].values < level).any(axis=-1).sum(axis=1)
    tested = np.isfinite(experts["q_value"].values).any(axis=-1).sum(axis=1)
    there = counts > 0
    flat = _rows(farthest, "component", there)
    columns = _of_matrices(farthest, flat, there)
    place = [column.title for column in columns].index("component") + 1
    columns[place:place] = [
        Column("experts", counts[there].tolist()),
        Column(
            "differ",
            _of_tested(differing[there], tested[there], counts[there]),
            tip=f"experts with q < {level:g} on some statistic",
        ),
        Column("farthest", flat["expert"].values.tolist(), tip="the expert with the largest |z| of all statistics"),
    ]
    texts = _score_texts(flat, matrix_p_value_floors(experts))
    caption = "The experts of every layer: how many differ from independent Gaussian elements, and the farthest of them"
    label = "only layers with an expert that differs"
    return ScoreTable("experts-table", caption, columns, texts, (differing[there] > 0).tolist(), label, first)


def _of_tested(found: np.ndarray, tested: np.ndarray, all_of_them: np.ndarray) -> list[Any]:
    """Format counts, with the number of tested ones if not all were tested; "?" if none was."""
    each = zip(found.tolist(), tested.tolist(), all_of_them.tolist(), strict=True)
    return ["?" if not n else k if n == total else f"{k} of {n}" for k, n, total in each]


def _of_matrices(matrices: xr.Dataset, flat: xr.Dataset, there: Bool[np.ndarray, "layer component"]) -> list[Column]:
    """Return the columns for the place and name of each matrix, and for the facts of its spectrum if known."""
    shape = [
        "–" if np.isnan(rows) else f"{int(rows)} × {int(columns)}"
        for rows, columns in zip(flat["n_rows"].values, flat["n_columns"].values, strict=True)
    ]
    columns = [
        *_place(matrices, there),
        Column("component", [str(one).replace("_", " ") for one in flat["component"].values], "text"),
        Column("shape", shape),
        Column("σ", _numbers(flat["sigma"]), tip="standard deviation of the matrix's elements"),
    ]
    if "marchenko_pastur_distance" in flat:
        columns += [
            Column("λ above", _numbers(flat["outliers_above"]), tip=_ABOVE),
            Column("λ below", _numbers(flat["outliers_below"]), tip=_BELOW),
            Column(
                "distance to MP",
                _numbers(flat["marchenko_pastur_distance"], 3),
                tip="largest distance of the spectrum's distribution function from Marchenko–Pastur's",
            ),
        ]
    return columns
