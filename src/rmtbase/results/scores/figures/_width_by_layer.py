"""Width of the elements of every head by layer, with their entropy or their divergence from a normal law."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from rmtbase.drawing.axes import NORMAL_95, Around, panel, statistic_label, styled, symbol_of
from rmtbase.drawing.groups import column_of, group_of
from rmtbase.drawing.scales import log_axis, prefer_log
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores.figures._statistic_by_layer import places_in_layer

_UNIT = 0.5 * np.log(2 * np.pi * np.e)  # nats, the entropy of a normal law of width 1
_APART = 0.8  # share of its own range by which each axis extends beyond its data, towards the other's


@panel
def width_by_layer(
    ax: Axes, theme: Theme, scores: xr.DataTree, beside: Literal["entropy", "kl_matched_normal"], component: str
) -> Around:
    """Draw σ of the elements of every head by layer, and a second quantity beside it.

    With ``"entropy"`` the two axes have the same scale: a head has a mark at σ, and one at the σ of the normal law with
    its entropy S, which the right axis gives in nats. The two marks coincide if the elements are normal; otherwise S is
    lower. With ``"kl_matched_normal"`` the left axis also shows σ_fit, the width of the normal law fitted to the core,
    and the right axis the divergence from the normal law with the same mean and σ, with a band of 95 % of random heads.
    The axes extend beyond their data, σ downwards and the divergence upwards, so that neither hides the other.
    """
    table = group_of(scores, "elements", component).transpose("layer", "head", ...)
    sigma = column_of(table, "sigma").where(lambda widths: widths > 0).values
    x = places_in_layer(np.isfinite(sigma))
    size = float(np.clip(30 / len(sigma) ** 0.5 / sigma.shape[1] ** 0.25, 2.0, 4.5))
    mark: dict[str, Any] = {"linestyle": "none", "markersize": size, "markeredgewidth": 0.9}
    circle: dict[str, Any] = mark | {"marker": "o", "markerfacecolor": "none", "color": theme.observed}
    ax.plot(x.ravel(), sigma.ravel(), label=r"standard deviation $\sigma$", **circle)
    if beside == "entropy":
        normal_width = np.exp(column_of(table, "entropy").values - _UNIT)
        cross: dict[str, Any] = mark | {"marker": "x", "color": theme.flagged, "label": "entropy $S$ (right axis)"}
        ax.plot(x.ravel(), normal_width.ravel(), **cross)
        log_axis(ax)
        right = ax.secondary_yaxis("right", functions=(_entropy_of, _width_of))
        right.set_yscale("linear")
        right.set_ylabel("entropy $S$ (nats)", color=theme.flagged, fontsize=theme.points("axes.labelsize"))
        right.tick_params(colors=theme.flagged, labelsize=theme.points("xtick.labelsize"))
        right.spines["right"].set_color(theme.flagged)
    else:
        core = sigma * column_of(table, "core_sigma").values
        cross = mark | {"marker": "x", "color": theme.series[2], "label": r"$\sigma_\mathrm{fit}$ of the core"}
        ax.plot(x.ravel(), core.ravel(), **cross)
        low, high = _range(sigma, core)
        if prefer_log(sigma, core):
            log_axis(ax)
            ax.set_ylim(low * (low / high) ** _APART, high * (high / low) ** 0.05)
        else:
            ax.set_ylim(max(low - _APART * (high - low), 0.0), high + 0.05 * (high - low))
        _divergence(ax, x, table, theme, size)
    for place in range(1, len(sigma)):
        ax.axvline(place - 0.5, color=theme.grid, linewidth=0.6, zorder=0)
    ax.yaxis.label.set_color(theme.observed)
    return Around(symbol_of(component), y=statistic_label("sigma"), layers=table)


def _divergence(ax: Axes, x: Float[np.ndarray, "layer head"], table: xr.Dataset, theme: Theme, size: float) -> None:
    """Draw the divergence on an axis to the right, extended upwards so that it lies below σ."""
    row = table.sel(statistic="kl_matched_normal")
    value, mean, spread = (row[name].values for name in ("observed", "null_mean", "null_std"))
    right = styled(ax.twinx(), theme)
    right.spines["right"].set(visible=True, color=theme.flagged)
    right.spines["left"].set_visible(False)
    right.tick_params(axis="y", colors=theme.flagged)
    right.grid(False)
    lower, upper = mean - NORMAL_95 * spread, mean + NORMAL_95 * spread
    label = "null of $D_{\\mathrm{KL}}$, 95 %"
    look = {"color": theme.null, "alpha": 0.28, "linewidth": 0}
    for layer in np.flatnonzero(np.isfinite(upper).any(axis=1)).tolist():
        band = float(np.nanmin(lower[layer])), float(np.nanmax(upper[layer]))
        right.fill_between((layer - 0.5, layer + 0.5), *band, **look)
        ax.fill_between([], [], label=label, **look)
        label = ""
    style = {"linestyle": "none", "marker": "^", "markersize": size, "color": theme.flagged, "markerfacecolor": "none"}
    right.plot(x.ravel(), value.ravel(), **style)
    ax.plot([], [], label=r"divergence $D_{\mathrm{KL}}$ (right axis)", **style)
    low, high = _range(value, lower, upper)
    right.set_ylim(low - 0.05 * (high - low), high + _APART * (high - low))
    right.set_ylabel(r"divergence $D_{\mathrm{KL}}$ from the normal law (nats)", color=theme.flagged)


def _range(*values: np.ndarray) -> tuple[float, float]:
    finite = np.concatenate([array[np.isfinite(array)] for array in values])
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    return low, high if high > low else low + abs(low) + 1e-9


def _entropy_of(width: ArrayLike) -> ArrayLike:
    """Return the entropy in nats of a normal law of that width."""
    return _UNIT + np.log(np.fmax(width, 1e-300))


def _width_of(entropy: ArrayLike) -> ArrayLike:
    """Return the width of a normal law with that entropy."""
    return np.exp(np.clip(np.asarray(entropy) - _UNIT, -600.0, 600.0))
