"""Scatter plots of two statistics of heads or matrices, and the corner plot of the first four moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import (
    LINE_STYLES,
    MARKERS,
    NORMAL_95,
    finished,
    grid_of_axes,
    layer_axis,
    legend_columns,
    literal,
    new_figure,
    panel,
    statistic_label,
    symbol_of,
)
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.fitting import fit_figure
from rmtbase.drawing.groups import Group, column_of, group_of
from rmtbase.drawing.layout import figure_style
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
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
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    x: str = "skewness",
    y: str = "excess_kurtosis",
    group: Group = "elements",
    component: str | None = None,
    by_layer: bool = False,
    *,
    legend: bool = True,
) -> Axes:
    """Draw one statistic of every head or matrix against another, with the null's mean and its 95 % range.

    For skewness and excess kurtosis, the line is Pearson's bound, which no sample crosses
    (:func:`rmtbase.laws.pearson_bound`). For σ and entropy, it is the normal law's ½ ln(2πe σ²).

    The axes: x against y.
    """
    table = group_of(scores, group, component)
    points = {name: _points(table, name) for name in (x, y)}
    _nulls(ax, [(points[x], points[y])], theme)
    _scatter(ax, points[x], points[y], theme)
    if by_layer:
        (marks,) = [one for one in ax.lines if one.get_label() == "observed"]
        marks.remove()
        _colour_layers(ax, points[x], points[y], table, _layers(table, x), theme)
        if legend:
            layer_bar([ax], table, theme)
    _bounds(ax, x, y, points[x].value, theme)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    ax.set(xlabel=statistic_label(x), ylabel=statistic_label(y))
    what = {"heads": "", "elements": symbol_of(component or "W_QK"), "matrices": component and symbol_of(component)}
    return finished(ax, theme, what[group] or "", legend)


def moment_corner(
    tables: xr.DataTree | Mapping[str, xr.DataTree],
    component: str = "W_QK",
    *,
    theme: Theme | str = "light",
    width: float | None = None,
) -> ThemedFigure:
    """Draw the first four moments of the elements of every head against one another, with Pearson's bound.

    The diagonal holds the histograms; each other panel is a :func:`statistic_scatter`.
    """
    named = {"": tables} if isinstance(tables, xr.DataTree) else dict(tables)
    if not 1 <= len(named) <= len(MARKERS):
        raise ParameterError("tables", list(named), f"1 to {len(MARKERS)}, by title")
    held = {title: group_of(table, "elements", component) for title, table in named.items()}
    names = [name for name in MOMENTS if all(name in one or name in one["statistic"].values for one in held.values())]
    theme, width = figure_style(theme, width)
    width = width or 8.0
    figure = new_figure(theme, width, 0.95 * width, f"moments of {symbol_of(component)}")
    narrow = figure.get_figwidth() < _NARROW
    grid = grid_of_axes(figure, theme, len(names), len(names), sharex="col")
    for row, y in enumerate(names):
        for column, x in enumerate(names):
            ax = grid[row, column]
            if column > row:
                ax.remove()
                continue
            every = np.concatenate([_points(one, x).value for one in held.values()])
            if row != column:
                _nulls(ax, [(_points(one, x), _points(one, y)) for one in held.values()], theme)
            for table, colour, marker, style in zip(
                held.values(), cycle(theme.series), MARKERS, LINE_STYLES, strict=False
            ):
                own = _points(table, x)
                if row == column:
                    counts, edges = np.histogram(own.value[np.isfinite(own.value)], _BINS, _range(every))
                    ax.stairs(counts, edges, color=colour, linestyle=style, linewidth=1.3)
                else:
                    _scatter(ax, own, _points(table, y), theme, colour, marker)
            if row != column:
                _bounds(ax, x, y, every, theme)
            ax.set(xlabel=_symbol(x) if row == len(names) - 1 else "")
            ax.set_ylabel(("heads" if row == column else _symbol(y)) if column == 0 else "")
            ax.xaxis.set_major_locator(MaxNLocator(2 if narrow else 4))
            ax.tick_params(labelleft=column == 0 or row == column, labelbottom=row == len(names) - 1)
        ends = np.array([ax.get_ylim() for ax in grid[row, :row]])
        for ax in grid[row, :row]:
            ax.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    if len(held) > 1:
        marks = [
            grid[0, 0].plot([], [], color=colour, marker=marker, linestyle=style, label=literal(title))[0]
            for title, colour, marker, style in zip(held, cycle(theme.series), MARKERS, LINE_STYLES, strict=False)
        ]
        size, labels = theme.points("legend.fontsize"), [str(mark.get_label()) for mark in marks]
        columns = legend_columns(labels, theme.points("legend.fontsize"), figure.get_figwidth() - 0.3)
        figure.legend(marks, labels, loc="outside lower center", ncols=columns, fontsize=size, frameon=False,
                      labelcolor=theme.text)  # fmt: skip
    fit_figure(figure)
    return figure


def _symbol(name: str) -> str:
    """Return the symbol of a moment, short enough for the small panels of a corner plot."""
    return rf"${ELEMENT_STATISTICS[name].symbol}$" if name in ELEMENT_STATISTICS else r"$\sigma$"


def _points(table: xr.Dataset, name: str) -> _Points:
    value = column_of(table, name)
    dims = [str(dim) for dim in value.dims]
    if name not in table["statistic"].values:
        none = np.full(value.size, np.nan)
        return _Points(value.values.ravel(), none, none)
    one = table.sel(statistic=name)
    return _Points(*(one[field].transpose(*dims).values.ravel() for field in ("observed", "null_mean", "null_std")))


def _scatter(
    ax: Axes, x: _Points, y: _Points, theme: Theme, colour: str | None = None, marker: str = MARKERS[0]
) -> None:
    size = float(np.clip(40 / max(x.value.size, 1) ** 0.4, 1.6, 5.0))
    ax.plot(
        x.value, y.value, linestyle="none", marker=marker, markersize=size, markerfacecolor="none",
        markeredgecolor=colour or theme.observed, markeredgewidth=0.9, label="observed",
    )  # fmt: skip


def _nulls(ax: Axes, pairs: Sequence[tuple[_Points, _Points]], theme: Theme) -> None:
    """Mark the nulls of all tables; heads of one shape have the same null, which is marked once."""
    own = np.concatenate([
        np.column_stack([x.mean, x.spread, y.mean, y.spread])[np.isfinite(x.value) & np.isfinite(y.value)]
        for x, y in pairs
    ])  # fmt: skip
    _, first = np.unique(np.round(np.nan_to_num(own, nan=-1e9), 12), axis=0, return_index=True)
    label = "null, mean and 95 %"
    for x_mean, x_spread, y_mean, y_spread in own[np.sort(first)[:_NULLS]].tolist():
        if np.isfinite(x_mean) and np.isfinite(y_mean):
            across, along = np.nan_to_num([NORMAL_95 * x_spread, NORMAL_95 * y_spread])
            for ends, own in (
                (([x_mean - across, x_mean + across], [y_mean, y_mean]), label),
                (([x_mean, x_mean], [y_mean - along, y_mean + along]), ""),
            ):
                ax.plot(*ends, color=theme.null, linewidth=1.6, solid_capstyle="butt", zorder=3, label=own)
            label = ""
        elif np.isfinite(y_mean):
            ax.axhspan(
                y_mean - NORMAL_95 * y_spread, y_mean + NORMAL_95 * y_spread, color=theme.null, alpha=0.28,
                linewidth=0.8, label=label and "null, 95 %",
            )  # fmt: skip
            label = ""


def _layers(table: xr.Dataset, name: str) -> Float[np.ndarray, " head"]:
    """Return the place of the layer of each point."""
    value = column_of(table, name)
    places = xr.DataArray(np.arange(float(table.sizes["layer"])), dims="layer")
    return (
        (xr.zeros_like(value, dtype=float).drop_vars("layer", errors="ignore") + places)
        .transpose(*value.dims)
        .values.ravel()
    )


def _colours_of_layers(table: xr.Dataset, theme: Theme) -> ScalarMappable:
    colours = LinearSegmentedColormap.from_list("layers", [*reversed(theme.sequential[2:])])
    return ScalarMappable(Normalize(0.0, max(table.sizes["layer"] - 1, 1)), colours)


def _colour_layers(
    ax: Axes, x: _Points, y: _Points, table: xr.Dataset, layers: Float[np.ndarray, " head"], theme: Theme
) -> None:
    size = float(np.clip(40 / max(x.value.size, 1) ** 0.4, 2.4, 6.0))
    colours = _colours_of_layers(table, theme).to_rgba(layers)
    ax.scatter(
        x.value, y.value, s=size**2, c=colours, edgecolors=theme.muted, linewidths=0.3, zorder=2.5, label="observed"
    )


def layer_bar(axes: Sequence[Axes], table: xr.Dataset, theme: Theme) -> None:
    """Draw one scale of layers beside all axes."""
    bar = axes[0].get_figure().colorbar(_colours_of_layers(table, theme), ax=axes, shrink=0.8)  # type: ignore[union-attr]  # axes always lie in a figure
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
        bound, (left, right) = pearson_bound(at) - 3.0, ax.get_xlim()
        ax.plot(at, bound, color=theme.free_law, linewidth=1.3, label="Pearson's bound", scaley=False)
        ax.update_datalim([(left, float(bound.min()))])
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
