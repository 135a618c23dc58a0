"""Score tables with fixed columns and five columns for a statistic that the reader selects, and formats of a page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from markupsafe import Markup, escape
from numpy.typing import ArrayLike

from rmtbase.drawing.color_scales import Z_LEVELS
from rmtbase.results.scores._how_much import at_p_value_floor, farthest_distance, layer_p_value_floors, signed_distance
from rmtbase.results.scores._matrices import matrix_p_value_floors
from rmtbase.results.scores.figures._scores import MAIN_STATISTICS
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, heads_present, layer_numbers, layer_stacks, matrices_present, shapes_of

_DISTANCE = (
    "null standard deviations from the null's mean, of ln where the statistic is positive and unbounded; where the "
    "null has none, those of a normal law at this p:"
)
_AMOUNTS = {  # variables of how much a head differs, with the titles and the meanings of their columns
    "moved_share": ("moved share, %", "share of strength to move between the ordered directions to make it random"),
    "moved_share_equal_axes": ("equal axes, %", "moved share with each row of each factor scaled to one norm"),
    "relation": ("R, %", "relation: how much of its strength reads what the queries read, 0 by chance"),
}
SCORE_COLUMNS = {
    "observed": "the statistic of this row",
    "null mean ± sd": "mean and standard deviation of the statistic under the null; its median where it has neither",
    "z": f"{_DISTANCE} below (−) or above",
    "p": "how often the null gives so extreme a value; ≤: the smallest that so many draws can show",
    "q": "the share of chance findings to expect among all rows whose q is as small",
}
"""The five columns of a statistic, with their meanings."""

_UNKNOWN = -1  # colour index of an unknown z-score, which is hatched and not on the scale
_TOKENS = (
    (r"\\mathrm\{(\w+)\}", r"\1"),
    (r"\^\{([^{}]*)\}", r"<sup>\1</sup>"),
    (r"_\{([^{}]*)\}", r"<sub>\1</sub>"),
    (r"\^(\w)", r"<sup>\1</sup>"),
    (r"_(\w)", r"<sub>\1</sub>"),
    (r"\\sum\b", "Σ"),
    (r"\\Sigma\b", "Σ"),
    (r"\\lambda\b", "λ"),
    (r"\\kappa\b", "κ"),
    (r"\\(ln|exp|det)\b\s*", "\\1\u202f"),
    (r"\\ ", " "),
    (r"(?<=> )(?=[λsp]<sub>)", ""),
)


class ZScore(NamedTuple):
    text: str
    colour: int  # index on the scale of the heat maps


@dataclass(frozen=True)
class Column:
    title: str
    cells: Sequence[Any]  # one cell per row: texts or numbers, z-scores, or statistics (None: a dash)
    # kind of the cells; texts and statistics are sorted as words and aligned left
    kind: Literal["number", "text", "z", "statistic"] = "number"
    tip: str = ""  # meaning of the header


@dataclass(frozen=True)
class ScoreTable:
    name: str  # unique on the page
    caption: str
    fixed: Sequence[Column]  # columns that do not depend on the statistic
    texts: dict[str, dict[str, list[Any]]]  # cells of the columns observed, null, z, p and q, by statistic
    flagged: list[bool]  # whether the filter keeps each row
    filter_label: str
    first: str  # statistic shown first

    def packed(self) -> dict[str, dict[str, list[Any]]]:
        """Pack the five columns of each statistic, by the names of the options, which are escaped by ``shown``."""
        packed = {}
        for name, texts in self.texts.items():
            columns = (texts | {"z": [z.text for z in texts["z"]]}).values()
            cells = ["|".join(column[:1] if len(set(column)) == 1 else column) for column in columns]
            packed[shown(name)] = {"cells": cells, "colour": [z.colour for z in texts["z"]]}
        return packed


def number(value: float, digits: int = 4) -> str:
    """Format a number with ``digits`` significant digits; NaN is a dash."""
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value and not 1e-4 <= abs(value) < 1e6:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{float(mantissa):.{digits}g}e{int(exponent)}"
    else:
        text = f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"
    return text.replace("-", "−")


def mean_and_std(mean: float, std: float) -> str:
    if not (math.isfinite(mean) and math.isfinite(std) and 1e-4 <= std < 1e5 and abs(mean) < 1e6):
        return f"{number(mean, 3)} ± {number(std, 2)}"
    decimals = max(0, 1 - math.floor(math.log10(std)))
    return f"{_fixed(mean, decimals)} ± {_fixed(std, decimals)}"


def _fixed(value: float, decimals: int) -> str:
    return f"{round(value, decimals) + 0.0:.{decimals}f}".replace("-", "−")


def z_text(value: float) -> str:
    return _fixed(value, 1) if math.isfinite(value) and abs(value) < 1000 else number(value, 3)


def formula(latex: str) -> Markup:
    """Convert the registry's simple LaTeX to HTML with sub- and superscripts."""
    text = str(escape(latex)).replace("\\sum_", "\\sum _").replace("\\Sigma\\", "\\Sigma \\")
    text = re.sub(r"(\\[A-Za-z]+)_", r"\1 _", text)
    for pattern, replacement in _TOKENS:
        text = re.sub(pattern, replacement, text)
    return Markup(text.replace(" <sub>", "<sub>").replace("Σ λ", "Σλ").replace("\u202f(", "(").replace("-", "−"))


def _score_texts(scores: xr.Dataset, floors: Mapping[str, ArrayLike]) -> dict[str, dict[str, list[Any]]]:
    texts = {}
    for name in scores["statistic"].values.tolist():
        column = scores.sel(statistic=name)
        floor, p_value = floors.get(name, 0.0), column["p_value"].values
        medians = np.full(column.sizes["row"], np.nan)  # of whole matrices, whose quantiles are not kept
        if "null_quantile" in column:
            medians = column["null_quantile"].sel(probability=0.5).values
        nulls = []
        for mean, std, median in zip(column["null_mean"].values, column["null_std"].values, medians, strict=True):
            text = "–" if np.isnan(median) else f"median {number(median, 3)}"
            nulls.append(text if np.isnan(std) else mean_and_std(mean, std))
        texts[name] = {
            "observed": _numbers(column["observed"]),
            "null": nulls,
            "z": _z_scores(signed_distance(column)),
            "p": _bounded(p_value, p_value, floor),
            "q": _bounded(column["q_value"].values, p_value, floor),
        }
    return texts


def _numbers(values: Iterable[Any], digits: int = 4) -> list[str]:
    return [number(float(value), digits) for value in np.asarray(values)]


def _bounded(values: Float[np.ndarray, " row"], p_value: Float[np.ndarray, " row"], floor: ArrayLike) -> list[str]:
    at_floor = at_p_value_floor(p_value, floor)
    return [f"≤ {text}" if bound else text for text, bound in zip(_numbers(values, 2), at_floor, strict=True)]


def _z_scores(z: Float[np.ndarray, " row"]) -> list[ZScore]:
    edges = np.array([*(-level for level in reversed(Z_LEVELS)), *Z_LEVELS])
    colours = np.where(np.isnan(z), _UNKNOWN, np.searchsorted(edges, z, side="right"))
    return [ZScore(z_text(score), int(colour)) for score, colour in zip(z, colours, strict=True)]


def _outliers(flat: xr.Dataset) -> list[Column]:
    return [
        Column(f"λ {side}", _numbers(flat[f"outliers_{side}"]), tip=f"eigenvalues {side} the null's {edge} edge")
        for side, edge in (("above", "upper"), ("below", "lower"))
    ]


def heads_table(scores: xr.DataTree, level: float) -> ScoreTable:
    """Return the table of heads; those of further circuits have only the main statistics."""
    circuit, heads = circuit_of(scores.attrs), scores["heads"].to_dataset().transpose("layer", "head", ...)
    present, noun, is_qk = heads_present(heads), circuit.noun, circuit.name == "qk"
    single, joint = (
        np.broadcast_to(floors[:, None], present.shape)[present] for floors in layer_p_value_floors(scores)
    )
    flat = _rows(heads, "head", present)
    numbers, omnibus = flat["head"].values.tolist(), flat["omnibus_q_value"].values
    columns = [*_place(heads, present), Column(noun, numbers)]
    if "key_head" in flat and (flat["key_head"].values != numbers).any():
        columns.append(Column("key head", flat["key_head"].values.astype(int).tolist()))
    null = scores["null"].to_dataset()
    if "layer_shape" in null:
        texts = [" × ".join(map(str, dims)) for dims in shapes_of(scores)]
        places = null["layer_shape"].values[np.nonzero(present)[0]]
        columns.append(Column("shape", [texts[place] for place in places], "text", " × ".join(circuit.dims)))
    bounds = _bounded(omnibus, flat["omnibus_p_value"].values, joint)
    columns.append(Column("omnibus q", bounds, tip="q-value of one test of all statistics together"))
    for name, (title, tip) in _AMOUNTS.items():
        if name in flat and flat[name].notnull().any():
            shares = ["–" if np.isnan(share) else f"{100.0 * share:.1f}" for share in flat[name].values]
            columns.append(Column(title, shares, tip=tip))
    farthest = [SPECTRAL_STATISTICS.get(str(name)) for name in flat["farthest_statistic"].values]
    tip = "the statistic on which the head is most null standard deviations away"
    columns += [*_outliers(flat), Column("farthest statistic", farthest, "statistic", tip)]
    distances = _z_scores(farthest_distance(heads)[present])
    columns.append(Column("its z", distances, "z", f"{_DISTANCE} of the farthest statistic"))
    which, choice = noun if is_qk else f"{noun} by {circuit.symbol}", "one statistic" if is_qk else "one"
    names = flat["statistic"].values.tolist()
    shown_statistics = flat.sel(statistic=[name for name in names if is_qk or name in MAIN_STATISTICS])
    return ScoreTable(
        "heads-table" if is_qk else f"heads-table-{circuit.name}",
        f"Every {which}: its farthest statistic, all statistics together (omnibus), and {choice} of your choice",
        columns,
        _score_texts(shown_statistics, dict.fromkeys(names, single)),
        (omnibus < level).tolist(),
        f"only {noun}s that differ from random ones",
        MAIN_STATISTICS[0],
    )


def _rows(group: xr.Dataset, across: str, present: Bool[np.ndarray, "layer across"]) -> xr.Dataset:
    flat = group.stack(row=("layer", across)).transpose("row", ...).reset_index("row")
    return flat if present.all() else flat.isel(row=np.flatnonzero(present))


def _place(group: xr.Dataset, present: Bool[np.ndarray, "layer across"]) -> list[Column]:
    rows, numbers, stacks = np.nonzero(present)[0].tolist(), layer_numbers(group), layer_stacks(group)
    layer = Column("layer", [numbers[row] for row in rows], tip="−1: outside the layers" if -1 in numbers else "")
    return [layer] if "stack" not in group.coords else [Column("stack", [stacks[row] for row in rows], "text"), layer]


def matrices_table(matrices: xr.Dataset, level: float) -> ScoreTable:
    matrices = matrices.transpose("layer", "component", ...)
    present = matrices_present(matrices)
    flat = _rows(matrices, "component", present)
    return ScoreTable(
        "matrices-table",
        "Every weight matrix against independent Gaussian elements, one statistic of your choice",
        [*_place(matrices, present), *_of_matrices(flat)],
        _score_texts(flat, matrix_p_value_floors(matrices)),
        np.any(flat["q_value"].values < level, axis=-1).tolist(),
        f"only matrices with q < {level:g} on some statistic",
        "excess_kurtosis",
    )


def experts_table(experts: xr.Dataset, level: float) -> ScoreTable:
    """Return the table of experts: for each layer and component their number, how many differ, and the farthest."""
    experts = experts.transpose("layer", "expert", "component", ...)
    distance = np.nan_to_num(np.abs(experts["z_score"].values), nan=-1.0).max(axis=-1)
    farthest = experts.isel(expert=xr.DataArray(distance.argmax(axis=1), dims=("layer", "component")))
    counts = matrices_present(experts).sum(axis=1)
    present, q_value = counts > 0, experts["q_value"].values
    differing, tested = (mask.any(axis=-1).sum(axis=1) for mask in (q_value < level, np.isfinite(q_value)))
    rows = zip(*(numbers[present].tolist() for numbers in (differing, tested, counts)), strict=True)
    flat = _rows(farthest, "component", present)
    component, *facts = _of_matrices(flat)
    differ = ["?" if not n else k if n == total else f"{k} of {n}" for k, n, total in rows]
    columns = [
        Column("experts", counts[present].tolist()),
        Column("differ", differ, tip=f"experts with q < {level:g} on some statistic"),
        Column("farthest", flat["expert"].values.tolist(), tip="the expert with the largest |z| of all statistics"),
    ]
    return ScoreTable(
        "experts-table",
        "The experts of every layer: how many differ from independent Gaussian elements, and the farthest of them",
        [*_place(farthest, present), component, *columns, *facts],
        _score_texts(flat, matrix_p_value_floors(experts)),
        (differing[present] > 0).tolist(),
        "only layers with an expert that differs",
        "excess_kurtosis",
    )


def _of_matrices(flat: xr.Dataset) -> list[Column]:
    """Return the columns for the name of each matrix, and for the facts of its spectrum if known."""
    shapes = zip(flat["n_rows"].values, flat["n_columns"].values, strict=True)
    columns = [
        Column("component", [str(name).replace("_", " ") for name in flat["component"].values], "text"),
        Column("shape", ["–" if np.isnan(rows) else f"{int(rows)} × {int(columns)}" for rows, columns in shapes]),
        Column("σ", _numbers(flat["sigma"]), tip="standard deviation of the matrix's elements"),
    ]
    if "marchenko_pastur_distance" in flat:
        tip = "largest distance of the spectrum's distribution function from Marchenko–Pastur's"
        distance = _numbers(flat["marchenko_pastur_distance"], 3)
        columns += [*_outliers(flat), Column("distance to MP", distance, tip=tip)]
    return columns
