"""One statistic of every weight matrix, layer by layer, against the null's band at its size."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.plots._axes import (
    LINE_STYLES,
    MARKERS,
    NORMAL_95,
    finished,
    layer_axis,
    own_axes,
    prefer_log,
    statistic_label,
)
from rmtbase.plots._groups import column_of, matrices_of, require_component
from rmtbase.plots._head_densities import symbol_of
from rmtbase.plots._theme import Theme, as_theme

PUBLISHED_BAND = (1.186, 1.204)
"""The Weibull shapes that T. Ding, arXiv:2605.18898 (2026), calls the transmission band: medians of 12 models."""

_SAME = 1e-12


def draw_published_band(ax: Axes, theme: Theme) -> None:
    """Draw :data:`PUBLISHED_BAND` across axes whose height is a shape."""
    low, high = PUBLISHED_BAND
    label = f"published band [{low:g}, {high:g}]"
    ax.axhspan(low, high, facecolor=theme.naive, edgecolor=theme.naive, alpha=0.4, linestyle="--", label=label)


def matrix_statistic_by_layer(
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "weibull_shape",
    components: Sequence[str] | None = None,
    published: bool = False,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw one statistic of every matrix by layer, a line for each component, with 95 % of the null at its own size.

    The band is null_mean ± 1.96 null_std: of the Weibull shape that of the anchor at this number of weights. Where it
    is narrower than a line, a line it is.

    Args:
        scores: a scores tree with /matrices, or its /matrices.
        statistic: its name, or that of another number of matrices, ``"sigma"`` say.
        components: which; all if None.
        published: whether to draw :data:`PUBLISHED_BAND`, too.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one, below the axes.

    Returns:
        The axes: layer against the statistic.

    Raises:
        ParameterError: no matrices, or no such statistic or component.
    """
    every = matrices_of(scores).transpose("layer", "component", ...)
    value = column_of(every, statistic)
    names = [str(one) for one in (every["component"].values if components is None else components)]
    for name in names:
        require_component(every, name)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, scores)
    if published:
        draw_published_band(ax, theme)
    label = "null, 95 % at this size"
    bands: list[tuple[float, float]] = []
    if statistic in every["statistic"].values:
        one = every.sel(statistic=statistic)
        for name in names:
            own = require_component(one, name)
            mean, spread = own["null_mean"].values, NORMAL_95 * own["null_std"].values
            for layer in np.flatnonzero(np.isfinite(mean + spread)).tolist():
                band = (float(mean[layer] - spread[layer]), float(mean[layer] + spread[layer]))
                if not any(np.allclose(band, other, rtol=_SAME, atol=0.0) for other in bands):
                    bands.append(band)
                    ax.axhspan(*band, color=theme.null, alpha=0.28, linewidth=1.0, label=label)
                    label = ""
    places = np.arange(every.sizes["layer"])
    width = 0.5 / max(len(names) - 1, 1) if len(names) > 1 else 0.0
    for k, (name, colour, marker, style) in enumerate(
        zip(names, cycle(theme.series), cycle(MARKERS), cycle(LINE_STYLES), strict=False)
    ):
        own = value.sel(component=name).values
        there = np.isfinite(own)
        again = k >= len(theme.series)  # colours come again: then marks are hollow
        ax.plot(
            (places + width * (k - 0.5 * (len(names) - 1)))[there], own[there], color=colour, marker=marker,
            linestyle=style, linewidth=0.8, markersize=4.0, markerfacecolor=theme.surface if again else colour,
            label=symbol_of(name),
        )  # fmt: skip
    if prefer_log(value.values):
        ax.set_yscale("log")
    ax.set_xlim(-0.6, len(places) - 0.4)
    layer_axis(ax, "x", every, theme)
    ax.set(xlabel="layer", ylabel=statistic_label(statistic))
    return finished(ax, theme, "", legend)
