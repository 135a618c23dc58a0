"""Figures of several panels in the light theme of rmtbase, for what rmtbase has no figure of."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from rmtbase.drawing.theme import LIGHT
from rmtbase.laws import ContaminatedNormal

MARKERS = ("o", "s", "^", "D", "v")
STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)))


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


def looks(count: int) -> list[dict[str, Any]]:
    """Colours and marks that tell so many series apart, never by hue alone: the theme's own, or a scale's beyond."""
    few = count <= len(LIGHT.series)
    colours = LIGHT.series if few else mpl.colormaps["turbo"](np.linspace(0.03, 0.95, count))
    return [
        {"color": tuple(colour) if not isinstance(colour, str) else colour, "marker": marker, "style": style}
        for colour, marker, style, _ in zip(colours, cycle(MARKERS), cycle(STYLES), range(count), strict=False)
    ]


LIMITS = (0.001, 0.01, 0.1)
"""Weights of the point mass of the mixtures of :func:`mixture_limits`."""


LIMITS_SAID = (
    "Orange: where a normal law with a point mass of weight p lies, its σ₀ the smallest σ of the heads: of equal p, σ "
    "is not below the curve."
)


def mixture_limits(corner: Figure, sigma: float) -> Figure:
    """Draw where N(0, σ₀²) with a point mass lies in a corner plot of mean over σ, σ, skewness and kurtosis.

    With the weight p at a: μ = p a and σ² = (1 − p)(σ₀² + μ²/p), below which no such mixture with this σ₀ has its σ;
    skewness and σ by :class:`rmtbase.laws.ContaminatedNormal`. The post's own limits are in error (errata, 3).

    Args:
        corner: figure of :func:`rmtbase.results.scores.figures._statistic_scatter.moment_corner`.
        sigma: σ₀.
    """
    if len(corner.axes) < _CORNER:  # without one of the moments
        return corner
    of_mean, of_skewness = corner.axes[1], corner.axes[4]
    limits = [(ax, ax.get_xlim(), ax.get_ylim()) for ax in (of_mean, of_skewness)]
    places = sigma * np.concatenate([-np.geomspace(1e4, 1e-3, 300), np.geomspace(1e-3, 1e4, 300)])
    lines = []
    for weight, style in zip(LIMITS, STYLES[1:], strict=True):
        laws = [ContaminatedNormal(weight, float(at), sigma) for at in places]
        std = [law.std() for law in laws]
        line = {"color": LIGHT.flagged, "linestyle": style, "linewidth": 1.0, "label": f"p = {weight:g}"}
        lines += of_mean.plot([law.mean() / law.std() for law in laws], std, **line)
        of_skewness.plot(std, [law.skewness() for law in laws], **line)
    for ax, x_limits, y_limits in limits:
        ax.set_xlim(*x_limits)
        ax.set_ylim(*y_limits)
    corner.legend(handles=lines, loc="upper right", title="mixtures", title_fontsize=8.5, fontsize=8.5, frameon=False,
                  labelcolor=LIGHT.text)  # fmt: skip
    return corner


_CORNER = 10  # panels of four moments


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
