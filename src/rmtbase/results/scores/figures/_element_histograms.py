"""Densities of the elements of one head or of every head, and of the magnitudes in every layer."""

from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, MultipleLocator

from rmtbase.drawing.axes import NORMAL_95, Around, layer_axis, panel, rows_axis, step_name, symbol_of
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY
from rmtbase.drawing.groups import column_of, group_of, matrices_of
from rmtbase.drawing.theme import Theme
from rmtbase.laws import ProductElement, parents
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
    density = table["histogram"].transpose("layer", "head", "bin").values
    row, column = table["layer"].values.tolist().index(layer), table["head"].values.tolist().index(head)
    edges = bin_edges(table["bin"].values)
    at, by, spread = 0.0, 1.0, np.ones(density.shape[1])
    if scale == "weights":
        sigma, mean = (column_of(table, name).transpose("layer", "head").values[row] for name in ("sigma", "mean"))
        spread = np.where(sigma > 0, sigma, np.nan)  # matrices of zeros have no histogram either
        at, by = float(mean[column] * spread[column]), float(spread[column])
        density = density[row] / spread[:, None]
        heights = density[column]
    else:
        heights = density[row, column]
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
    rows_axis(ax, layer.tolist(), table, theme, null=True)
    ax.set_xlim(-_REACH, _REACH)
    ax.xaxis.set_major_locator(MultipleLocator(4.0))
    return Around(f"elements of {symbol_of(component)}", x_label, scale=DENSITY)


def bin_edges(centres: Float[np.ndarray, " bin"]) -> Float[np.ndarray, " edge"]:
    """Return the edges of equal bins, given their centres."""
    half = 0.5 * float(centres[1] - centres[0])
    return np.append(centres - half, centres[-1] + half)


def parent_of(scores: xr.DataTree | xr.Dataset) -> parents.Parent:
    """Return the law of initial entries that the file names, or the normal law if it names none."""
    return parents.require_parent(str(scores.attrs.get("initialization", "normal")))


def _entry_density(scores: xr.DataTree, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """Return the density of an initial entry at variance 1."""
    parent = parent_of(scores)
    rms = parent.moment(2) ** 0.5
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
    layer_axis(ax, "x", table, theme)
    _magnitude_axis(ax, matrices, edges)
    title, x_label = symbol_of(component), "layer; right of each the null at its $\\hat\\sigma$"
    return Around(title, x_label, scale=MAGNITUDE_DENSITY)


@panel
def magnitudes_along_steps(ax: Axes, theme: Theme, trajectory: xr.DataTree, component: str) -> Around:
    """Draw the density of log₁₀|w| of one matrix of the middle layer along the steps of a run, one column per step."""
    matrices = matrices_of(trajectory)
    table, edges = matrices.sel(component=component), bin_edges(matrices["magnitude_bin"].values)
    known = np.flatnonzero(np.isfinite(table["sigma"].isel(step=-1).values))
    place = int(known[len(known) // 2])
    row = table.isel(layer=place)
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
    ax.set_xticks(places, [step_name(step) for step in row["step"].values[places].tolist()])
    layer = f"{symbol_of(component)}, layer {layer_numbers(table)[place]}"
    return Around(f"{layer}\ndashed: of the null 0.1 %, 50 %, 99.9 % are below", "step", scale=MAGNITUDE_DENSITY)


def _magnitude_axis(ax: Axes, matrices: xr.Dataset, edges: Float[np.ndarray, " edge"]) -> None:
    """Set the y axis to the range of bins in which any component of the file has weights worth a colour."""
    dims = [dim for dim in ("step", "layer", "component") if dim in matrices.dims]
    highest = matrices["log_magnitude_histogram"].max(dims)
    bins = np.flatnonzero(highest.values > _LEAST)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_ylim(*((float(edges[bins[0]]), float(edges[bins[-1] + 1])) if bins.size else (-6.0, 1.0)))
    ax.set_ylabel(r"magnitude, $\log_{10}|w|$")
