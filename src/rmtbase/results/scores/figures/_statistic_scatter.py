"""Scatter plots of two statistics of heads, and the corner plot of the first four moments."""

from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import (
    NORMAL_95,
    Around,
    grid_of_axes,
    layer_axis,
    new_figure,
    panel,
    statistic_label,
    symbol_of,
)
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import column_of, group_of, heads_of
from rmtbase.drawing.layout import FigureStyle
from rmtbase.drawing.theme import Theme
from rmtbase.laws import pearson_bound
from rmtbase.statistics import ELEMENT_STATISTICS

MOMENTS = ("mean", "sigma", "skewness", "excess_kurtosis")
"""Statistics of a corner plot: w̄/s, s, and the next two standardized moments."""

_BINS = 24
_NARROW = 6.0  # inches; axes of a narrower corner plot have few ticks
_NULLS = 8  # most nulls of different shapes that are marked


class _Points(NamedTuple):
    """Values of a statistic for every head, with mean and spread of the null (NaN if it has none)."""

    value: Float[np.ndarray, " head"]
    mean: Float[np.ndarray, " head"]
    spread: Float[np.ndarray, " head"]


@panel
def statistic_scatter(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, x: str, y: str, component: str = "W_QK"
) -> Around:
    """Draw one statistic of the elements of every head against another, with the null's mean and its 95 % range."""
    table = group_of(scores, "elements", component)
    across, up = _points(table, x), _points(table, y)
    _draw_nulls(ax, across, up, theme)
    _draw_marks(ax, across, up, theme)
    _bounds(ax, x, y, across.value, theme)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    return Around(symbol_of(component), statistic_label(x), statistic_label(y))


@panel
def scatter_by_layer(ax: Axes, theme: Theme, scores: xr.DataTree, x: str, y: str) -> Around:
    """Draw one statistic of the spectrum of every head against another, with layers in colour."""
    table = heads_of(scores)
    across, up = _points(table, x), _points(table, y)
    _draw_nulls(ax, across, up, theme)
    value, places = column_of(table, x), xr.DataArray(np.arange(float(table.sizes["layer"])), dims="layer")
    zeros = xr.zeros_like(value, dtype=float).drop_vars("layer", errors="ignore")
    layers = (zeros + places).transpose(*value.dims).values.ravel()
    colours = _colours_of_layers(table, theme).to_rgba(layers)
    look = {"c": colours, "edgecolors": theme.muted, "linewidths": 0.3, "zorder": 2.5, "label": "observed"}
    ax.scatter(across.value, up.value, s=float(np.clip(_mark_size(across), 2.4, 6.0)) ** 2, **look)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    return Around("", statistic_label(x), statistic_label(y))


def moment_corner(scores: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw the first four moments of the elements of every head's W_QK against one another, with Pearson's bound."""
    table = group_of(scores, "elements")
    moments = {name: _points(table, name) for name in MOMENTS if name in table or name in table["statistic"].values}
    theme, width = style.theme, style.width or 8.0
    figure = new_figure(theme, width, 0.95 * width, f"moments of {symbol_of('W_QK')}")
    last = len(moments) - 1
    grid = grid_of_axes(figure, theme, len(moments), len(moments), sharex="col")
    for row, (y, up) in enumerate(moments.items()):
        for column, (x, across) in enumerate(moments.items()):
            ax = grid[row, column]
            if column > row:
                ax.remove()
                continue
            if row == column:
                counts, edges = np.histogram(across.value[np.isfinite(across.value)], _BINS, _range(across.value))
                ax.stairs(counts, edges, color=theme.series[0], linestyle="-", linewidth=1.3)
            else:
                _draw_nulls(ax, across, up, theme)
                _draw_marks(ax, across, up, theme, theme.series[0])
                _bounds(ax, x, y, across.value, theme)
            ax.set(xlabel=_symbol(x) if row == last else "")
            ax.set_ylabel(("heads" if row == column else _symbol(y)) if column == 0 else "")
            ax.xaxis.set_major_locator(MaxNLocator(2 if width < _NARROW else 4))
            ax.tick_params(labelleft=column == 0 or row == column, labelbottom=row == last)
        ends = np.array([ax.get_ylim() for ax in grid[row, :row]])
        for ax in grid[row, :row]:
            ax.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    return figure


def _symbol(name: str) -> str:
    return rf"${ELEMENT_STATISTICS[name].symbol}$" if name in ELEMENT_STATISTICS else r"$\sigma$"


def _points(table: xr.Dataset, name: str) -> _Points:
    value = column_of(table, name)
    if name not in table["statistic"].values:
        none = np.full(value.size, np.nan)
        return _Points(value.values.ravel(), none, none)
    row = table.sel(statistic=name)
    return _Points(
        *(row[field].transpose(*value.dims).values.ravel() for field in ("observed", "null_mean", "null_std"))
    )


def _mark_size(points: _Points) -> float:
    return 40 / max(points.value.size, 1) ** 0.4


def _draw_marks(ax: Axes, x: _Points, y: _Points, theme: Theme, colour: str | None = None) -> None:
    ax.plot(
        x.value, y.value, linestyle="none", marker="o", markersize=float(np.clip(_mark_size(x), 1.6, 5.0)),
        markerfacecolor="none", markeredgecolor=colour or theme.observed, markeredgewidth=0.9, label="observed",
    )  # fmt: skip


def _draw_nulls(ax: Axes, x: _Points, y: _Points, theme: Theme) -> None:
    """Mark the nulls; heads of one shape have the same null, which is marked once."""
    nulls = np.column_stack([x.mean, x.spread, y.mean, y.spread])[np.isfinite(x.value) & np.isfinite(y.value)]
    _, first = np.unique(np.round(np.nan_to_num(nulls, nan=-1e9), 12), axis=0, return_index=True)
    label, band_label = "null, mean and 95 %", "null, 95 %"
    for x_mean, x_spread, y_mean, y_spread in nulls[np.sort(first)[:_NULLS]].tolist():
        across, along = np.nan_to_num([NORMAL_95 * x_spread, NORMAL_95 * y_spread])
        if np.isfinite(x_mean) and np.isfinite(y_mean):
            look = {"color": theme.null, "linewidth": 1.6, "solid_capstyle": "butt", "zorder": 3}
            ax.plot([x_mean - across, x_mean + across], [y_mean, y_mean], label=label, **look)
            ax.plot([x_mean, x_mean], [y_mean - along, y_mean + along], **look)
            label = band_label = ""
        elif np.isfinite(y_mean):
            look = {"color": theme.null, "alpha": 0.28, "linewidth": 0.8}
            ax.axhspan(y_mean - NORMAL_95 * y_spread, y_mean + NORMAL_95 * y_spread, label=band_label, **look)
            label = band_label = ""


def _colours_of_layers(table: xr.Dataset, theme: Theme) -> ScalarMappable:
    colours = LinearSegmentedColormap.from_list("layers", [*reversed(theme.sequential[2:])])
    return ScalarMappable(Normalize(0.0, max(table.sizes["layer"] - 1, 1)), colours)


def layer_bar(figure: ThemedFigure, table: xr.Dataset, theme: Theme) -> None:
    bar = figure.colorbar(_colours_of_layers(table, theme), ax=figure.axes, shrink=0.8)
    layer_axis(bar.ax, "y", table, theme)
    bar.ax.invert_yaxis()
    bar.set_label("layer", color=theme.text, fontsize=theme.points("axes.labelsize"))
    bar.ax.tick_params(labelsize=theme.points("xtick.labelsize"), labelcolor=theme.muted, length=0)
    bar.outline.set_visible(False)  # type: ignore[operator]


def _bounds(ax: Axes, x: str, y: str, values: Float[np.ndarray, " head"], theme: Theme) -> None:
    """Draw the curve that two statistics cannot cross, or on which a normal law lies."""
    if (x, y) == ("skewness", "excess_kurtosis"):
        finite = np.abs(values[np.isfinite(values)])
        end = 2.0 ** np.ceil(np.log2(max(2.0 * finite.max(initial=0.0), 0.25)))  # equal for most files
        at = np.linspace(-end, end, 401)
        limit, (left, right) = pearson_bound(at) - 3.0, ax.get_xlim()
        ax.plot(at, limit, color=theme.free_law, linewidth=1.3, label="Pearson's bound", scaley=False)
        ax.update_datalim([(left, float(limit.min()))])
        ax.autoscale_view(scalex=False)
        ax.set_xlim(left, right)
    elif (x, y) == ("sigma", "entropy"):
        low, high = _range(values[values > 0])
        at = np.linspace(max(low - 0.05 * (high - low), 0.1 * low), high + 0.05 * (high - low), 200)
        ax.plot(at, 0.5 * np.log(2 * np.pi * np.e * at**2), color=theme.free_law, linewidth=1.3, label="normal law")


def _range(values: Float[np.ndarray, " head"]) -> tuple[float, float]:
    finite = values[np.isfinite(values)]
    if not finite.size:
        return 0.0, 1.0
    low, high = float(finite.min()), float(finite.max())
    return (low, high) if high > low else (low - 0.5 * abs(low) - 0.5, high + 0.5 * abs(high) + 0.5)
