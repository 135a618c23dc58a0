"""The magnitudes of a component's weights in every layer, each beside those of a matrix that has learned nothing."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.errors import ParameterError
from rmtbase.laws import parents
from rmtbase.plots._axes import layer_axis, own_axes, titled
from rmtbase.plots._color_scales import MAGNITUDE_DENSITY
from rmtbase.plots._groups import matrices_of, require_component
from rmtbase.plots._head_densities import bin_edges, symbol_of
from rmtbase.plots._theme import Theme, as_theme

_LEFT, _MIDDLE, _RIGHT = -0.46, 0.16, 0.46  # of a layer's place: its weights, then the null's column
_LEAST = 1e-5  # density, below which nothing makes the axis longer


def magnitude_heatmap(
    scores: xr.DataTree | xr.Dataset,
    component: str | None = None,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw the density of log₁₀|w| of one component, a column for each layer with that of the null at its σ̂ beside.

    The null is the law of the initial entries: half-normal, or as the file's ``initialization`` says. The axis of
    magnitudes is the same for all components of a file, so that panels can be compared.

    Args:
        scores: a scores tree with /matrices, or its /matrices.
        component: the matrix; the first if None.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: layer against log₁₀|w|. Colours change at the same densities in every picture.

    Raises:
        ParameterError: no matrices with histograms of their magnitudes, or no such component.
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
    theme = as_theme(theme)
    ax = own_axes(ax, theme, scores)
    cmap, norm = MAGNITUDE_DENSITY.of(theme)
    shown = np.ma.masked_invalid(np.log(np.where(columns > 0, columns, np.nan)))
    for layer in np.flatnonzero(np.isfinite(density).any(axis=1)).tolist():
        places = layer + np.array([_LEFT, _MIDDLE, _RIGHT])
        ax.pcolormesh(places, edges, shown[2 * layer : 2 * layer + 2].T, cmap=cmap, norm=norm, linewidth=0)
        ax.plot([layer + _MIDDLE] * 2, edges[[0, -1]], color=theme.surface, linewidth=0.8)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(axis="x", length=0)
    ax.set_xlim(-0.6, len(density) - 0.4)
    ax.set_ylim(_reach(every, edges))
    layer_axis(ax, "x", matrices, theme)
    ax.set(xlabel="layer; right of each the null at its $\\hat\\sigma$", ylabel=r"$\log_{10}|w|$")
    titled(ax, symbol_of(component), theme)
    if colorbar:
        MAGNITUDE_DENSITY.bar(ax, theme)
    return ax


def _null_densities(
    scores: xr.DataTree | xr.Dataset, sigma: Float[np.ndarray, " layer"], edges: Float[np.ndarray, " edge"]
) -> Float[np.ndarray, "layer magnitude_bin"]:
    """The bins' averages of the density of log₁₀|w| of initial entries with these standard deviations."""
    parent = parents.require_parent(str(scores.attrs.get("initialization", "normal")))
    rms = parent.moment(2) ** 0.5
    at = np.full((sigma.size, edges.size), np.nan)
    known = np.isfinite(sigma) & (sigma > 0)
    at[known] = parent.cdf(10.0**edges * rms / sigma[known, None])
    return np.diff(at, axis=1) / np.diff(edges)


def _reach(matrices: xr.Dataset, edges: Float[np.ndarray, " edge"]) -> tuple[float, float]:
    """From where to where any component of the file has weights worth a colour."""
    highest = matrices["log_magnitude_histogram"].max([dim for dim in ("layer", "component") if dim in matrices.dims])
    held = np.flatnonzero(highest.values > _LEAST)
    return (float(edges[held[0]]), float(edges[held[-1] + 1])) if held.size else (-6.0, 1.0)
