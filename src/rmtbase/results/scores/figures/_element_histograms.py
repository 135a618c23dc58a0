"""Elements of matrices: densities and magnitudes of heads and layers, and Weibull fits with residuals and tails."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, MultipleLocator

from rmtbase.drawing import axes
from rmtbase.drawing.axes import NORMAL_95, Around, panel, symbol_of
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import column_of, group_of, matrices_of
from rmtbase.drawing.layout import NARROWEST, FigureStyle, legend_of_all
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.laws import ProductElement, parents, weibull_anchor, weibull_quantile_noise
from rmtbase.tables import layer_numbers

_REACH = 8.0  # standard deviations shown, to either side
_POINTS = 401
_NEAR_ZERO = 1e-9  # replaces magnitudes below it in the density
_LEFT, _MIDDLE, _RIGHT = -0.46, 0.16, 0.46  # relative to a layer's place: its weights, then the null's column
_LEAST = 1e-5  # density below which a bin does not extend the axis
_STEPS_NAMED = 7
_STANDARDIZED = r"$(w - \bar w)/s$"


@panel
def head_density(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree,
    layer: int,
    head: int,
    component: str = "W_QK",
    scale: Literal["log", "linear", "weights"] = "log",
) -> Around:
    """Draw the density of the elements w of one matrix of a head, with the laws of a random matrix."""
    table = group_of(scores, "elements", component)
    density, edges = table["histogram"].transpose("layer", "head", "bin").values, bin_edges(table["bin"].values)
    row, column = table["layer"].values.tolist().index(layer), table["head"].values.tolist().index(head)
    at, by, spread = 0.0, 1.0, np.ones(density.shape[1])
    if scale == "weights":
        sigma, mean = (column_of(table, name).transpose("layer", "head").values[row] for name in ("sigma", "mean"))
        spread = np.where(sigma > 0, sigma, np.nan)  # matrices of zeros have no histogram either
        at, by = float(mean[column] * spread[column]), float(spread[column])
        density = density[row] / spread[:, None]
    heights = density[column] if scale == "weights" else density[row, column]
    lowest = 0.5 * float(density[density > 0].min())
    baseline = lowest / 1e3 if scale == "log" else 0.0
    bars = {"fill": True, "facecolor": theme.observed, "alpha": 0.4, "linewidth": 0, "label": "elements"}
    ax.stairs(np.fmax(heights, baseline), at + by * edges, baseline=baseline, **bars)
    x = np.linspace(-_REACH, _REACH, _POINTS)
    entries = _entry_density(scores, x)
    if component != "W_QK" and {"d_model", "d_head"} <= set(scores.attrs):
        size = int(scores.attrs["d_head"]) * int(scores.attrs["d_model"])
        error = NORMAL_95 * np.sqrt(entries / (size * (edges[1] - edges[0])))
        ends = np.fmax((entries - error) / by, baseline), (entries + error) / by
        label = "random entries, 95 % of each bin"
        ax.fill_between(at + by * x, *ends, color=theme.null, alpha=0.35, linewidth=0, label=label)
    normal = parent_of(scores) == parents.Normal()
    law = {"linewidth": 1.2, "linestyle": "--", "label": "normal law" if normal else "law of initial entries"}
    ax.plot(at + by * x, np.where(entries > 0, entries, np.nan) / by, color=theme.null, **law)
    if (product := _product_law(scores, layer, component)) is not None:
        label = "element of a random product"
        ax.plot(at + by * x, product.pdf(x) / by, color=theme.free_law, linewidth=1.4, label=label)
    top = max(float(np.nanmax(density)), 0.4 / float(np.nanmin(spread)))
    if scale == "log":
        ax.set_yscale("log")
        ax.set_ylim(lowest, 2.0 * top)
    else:
        ax.set_ylim(0.0, 1.05 * top)
    if scale == "weights":
        reach = 0.5 * _REACH * float(np.nanmax(spread))
        ax.set_xlim(-reach, reach)
        ax.xaxis.set_major_locator(MaxNLocator(3, symmetric=True))
    else:
        ax.set_xlim(-_REACH, _REACH)
        ax.xaxis.set_major_locator(MultipleLocator(4.0))
    return Around(f"head {head}", "element $w$" if scale == "weights" else _STANDARDIZED, "density")


@panel
def head_density_heatmap(
    ax: Axes, theme: Theme, scores: xr.DataTree, component: str = "W_QK", unit: Literal["spread", "weight"] = "spread"
) -> Around:
    """Draw the density of the elements of one matrix of every head, one row per head, with a row of the null on top."""
    table = group_of(scores, "elements", component)
    densities, edges = table["histogram"].transpose("layer", "head", "bin").values, bin_edges(table["bin"].values)
    layer, head = np.nonzero(np.isfinite(densities).any(axis=-1))
    density = densities[layer, head]
    null = _entry_density(scores, 0.5 * (edges[1:] + edges[:-1]))
    if (product := _product_law(scores, int(table["layer"].values[0]), component)) is not None:
        null = np.diff(product.cdf(edges)) / np.diff(edges)
    x_label = _STANDARDIZED
    if unit == "weight":
        sigma = table["sigma"].transpose("layer", "head").values[layer, head]
        pooled = float(np.sqrt(np.mean(sigma**2)))
        width = np.diff(edges)
        below = np.concatenate([np.zeros((len(density), 1)), np.cumsum(density * width, axis=1)], axis=1)
        stretched = [np.interp(edges / (s / pooled), edges, row) for row, s in zip(below, sigma, strict=True)]
        density = np.diff(stretched, axis=1) / width
        x_label = rf"$(w - \bar w)$ over the spread of all, {pooled:.3g}"
    cells = np.vstack([null, np.full_like(null, np.nan), density])
    DENSITY.fill(ax, edges, np.arange(len(cells) + 1) - 2.5, np.where(cells > 0, cells, np.nan), theme)
    axes.rows_axis(ax, layer.tolist(), table, theme, null=True)
    ax.set_xlim(-_REACH, _REACH)
    ax.xaxis.set_major_locator(MultipleLocator(4.0))
    return Around(f"elements of {symbol_of(component)}", x_label, scale=DENSITY)


def bin_edges(centres: Float[np.ndarray, " bin"]) -> Float[np.ndarray, " edge"]:
    half = 0.5 * float(centres[1] - centres[0])
    return np.append(centres - half, centres[-1] + half)


def parent_of(scores: xr.DataTree | xr.Dataset) -> parents.Parent:
    """Return the law of initial entries that the file names, or the normal law if it names none."""
    return parents.require_parent(str(scores.attrs.get("initialization", "normal")))


def _entry_density(scores: xr.DataTree, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    parent, rms = parent_of(scores), parent_of(scores).moment(2) ** 0.5
    return 0.5 * rms * np.asarray(parent.pdf(np.fmax(np.abs(x), _NEAR_ZERO) * rms))


def _product_law(scores: xr.DataTree, layer: int, component: str) -> ProductElement | None:
    """Return the law of an element of a layer's W_QK with normal entries, if the file records d_head."""
    if component != "W_QK" or parent_of(scores) != parents.Normal():
        return None
    heads = scores["heads"].to_dataset()
    rank = int(heads["d_head"].sel(layer=layer)) if "d_head" in heads.coords else scores.attrs.get("d_head")
    return None if rank is None else ProductElement(int(rank), int(rank) ** -0.5)


@panel
def magnitude_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, component: str) -> Around:
    """Draw the density of log₁₀|w| of one component, one column per layer, beside that of the null at the same σ̂."""
    matrices = matrices_of(scores)
    table, edges = matrices.sel(component=component), bin_edges(matrices["magnitude_bin"].values)
    density = table["log_magnitude_histogram"].transpose("layer", "magnitude_bin").values
    parent, sigma = parent_of(scores), table["sigma"].values
    below = np.full((sigma.size, edges.size), np.nan)  # shares of initial entries below each edge
    known = np.isfinite(sigma) & (sigma > 0)
    below[known] = parent.cdf(10.0**edges * parent.moment(2) ** 0.5 / sigma[known, None])
    null = np.diff(below, axis=1) / np.diff(edges)
    for layer in np.flatnonzero(np.isfinite(density).any(axis=1)).tolist():
        places, columns = layer + np.array([_LEFT, _MIDDLE, _RIGHT]), np.stack([density[layer], null[layer]])
        MAGNITUDE_DENSITY.fill(ax, places, edges, np.where(columns > 0, columns, np.nan).T, theme)
        ax.plot([layer + _MIDDLE] * 2, edges[[0, -1]], color=theme.surface, linewidth=0.8)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.6, len(density) - 0.4)
    axes.layer_axis(ax, "x", table, theme)
    _magnitude_axis(ax, matrices, edges)
    title, x_label = symbol_of(component), "layer; right of each the null at its $\\hat\\sigma$"
    return Around(title, x_label, scale=MAGNITUDE_DENSITY)


@panel
def magnitudes_along_steps(ax: Axes, theme: Theme, trajectory: xr.DataTree, component: str) -> Around:
    """Draw the density of log₁₀|w| of one matrix of the middle layer along the steps of a run, one column per step."""
    matrices = matrices_of(trajectory)
    table, edges = matrices.sel(component=component), bin_edges(matrices["magnitude_bin"].values)
    known = np.flatnonzero(np.isfinite(table["sigma"].isel(step=-1).values))
    row = table.isel(layer=known[len(known) // 2])
    density = row["log_magnitude_histogram"].transpose("step", "magnitude_bin").values
    columns = np.arange(len(density) + 1) - 0.5
    MAGNITUDE_DENSITY.fill(ax, columns, edges, np.where(density > 0, density, np.nan).T, theme)
    parent = parent_of(trajectory)
    unit = row["sigma"].values / parent.moment(2) ** 0.5
    for share in (0.001, 0.5, 0.999):
        line = np.log10(float(parent.ppf(share)) * unit)
        ax.plot(columns[:-1] + 0.5, line, color=theme.flagged, linewidth=1.1, linestyle="--")
    ax.set_xlim(-0.5, len(density) - 0.5)
    _magnitude_axis(ax, matrices, edges)
    places = np.unique(np.linspace(0, len(density) - 1, min(len(density), _STEPS_NAMED)).round().astype(int))
    ax.set_xticks(places, [axes.step_name(step) for step in row["step"].values[places].tolist()])
    layer = f"{symbol_of(component)}, layer {layer_numbers(table)[known[len(known) // 2]]}"
    return Around(f"{layer}\ndashed: of the null 0.1 %, 50 %, 99.9 % are below", "step", scale=MAGNITUDE_DENSITY)


def _magnitude_axis(ax: Axes, matrices: xr.Dataset, edges: Float[np.ndarray, " edge"]) -> None:
    """Set the y axis to the range of bins in which any component of the file has weights worth a colour."""
    histogram = matrices["log_magnitude_histogram"]
    bins = np.flatnonzero(histogram.max([dim for dim in histogram.dims if dim != "magnitude_bin"]).values > _LEAST)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_ylim(*((float(edges[bins[0]]), float(edges[bins[-1] + 1])) if bins.size else (-6.0, 1.0)))
    ax.set_ylabel(r"magnitude, $\log_{10}|w|$")


_TRIM = 0.1  # share at either end that the fit of the body omits
_PERCENT = (0.5, 0.99, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 0.9, 0.9999, 1 - 1e-6)  # most important ticks first
_APART = {"x": 0.11, "y": 0.05}  # least distance of two ticks, relative to the axis
_BODY_ENDS = 0.9  # share of the weights beyond which their numbers are shown
_DASHED = (0, (5, 2))
_BAND: dict[str, Any] = {"alpha": 0.4, "linewidth": 0, "label": "random entries, 95 % at each rank"}
_WEIGHTS: dict[str, Any] = {"marker": "o", "markersize": 2.8, "linewidth": 0, "label": "weights"}
_MAGNITUDE = r"magnitude $|w|$ / root mean square"


def weibull_and_residuals(tree: xr.DataTree, style: FigureStyle, layer: int, component: str) -> ThemedFigure:
    width = style.width or 9.6
    columns = 2 if width >= 2 * NARROWEST else 1
    title = "\n".join(filter(None, [axes.model_title(tree), magnitudes_of(tree, layer, component).title]))
    figure = axes.new_figure(style.theme, width, 4.0 if columns == 2 else 6.6, title)
    grid = axes.grid_of_axes(figure, style.theme, 2 // columns, columns)
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
    ax.fill_betweenx(_hazard(p), null * np.exp(-noise), null * np.exp(noise), color=theme.null, **_BAND)
    ax.plot(null, _hazard(p), color=theme.null, linewidth=1.2, label="random entries")
    ax.plot(x, y, color=theme.observed, **_WEIGHTS)
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
    anchor = weibull_anchor(_TRIM, weights.parent)
    p, null, noise = _null(weights)
    curve = _hazard(p) - anchor.shape * np.log(null * weights.parent.moment(2) ** 0.5 / anchor.scale)
    spread = anchor.shape * noise
    ax.fill_between(_hazard(p), curve - spread, curve + spread, color=theme.null, **_BAND)
    ax.plot(_hazard(p), curve, color=theme.null, linewidth=1.2, label="random entries")
    y = _hazard(weights.below)
    residual = y - weights.shape * np.log(weights.magnitude / weights.scale)
    ax.plot(y, residual, color=theme.observed, **_WEIGHTS)
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
    for k, (name, look) in enumerate(zip(names, axes.looks(theme, len(names)), strict=True)):
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
    for share in (_TRIM, 1 - _TRIM):
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
class _Magnitudes:
    """Distribution of |w|, and the Weibull law fitted to its body."""

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


def _null(weights: _Magnitudes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return shares, the null's quantiles over its root mean square, and 1.96 standard deviations of their ln."""
    n = weights.number
    least, most = max(weights.below.min() / 2, 0.5 / n), min(1 - 0.5 / n, 1 - (1 - weights.below.max()) / 2)
    y = np.linspace(float(_hazard(np.array(least))), float(_hazard(np.array(most))), 200)
    p = -np.expm1(-np.exp(y))
    quantile = np.asarray(weights.parent.ppf(p)) / weights.parent.moment(2) ** 0.5
    return p, quantile, NORMAL_95 * np.sqrt(weibull_quantile_noise(p, weights.parent) / n)


def magnitudes_of(scores: xr.DataTree, layer: int, component: str) -> _Magnitudes:
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
    return _Magnitudes(
        literal(name), 10.0 ** edges[known], 1.0 - above[known], number, rms, shape, ratio * rms, parent_of(scores),
        tuple(largest),
    )  # fmt: skip
