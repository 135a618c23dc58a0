"""Cells of heat maps with their marks, the axes of maps by layer, and the title and colour bar of every map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap

from rmtbase.drawing.axes import bound, index_axis, layer_axis, literal, panel_size, titled, without_frame
from rmtbase.drawing.color_scales import MOST_CELLS, ColorScale
from rmtbase.drawing.not_testable import NOT_TESTABLE
from rmtbase.drawing.theme import Theme

_LINES = (0.25, 0.75, 1.25, 1.75)  # where the lines of a cell meet its lower and left sides, in cells
_GREY = 0.4  # opacity of cells if there are too many for lines
_UPRIGHT_BELOW = 0.6  # inches for each component's name


def draw_cells(
    ax: Axes,
    values: Float[np.ndarray, "row column"],
    flagged: Bool[np.ndarray, "row column"],
    untested: Bool[np.ndarray, "row column"],
    scale: ColorScale,
    level: float | None,
    theme: Theme,
    **dots: Any,
) -> str:
    """Draw a coloured cell for each value, centred at integers, and explain the marks in words for the map's title.

    Flagged cells, those of a q-value below ``level``, have a dot that is visible on any colour; untested ones have
    hatching. Without a level nothing is tested, and there are no dots. The axes' frame is hidden.
    """
    x, y = (np.arange(size + 1) - 0.5 for size in values.shape[::-1])
    scale.fill(ax, x, y, values, theme)
    _hatch(ax, untested, theme)
    marks = [bound(f"hatched: {NOT_TESTABLE}")] * bool(untested.any())
    if level is not None:
        rows, columns = np.nonzero(flagged)
        ax.plot(
            columns, rows, linestyle="none", marker="o", markerfacecolor=theme.surface, markeredgecolor=theme.text,
            label=f"q < {level:g}", **dots,
        )  # fmt: skip
        marks.insert(0, bound(f"dot: q < {level:g}"))
    without_frame(ax)
    return "; ".join(marks)


def _hatch(ax: Axes, untested: Bool[np.ndarray, "row column"], theme: Theme) -> None:
    rows, columns = np.nonzero(untested)
    if not rows.size:
        return
    if rows.size > MOST_CELLS:
        edges = (np.arange(size + 1) - 0.5 for size in untested.shape[::-1])
        grey = ListedColormap([theme.muted])
        ax.pcolormesh(
            *edges, np.ma.masked_where(~untested, untested), cmap=grey, alpha=_GREY, rasterized=True, label=NOT_TESTABLE
        )
        return
    ends = [((max(0.0, at - 1.0), min(1.0, at)), (min(1.0, at), max(0.0, at - 1.0))) for at in _LINES]
    lines = np.array(ends)[None] + (np.stack([columns, rows], axis=-1) - 0.5)[:, None, None]
    ax.add_collection(
        LineCollection(list(lines.reshape(-1, 2, 2)), colors=theme.muted, linewidths=0.6, label=NOT_TESTABLE),
        autolim=False,
    )


def draw_layers(
    ax: Axes,
    values: Float[np.ndarray, "layer across"],
    flagged: Bool[np.ndarray, "layer across"],
    there: Bool[np.ndarray, "layer across"],
    scale: ColorScale,
    table: xr.Dataset,
    across: str,
    level: float | None,
    theme: Theme,
) -> str:
    """Draw a row of cells for each layer of the table, layer 0 on top, with the coordinate ``across`` along x.

    Marks and return are those of :func:`draw_cells`; cells that are ``there`` but have no value are untested.
    """
    n_layers, n_across = values.shape
    size = float(np.clip(60 / max(n_layers, n_across / 2), 1.2, 4.0))
    untested = np.isnan(values) & there
    marks = draw_cells(ax, values, flagged, untested, scale, level, theme, markersize=size, markeredgewidth=0.5)
    ax.set_ylim(n_layers - 0.5, -0.5)
    ax.set_xlim(-0.5, n_across - 0.5)
    layer_axis(ax, "y", table, theme)
    labels = table[across].values.tolist()
    if across == "component":
        _components_axis(ax, labels, theme)
    else:
        index_axis(ax, "x", labels)
    ax.set(xlabel=across, ylabel="layer")
    return marks


def _components_axis(ax: Axes, components: Sequence[str], theme: Theme) -> None:
    """Label ticks along x with components, vertically if there is too little room."""
    upright = panel_size(ax)[0] < _UPRIGHT_BELOW * len(components)
    breaks = " " if upright else "\n"
    parts = [[part.replace("_", " ") for part in one.rsplit("_", 1)] for one in components]
    names = [breaks.join(literal(part, 20) for part in own) for own in parts]
    small = 0.88 * theme.points("xtick.labelsize")
    ax.set_xticks(np.arange(len(names)), names, fontsize=small, rotation=90 if upright else 0)


def finished_map(ax: Axes, theme: Theme, title: str, scale: ColorScale, colorbar: bool) -> Axes:
    """Add a title, and the colour scale beside the axes if wanted, and return the axes."""
    titled(ax, title, theme)
    if colorbar:
        scale.bar(ax, theme)
    return ax
