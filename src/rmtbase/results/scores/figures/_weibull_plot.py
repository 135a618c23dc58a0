"""Weibull fits of matrices: the plane of shape and scale, and of one matrix the plot, its residuals and its tail."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import NORMAL_95, Around, grid_of_axes, looks, model_title, new_figure, panel, symbol_of
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import matrices_of
from rmtbase.drawing.layout import NARROWEST, FigureStyle, legend_of_all
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.laws import parents, weibull_anchor, weibull_quantile_noise
from rmtbase.results.scores.figures._element_histograms import bin_edges, parent_of
from rmtbase.tables import layer_numbers

TRIM = 0.1
"""Share at either end that the fit of the body omits."""

_PERCENT = (0.5, 0.99, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 0.9, 0.9999, 1 - 1e-6)  # most important ticks first
_APART = {"x": 0.11, "y": 0.05}  # least distance of two ticks, relative to the axis
_BODY_ENDS = 0.9  # share of the weights beyond which their numbers are shown
_DASHED = (0, (5, 2))
_MAGNITUDE = r"magnitude $|w|$ / root mean square"


def weibull_and_residuals(tree: xr.DataTree, style: FigureStyle, layer: int, component: str) -> ThemedFigure:
    """Draw the Weibull plot and its residuals, side by side or one below the other."""
    width = style.width or 9.6
    columns = 2 if width >= 2 * NARROWEST else 1
    title = "\n".join(filter(None, [model_title(tree), magnitudes_of(tree, layer, component).title]))
    figure = new_figure(style.theme, width, 4.0 if columns == 2 else 6.6, title)
    grid = grid_of_axes(figure, style.theme, 2 // columns, columns)
    for ax, plot in zip(grid.flat, (weibull_plot, weibull_residuals), strict=True):
        plot(tree, layer, component, ax=ax, theme=style.theme, legend=False)
    legend_of_all(figure, style.theme)
    return figure


@panel
def weibull_plot(ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, component: str) -> Around:
    """Draw ln(−ln(1 − F)) of one matrix against ln |w|, in which a Weibull law is a line."""
    weights = magnitudes_of(scores, layer, component)
    x, y = weights.magnitude / weights.rms, _hazard(weights.below)
    p, null, noise = _null(weights)
    band = {"color": theme.null, "alpha": 0.4, "linewidth": 0, "label": "random entries, 95 % at each rank"}
    ax.fill_betweenx(_hazard(p), null * np.exp(-noise), null * np.exp(noise), **band)
    ax.plot(null, _hazard(p), color=theme.null, linewidth=1.2, label="random entries")
    ax.plot(x, y, color=theme.observed, marker="o", markersize=2.8, linewidth=0, label="weights")
    ends = np.array([y.min(), y.max()])
    line = weights.scale / weights.rms * np.exp(ends / weights.shape)
    ax.plot(line, ends, color=theme.flagged, linewidth=1.2, linestyle=_DASHED, label="fit")
    _draw_trims(ax.axhline, theme)
    ax.set_xscale("log")
    ax.set_xlim(x.min() / 1.5, x.max() * 1.5)
    ax.set_ylim(y.min() - 0.3, y.max() + 0.3)
    _shares_axis(ax, "y")
    return Around(weights.fit, _MAGNITUDE, "share of weights below")


@panel
def weibull_residuals(ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, component: str) -> Around:
    """Draw the residuals of the Weibull plot, Y − k̂ ln(|w|/λ̂), with the null's own curve."""
    weights = magnitudes_of(scores, layer, component)
    anchor = weibull_anchor(TRIM, weights.parent)
    p, null, noise = _null(weights)
    curve = _hazard(p) - anchor.shape * np.log(null * weights.parent.moment(2) ** 0.5 / anchor.scale)
    spread = anchor.shape * noise
    band = {"color": theme.null, "alpha": 0.4, "linewidth": 0, "label": "random entries, 95 % at each rank"}
    ax.fill_between(_hazard(p), curve - spread, curve + spread, **band)
    ax.plot(_hazard(p), curve, color=theme.null, linewidth=1.2, label="random entries")
    y = _hazard(weights.below)
    residual = y - weights.shape * np.log(weights.magnitude / weights.scale)
    ax.plot(y, residual, color=theme.observed, marker="o", markersize=2.8, linewidth=0, label="weights")
    ax.axhline(0.0, color=theme.flagged, linewidth=1.0, linestyle=_DASHED, label="fit")
    _draw_trims(ax.axvline, theme)
    ax.set_xlim(y.min() - 0.3, y.max() + 0.3)
    _shares_axis(ax, "x")
    return Around("less the fit", "share of weights below", r"residual of $\ln(-\ln(1 - F))$")


@panel
def tail_counts(ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, component: str) -> Around:
    """Draw the number of weights above each magnitude beyond the 90 % quantile, against the body's Weibull law."""
    weights = magnitudes_of(scores, layer, component)
    x, count = weights.magnitude / weights.rms, weights.number * (1.0 - weights.below)
    tail, largest = weights.below >= _BODY_ENDS, np.array(weights.largest) / weights.rms
    first = x[tail].min() if tail.any() else x.max()
    last = max(x.max(), largest.max(initial=0.0)) * 1.15
    at = np.geomspace(first, last, 300)
    null = weights.number * np.asarray(weights.parent.sf(at * weights.parent.moment(2) ** 0.5))
    low, high = np.fmax(null - NORMAL_95 * np.sqrt(null), 1e-3), null + NORMAL_95 * np.sqrt(null)
    ax.fill_between(at, low, high, color=theme.null, alpha=0.35, linewidth=0, label="random entries, 95 %")
    body = weights.number * np.exp(-((at * weights.rms / weights.scale) ** weights.shape))
    ax.plot(at, body, color=theme.flagged, linestyle=_DASHED, linewidth=1.3, label="Weibull law of the body")
    ax.plot(x[tail], count[tail], color=theme.observed, marker="o", markersize=3.4, linewidth=0, label="weights")
    marks = {"marker": "D", "markersize": 6, "linestyle": "none", "markerfacecolor": theme.surface}
    ax.plot(largest, np.arange(1, largest.size + 1), color=theme.observed, label="largest", **marks)
    ax.axhline(1.0, color=theme.muted, linewidth=0.9, linestyle=":")
    ax.set_xlim(first, last)
    log_axis(ax, "x")
    ax.set_yscale("log")
    ax.set_ylim(0.05, 2.0 * max(count[tail].max(initial=1.0), null.max()))
    return Around(f"{weights.title}\n{weights.fit}", _MAGNITUDE, "weights beyond")


@panel
def weibull_plane(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw λ̂ against k̂ of every matrix in its component's colour, with 95 % of the null's k̂ at each size."""
    matrices = matrices_of(scores)
    if "step" not in matrices.dims:
        matrices = matrices.expand_dims("step")
    dims = ("step", "layer", "component")
    shape, ratio, mean = (
        matrices["observed"].sel(statistic=name).transpose(*dims).values
        for name in ("weibull_shape", "weibull_scale", "mean")
    )
    scale = ratio * matrices["sigma"].transpose(*dims).values * np.hypot(1.0, mean)
    label, bands = "null, 95 % at this size", []
    null = matrices.isel(step=-1).sel(statistic="weibull_shape")
    for center, spread in zip(
        null["null_mean"].values.ravel(), NORMAL_95 * null["null_std"].values.ravel(), strict=True
    ):
        if np.isfinite(center + spread) and not any(np.isclose(spread, drawn, rtol=1e-9) for drawn in bands):
            bands.append(spread)
            ax.axvspan(center - spread, center + spread, color=theme.null, alpha=0.28, linewidth=1.0, label=label)
            label = ""
    names = matrices["component"].values.tolist()
    for k, (name, look) in enumerate(zip(names, looks(theme, len(names)), strict=True)):
        x, y = shape[..., k], scale[..., k]
        if len(x) > 1:
            path = np.nanmedian(x, axis=1), np.nanmedian(y, axis=1)
            ax.plot(*path, color=look.colour, linewidth=1.0, linestyle="--" if k >= len(theme.series) else "-")
            start = {"color": look.colour, "marker": look.marker, "markersize": 7, "markerfacecolor": "none"}
            ax.plot(path[0][0], path[1][0], **start)
        ax.plot(x[-1], y[-1], markersize=4.0, label=symbol_of(name), **look.marks())
    log_axis(ax)
    return Around("", r"Weibull shape $\hat k$", r"Weibull scale $\hat\lambda$")


def _hazard(p: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Return ln(−ln(1 − p))."""
    with np.errstate(divide="ignore"):
        return np.log(-np.log1p(-p))


def _draw_trims(line: Callable[..., object], theme: Theme) -> None:
    for share in (TRIM, 1 - TRIM):
        line(float(_hazard(np.array(share))), color=theme.muted, linewidth=0.9, linestyle=":")


def _shares_axis(ax: Axes, direction: str) -> None:
    """Label ticks of an axis of ln(−ln(1 − F)) with F, so that no two labels overlap."""
    low, high = ax.get_xlim() if direction == "x" else ax.get_ylim()
    ticks: dict[float, str] = {}
    for share in _PERCENT:
        place = float(_hazard(np.array(share)))
        if low <= place <= high and all(abs(place - tick) > _APART[direction] * (high - low) for tick in ticks):
            ticks[place] = f"{100 * share:g} %"
    (ax.set_xticks if direction == "x" else ax.set_yticks)(list(ticks), list(ticks.values()))


@dataclass(frozen=True)
class Magnitudes:
    """Distribution of |w| over N weights, and the Weibull law fitted to its body at a trim of 0.1."""

    title: str  # name of the matrix
    magnitude: Float[np.ndarray, " point"]  # |w|, ascending
    below: Float[np.ndarray, " point"]  # share of the weights below each magnitude
    number: int  # N
    rms: float  # root mean square of the weights
    shape: float  # k̂
    scale: float  # λ̂, in the units of the weights
    parent: parents.Parent  # law of the initial entries
    largest: tuple[float, ...]  # largest known |w|, descending

    @property
    def fit(self) -> str:
        return rf"fit: $\hat k$ = {self.shape:.4g}, $\hat\lambda$ = {self.scale:.4g}"


def _null(weights: Magnitudes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shares, the null's quantiles over its root mean square, and 1.96 standard deviations of their ln."""
    n = weights.number
    least, most = max(weights.below.min() / 2, 0.5 / n), min(1 - 0.5 / n, 1 - (1 - weights.below.max()) / 2)
    y = np.linspace(float(_hazard(np.array(least))), float(_hazard(np.array(most))), 200)
    p = -np.expm1(-np.exp(y))
    quantile = np.asarray(weights.parent.ppf(p)) / weights.parent.moment(2) ** 0.5
    return p, quantile, NORMAL_95 * np.sqrt(weibull_quantile_noise(p, weights.parent) / n)


def magnitudes_of(scores: xr.DataTree, layer: int, component: str) -> Magnitudes:
    matrices = matrices_of(scores)
    place = matrices["layer"].values.tolist().index(layer)
    row = matrices.sel(component=component).isel(layer=place)
    shape, ratio, mean = (
        float(row["observed"].sel(statistic=name)) for name in ("weibull_shape", "weibull_scale", "mean")
    )
    number = int(row["n_rows"]) * int(row["n_columns"])
    edges = bin_edges(row["magnitude_bin"].values)
    share = row["log_magnitude_histogram"].values * np.diff(edges)
    above = np.append(np.cumsum(share[::-1])[::-1], 0.0)  # zeros are in no bin, but lie below all bins
    count = number * above
    known = (count > 0.5) & (count < number - 0.5)
    rms = float(row["sigma"]) * float(np.hypot(1.0, mean))
    name = f"layer {layer_numbers(matrices)[place]}, {component.replace('_', ' ')}, {number} weights"
    largest: list[float] = []
    if "super_weights" in scores.children and "stack" not in row.coords:
        table = scores["super_weights"].to_dataset()
        chosen = (table["layer"].values == row["layer"].item()) & (table["component"].values == row["component"].item())
        largest = np.sort(np.abs(table["value"].values[chosen]))[::-1].tolist()
    if not largest and "largest_magnitude" in row["statistic"].values:  # max |w − w̄|, close to max |w|
        largest = [float(row["observed"].sel(statistic="largest_magnitude")) * float(row["sigma"])]
    return Magnitudes(
        literal(name), 10.0 ** edges[known], 1.0 - above[known], number, rms, shape, ratio * rms, parent_of(scores),
        tuple(largest),
    )  # fmt: skip
