"""The density of the elements of heads: one head with the law of a random one, or every head of a model at a glance."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MultipleLocator

from rmtbase.errors import ParameterError
from rmtbase.laws import ProductElement, parents
from rmtbase.plots._axes import finished, literal, own_axes, rows_axis, titled
from rmtbase.plots._color_scales import DENSITY, MOST_CELLS
from rmtbase.plots._groups import elements_of, require_component
from rmtbase.plots._theme import Theme, as_theme
from rmtbase.tables import layer_numbers

_REACH = 8.0  # standard deviations shown, to either side
_POINTS = 401
_NEAR_ZERO = 1e-9  # where a density is that at zero, which is no magnitude


def head_density(
    scores: xr.DataTree,
    layer: int = 0,
    head: int = 0,
    component: str = "W_QK",
    scale: Literal["log", "linear"] = "log",
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the density of the elements w of one matrix of a head, with the laws of a random one, all at variance 1.

    The laws are that of the initial entries and, of W_QK = W_Qᵀ W_K with normal entries, that of one element of a
    random product of this d_head (:class:`rmtbase.laws.ProductElement`). Of a matrix of independent entries the band
    holds 95 % of random ones in each bin. The axes are the same for all heads of a file.

    Args:
        scores: a scores tree with /heads/elements.
        layer: its coordinate.
        head: its coordinate; of ``W_K`` and ``W_V`` the key head.
        component: ``"W_Q"``, ``"W_K"``, ``"W_V"``, ``"W_O"`` or ``"W_QK"``.
        scale: of the axis of densities.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one, below the axes.

    Returns:
        The axes: (w − w̄)/s against its density.

    Raises:
        ParameterError: no elements of heads, no such head, component or scale.
    """
    if scale not in ("log", "linear"):
        raise ParameterError("scale", scale, "'log' or 'linear'")
    table = require_component(elements_of(scores), component)
    density = _densities(table)
    layers, heads = table["layer"].values.tolist(), table["head"].values.tolist()
    there = np.asarray(np.isfinite(density).any(axis=-1))
    if layer not in layers or head not in heads or not there[layers.index(layer), heads.index(head)]:
        raise ParameterError("head", (layer, head), f"a layer among {layers} and a head of it that has {component}")
    own = density[layers.index(layer), heads.index(head)]
    edges = bin_edges(table["bin"].values)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, scores)
    lowest = 0.5 * float(density[density > 0].min())
    baseline = lowest / 1e3 if scale == "log" else 0.0
    ax.stairs(
        np.fmax(own, baseline), edges, baseline=baseline, fill=True, facecolor=theme.observed, alpha=0.4, linewidth=0,
        label="elements",
    )  # fmt: skip
    x = np.linspace(-_REACH, _REACH, _POINTS)
    entries = _entry_density(scores, x)
    size = _size(scores)
    if component != "W_QK" and size is not None:
        spread = np.sqrt(entries / (size * (edges[1] - edges[0])))
        ax.fill_between(
            x, np.fmax(entries - 1.96 * spread, baseline), entries + 1.96 * spread, color=theme.null, alpha=0.35,
            linewidth=0, label="random entries, 95 % of each bin",
        )  # fmt: skip
    ax.plot(x, np.where(entries > 0, entries, np.nan), color=theme.null, linewidth=1.2, linestyle="--", label="entries")
    rank = _d_head(scores, layer)
    if component == "W_QK" and rank is not None and _parent(scores) == parents.Normal():
        law = ProductElement(rank, rank**-0.5)
        ax.plot(x, law.pdf(x), color=theme.free_law, linewidth=1.4, label="element of a random product")
    top = float(np.nanmax(density))
    if scale == "log":
        ax.set_yscale("log")
        ax.set_ylim(lowest, 2.0 * max(top, 0.4))
    else:
        ax.set_ylim(0.0, 1.05 * max(top, 0.4))
    ax.set_xlim(-_REACH, _REACH)
    ax.xaxis.set_major_locator(MultipleLocator(4.0))
    ax.set(xlabel=r"element less its mean over its spread, $(w - \bar w)/s$", ylabel="density")
    name = layer_numbers(table)[layers.index(layer)]
    return finished(ax, theme, f"{symbol_of(component)}, layer {name} head {head}", legend)


def head_density_heatmap(
    scores: xr.DataTree,
    component: str = "W_QK",
    unit: Literal["spread", "weight"] = "spread",
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw the density of the elements of one matrix of every head, a row for each, with the null's own row on top.

    Args:
        scores: a scores tree with /heads/elements.
        component: as in :func:`head_density`.
        unit: ``"spread"``: (w − w̄)/s, so that shapes can be compared; ``"weight"``: w itself over the spread of all,
            which shows how widths differ.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: element against head, layer 0 on top. Colours change at the same densities in every picture.

    Raises:
        ParameterError: no elements of heads, no such component or unit, or no spreads to tell weights by.
    """
    if unit not in ("spread", "weight"):
        raise ParameterError("unit", unit, "'spread' or 'weight'")
    table = require_component(elements_of(scores), component)
    every, edges = _densities(table), bin_edges(table["bin"].values)
    layer, head = np.nonzero(np.isfinite(every).any(axis=-1))
    density = every[layer, head]
    theme = as_theme(theme)
    ax = own_axes(ax, theme, scores)
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
    cmap, norm = DENSITY.of(theme)
    rows = np.arange(len(cells) + 1) - 2.5
    ax.pcolormesh(
        edges, rows, np.ma.masked_invalid(np.log(np.where(cells > 0, cells, np.nan))), cmap=cmap, norm=norm,
        linewidth=0, rasterized=cells.size > MOST_CELLS,
    )  # fmt: skip
    rows_axis(ax, layer.tolist(), table, theme, null=True)
    ax.set(xlabel=xlabel, xlim=(-_REACH, _REACH))
    ax.xaxis.set_major_locator(MultipleLocator(4.0))
    titled(ax, f"elements of {symbol_of(component)}", theme)
    if colorbar:
        DENSITY.bar(ax, theme)
    return ax


def symbol_of(component: str) -> str:
    """``W_QK`` as a formula; any other name in words."""
    letters = component.removeprefix("W_")
    return (
        f"$W_{{{letters}}}$"
        if component.startswith("W_") and letters.isalpha()
        else literal(component.replace("_", " "))
    )


def bin_edges(centres: Float[np.ndarray, " bin"]) -> Float[np.ndarray, " edge"]:
    """The edges of equal bins, from their centres."""
    half = 0.5 * float(centres[1] - centres[0])
    return np.append(centres - half, centres[-1] + half)


def _densities(table: xr.Dataset) -> Float[np.ndarray, "layer head bin"]:
    if "histogram" not in table:
        raise ParameterError("scores", sorted(map(str, table.data_vars)), "elements with their histogram")
    return table["histogram"].transpose("layer", "head", "bin").values


def _stretched(
    density: Float[np.ndarray, " bin"], edges: Float[np.ndarray, " edge"], factor: float
) -> Float[np.ndarray, " bin"]:
    """The density of a number times a factor, in the same bins."""
    below = np.concatenate([[0.0], np.cumsum(density * np.diff(edges))])
    return np.diff(np.interp(edges / factor, edges, below)) / np.diff(edges)


def _parent(scores: xr.DataTree | xr.Dataset) -> parents.Parent:
    """The law of initial entries that the file names; the normal law where it names none."""
    return parents.require_parent(str(getattr(scores, "attrs", {}).get("initialization", "normal")))


def _entry_density(scores: xr.DataTree | xr.Dataset, x: Float[np.ndarray, " point"]) -> Float[np.ndarray, " point"]:
    """The density of an initial entry at variance 1."""
    parent = _parent(scores)
    rms = parent.moment(2) ** 0.5
    return 0.5 * rms * np.asarray(parent.pdf(np.fmax(np.abs(x), _NEAR_ZERO) * rms))


def _d_head(scores: xr.DataTree | xr.Dataset, layer: int) -> int | None:
    """The number of products in an element of W_QK of a layer, where the file says it."""
    if not isinstance(scores, xr.DataTree):
        return None
    heads = scores["heads"].to_dataset()
    if "d_head" in heads.coords:
        return int(heads["d_head"].sel(layer=layer))
    return int(scores.attrs["d_head"]) if "d_head" in scores.attrs else None


def _size(scores: xr.DataTree | xr.Dataset) -> int | None:
    """The number of elements of a head's matrix, where all layers have the same."""
    attributes = getattr(scores, "attrs", {})
    width = attributes.get("d_model")
    rank = attributes.get("d_head")
    return None if width is None or rank is None else int(rank) * int(width)
