"""Heat maps of z: every head, or every weight matrix, of a model at a glance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import (
    LEVEL,
    heads_of,
    index_axis,
    literal,
    matrices_of,
    own_axes,
    require_statistic,
    statistic_label,
    titled,
)
from rmtbase.plots._theme import LIGHT, Theme

Z_LEVELS = (1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)
"""The |z| at which the colour changes. They are the same in every picture, so that colours can be compared across
statistics and models; whatever lies beyond the last has the last colour."""


def z_heatmap(
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "normalized_participation_ratio",
    level: float = LEVEL,
    ax: Axes | None = None,
    theme: Theme = LIGHT,
    colorbar: bool = True,
) -> Axes:
    """Draw z of every head, layer by head, in colours that are symmetric about the null; flagged heads are dotted.

    Args:
        scores: a scores tree, its /heads, or the dataset of ``rmtbase.score_heads``.
        statistic: its name.
        level: heads with a q-value of this statistic under it carry a dot.
        ax: where to draw; new axes if None.
        theme: colours.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: head against layer, layer 0 on top. Colours change at :data:`Z_LEVELS`.

    Raises:
        ParameterError: no scores of heads, or not of this statistic.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    return _heatmap(heads, "head", statistic, level, own_axes(ax, theme), theme, colorbar)


def matrix_z_heatmap(
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "excess_kurtosis",
    level: float = LEVEL,
    ax: Axes | None = None,
    theme: Theme = LIGHT,
    colorbar: bool = True,
) -> Axes:
    """Draw z of every weight matrix, layer by component; arguments, axes and errors as in :func:`z_heatmap`."""
    matrices = matrices_of(scores).transpose("layer", "component", ...)
    ax = _heatmap(matrices, "component", statistic, level, own_axes(ax, theme), theme, colorbar)
    names = ["\n".join(literal(part, 20) for part in str(one).split("_", 1)) for one in matrices["component"].values]
    ax.set_xticks(np.arange(len(names)), names, fontsize=7.5)
    return ax


def z_colorbar(axes: Axes | Sequence[Axes], theme: Theme = LIGHT) -> Colorbar:
    """Draw the colour scale of heat maps of z, once for all the axes given.

    Raises:
        ParameterError: axes without a figure, or no axes.
    """
    all_axes = [axes] if isinstance(axes, Axes) else list(axes)
    if not all_axes:
        raise ParameterError("axes", axes, "at least one")
    cmap, norm = z_colors(theme)
    edges = norm.boundaries
    figure = all_axes[0].get_figure()
    bar = figure.colorbar(  # type: ignore[union-attr]  # axes always lie in a figure
        ScalarMappable(norm, cmap), ax=all_axes, spacing="uniform", ticks=edges, extendfrac=0.07, aspect=26, pad=0.02
    )
    bar.ax.set_yticklabels([f"{z:g}".replace("-", "−") for z in edges])
    bar.ax.minorticks_off()
    bar.ax.set_facecolor("none")
    bar.ax.tick_params(color=theme.muted, labelcolor=theme.muted, labelsize=8)
    bar.outline.set_visible(False)  # type: ignore[operator]  # a spine; the stubs do not say so
    bar.set_label("$z$ (null standard deviations)", color=theme.text, fontsize=9)
    return bar


def z_colors(theme: Theme) -> tuple[Colormap, BoundaryNorm]:
    """The colour map and the levels of z: a symmetric scale whose last colours extend beyond the last levels."""
    colours = list(theme.diverging)
    cmap = ListedColormap(colours).with_extremes(under=colours[0], over=colours[-1], bad=(0, 0, 0, 0))
    edges = [*(-z for z in reversed(Z_LEVELS)), *Z_LEVELS]
    return cmap, BoundaryNorm(edges, cmap.N, extend="both")


def _heatmap(
    table: xr.Dataset, across: str, statistic: str, level: float, ax: Axes, theme: Theme, colorbar: bool
) -> Axes:
    one = table.sel(statistic=require_statistic(table, statistic))
    z, flagged = one["z_score"].values, one["q_value"].values < level
    n_layers, n_across = z.shape
    cmap, norm = z_colors(theme)
    places = np.arange(n_across + 1) - 0.5, np.arange(n_layers + 1) - 0.5
    ax.pcolormesh(*places, np.ma.masked_invalid(z), cmap=cmap, norm=norm, linewidth=0)
    y, x = np.nonzero(flagged)
    size = float(np.clip(60 / max(n_layers, n_across / 2), 1.2, 4.0))
    ax.plot(
        x, y, linestyle="none", marker="o", markersize=size, markerfacecolor=theme.surface,
        markeredgecolor=theme.text, markeredgewidth=0.5, label=f"q < {level:g}",
    )  # fmt: skip
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    ax.set_ylim(n_layers - 0.5, -0.5)
    ax.set_xlim(-0.5, n_across - 0.5)
    index_axis(ax, "x", table[across].values.tolist())
    index_axis(ax, "y", table["layer"].values.tolist())
    largest = np.abs(z[np.isfinite(z)]).max(initial=0.0)
    ax.set(xlabel=across, ylabel="layer")
    titled(ax, f"{statistic_label(statistic)}\nlargest $|z|$: {largest:.3g}; dot: q < {level:g}")
    if colorbar:
        z_colorbar(ax, theme)
    return ax
