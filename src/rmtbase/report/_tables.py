"""Score tables: fixed columns, and five columns that show whichever statistic the reader picks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.plots import Z_LEVELS
from rmtbase.report._numbers import mean_and_std, number, z_text
from rmtbase.scoring import at_p_value_floor, farthest_distance, matrix_p_value_floors, signed_distance
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS

_ABOVE = "eigenvalues above the null's upper edge"
_BELOW = "eigenvalues below the null's lower edge"
_DISTANCE = (
    "null standard deviations from the null's mean, of ln where the statistic is positive and unbounded; where the "
    "null has none, those of a normal law at this p:"
)
SCORE_COLUMNS = {
    "observed": "the statistic of this row",
    "null mean ± sd": "mean and standard deviation of the statistic under the null; its median where it has neither",
    "z": f"{_DISTANCE} below (−) or above",
    "p": "how often the null gives so extreme a value; ≤: the smallest that so many draws can show",
    "q": "the share of chance findings to expect among all rows whose q is as small",
}
"""The five columns of a statistic, with what they mean."""


class ZScore(NamedTuple):
    """A z-score as text, and the place of its colour on the heat maps' scale."""

    text: str
    colour: int


@dataclass(frozen=True)
class Column:
    """A fixed column.

    Attributes:
        title: its header.
        cells: each row's: texts or numbers, z-scores, or statistics (None: a dash).
        kind: which of these; words and statistics sort as words and stand on the left.
        tip: what the header means.
    """

    title: str
    cells: Sequence[Any]
    kind: Literal["number", "text", "z", "statistic"] = "number"
    tip: str = ""


@dataclass(frozen=True)
class ScoreTexts:
    """What the five columns show for one statistic, row by row."""

    observed: list[str]
    null: list[str]
    z: list[ZScore]
    p: list[str]
    q: list[str]


@dataclass(frozen=True)
class ScoreTable:
    """A table of scores.

    Attributes:
        name: unique on the page.
        caption: what it lists.
        fixed: columns that do not depend on the statistic.
        texts: by statistic, the other columns.
        flagged: the rows that the filter keeps.
        filter_label: words of the filter.
        first: the statistic shown first.
    """

    name: str
    caption: str
    fixed: Sequence[Column]
    texts: dict[str, ScoreTexts]
    flagged: list[bool]
    filter_label: str
    first: str

    def packed(self) -> dict[str, dict[str, list[Any]]]:
        """The five columns of each statistic as strings joined by a bar; one that is the same in every row only once.

        By the names that the options have, where a name is not harmless as it stands.
        """
        return {shown(name): _packed(texts) for name, texts in self.texts.items()}


def _packed(texts: ScoreTexts) -> dict[str, list[Any]]:
    columns = (texts.observed, texts.null, [z.text for z in texts.z], texts.p, texts.q)
    return {
        "cells": ["|".join(column[:1] if len(set(column)) == 1 else column) for column in columns],
        "colour": [z.colour for z in texts.z],
    }


def _score_texts(scores: xr.Dataset, floors: Mapping[str, float]) -> dict[str, ScoreTexts]:
    """By statistic, of observed, null_mean, null_std, z_score, p_value and q_value, (row, statistic).

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
    """Of the null; NaN of whole matrices, whose quantiles are not kept."""
    if "null_quantile" not in one:
        return np.full(one.sizes["row"], np.nan)
    return one["null_quantile"].sel(probability=0.5).values


def _numbers(values: Iterable[Any], digits: int = 4) -> list[str]:
    return [number(float(value), digits) for value in np.asarray(values)]


def _bounded(values: Float[np.ndarray, " row"], p_value: Float[np.ndarray, " row"], floor: float) -> list[str]:
    """Numbers, those whose p-value is the floor as "≤ 2e−5"."""
    at_floor = at_p_value_floor(p_value, floor)
    return [f"≤ {text}" if bound else text for text, bound in zip(_numbers(values, 2), at_floor, strict=True)]


def _z_scores(z: Float[np.ndarray, " row"]) -> list[ZScore]:
    edges = np.array([*(-level for level in reversed(Z_LEVELS)), *Z_LEVELS])
    colours = np.searchsorted(edges, np.nan_to_num(z, nan=0.0, posinf=np.inf, neginf=-np.inf), side="right")
    return [ZScore(z_text(one), int(colour)) for one, colour in zip(z, colours, strict=True)]


def heads_table(heads: xr.Dataset, level: float, first: str, floors: tuple[float, float]) -> ScoreTable:
    """The table of heads; the floors are those of p-values of one statistic and of all together."""
    flat = heads.stack(row=("layer", "head")).transpose("row", ...).reset_index("row")
    columns = [
        Column("layer", flat["layer"].values.tolist()),
        Column("head", flat["head"].values.tolist()),
        Column(
            "omnibus q",
            _bounded(flat["omnibus_q_value"].values, flat["omnibus_p_value"].values, floors[1]),
            tip="q-value of one test of all statistics together",
        ),
        Column("λ above", flat["outliers_above"].values.astype(int).tolist(), tip=_ABOVE),
        Column("λ below", flat["outliers_below"].values.astype(int).tolist(), tip=_BELOW),
        Column(
            "farthest statistic",
            [SPECTRAL_STATISTICS.get(str(one)) for one in flat["farthest_statistic"].values],
            "statistic",
            "the statistic on which the head is most null standard deviations away",
        ),
        Column("its z", _z_scores(farthest_distance(heads).ravel()), "z", f"{_DISTANCE} of the farthest statistic"),
    ]
    if len(np.unique(heads["key_head"].values)) < heads.sizes["head"]:
        columns.insert(2, Column("key head", flat["key_head"].values.astype(int).tolist()))
    flagged = np.asarray(flat["omnibus_q_value"].values < level)
    caption = "Every head: its farthest statistic, all statistics together (omnibus), and one statistic of your choice"
    label = "only heads that left the null"
    texts = _score_texts(flat, dict.fromkeys(flat["statistic"].values.tolist(), floors[0]))
    return ScoreTable("heads-table", caption, columns, texts, flagged.tolist(), label, first)


def matrices_table(matrices: xr.Dataset, level: float, first: str) -> ScoreTable:
    """The table of weight matrices, with what is known of their spectra."""
    flat = matrices.stack(row=("layer", "component")).transpose("row", ...).reset_index("row")
    shape = [
        "–" if np.isnan(rows) else f"{int(rows)} × {int(columns)}"
        for rows, columns in zip(flat["n_rows"].values, flat["n_columns"].values, strict=True)
    ]
    columns = [
        Column("layer", flat["layer"].values.tolist()),
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
    flagged = np.asarray((flat["q_value"].values < level).any(axis=-1))
    caption = "Every weight matrix against independent Gaussian elements, one statistic of your choice"
    label = f"only matrices with q < {level:g} on some statistic"
    texts = _score_texts(flat, matrix_p_value_floors(matrices))
    return ScoreTable("matrices-table", caption, columns, texts, flagged.tolist(), label, first)
