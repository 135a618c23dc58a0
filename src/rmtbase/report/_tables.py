"""Score tables: fixed columns, and five columns that show whichever statistic the reader picks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from rmtbase.plots import Z_LEVELS, statistic_words
from rmtbase.report._html import Markup, embedded_json, formula, joined, markup, mean_and_std, number, z_text
from rmtbase.scoring import farthest_z
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS

_SCORE_COLUMNS = ("observed", "null mean ± sd", "z", "p", "q")

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Column:
    """A fixed column.

    Attributes:
        title: its header.
        cells: each row's, a text or markup.
        is_text: whether it holds words, which sort as such and stand on the left.
    """

    title: str
    cells: Sequence[object]
    is_text: bool = False

    @property
    def css(self) -> Markup:
        """The class attribute of its cells."""
        return markup(' class="text"' if self.is_text else "")


def score_table(
    name: str,
    caption: str,
    fixed: Sequence[Column],
    scores: xr.Dataset,
    flagged: NDArray[np.bool_],
    filter_label: str,
    first: str,
) -> Markup:
    """A table of scores, sortable and filterable where scripts run, complete for one statistic where they do not.

    Args:
        name: unique on the page.
        caption: what it lists.
        fixed: columns that do not depend on the statistic.
        scores: observed, null_mean, null_std, z_score, p_value and q_value, (row, statistic).
        flagged: the rows that the filter keeps.
        filter_label: words of the filter.
        first: the statistic shown first.
    """
    statistics = scores["statistic"].values.tolist()
    texts = {one: _score_texts(scores.sel(statistic=one)) for one in statistics}
    options = joined(
        markup(
            '<option value="{}"{}>{}</option>',
            one,
            markup(" selected" if one == first else ""),
            statistic_words(one),
        )
        for one in statistics
    )
    head = joined(markup('<th scope="col"{}>{}</th>', column.css, column.title) for column in fixed)
    head = joined([head, *(markup('<th scope="col">{}</th>', title) for title in _SCORE_COLUMNS)])
    rows = joined(
        markup(
            "<tr{}>{}{}</tr>",
            markup(" data-flagged" if flagged[k] else ""),
            joined(markup("<td{}>{}</td>", column.css, column.cells[k]) for column in fixed),
            _score_cells(texts[first], k),
        )
        for k in range(flagged.size)
    )
    return markup(
        _TABLE,
        name=name,
        caption=caption,
        options=options,
        filter_label=filter_label,
        n_flagged=int(flagged.sum()),
        n_fixed=len(fixed),
        n_scores=len(_SCORE_COLUMNS),
        first=statistic_words(first),
        head=head,
        rows=rows,
        # By the names that the options have, where a name is not harmless as it stands.
        json=embedded_json({shown(one): _packed(text) for one, text in texts.items()}),
    )


_TABLE = """<div class="score-table" id="{name}">
<div class="controls" hidden>
<label>Statistic <select>{options}</select></label>
<label><input type="checkbox"> {filter_label} ({n_flagged})</label>
<span role="status"></span>
</div>
<div class="scroll" tabindex="0" role="region" aria-label="{caption}">
<table><caption>{caption}</caption>
<thead><tr class="group"><td colspan="{n_fixed}"></td>
<th scope="colgroup" colspan="{n_scores}" class="statistic">{first}</th></tr>
<tr class="columns">{head}</tr></thead>
<tbody>{rows}</tbody></table></div>
<script type="application/json">{json}</script>
</div>"""


def _score_texts(scores: xr.Dataset) -> dict[str, list]:
    """What the five columns show, row by row, with the colour of z and whether the row is flagged."""
    z, q = scores["z_score"].values, scores["q_value"].values
    null = [
        mean_and_std(mean, std) for mean, std in zip(scores["null_mean"].values, scores["null_std"].values, strict=True)
    ]
    return {
        "cells": [
            [number(value) for value in scores["observed"].values],
            null,
            [z_text(value) for value in z],
            [number(value, 2) for value in scores["p_value"].values],
            [number(value, 2) for value in q],
        ],
        "colour": z_colour(z),
    }


def _packed(texts: dict[str, list]) -> dict[str, list]:
    """Columns as strings joined by a bar; a column that is the same in every row only once."""
    columns = [column[:1] if len(set(column)) == 1 else column for column in texts["cells"]]
    return {"cells": ["|".join(column) for column in columns], "colour": texts["colour"]}


def _score_cells(texts: dict[str, list], k: int) -> Markup:
    observed, null, z, p, q = (column[k] for column in texts["cells"])
    return joined(markup("<td>{}</td>", one) for one in (observed, null, z_cell(z, texts["colour"][k]), p, q))


def z_cell(text: str, colour: int) -> Markup:
    """A z-score with a swatch in the heat maps' colour."""
    return markup('<i class="z{}"></i>{}', colour, text)


def z_colour(z: Array) -> list[int]:
    """The place of each z on the heat maps' colour scale."""
    edges = np.array([*(-level for level in reversed(Z_LEVELS)), *Z_LEVELS])
    return np.searchsorted(edges, np.nan_to_num(z, nan=0.0, posinf=np.inf, neginf=-np.inf), side="right").tolist()


def heads_table(heads: xr.Dataset, level: float, first: str) -> Markup:
    """The table of heads."""
    layer, head = (one.ravel() for one in np.meshgrid(heads["layer"].values, heads["head"].values, indexing="ij"))
    flat = heads.stack(row=("layer", "head")).transpose("row", ...).reset_index("row")
    farthest = farthest_z(heads).ravel()
    symbols = [_symbol(str(one)) if one else "–" for one in flat["farthest_statistic"].values]
    columns = [
        Column("layer", layer.tolist()),
        Column("head", head.tolist()),
        Column("omnibus q", [number(float(one), 2) for one in flat["omnibus_q_value"].values]),
        Column("λ above", [str(int(one)) for one in flat["outliers_above"].values]),
        Column("λ below", [str(int(one)) for one in flat["outliers_below"].values]),
        Column("farthest statistic", symbols, is_text=True),
        Column("its z", [z_cell(z_text(z), k) for z, k in zip(farthest, z_colour(farthest), strict=True)]),
    ]
    if len(np.unique(heads["key_head"].values)) < heads.sizes["head"]:
        columns.insert(2, Column("key head", [str(int(one)) for one in flat["key_head"].values]))
    flagged = np.asarray(flat["omnibus_q_value"].values < level)
    caption = "Every head: its farthest statistic, all statistics together (omnibus), and one statistic of your choice"
    return score_table("heads-table", caption, columns, flat, flagged, "only heads that left the null", first)


def _symbol(statistic: str) -> Markup:
    one = SPECTRAL_STATISTICS[statistic]
    return markup('<span class="math" title="{}">{}</span>', one.long_name, formula(one.symbol))


def matrices_table(matrices: xr.Dataset, level: float, first: str) -> Markup:
    """The table of weight matrices, with what is known of their spectra."""
    layer, component = (
        one.ravel() for one in np.meshgrid(matrices["layer"].values, matrices["component"].values, indexing="ij")
    )
    flat = matrices.stack(row=("layer", "component")).transpose("row", ...).reset_index("row")
    shape = [
        "–" if np.isnan(rows) else f"{int(rows)} × {int(columns)}"
        for rows, columns in zip(flat["n_rows"].values, flat["n_columns"].values, strict=True)
    ]
    columns = [
        Column("layer", layer.tolist()),
        Column("component", [str(one).replace("_", " ") for one in component], is_text=True),
        Column("shape", shape),
        Column("σ", [number(one) for one in flat["sigma"].values]),
    ]
    if "marchenko_pastur_distance" in flat:
        columns += [
            Column("λ above", [number(one) for one in flat["outliers_above"].values]),
            Column("λ below", [number(one) for one in flat["outliers_below"].values]),
            Column("distance to MP", [number(one, 3) for one in flat["marchenko_pastur_distance"].values]),
        ]
    flagged = np.asarray((flat["q_value"].values < level).any(axis=-1))
    caption = "Every weight matrix against independent Gaussian elements, one statistic of your choice"
    label = f"only matrices with q < {level:g} on some statistic"
    return score_table("matrices-table", caption, columns, flat, flagged, label, first)
