"""Scatter plots of two numbers of heads: statistics, moments, and spectra against the width of the elements."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing import axes
from rmtbase.drawing.axes import NORMAL_95, Around, panel, statistic_label, symbol_of
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import column_of, group_of, heads_of
from rmtbase.drawing.layout import FigureStyle, legend_of_all
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.laws import pearson_bound
from rmtbase.results.scores.figures._statistic_by_layer import BAND
from rmtbase.statistics import ELEMENT_STATISTICS
from rmtbase.tables import circuit_of, heads_present

_MOMENTS = ("mean", "sigma", "skewness", "excess_kurtosis")
_BINS = 24
_NARROW = 6.0  # inches; axes of a narrower corner plot have few ticks
_NULLS = 8  # most nulls of different shapes that are marked


class _Points(NamedTuple):
    value: Float[np.ndarray, " head"]
    mean: Float[np.ndarray, " head"]  # of the null; NaN if it has none
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
    ax.scatter(across.value, up.value, s=_mark_size(across, 2.4, 6.0) ** 2, **look)
    ax.xaxis.set_major_locator(MaxNLocator(5))
    return Around("", statistic_label(x), statistic_label(y))


def moment_corner(scores: xr.DataTree, style: FigureStyle) -> ThemedFigure:
    """Draw the first four moments of the elements of every head's W_QK against one another, with Pearson's bound."""
    table = group_of(scores, "elements")
    symbols = {name: f"${ELEMENT_STATISTICS[name].symbol}$" for name in _MOMENTS if name in ELEMENT_STATISTICS}
    symbols["sigma"] = r"$\sigma$"
    moments = {name: _points(table, name) for name in _MOMENTS if name in table or name in table["statistic"].values}
    theme, width = style.theme, style.width or 8.0
    figure = axes.new_figure(theme, width, 0.95 * width, f"moments of {symbol_of('W_QK')}")
    last = len(moments) - 1
    grid = axes.grid_of_axes(figure, theme, len(moments), len(moments), sharex="col")
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
            ax.set(xlabel=symbols[x] if row == last else "")
            ax.set_ylabel(("heads" if row == column else symbols[y]) if column == 0 else "")
            ax.xaxis.set_major_locator(MaxNLocator(2 if width < _NARROW else 4))
            ax.tick_params(labelleft=column == 0 or row == column, labelbottom=row == last)
        ends = np.array([ax.get_ylim() for ax in grid[row, :row]])
        for ax in grid[row, :row]:
            ax.set_ylim(ends[:, 0].min(), ends[:, 1].max())
    return figure


def _points(table: xr.Dataset, name: str) -> _Points:
    value = column_of(table, name)
    if name not in table["statistic"].values:
        none = np.full(value.size, np.nan)
        return _Points(value.values.ravel(), none, none)
    row = table.sel(statistic=name).transpose(*value.dims, ...)
    return _Points(*(row[field].values.ravel() for field in ("observed", "null_mean", "null_std")))


def _mark_size(points: _Points, least: float = 1.6, most: float = 5.0) -> float:
    return float(np.clip(40 / max(points.value.size, 1) ** 0.4, least, most))


def _draw_marks(ax: Axes, x: _Points, y: _Points, theme: Theme, colour: str | None = None) -> None:
    ax.plot(
        x.value, y.value, linestyle="none", marker="o", markersize=_mark_size(x),
        markerfacecolor="none", markeredgecolor=colour or theme.observed, markeredgewidth=0.9, label="observed",
    )  # fmt: skip


def _draw_nulls(ax: Axes, x: _Points, y: _Points, theme: Theme) -> None:
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
    axes.layer_axis(bar.ax, "y", table, theme)
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


_MOST_BANDS = 8  # most shapes of heads with a band; with more nulls, each head has a bar


def _entropy(norm: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    return entropy + 0.0 * norm


_Quantity = tuple[str, str | None, Callable[[np.ndarray, np.ndarray], np.ndarray]]
_QUANTITIES: dict[str, tuple[_Quantity, ...]] = {
    "eigenvalue": (
        (r"$\lambda_1$", "stable_rank", lambda norm, rank: norm / rank),
        (r"$\Sigma\lambda$", None, lambda norm, _: norm),
        (r"$\Sigma\lambda^2$", "participation_ratio", lambda norm, ratio: norm**2 / ratio),
        (r"spectral entropy $S$", "spectral_entropy", _entropy),
    ),
    "singular value": (
        ("$s_1$", "stable_rank", lambda norm, rank: np.sqrt(norm / rank)),
        (r"$\Sigma s$", "participation_ratio_singular", lambda norm, ratio: np.sqrt(norm * ratio)),
        (r"$\Sigma s^2$", None, lambda norm, _: norm),
        ("spectral entropy $S^{(s)}$", "spectral_entropy_singular", _entropy),
    ),
}
"""Quantities of a spectrum: label, and the law that gives them by ‖W‖² and a scale-free statistic."""


def spectrum_and_width(
    scores: xr.DataTree, convention: Literal["eigenvalue", "singular value"], style: FigureStyle
) -> ThemedFigure:
    """Draw the largest value, the sum, the sum of squares and the entropy of spectra against the elements' σ."""
    table = heads_of(scores).transpose("layer", "head", ...)
    present = heads_present(table) & (table["eigenvalue"].fillna(0.0).sum("index").values > 0)
    norm, size = table["eigenvalue"].sum("index").values[present], _sizes(scores, table)[present]
    sigma = np.sqrt(norm / size)
    probability = table["probability"].values
    ends = [int(np.argmin(np.abs(probability - level))) for level in BAND]
    width = style.width or 9.6
    columns = 2 if width >= 5.2 else 1
    figure = axes.new_figure(style.theme, width, 3.0 * (4 // columns), axes.model_title(scores))
    grid = axes.grid_of_axes(figure, style.theme, 4 // columns, columns, sharex=True)
    component = symbol_of(f"W_{circuit_of(scores.attrs).name.upper()}")
    for place, (ax, quantity) in enumerate(zip(grid.flat, _QUANTITIES[convention], strict=True)):
        label, free, law = quantity
        nulls = np.column_stack([size, np.ones((size.size, 2))])  # elements, and the null's lower and upper end
        values = law(norm, np.ones(size.size))
        if free is not None:
            scored = table.sel(statistic=free).transpose("layer", "head", "probability", ...)
            nulls[:, 1:] = scored["null_quantile"].values[present][:, ends]
            values = law(norm, scored["observed"].values[present])
        _draw(ax, style.theme, quantity, sigma, values, nulls, axes.noun_of(scores))
        ax.set_ylabel(label)
        if place + columns >= 4:
            ax.set_xlabel(rf"standard deviation $\sigma$ of the elements of {component}")
            ax.tick_params(axis="x", labelbottom=True)
    legend_of_all(figure, style.theme, join=True)
    return figure


def _sizes(scores: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    first, *_, last = circuit_of(scores.attrs).dims
    common = scores.attrs.get("d_model")
    widths: list[Any] = [heads.get(name, scores.attrs.get(name, common)) for name in (first, last)]
    by_layer = np.broadcast_to(np.asarray(widths[0] * widths[1], dtype=float), heads.sizes["layer"])
    return np.repeat(by_layer[:, None], heads.sizes["head"], axis=1)


def _draw(
    ax: Axes, theme: Theme, quantity: _Quantity, sigma: np.ndarray, values: np.ndarray, nulls: np.ndarray, noun: str
) -> None:
    _, free, law = quantity
    reach = np.geomspace(0.9 * sigma.min(), 1.1 * sigma.max(), 50)
    kinds = np.unique(np.round(nulls[np.isfinite(nulls).all(axis=1)], 9), axis=0)
    name = f"null, 99 % of {noun}s at this σ"
    if len(kinds) > _MOST_BANDS and free is not None:
        low, high = (np.asarray(law(nulls[:, 0] * sigma**2, nulls[:, end])) for end in (1, 2))
        ax.vlines(sigma, low, high, color=theme.null, alpha=0.45, linewidth=3.0, label=name)
        kinds = kinds[:0]
    for number, low, high in kinds.tolist():
        lower, upper = (np.asarray(law(number * reach**2, np.asarray(end))) for end in (low, high))
        if free is None:
            ax.plot(reach, lower, color=theme.free_law, linewidth=1.2, label="identity")
        else:
            ax.fill_between(reach, lower, upper, color=theme.null, alpha=0.3, linewidth=0, label=name)
        name = ""
    ax.plot(
        sigma, values, linestyle="none", marker="o", markerfacecolor="none",
        markersize=float(np.clip(40 / sigma.size**0.4, 1.6, 5.0)), markeredgecolor=theme.observed, markeredgewidth=0.9,
        label=f"{noun}s",
    )  # fmt: skip
    ax.set_xlim(reach[0], reach[-1])
    log_axis(ax, "x")
    if law is not _entropy:
        log_axis(ax)
