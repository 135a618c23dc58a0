"""Marks of what was tested and what cannot be: dots, hatching and grey crosses, never a colour of a scale."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap

from rmtbase.drawing.axes import bound
from rmtbase.drawing.color_scales import MOST_CELLS
from rmtbase.drawing.theme import Theme

NOT_TESTABLE = "not testable"
"""Name of the mark in legends."""

_LINES = (0.25, 0.75, 1.25, 1.75)  # where the lines of a cell meet its lower and left sides, in cells
_GREY = 0.4  # opacity of cells if there are too many for lines


def hatch_cells(ax: Axes, untested: Bool[np.ndarray, "row column"], theme: Theme) -> None:
    """Hatch cells of a map whose centres are at integers."""
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


def dot_cells(ax: Axes, flagged: Bool[np.ndarray, "row column"], theme: Theme, **options: Any) -> None:
    """Draw a dot that is visible on any colour in cells of a map whose centres are at integers."""
    y, x = np.nonzero(flagged)
    ax.plot(
        x, y, linestyle="none", marker="o", markerfacecolor=theme.surface, markeredgecolor=theme.text, **options
    )  # fmt: skip


def legend_of_marks(level: float, untested: bool | np.bool_) -> str:
    """Explain the dots of a map, and its hatching if there is any, for the map's title."""
    return bound(f"dot: q < {level:g}") + (f"; {bound(f'hatched: {NOT_TESTABLE}')}" if untested else "")


def cross_at_foot(ax: Axes, x: Float[np.ndarray, " place"], theme: Theme, size: float = 3.5) -> None:
    """Mark places along x with a grey cross at the lower end of the axes."""
    if x.size:
        ax.plot(
            x, np.full(x.size, 0.02), transform=ax.get_xaxis_transform(), linestyle="none", marker="x",
            markersize=size, color=theme.muted, markeredgewidth=0.9, label=NOT_TESTABLE,
        )  # fmt: skip
