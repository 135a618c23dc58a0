"""Figures of composition: every earlier head against every later one, and the graph of pairs that compose."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from rmtbase.drawing.axes import LEVEL, LINE_STYLES, NOT_TESTABLE, Around, panel, without_frame
from rmtbase.drawing.color_scales import COMPOSING_SHARE, Z
from rmtbase.drawing.heatmaps import Cells, draw_cells
from rmtbase.drawing.layout import FigureRecipe, Panels, Single
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.results.composition.report import ComposedPair, CompositionSummary, summarize_composition

__all__ = ["figure_recipes"]

_MOST_EDGES = 30  # largest number of pairs in a graph: those with the largest scores of the pairs that compose
_READS = {"q": "queries", "k": "keys", "v": "values"}
_BEND = {"q": -0.12, "k": 0.0, "v": 0.12}  # sideways bend of an edge, so that three between two heads stay apart
_POINTS = 24  # points of an edge
_NAMED = 48  # nodes beyond which their numbers would not be legible
_MOST_TICKS = 13
_STRONG = 20.0  # percent: colours from here on are nearer to the surface's than to the text's


@panel
def composition_heatmap(ax: Axes, theme: Theme, table: xr.Dataset, kind: str) -> Around:
    """Draw z of the squared composition score of every two heads, with a dot for pairs that compose."""
    pairs = table.sel(kind=kind).transpose("later", "earlier")
    z, q = pairs["z_score"].values, pairs["q_value"].values
    untested = np.isnan(z) & (pairs["not_testable"].values > 0) if "not_testable" in pairs else None
    size = float(np.clip(90 / len(z), 1.0, 3.5))
    marks = draw_cells(ax, theme, Z, Cells(z, q < LEVEL, untested), markersize=size, markeredgewidth=0.4)
    first, ticks, borders = 0, {}, []  # each layer is named at its middle, and separated by a thin line
    for place, heads in groupby(_places(table)):
        count = len(list(heads))
        ticks[first + 0.5 * (count - 1)] = _layer_name(place)
        borders.append(first - 0.5)
        first += count
    named = list(ticks)[:: -(-len(ticks) // _MOST_TICKS)]
    for draw_line, set_ticks in ((ax.axvline, ax.set_xticks), (ax.axhline, ax.set_yticks)):
        for border in borders[1:]:
            draw_line(border, color=theme.grid, linewidth=0.5, zorder=0)
        set_ticks(named, [ticks[middle] for middle in named])
    ends = (-0.5, len(z) - 0.5)
    ax.set(xlim=ends, ylim=ends[::-1])
    title = f"{_composing(pairs)}; {marks}"
    return Around(title, "earlier head, by layer", "later head, by layer", scale=Z)


@panel
def composition_by_layer(ax: Axes, theme: Theme, table: xr.Dataset, kind: str) -> Around:
    """Draw how many pairs of heads of every two layers compose: their number, and as a colour their share."""
    pairs, layers = table.sel(kind=kind).transpose("later", "earlier"), list(dict.fromkeys(_places(table)))
    of_layer = np.array([[place == layer for layer in layers] for place in _places(table)], dtype=int)
    composing, tested = (
        of_layer.T @ chosen.astype(int) @ of_layer
        for chosen in (pairs["q_value"].values < LEVEL, pairs["p_value"].notnull().values)
    )
    share = 100.0 * composing / np.where(tested > 0, tested, np.nan)
    draw_cells(ax, theme, COMPOSING_SHARE, Cells(share))
    if len(layers) <= _MOST_TICKS:
        for row, column in np.argwhere(composing > 0).tolist():
            colour = theme.text if share[row, column] < _STRONG else theme.surface
            ax.text(column, row, str(composing[row, column]), ha="center", va="center", color=colour)
    step = -(-len(layers) // _MOST_TICKS)
    names = [_layer_name(place) for place in layers][::step]
    ends = (-0.5, len(layers) - 0.5)
    ax.set_xticks(range(0, len(layers), step), names)
    ax.set_yticks(range(0, len(layers), step), names)
    ax.set(xlim=ends, ylim=ends[::-1])
    title = f"{_composing(pairs)};\nin each cell those of two layers"
    return Around(title, "layer of the earlier head", "layer of the later head", scale=COMPOSING_SHARE)


def _composing(pairs: xr.Dataset) -> str:
    tested = int(pairs["p_value"].notnull().sum())
    share = f"{(pairs['q_value'] < LEVEL).sum():d} of {tested} pairs compose" if tested else "no pair can be tested"
    return f"the later head's {_READS[str(pairs['kind'].values)]}\n{share}"


@panel
def composition_graph(ax: Axes, theme: Theme, table: xr.Dataset) -> Around:
    """Draw the pairs of heads that compose beyond chance as lines from the earlier head down to the later one."""
    summary = summarize_composition(table, LEVEL)
    x, y = [], []  # the place of each head within its layer, with layers centred above one another, and its row
    for row, (_, heads) in enumerate(groupby(_places(table))):
        count = len(list(heads))
        x += [number - 0.5 * (count - 1) for number in range(count)]
        y += [row] * count
    first = min(x)
    x = [number - first for number in x]
    place = dict(zip(table["later"].values.tolist(), zip(x, y, strict=True), strict=True))
    drawn = summary.largest[:_MOST_EDGES]
    connected = {name for pair in drawn for name in (pair.earlier, pair.later)}
    # The width of a line is in proportion to the score above the smallest one; lines are thinner if there are many.
    least, most = 0.7, 3.2 if len(drawn) <= _NAMED else 2.0
    scores = np.array([pair.score for pair in drawn])
    spread = np.ptp(scores) if drawn else 0.0
    relative = (scores - scores.min()) / spread if spread > 0.0 else np.full(len(drawn), 0.5)
    strength = least + (most - least) * relative
    for kind, colour, style in zip(table["kind"].values.tolist(), theme.series, LINE_STYLES, strict=False):
        chosen = [i for i, pair in enumerate(drawn) if pair.kind == kind]
        curves = [_edge(place[drawn[i].earlier], place[drawn[i].later], _BEND[kind]) for i in chosen]
        look = {"colors": colour, "linestyles": style, "alpha": 0.85, "zorder": 2, "capstyle": "butt"}
        ax.add_collection(LineCollection(curves, linewidths=strength[chosen], **look))
        label = f"later head's {_READS[kind]}"
        ax.add_line(Line2D([], [], color=colour, linestyle=style, label=label, linewidth=1.6))
    named = len(connected) <= _NAMED
    for name, head_place in place.items():
        big = name in connected
        ax.plot(
            *head_place, marker="o", markersize=(12.0 if named else 5.0) if big else 2.4, linestyle="none", zorder=3,
            markerfacecolor=theme.surface if big else theme.null, markeredgewidth=1.0,
            markeredgecolor=theme.text if big else theme.null,
        )  # fmt: skip
        if big and named:
            head = int(table["later_head"].sel(later=name))
            ax.text(*head_place, str(head), ha="center", va="center_baseline", fontsize=7, color=theme.text, zorder=4)
    names = dict(zip(y, map(_layer_name, _places(table)), strict=True))
    ticks = list(names)[:: -(-len(names) // (2 * _MOST_TICKS))]
    ax.set_yticks(ticks, [names[row] for row in ticks])
    ax.set_ylim(len(names) - 0.5, -0.5)
    last = max(x)
    columns = range(0, round(last) + 1, -(-(round(last) + 1) // (2 * _MOST_TICKS)))
    ax.set_xticks(list(columns) if x == table["later_head"].values.tolist() else [])  # heads of one number are aligned
    ax.set_xlim(-0.06 * last - 0.6, 1.06 * last + 0.6)
    without_frame(ax)
    return Around(_surviving(summary, drawn), "head", "layer")


def _surviving(summary: CompositionSummary, drawn: list[ComposedPair]) -> str:
    tested, surviving = sum(kind.pairs for kind in summary.kinds), len(summary.surviving)
    untested = len(summary.not_testable)
    words = f"{surviving} of {tested} pairs of heads compose beyond chance, q < {LEVEL:g}"
    if not tested:
        words = f"whether heads compose cannot be told: {untested} pairs, {NOT_TESTABLE}"
    elif untested:
        words += f"; {untested} more {NOT_TESTABLE}"
    if not drawn:
        return words
    largest = f"drawn: the {len(drawn)} of these {surviving} with the largest scores; " * (len(drawn) < surviving)
    return f"{words}\n{largest}the thicker a line, the larger the score ({drawn[-1].score:.2g} to {drawn[0].score:.2g})"


def _edge(start: tuple[float, float], end: tuple[float, float], bend: float) -> Float[np.ndarray, "point 2"]:
    """Compute a quadratic curve between two heads, bent to the side."""
    (x0, y0), (x1, y1), t = start, end, np.linspace(0.0, 1.0, _POINTS)[:, None]
    middle = np.array([0.5 * (x0 + x1) + bend * 4.0 * abs(y1 - y0) ** 0.5, 0.5 * (y0 + y1)])
    return (1 - t) ** 2 * np.array(start) + 2 * t * (1 - t) * middle + t**2 * np.array(end)


def _places(table: xr.Dataset) -> list[tuple[str, int]]:
    """Stack and layer of each head."""
    layers = table["later_layer"].values.tolist()
    stacks = table["later_stack"].values.tolist() if "later_stack" in table.coords else [""] * len(layers)
    return list(zip(map(str, stacks), layers, strict=True))


def _layer_name(place: tuple[str, int]) -> str:
    return literal(f"{place[0]} {place[1]}".lstrip(), 20)


def figure_recipes(table: xr.Dataset) -> dict[str, FigureRecipe]:
    """Name each figure of compositions."""
    rows = len(dict.fromkeys(table["later_layer"].values.tolist()))
    kinds = [{"kind": kind} for kind in table["kind"].values.tolist()]
    maps = {"columns": len(kinds), "share_y": True, "height": 4.4, "panel": 4.2}
    height = min(max(3.2, 1.6 + 0.62 * rows), 12.0)
    return {
        "composition-graph": Single(composition_graph, table, width=8.5, height=height),
        "composition-by-layer": Panels(composition_by_layer, table, kinds, scale=COMPOSING_SHARE, **maps),
        "composition": Panels(composition_heatmap, table, kinds, scale=Z, **maps),
    }
