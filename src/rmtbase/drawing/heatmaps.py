"""Cells of heat maps with their marks, and the axes of maps by layer."""

from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap

from rmtbase.drawing.axes import LEVEL, NOT_TESTABLE, index_axis, layer_axis, panel_size, without_frame
from rmtbase.drawing.color_scales import MOST_CELLS, ColorScale
from rmtbase.drawing.texts import bound, literal
from rmtbase.drawing.theme import Theme

_LINES = (0.25, 0.75, 1.25, 1.75)  # where the lines of a cell meet its lower and left sides, in cells
_GREY = 0.4  # opacity of cells if there are too many for lines
_UPRIGHT_BELOW = 0.6  # inches for each component's name


class Cells(NamedTuple):
    """Values of a map, with those that have a dot (None if nothing is tested), and those that could not be tested."""

    values: Float[np.ndarray, "row column"]
    flagged: Bool[np.ndarray, "row column"] | None = None
    untested: Bool[np.ndarray, "row column"] | None = None


def draw_cells(ax: Axes, theme: Theme, scale: ColorScale, cells: Cells, **dots: Any) -> str:
    """Draw a cell for each value, dots on flagged and hatches on untested ones; return the marks in words."""
    x, y = (np.arange(size + 1) - 0.5 for size in cells.values.shape[::-1])
    scale.fill(ax, x, y, cells.values, theme)
    marks = []
    if cells.untested is not None and cells.untested.any():
        marks = [bound(f"hatched: {NOT_TESTABLE}")]
        rows, columns = np.nonzero(cells.untested)
        if rows.size > MOST_CELLS:
            grey = {"cmap": ListedColormap([theme.muted]), "alpha": _GREY, "rasterized": True, "label": NOT_TESTABLE}
            ax.pcolormesh(x, y, np.ma.masked_where(~cells.untested, cells.untested), **grey)
        else:
            ends = [((max(0.0, at - 1.0), min(1.0, at)), (min(1.0, at), max(0.0, at - 1.0))) for at in _LINES]
            lines = np.array(ends)[None] + (np.stack([columns, rows], axis=-1) - 0.5)[:, None, None]
            look = {"colors": theme.muted, "linewidths": 0.6, "label": NOT_TESTABLE}
            ax.add_collection(LineCollection(list(lines.reshape(-1, 2, 2)), **look), autolim=False)
    if cells.flagged is not None:
        rows, columns = np.nonzero(cells.flagged)
        ax.plot(
            columns, rows, linestyle="none", marker="o", markerfacecolor=theme.surface, markeredgecolor=theme.text,
            label=f"q < {LEVEL:g}", **dots,
        )  # fmt: skip
        marks.insert(0, bound(f"dot: q < {LEVEL:g}"))
    without_frame(ax)
    return "; ".join(marks)


def draw_layers(ax: Axes, theme: Theme, scale: ColorScale, cells: Cells, table: xr.Dataset, across: str) -> str:
    """Draw a row of cells for each layer of the table, layer 0 on top, with the coordinate ``across`` along x."""
    n_layers, n_across = cells.values.shape
    size = float(np.clip(60 / max(n_layers, n_across / 2), 1.2, 4.0))
    marks = draw_cells(ax, theme, scale, cells, markersize=size, markeredgewidth=0.5)
    ax.set(xlabel=across, ylabel="layer", xlim=(-0.5, n_across - 0.5), ylim=(n_layers - 0.5, -0.5))
    layer_axis(ax, "y", table, theme)
    labels = table[across].values.tolist()
    if across != "component":
        index_axis(ax, "x", labels)
        return marks
    upright = panel_size(ax)[0] < _UPRIGHT_BELOW * n_across  # too little room for components side by side
    parts = [[literal(part.replace("_", " "), 20) for part in name.rsplit("_", 1)] for name in labels]
    names, small = [(" " if upright else "\n").join(pair) for pair in parts], 0.88 * theme.points("xtick.labelsize")
    ax.set_xticks(np.arange(len(names)), names, fontsize=small, rotation=90 if upright else 0)
    return marks
