"""Figures of several panels in the light theme of rmtbase, for what rmtbase has no figure of."""

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from rmtbase.drawing.theme import LIGHT

MARKERS = ("o", "s", "^", "D", "v")
STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))
TINT = to_hex(0.3 * np.array(to_rgb(LIGHT.null)) + 0.7 * np.array(to_rgb(LIGHT.surface)))
"""Colour of a null's band: that of the null at 30 %, mixed once."""


def canvas(
    rows: int, columns: int, width: float = 11.0, height: float = 3.4, **shared: Any
) -> tuple[Figure, np.ndarray]:
    """Make a figure with a grid of quiet axes; ``height`` is that of a row, in inches."""
    figure = Figure(figsize=(width, height * rows), layout="constrained", facecolor=LIGHT.surface)
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    for ax in grid.flat:
        styled(ax)
    return figure, grid


def styled(ax: Axes) -> Axes:
    """Two spines, small ticks, a faint grid behind the data."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(LIGHT.muted)
    ax.tick_params(which="both", color=LIGHT.muted, labelcolor=LIGHT.muted, labelsize=8.5)
    ax.grid(color=LIGHT.grid, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def titled(ax: Axes, title: str, xlabel: str = "", ylabel: str = "") -> None:
    """Name the axes and what is on them."""
    ax.set_title(title, fontsize=10.5, color=LIGHT.text)
    ax.set_xlabel(xlabel, fontsize=9.5, color=LIGHT.text)
    ax.set_ylabel(ylabel, fontsize=9.5, color=LIGHT.text)


def log_ticks(axis: Axis) -> None:
    """Label a logarithmic axis sparsely: 1, 2 and 5 if it spans less than two decades, otherwise powers of ten."""
    low, high = axis.get_view_interval()
    subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_minor_formatter(NullFormatter())
    if high < 100 * low:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


MANY = (
    "#390154", "#26a513", "#9082a6", "#640900", "#3b6f56", "#725904", "#1d11fc", "#ef9779", "#26abfa", "#042724",
    "#d95577", "#4a70ec", "#4f4355", "#b11192",
)  # fmt: skip
"""Fourteen colours, of a random search for the largest smallest difference (CIEDE2000) with full and with dichromatic
sight (Machado et al. 2009): at least 20 and 12, where fourteen colours of a rainbow have 8 and 2; from :data:`TINT`
at least 22. Each differs as much as possible from all before it."""


def looks(count: int) -> list[dict[str, Any]]:
    """Colours and marks that tell so many series apart, never by hue alone: the theme's own, or :data:`MANY` beyond."""
    colours = LIGHT.series if count <= len(LIGHT.series) else MANY
    return [
        {"color": colour, "marker": marker, "style": style}
        for colour, marker, style, _ in zip(cycle(colours), cycle(MARKERS), cycle(STYLES), range(count), strict=False)
    ]


def light_band(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
    """Draw the band of a null in one opaque tint behind all else, so that bands that overlap are no darker than one."""
    ax.fill_between(x, low, high, color=TINT, linewidth=0, zorder=0.3)


def name_band(ax: Axes, label: str) -> None:
    """Name the bands of :func:`light_band` in the legend, once."""
    ax.plot([], [], color=TINT, linewidth=5, label=label)


def legend_below(figure: Figure, axes: Sequence[Axes], columns: int = 5) -> None:
    """Place one legend below all panels, each name once."""
    named: dict[str, Any] = {}
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True)) | named
    figure.legend(
        list(named.values()),
        list(named),
        loc="outside lower center",
        ncols=min(columns, len(named)),
        fontsize=8.5,
        frameon=False,
        labelcolor=LIGHT.text,
    )
