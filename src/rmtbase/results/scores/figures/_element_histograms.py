"""Densities of the elements of one head or of every head, and of the magnitudes in every layer."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, MultipleLocator

from rmtbase.drawing.axes import NORMAL_95, finished, layer_axis, panel, rows_axis, step_name, symbol_of
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY
from rmtbase.drawing.groups import column_of, elements_of, matrices_of, require_component
from rmtbase.drawing.heatmaps import finished_map
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.laws import ProductElement, parents
from rmtbase.tables import layer_numbers

_REACH = 8.0  # standard deviations shown, to either side
_POINTS = 401
_NEAR_ZERO = 1e-9  # replaces magnitudes below it in the density
_LEFT, _MIDDLE, _RIGHT = -0.46, 0.16, 0.46  # relative to a layer's place: its weights, then the null's column
_LEAST = 1e-5  # density below which a bin does not extend the axis
_STEPS_NAMED = 7


@panel
def head_density(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree,
    layer: int = 0,
    head: int = 0,
    component: str = "W_QK",
    scale: Literal["log", "linear"] = "log",
    unit: Literal["spread", "weight"] = "spread",
    *,
    legend: bool = True,
) -> Axes:
    """Draw the density of the elements w of one matrix of a head, with the laws of a random matrix.

    The laws are the law of the initial entries and, for W_QK = W_Qᵀ W_K with normal entries, the law of one element of
    a random product with this d_head (:class:`rmtbase.laws.ProductElement`), at the head's own mean and spread. For a
    matrix of independent entries, the band holds 95 % of random matrices in each bin. All heads of a file have the same
    axes; in units of weights, all heads of a layer have.

    The axes: (w − w̄)/s, or w, against its density.
    """
    if scale not in ("log", "linear"):
        raise ParameterError("scale", scale, "'log' or 'linear'")
    if unit not in ("spread", "weight"):
        raise ParameterError("unit", unit, "'spread' or 'weight'")
    table = require_component(elements_of(scores), component)
    density = _densities(table)
    layers, heads = table["layer"].values.tolist(), table["head"].values.tolist()
    there = np.asarray(np.isfinite(density).any(axis=-1))
    if layer not in layers or head not in heads or not there[layers.index(layer), heads.index(head)]:
        raise ParameterError("head", (layer, head), f"a layer among {layers} and a head of it that has {component}")
    place = layers.index(layer), heads.index(head)
    own = density[place]
    edges = bin_edges(table["bin"].values)
    mean, spread = _locations(table) if unit == "weight" else (np.zeros(there.shape), np.ones(there.shape))
    at, by = float(mean[place]), float(spread[place])
    density, own = density / spread[..., None], own / by
    if unit == "weight":
        density, spread = density[place[0]], spread[place[0]]
    lowest = 0.5 * float(density[density > 0].min())
    baseline = lowest / 1e3 if scale == "log" else 0.0
    ax.stairs(
        np.fmax(own, baseline), at + by * edges, baseline=baseline, fill=True, facecolor=theme.observed, alpha=0.4,
        linewidth=0, label="elements",
    )  # fmt: skip
    x = np.linspace(-_REACH, _REACH, _POINTS)
    entries = _entry_density(scores, x)
    size = _size(scores)
    if component != "W_QK" and size is not None:
        error = NORMAL_95 * np.sqrt(entries / (size * (edges[1] - edges[0])))
        ax.fill_between(
            at + by * x, np.fmax((entries - error) / by, baseline), (entries + error) / by, color=theme.null,
            alpha=0.35, linewidth=0, label="random entries, 95 % of each bin",
        )  # fmt: skip
    shown = np.where(entries > 0, entries, np.nan) / by
    normal = _parent(scores) == parents.Normal()
    name = "normal law" if normal else "law of initial entries"
    ax.plot(at + by * x, shown, color=theme.null, linewidth=1.2, linestyle="--", label=name)
    rank = _d_head(scores, layer)
    if component == "W_QK" and rank is not None and normal:
        law = ProductElement(rank, rank**-0.5)
        ax.plot(at + by * x, law.pdf(x) / by, color=theme.free_law, linewidth=1.4, label="element of a random product")
    top = max(float(np.nanmax(density)), 0.4 / float(np.nanmin(spread)))
    if scale == "log":
        ax.set_yscale("log")
        ax.set_ylim(lowest, 2.0 * top)
    else:
        ax.set_ylim(0.0, 1.05 * top)
    if unit == "weight":
        reach = (_REACH if scale == "log" else 0.5 * _REACH) * float(np.nanmax(spread))
        ax.set_xlim(-reach, reach)
        ax.xaxis.set_major_locator(MaxNLocator(3, symmetric=True))
        ax.set_xlabel("element $w$")
    else:
        ax.set_xlim(-_REACH, _REACH)
        ax.xaxis.set_major_locator(MultipleLocator(4.0))
        ax.set_xlabel(r"element less its mean over its spread, $(w - \bar w)/s$")
    ax.set_ylabel("density of the elements")
    name = layer_numbers(table)[layers.index(layer)]
    return finished(ax, theme, f"{symbol_of(component)}, layer {name} head {head}", legend)


@panel
def head_density_heatmap(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree,
    component: str = "W_QK",
    unit: Literal["spread", "weight"] = "spread",
    *,
    colorbar: bool = True,
) -> Axes:
    """Draw the density of the elements of one matrix of every head, one row per head, with a row of the null on top.

    The axes: element against head, layer 0 on top. Colours change at the same densities in every figure.
    """
    if unit not in ("spread", "weight"):
        raise ParameterError("unit", unit, "'spread' or 'weight'")
    table = require_component(elements_of(scores), component)
    every, edges = _densities(table), bin_edges(table["bin"].values)
    layer, head = np.nonzero(np.isfinite(every).any(axis=-1))
    density = every[layer, head]
    null = _entry_density(scores, 0.5 * (edges[1:] + edges[:-1]))
    rank = _d_head(scores, int(table["layer"].values[0]))
    if component == "W_QK" and rank is not None and _parent(scores) == parents.Normal():
        null = np.diff(ProductElement(rank, rank**-0.5).cdf(edges)) / np.diff(edges)
    xlabel = r"$(w - \bar w)/s$"
    if unit == "weight":
        if "sigma" not in table:
            raise ParameterError("unit", unit, "'spread': the file does not hold the heads' sigma")
        sigma = table["sigma"].transpose("layer", "head").values[layer, head]
        whole = float(np.sqrt(np.mean(sigma**2)))
        density = np.array([_stretched(one, edges, s / whole) for one, s in zip(density, sigma, strict=True)])
        xlabel = rf"$(w - \bar w)$ over the spread of all, {whole:.3g}"
    cells = np.vstack([null, np.full_like(null, np.nan), density])
    DENSITY.fill(ax, edges, np.arange(len(cells) + 1) - 2.5, np.where(cells > 0, cells, np.nan), theme)
    rows_axis(ax, layer.tolist(), table, theme, null=True)
    ax.set(xlabel=xlabel, xlim=(-_REACH, _REACH))
    ax.xaxis.set_major_locator(MultipleLocator(4.0))
    return finished_map(ax, theme, f"elements of {symbol_of(component)}", DENSITY, colorbar)


def bin_edges(centres: Float[np.ndarray, " bin"]) -> Float[np.ndarray, " edge"]:
    """Return the edges of equal bins, given their centres."""
    half = 0.5 * float(centres[1] - centres[0])
    return np.append(centres - half, centres[-1] + half)


def _densities(table: xr.Dataset) -> Float[np.ndarray, "layer head bin"]:
    if "histogram" not in table:
        raise ParameterError("scores", sorted(map(str, table.data_vars)), "elements with their histogram")
    return table["histogram"].transpose("layer", "head", "bin").values


def _locations(table: xr.Dataset) -> tuple[Float[np.ndarray, "layer head"], Float[np.ndarray, "layer head"]]:
    """Return the mean and the spread of the elements of every head."""
    if "sigma" not in table or "mean" not in table["statistic"].values:
        raise ParameterError("unit", "weight", "'spread': the file does not hold the heads' sigma and mean")
    sigma, mean = (column_of(table, name).transpose("layer", "head").values for name in ("sigma", "mean"))
    sigma = np.where(sigma > 0, sigma, np.nan)  # matrices of zeros, which have no histogram either
    return mean * sigma, sigma


def _stretched(
    density: Float[np.ndarray, " bin"], edges: Float[np.ndarray, " edge"], factor: float
) -> Float[np.ndarray, " bin"]:
    """Return the density of a number times a factor, in the same bins."""
    below = np.concatenate([[0.0], np.cumsum(density * np.diff(edges))])
    return np.diff(np.interp(edges / factor, edges, below)) / np.diff(edges)


def _parent(scores: xr.DataTree | xr.Dataset) -> parents.Parent:
    """Return the law of initial entries that the file names, or the normal law if it names none."""
    return parents.require_parent(str(getattr(scores, "attrs", {}).get("initialization", "normal")))


def _entry_density(scores: xr.DataTree | xr.Dataset, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """Return the density of an initial entry at variance 1."""
    parent = _parent(scores)
    rms = parent.moment(2) ** 0.5
    return 0.5 * rms * np.asarray(parent.pdf(np.fmax(np.abs(x), _NEAR_ZERO) * rms))


def _d_head(scores: xr.DataTree | xr.Dataset, layer: int) -> int | None:
    """Return the number of products in an element of a layer's W_QK, if the file records it."""
    if not isinstance(scores, xr.DataTree):
        return None
    heads = scores["heads"].to_dataset()
    if "d_head" in heads.coords:
        return int(heads["d_head"].sel(layer=layer))
    return int(scores.attrs["d_head"]) if "d_head" in scores.attrs else None


def _size(scores: xr.DataTree | xr.Dataset) -> int | None:
    """Return the number of elements of a head's matrix, if it is the same in all layers."""
    attributes = getattr(scores, "attrs", {})
    width = attributes.get("d_model")
    rank = attributes.get("d_head")
    return None if width is None or rank is None else int(rank) * int(width)


@panel
def magnitude_heatmap(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, component: str | None = None, *, colorbar: bool = True
) -> Axes:
    """Draw the density of log₁₀|w| of one component, one column per layer, beside that of the null at the same σ̂.

    The null is the law of the initial entries: half-normal, or the law of the file's ``initialization``. The axis of
    magnitudes is the same for all components of a file, so that panels can be compared.

    The axes: layer against log₁₀|w|. Colours change at the same densities in every figure.
    """
    every = matrices_of(scores)
    if "log_magnitude_histogram" not in every:
        raise ParameterError("scores", sorted(map(str, every.data_vars)), "/matrices with log_magnitude_histogram")
    component = str(every["component"].values[0]) if component is None else component
    matrices = require_component(every, component)
    edges = bin_edges(every["magnitude_bin"].values)
    density = matrices["log_magnitude_histogram"].transpose("layer", "magnitude_bin").values
    columns = np.full((2 * len(density), density.shape[1]), np.nan)
    columns[::2] = density
    columns[1::2] = _null_densities(scores, matrices["sigma"].values, edges)
    shown = np.where(columns > 0, columns, np.nan)
    for layer in np.flatnonzero(np.isfinite(density).any(axis=1)).tolist():
        places = layer + np.array([_LEFT, _MIDDLE, _RIGHT])
        MAGNITUDE_DENSITY.fill(ax, places, edges, shown[2 * layer : 2 * layer + 2].T, theme)
        ax.plot([layer + _MIDDLE] * 2, edges[[0, -1]], color=theme.surface, linewidth=0.8)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.6, len(density) - 0.4)
    ax.set_ylim(_reach(every, edges))
    layer_axis(ax, "x", matrices, theme)
    ax.set(xlabel="layer; right of each the null at its $\\hat\\sigma$", ylabel=r"magnitude, $\log_{10}|w|$")
    return finished_map(ax, theme, symbol_of(component), MAGNITUDE_DENSITY, colorbar)


@panel
def magnitudes_along_steps(
    ax: Axes,
    theme: Theme,
    trajectory: xr.DataTree,
    component: str | None = None,
    layer: int | None = None,
    *,
    colorbar: bool = True,
) -> Axes:
    """Draw the density of log₁₀|w| of one matrix along the steps of a training run, one column per step.

    The lines are the 0.1 %, 50 % and 99.9 % quantiles of |w| under the null, the law of the initial entries, at the
    matrix's own σ̂ at each step.

    The axes: step, in the order of the file, against log₁₀|w|. Colours change at the same densities in every
    figure.
    """
    every = matrices_of(trajectory)
    if "log_magnitude_histogram" not in every or "step" not in every.dims:
        raise ParameterError("trajectory", sorted(map(str, every.dims)), "steps of /matrices with their histograms")
    component = str(every["component"].values[0]) if component is None else component
    matrices = require_component(every, component)
    layers = matrices["layer"].values[np.isfinite(matrices["sigma"].isel(step=-1).values)].tolist()
    layer = layers[len(layers) // 2] if layer is None else layer
    if layer not in layers:
        raise ParameterError("layer", layer, f"one of {layers}")
    name = layer_numbers(matrices)[matrices["layer"].values.tolist().index(layer)]
    one = matrices.sel(layer=layer)
    edges = bin_edges(every["magnitude_bin"].values)
    density = one["log_magnitude_histogram"].transpose("step", "magnitude_bin").values
    columns = np.arange(len(density) + 1) - 0.5
    MAGNITUDE_DENSITY.fill(ax, columns, edges, np.where(density > 0, density, np.nan).T, theme)
    parent = _parent(trajectory)
    unit = one["sigma"].values / parent.moment(2) ** 0.5
    for share in (0.001, 0.5, 0.999):
        line = np.log10(float(parent.ppf(share)) * unit)
        ax.plot(columns[:-1] + 0.5, line, color=theme.flagged, linewidth=1.1, linestyle="--")
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.set_xlim(-0.5, len(density) - 0.5)
    ax.set_ylim(_reach(every, edges))
    places = np.unique(np.linspace(0, len(density) - 1, min(len(density), _STEPS_NAMED)).round().astype(int))
    ax.set_xticks(places, [step_name(step) for step in one["step"].values[places].tolist()])
    ax.set(xlabel="step", ylabel=r"magnitude, $\log_{10}|w|$")
    title = f"{symbol_of(component)}, layer {name}\ndashed: of the null 0.1 %, 50 %, 99.9 % are below"
    return finished_map(ax, theme, title, MAGNITUDE_DENSITY, colorbar)


def _null_densities(
    scores: xr.DataTree | xr.Dataset, sigma: Float[np.ndarray, " layer"], edges: Float[np.ndarray, " edge"]
) -> Float[np.ndarray, "layer magnitude_bin"]:
    """Return the density of log₁₀|w| of initial entries with these standard deviations, averaged over each bin."""
    parent = parents.require_parent(str(scores.attrs.get("initialization", "normal")))
    rms = parent.moment(2) ** 0.5
    at = np.full((sigma.size, edges.size), np.nan)
    known = np.isfinite(sigma) & (sigma > 0)
    at[known] = parent.cdf(10.0**edges * rms / sigma[known, None])
    return np.diff(at, axis=1) / np.diff(edges)


def _reach(matrices: xr.Dataset, edges: Float[np.ndarray, " edge"]) -> tuple[float, float]:
    """Return the range of bins in which any component of the file has weights worth a colour."""
    dims = [dim for dim in ("step", "layer", "component") if dim in matrices.dims]
    highest = matrices["log_magnitude_histogram"].max(dims)
    held = np.flatnonzero(highest.values > _LEAST)
    return (float(edges[held[0]]), float(edges[held[-1] + 1])) if held.size else (-6.0, 1.0)
