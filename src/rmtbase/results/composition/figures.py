"""Figures of composition: every earlier head against every later one, and the graph of pairs that compose."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import groupby

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D

from rmtbase.drawing.axes import LEVEL, LINE_STYLES, add_legend, literal, model_title, panel, titled, without_frame
from rmtbase.drawing.color_scales import ColorScale, Z
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.heatmaps import draw_cells, finished_map
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, panels
from rmtbase.drawing.not_testable import NOT_TESTABLE
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.composition.summary import ComposedPair, summarize_composition

_MOST_EDGES = 30
"""Largest number of pairs in a graph: those with the largest scores of the pairs that compose."""

_READS = {"q": "queries", "k": "keys", "v": "values"}
_BEND = {"q": -0.12, "k": 0.0, "v": 0.12}  # sideways bend of an edge, so that three between two heads stay apart
_POINTS = 24  # points of an edge
_NAMED = 48  # nodes beyond which their numbers would not be legible
_MOST_TICKS = 13
_STRONG = 20.0  # percent: colours from here on are nearer to the surface's than to the text's
COMPOSING_SHARE = ColorScale(
    "pairs that compose (%)", (0.1, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 70.0), lambda theme: theme.sequential
)


@panel
def composition_heatmap(
    ax: Axes, theme: Theme, table: xr.Dataset, kind: str | None = None, level: float = LEVEL, *, colorbar: bool = True
) -> Axes:
    """Draw z of the squared composition score of every two heads, with a dot for pairs that compose.

    The axes: earlier head against later head, the first layer on top and to the left.
    """
    chosen = _of_kind(table, kind, level)
    z, q = chosen["z_score"].values, chosen["q_value"].values
    untested = (
        np.isnan(z) & (chosen["not_testable"].values > 0) if "not_testable" in chosen else np.zeros(z.shape, bool)
    )
    size = float(np.clip(90 / len(z), 1.0, 3.5))
    marks = draw_cells(ax, z, q < level, untested, Z, level, theme, markersize=size, markeredgewidth=0.4)
    for which in ("x", "y"):
        _layers_along(ax, which, table, theme)
    ends = (-0.5, len(z) - 0.5)
    ax.set(xlabel="earlier head, by layer", ylabel="later head, by layer", xlim=ends, ylim=ends[::-1])
    return finished_map(ax, theme, f"{_composing(chosen, level)}; {marks}", Z, colorbar)


@panel
def composition_by_layer(
    ax: Axes, theme: Theme, table: xr.Dataset, kind: str | None = None, level: float = LEVEL, *, colorbar: bool = True
) -> Axes:
    """Draw how many pairs of heads of every two layers compose: their number, and as a colour their share.

    Arguments and errors as in :func:`composition_heatmap`.

    The axes: layer of the earlier head against layer of the later one, the first layer on top and to the left.
    """
    chosen = _of_kind(table, kind, level)
    layers = list(dict.fromkeys(_places(table)))
    of_layer = np.array([[place == layer for layer in layers] for place in _places(table)], dtype=int)
    composing, tested = (
        of_layer.T @ pairs.astype(int) @ of_layer
        for pairs in (chosen["q_value"].values < level, chosen["p_value"].notnull().values)
    )
    share = 100.0 * composing / np.where(tested > 0, tested, np.nan)
    nowhere = np.zeros(share.shape, dtype=bool)
    draw_cells(ax, share, nowhere, nowhere, COMPOSING_SHARE, None, theme)
    if len(layers) <= _MOST_TICKS:
        for row, column in np.argwhere(composing > 0).tolist():
            colour = theme.text if share[row, column] < _STRONG else theme.surface
            ax.text(column, row, str(composing[row, column]), ha="center", va="center", color=colour)
    step = -(-len(layers) // _MOST_TICKS)
    names = [literal(f"{stack} {layer}".lstrip(), 20) for stack, layer in layers][::step]
    ends = (-0.5, len(layers) - 0.5)
    ax.set_xticks(range(0, len(layers), step), names)
    ax.set_yticks(range(0, len(layers), step), names)
    ax.set(xlabel="layer of the earlier head", ylabel="layer of the later head", xlim=ends, ylim=ends[::-1])
    title = f"{_composing(chosen, level)};\nin each cell those of two layers"
    return finished_map(ax, theme, title, COMPOSING_SHARE, colorbar)


def _of_kind(table: xr.Dataset, kind: str | None, level: float) -> xr.Dataset:
    """Return the pairs of one kind, later head by earlier head."""
    summarize_composition(table, level)
    held = table["kind"].values.tolist()
    kind = str(held[0]) if kind is None else kind
    if kind not in held:
        raise ParameterError("kind", kind, f"one of {', '.join(held)}")
    return table.sel(kind=kind).transpose("later", "earlier")


def _composing(chosen: xr.Dataset, level: float) -> str:
    """Say of which kind the pairs are, and how many of them compose."""
    tested = int(chosen["p_value"].notnull().sum())
    found = f"{(chosen['q_value'] < level).sum():d} of {tested} pairs compose" if tested else "no pair can be tested"
    return f"the later head's {_READS[str(chosen['kind'].values)]}\n{found}"


@panel
def composition_graph(ax: Axes, theme: Theme, table: xr.Dataset, level: float = LEVEL, *, legend: bool = True) -> Axes:
    """Draw the pairs of heads that compose beyond chance as lines from the earlier head down to the later one.

    Each kind has its own colour and line style, and bends to its own side; the larger the score, the thicker the line.
    Of more than 30 pairs only those with the largest scores are drawn, and the title says so.

    The axes: head against layer, the first layer on top.
    """
    summary = summarize_composition(table, level)
    rows = _rows(table)
    place = dict(zip(table["later"].values.tolist(), zip(*rows, strict=True), strict=True))
    drawn = summary.largest[:_MOST_EDGES]
    bound_up = {name for pair in drawn for name in (pair.earlier, pair.later)}
    strength = _strength(drawn)
    for k, kind in enumerate(table["kind"].values.tolist()):
        of_kind = [i for i, pair in enumerate(drawn) if pair.kind == kind]
        curves = [_edge(place[drawn[i].earlier], place[drawn[i].later], _BEND[kind]) for i in of_kind]
        style = {"colors": theme.series[k], "linestyles": LINE_STYLES[k]}
        ax.add_collection(
            LineCollection(curves, linewidths=strength[of_kind], alpha=0.85, zorder=2, capstyle="butt", **style)
        )
        ax.add_line(
            Line2D(
                [],
                [],
                color=theme.series[k],
                linestyle=LINE_STYLES[k],
                label=f"later head's {_READS[kind]}",
                linewidth=1.6,
            )
        )
    named = len(bound_up) <= _NAMED
    for name, (x, y) in place.items():
        big = name in bound_up
        ax.plot(
            x, y, marker="o", markersize=(12.0 if named else 5.0) if big else 2.4, linestyle="none", zorder=3,
            markerfacecolor=theme.surface if big else theme.null, markeredgewidth=1.0,
            markeredgecolor=theme.text if big else theme.null,
        )  # fmt: skip
        if big and named:
            head = int(table["later_head"].sel(later=name))
            ax.text(x, y, str(head), ha="center", va="center_baseline", fontsize=7, color=theme.text, zorder=4)
    _rows_up(ax, table, rows[1])
    _heads_along(ax, table, rows)
    ax.set(xlabel="head", ylabel="layer")
    without_frame(ax)
    all_pairs = sum(one.pairs for one in summary.kinds)
    said = f"{len(summary.surviving)} of {all_pairs} pairs of heads compose beyond chance, q < {level:g}"
    if not all_pairs:
        said = f"whether heads compose cannot be told: {len(summary.not_testable)} pairs, {NOT_TESTABLE}"
    elif summary.not_testable:
        said += f"; {len(summary.not_testable)} more {NOT_TESTABLE}"
    if drawn:
        widths = f"the thicker a line, the larger the score ({drawn[-1].score:.2g} to {drawn[0].score:.2g})"
        few = ""
        if len(drawn) < len(summary.surviving):
            few = f"drawn: the {len(drawn)} of these {len(summary.surviving)} with the largest scores; "
        said += f"\n{few}{widths}"
    titled(ax, said, theme)
    if legend:
        add_legend(ax, theme)
    return ax


def _strength(pairs: list[ComposedPair]) -> Float[np.ndarray, " pair"]:
    """Widths of lines, in proportion to the score above the smallest one; thinner if there are many."""
    least, most = 0.7, 3.2 if len(pairs) <= _NAMED else 2.0
    scores = np.array([pair.score for pair in pairs])
    spread = np.ptp(scores) if pairs else 0.0
    return least + (most - least) * ((scores - scores.min()) / spread if spread > 0.0 else np.full(len(pairs), 0.5))


def _edge(start: tuple[float, float], end: tuple[float, float], bend: float) -> Float[np.ndarray, "point 2"]:
    """Compute a quadratic curve between two heads, bent to the side."""
    (x0, y0), (x1, y1), t = start, end, np.linspace(0.0, 1.0, _POINTS)
    x = 0.5 * (x0 + x1) + bend * 4.0 * abs(y1 - y0) ** 0.5
    y = 0.5 * (y0 + y1)
    return np.stack(
        [(1 - t) ** 2 * a + 2 * t * (1 - t) * b + t**2 * c for a, b, c in ((x0, x, x1), (y0, y, y1))], axis=1
    )


def _places(table: xr.Dataset) -> list[tuple[str, int]]:
    """Stack and layer of each head."""
    layers = table["later_layer"].values.tolist()
    stacks = table["later_stack"].values.tolist() if "later_stack" in table.coords else [""] * len(layers)
    return list(zip(map(str, stacks), layers, strict=True))


def _rows(table: xr.Dataset) -> tuple[list[float], list[int]]:
    """Position of each head within its layer, with layers centred above one another, and its row."""
    x: list[float] = []
    y: list[int] = []
    for row, (_, heads) in enumerate(groupby(_places(table))):
        count = len(list(heads))
        x += [place - 0.5 * (count - 1) for place in range(count)]
        y += [row] * count
    first = min(x)
    return [place - first for place in x], y


def _rows_up(ax: Axes, table: xr.Dataset, rows: list[int]) -> None:
    """Name each row of heads on the y axis."""
    names = dict(zip(rows, (f"{stack} {layer}".lstrip() for stack, layer in _places(table)), strict=True))
    step = -(-len(names) // (2 * _MOST_TICKS))
    ticks = list(names)[::step]
    ax.set_yticks(ticks, [literal(names[row], 20) for row in ticks])
    ax.set_ylim(len(names) - 0.5, -0.5)


def _heads_along(ax: Axes, table: xr.Dataset, rows: tuple[list[float], list[int]]) -> None:
    """Set head numbers as ticks of the x axis if heads of one number are aligned; otherwise set no ticks."""
    places, last = rows[0], max(rows[0])
    ticks = range(0, round(last) + 1, -(-(round(last) + 1) // (2 * _MOST_TICKS)))
    ax.set_xticks(list(ticks) if places == table["later_head"].values.tolist() else [])
    ax.set_xlim(-0.06 * last - 0.6, 1.06 * last + 0.6)


def _layers_along(ax: Axes, which: str, table: xr.Dataset, theme: Theme) -> None:
    """Name each layer at its middle on an axis of heads, and separate layers by thin lines."""
    first, ticks = 0, {}
    for (stack, layer), heads in groupby(_places(table)):
        count = len(list(heads))
        ticks[first + 0.5 * (count - 1)] = literal(f"{stack} {layer}".lstrip(), 20)
        if first:
            (ax.axvline if which == "x" else ax.axhline)(first - 0.5, color=theme.grid, linewidth=0.5, zorder=0)
        first += count
    step = -(-len(ticks) // _MOST_TICKS)
    kept = list(ticks.items())[::step]
    (ax.set_xticks if which == "x" else ax.set_yticks)([at for at, _ in kept], [name for _, name in kept])


def figure_recipes(table: xr.Dataset, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Name each figure of compositions."""
    rows = len(dict.fromkeys(table["later_layer"].values.tolist()))
    height = min(max(3.2, 1.6 + 0.62 * rows), 12.0)
    return {
        "composition-graph": FigureRecipe(Single(composition_graph, style, table, 8.5, height)),
        "composition-by-layer": FigureRecipe(partial(_maps, composition_by_layer, COMPOSING_SHARE, table, style)),
        "composition": FigureRecipe(partial(_maps, composition_heatmap, Z, table, style)),
    }


def _maps(plot: Callable[..., Axes], scale: ColorScale, table: xr.Dataset, style: FigureStyle) -> ThemedFigure:
    """Draw a map for each kind, with a common colour scale."""
    options = {kind: {"table": table, "kind": kind} for kind in table["kind"].values.tolist()}
    plain = partial(plot, colorbar=False)
    figure = panels(plain, options, style, len(options), share_y=True, height=4.4, title=model_title(table), panel=4.2)
    scale.bar(figure.axes, style.theme)
    return figure
