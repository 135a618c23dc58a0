"""One statistic of every head, layer by layer, against the null's band."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from rmtbase.plots._axes import (
    LEVEL,
    bound,
    finished,
    layer_axis,
    log_axis,
    noun_of,
    own_axes,
    prefer_log,
    statistic_label,
    symmetric_log_axis,
)
from rmtbase.plots._groups import heads_of, require_statistic
from rmtbase.plots._theme import Theme, as_theme
from rmtbase.statistics import Statistic, get_statistic
from rmtbase.tables import heads_present

BAND = (0.005, 0.995)
"""The null band of the figure: 99 % of null heads lie in it."""

_HIDDEN = 15.0  # times the null's band, from which a linear axis hides it
_SAME = 1e-6  # up to which heads' null levels, relative to their means, are those of one null


def statistic_by_layer(
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "normalized_participation_ratio",
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw every head as a point at its layer, the layers' medians, and the band that holds 99 % of null heads.

    Where heads have several shapes, each layer has the band of its own. Where each head has a null of its own, each has
    its own band, a bar behind its point. Within a layer, heads stand from left to right in their order. A statistic
    that scales with σ_Q² σ_K², of which each head has its own, is drawn over its null mean (the log-determinant: minus
    its null mean), and the axis says so. Where heads lie so far out that the band could not be seen, the axis is
    logarithmic, beyond the band's width if values may be negative.

    Args:
        scores: a scores tree, or its /heads.
        statistic: its name.
        level: heads with a q-value of this statistic under it are drawn filled.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one, below the axes.

    Returns:
        The axes: layer against the statistic.

    Raises:
        ParameterError: no scores of heads, or not of this statistic.
    """
    heads = heads_of(scores)
    one = get_statistic(require_statistic(heads, statistic))
    table = heads.sel(statistic=statistic).transpose("layer", "head", ...)
    mean = table["null_mean"].values
    value = relative_to_null(one, table["observed"].values, mean)
    null = _null_levels(one, table, mean)
    flagged = table["q_value"].values < level
    n_layers, n_heads = value.shape

    theme = as_theme(theme)
    ax = own_axes(ax, theme, scores)
    x = _places(heads_present(table))
    noun = noun_of(scores)
    _draw_null(ax, x, null, theme, noun, _share(table))
    size = float(np.clip(30 / n_layers**0.5 / n_heads**0.25, 2.0, 4.5))
    for chosen, colour, fill, sign in (
        (~flagged, theme.observed, "none", "≥"),
        (flagged, theme.flagged, theme.flagged, "<"),
    ):
        ax.plot(
            x[chosen], value[chosen], linestyle="none", marker="o", markersize=size, markeredgecolor=colour,
            markerfacecolor=fill, markeredgewidth=0.9, label=f"{noun}, q {sign} {level:g}",
        )  # fmt: skip
    places = np.arange(n_layers)
    ax.hlines(
        _layer_medians(value), places - 0.4, places + 0.4, color=theme.text, linewidth=1.6, label="median of the layer"
    )
    _scale(ax, value, null)
    ax.set_xlim(-0.6, n_layers - 0.4)
    layer_axis(ax, "x", table, theme)
    ax.set(xlabel="layer", ylabel=relative_label(one))
    return finished(ax, theme, "", legend)


def _places(there: Bool[np.ndarray, "layer head"]) -> Float[np.ndarray, "layer head"]:
    """Where on the axis each head stands: within its layer from left to right; NaN where there is none."""
    count, place = there.sum(axis=1, keepdims=True), np.cumsum(there, axis=1) - 1
    offset = np.where(count > 1, -0.3 + 0.6 * place / np.maximum(count - 1, 1), 0.0)
    return np.where(there, np.arange(len(there))[:, None] + offset, np.nan)


def relative_to_null(
    one: Statistic, value: Float[np.ndarray, "layer head"], null_mean: Float[np.ndarray, "layer head"]
) -> Float[np.ndarray, "layer head"]:
    if one.scaling == 0:
        return value
    return value - null_mean if one.scaling == "additive" else value / null_mean


def relative_label(one: Statistic) -> str:
    name = statistic_label(one.name)
    if one.scaling == 0:
        return name
    return f"{name} {bound('− null mean' if one.scaling == 'additive' else '/ null mean')}"


def _share(table: xr.Dataset) -> str:
    """What share of null heads lies in the band, by the quantiles that the table holds."""
    low, high = (float(table["probability"].sel(probability=level, method="nearest")) for level in BAND)
    return f"{100 * (high - low):.3g} %"


def _null_levels(
    one: Statistic, table: xr.Dataset, null_mean: Float[np.ndarray, "layer head"]
) -> Float[np.ndarray, "level layer head"]:
    """The lower end, the median and the upper end of each head's null, on the figure's scale."""
    quantile, probability = table["null_quantile"].values, table["probability"].values
    places = [int(np.argmin(np.abs(probability - level))) for level in (BAND[0], 0.5, BAND[1])]
    return np.stack([relative_to_null(one, quantile[..., place], null_mean) for place in places])


def _draw_null(
    ax: Axes,
    x: Float[np.ndarray, "layer head"],
    levels: Float[np.ndarray, "level layer head"],
    theme: Theme,
    noun: str,
    share: str,
) -> None:
    """One band where one null is all heads'; a band for each run of layers whose heads share one; else bars."""
    lower, middle, upper = levels
    scored = np.isfinite(lower) & np.isfinite(upper)
    if not scored.any():
        return
    names = [f"null, {share} of {noun}s", "null, median"]
    if _is_one(levels, scored):
        low, median, high = (float(level[scored][0]) for level in levels)
        ax.axhspan(low, high, color=theme.null, alpha=0.28, linewidth=0, label=names[0])
        ax.axhline(median, color=theme.null, linewidth=1.2, label=names[1])
        return
    runs = _runs_of_one_null(levels, scored)
    if runs is not None:
        for first, beyond in runs:
            here = scored[first:beyond]
            low, median, high = (float(level[first:beyond][here][0]) for level in levels)
            ends = first - 0.5, beyond - 0.5
            ax.fill_between(ends, low, high, color=theme.null, alpha=0.28, linewidth=0, label=names[0])
            ax.hlines(median, *ends, color=theme.null, linewidth=1.2, label=names[1])
            names = ["", ""]
        return
    width = float(np.clip(240 / x.size, 1.0, 7.0))
    ax.vlines(
        x[scored], lower[scored], upper[scored], color=theme.null, alpha=0.45, linewidth=width,
        label=f"each {noun}'s null, {share}",
    )  # fmt: skip
    ax.plot(
        x[scored], middle[scored], linestyle="none", marker="_", markersize=width + 1.0, color=theme.null,
        label=f"each {noun}'s null, median",
    )  # fmt: skip


def _is_one(levels: Float[np.ndarray, "level layer head"], scored: Bool[np.ndarray, "layer head"]) -> bool:
    """Whether the levels of all these heads are those of one null."""
    return all(np.ptp(level[scored]) <= _SAME * np.abs(level[scored]).max() for level in levels)


def _runs_of_one_null(
    levels: Float[np.ndarray, "level layer head"], scored: Bool[np.ndarray, "layer head"]
) -> list[tuple[int, int]] | None:
    """The runs of layers, first and beyond the last, whose heads share a null; None where those of a layer do not."""
    runs: list[tuple[int, int]] = []
    for layer in np.flatnonzero(scored.any(axis=1)).tolist():
        alone, longer = (layer, layer + 1), (runs[-1][0] if runs else layer, layer + 1)
        for run in (longer, alone):
            if _is_one(levels[:, slice(*run)], scored[slice(*run)]):
                break
        else:
            return None
        runs = [*runs[:-1], run] if runs and run == longer else [*runs, run]
    return runs


def _scale(ax: Axes, value: Float[np.ndarray, "layer head"], null: Float[np.ndarray, "level layer head"]) -> None:
    """A logarithmic axis where a linear one would hide the null's band or the smallest values."""
    if prefer_log(value, null[0], null[2]):
        log_axis(ax)
        return
    finite, ends = value[np.isfinite(value)], null[np.isfinite(null)]
    if not finite.size or not ends.size or min(finite.min(), ends.min()) >= 0:
        return
    width = float(np.abs(ends).max())
    if width > 0 and np.abs(finite).max() > _HIDDEN * width:
        symmetric_log_axis(ax, width)


def _layer_medians(value: Float[np.ndarray, "layer head"]) -> Float[np.ndarray, " layer"]:
    return np.array([np.median(one[np.isfinite(one)]) if np.isfinite(one).any() else np.nan for one in value])
