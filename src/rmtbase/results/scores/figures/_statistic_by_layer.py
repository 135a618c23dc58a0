"""Statistic of every head or weight matrix by layer, against the bands of its null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import cycle
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import (
    LEVEL,
    LINE_STYLES,
    MARKERS,
    NORMAL_95,
    bound,
    finished,
    layer_axis,
    noun_of,
    panel,
    panel_size,
    statistic_label,
    symbol_of,
)
from rmtbase.drawing.groups import column_of, group_of, matrices_of, require_component, require_statistic
from rmtbase.drawing.not_testable import NOT_TESTABLE, cross_at_foot
from rmtbase.drawing.scales import log_axis, prefer_log, symmetric_log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.statistics import Statistic, get_statistic
from rmtbase.tables import heads_present

BAND = (0.005, 0.995)
"""Null band of the figure, which contains 99 % of null heads."""

PUBLISHED_BAND = (1.186, 1.204)
"""Weibull shapes that T. Ding, arXiv:2605.18898 (2026), calls the transmission band: medians of 12 models."""

_HIDDEN = 15.0  # widths of the null's band beyond which a linear axis hides the band
_FAR, _FEWEST = 1.5, 8  # interquartile ranges beyond which a value is named; fewest values for that
_SAME = 1e-6  # relative difference up to which null levels of heads belong to one null


@panel
def statistic_by_layer(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "normalized_participation_ratio",
    level: float = LEVEL,
    group: Literal["heads", "elements"] = "heads",
    component: str | None = None,
    over: Literal["null", "nothing"] = "null",
    *,
    legend: bool = True,
) -> Axes:
    """Draw every head as a point at its layer, the layers' medians, and the band that holds 99 % of null heads.

    For the elements of heads, only the mean and the spread of the null are known, so the band holds 95 %: the mean ±
    1.96 standard deviations. σ of the elements has no null; it is drawn beside σ_fit, the width of the normal law
    fitted to the core.

    If heads have several shapes, each layer has its own band. If each head has its own null, its band is a bar behind
    its point. Within a layer, heads are drawn from left to right in order. A statistic that scales with each head's own
    σ_Q² σ_K² is divided by its null mean (for the log-determinant, the null mean is subtracted), and the axis says so.
    If heads lie so far out that the band could not be seen, the axis is logarithmic; if values may be negative, it is
    logarithmic only beyond the band's width.

    The axes: layer against the statistic.
    """
    if group not in ("heads", "elements"):
        raise ParameterError("group", group, "heads or elements")
    if over not in ("null", "nothing"):
        raise ParameterError("over", over, "'null' or 'nothing'")
    heads = group_of(scores, group, component).transpose("layer", "head", ...)
    found = _of_spectra(heads, statistic, over == "null") if group == "heads" else _of_elements(heads, statistic)
    value, null = found.value, found.null
    flagged, untested = found.q_value < level, np.isnan(found.q_value)
    n_layers, n_heads = value.shape

    x = places_in_layer(np.isfinite(value) if group == "elements" else heads_present(heads))
    noun = noun_of(scores)
    _draw_null(ax, x, null, theme, noun, found.share)
    size = float(np.clip(30 / n_layers**0.5 / n_heads**0.25, 2.0, 4.5))
    for chosen, colour, fill, sign in (
        (~flagged & (~untested if found.share else True), theme.observed, "none", "≥"),
        (flagged, theme.flagged, theme.flagged, "<"),
    ):
        label = f"{noun}, q {sign} {level:g}" if found.share else ""
        if not (found.share or chosen.any()):
            continue
        ax.plot(
            x[chosen], value[chosen], linestyle="none", marker="o", markersize=size, markeredgecolor=colour,
            markerfacecolor=fill, markeredgewidth=0.9, label=label,
        )  # fmt: skip
    if found.share:
        measured = untested & np.isfinite(value)
        if measured.any():
            ax.plot(
                x[measured], value[measured], linestyle="none", marker="x", markersize=size, color=theme.muted,
                label=NOT_TESTABLE,
            )  # fmt: skip
        lacking = untested & ~np.isfinite(value) & heads_present(heads)
        cross_at_foot(ax, x[lacking], theme, size)
    if found.core is not None:
        ax.plot(
            x.ravel(), found.core.ravel(), linestyle="none", marker="x", markersize=size, color=theme.series[2],
            label=r"$\sigma_\mathrm{fit}$ of its core",
        )  # fmt: skip
    places = np.arange(n_layers)
    ax.hlines(
        _layer_medians(value), places - 0.4, places + 0.4, color=theme.text, linewidth=1.6, label="median of the layer"
    )
    _scale(ax, value, null)
    _name_outliers(ax, x, value, heads["head"].values.tolist(), noun, theme)
    ax.set_xlim(-0.6, n_layers - 0.4)
    layer_axis(ax, "x", heads, theme)
    ax.set(xlabel="layer", ylabel=found.label)
    return finished(ax, theme, symbol_of(component or "W_QK") if group == "elements" else "", legend)


def _name_outliers(
    ax: Axes,
    x: Float[np.ndarray, "layer head"],
    value: Float[np.ndarray, "layer head"],
    heads: Sequence[int],
    noun: str,
    theme: Theme,
) -> None:
    """Name the largest and the smallest value if they are far from those of the other heads, beyond all points."""
    if np.isfinite(value).sum() < _FEWEST:
        return
    low, high = np.nanquantile(value, [0.25, 0.75])
    size, on_scale = theme.points("xtick.labelsize"), ax.yaxis.get_transform()
    room = 1.8 * size / 72 / panel_size(ax)[1]
    for place, is_far, side in (
        (np.nanargmax(value), np.nanmax(value) > high + _FAR * (high - low), 1),
        (np.nanargmin(value), np.nanmin(value) < low - _FAR * (high - low), -1),
    ):
        if is_far:
            layer, head = map(int, np.unravel_index(place, value.shape))
            ax.annotate(
                f"{noun} {heads[head]}", (x[layer, head], value[layer, head]), xytext=(0, 4 * side), ha="center",
                textcoords="offset points", va="bottom" if side > 0 else "top", fontsize=size, color=theme.muted,
            )  # fmt: skip
            ends = on_scale.transform(ax.get_ylim())
            ends[(side + 1) // 2] += side * room * np.ptp(ends)
            ax.set_ylim(*on_scale.inverted().transform(ends))


class _OfHeads(NamedTuple):
    """Data drawn for every head: values; lower end, median and upper end of the null; text of the axis."""

    value: Float[np.ndarray, "layer head"]
    null: Float[np.ndarray, "level layer head"]
    q_value: Float[np.ndarray, "layer head"]
    share: str
    label: str
    core: Float[np.ndarray, "layer head"] | None = None


def _of_spectra(heads: xr.Dataset, statistic: str, over_null: bool) -> _OfHeads:
    one = get_statistic(require_statistic(heads, statistic))
    one = one if over_null else replace(one, scaling=0)
    table = heads.sel(statistic=statistic)
    mean = table["null_mean"].values
    value = relative_to_null(one, table["observed"].values, mean)
    return _OfHeads(value, _null_levels(one, table, mean), table["q_value"].values, _share(table), relative_label(one))


def _of_elements(elements: xr.Dataset, statistic: str) -> _OfHeads:
    value = column_of(elements, statistic).transpose("layer", "head").values
    if statistic not in elements["statistic"].values:
        nothing, core = np.full(value.shape, np.nan), None
        if statistic == "sigma" and "core_sigma" in elements["statistic"].values:
            core = value * elements["observed"].sel(statistic="core_sigma").values
        return _OfHeads(value, np.stack([nothing] * 3), nothing, "", statistic_label(statistic), core)
    table = elements.sel(statistic=statistic)
    mean, spread = table["null_mean"].values, NORMAL_95 * table["null_std"].values
    null = np.stack([mean - spread, mean, mean + spread])
    return _OfHeads(value, null, table["q_value"].values, "95 %", statistic_label(statistic))


def places_in_layer(there: Bool[np.ndarray, "layer head"]) -> Float[np.ndarray, "layer head"]:
    """Place the heads of a layer from left to right on the axis; NaN where there is no head."""
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
    """Return the share of null heads inside the band, given the quantiles that the table holds."""
    low, high = (float(table["probability"].sel(probability=level, method="nearest")) for level in BAND)
    return f"{100 * (high - low):.3g} %"


def _null_levels(
    one: Statistic, table: xr.Dataset, null_mean: Float[np.ndarray, "layer head"]
) -> Float[np.ndarray, "level layer head"]:
    """Return the lower end, the median and the upper end of each head's null, on the figure's scale."""
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
    """Draw the null as one band if all heads share it, as a band for each run of layers that do, or as bars."""
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
    """Test whether all these heads have the levels of one null."""
    return all(np.ptp(level[scored]) <= _SAME * np.abs(level[scored]).max() for level in levels)


def _runs_of_one_null(
    levels: Float[np.ndarray, "level layer head"], scored: Bool[np.ndarray, "layer head"]
) -> list[tuple[int, int]] | None:
    """Find the runs (first, beyond the last) of layers whose heads share a null; None if a layer's heads do not."""
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
    """Choose a logarithmic axis where a linear one would hide the null's band or the smallest values."""
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


def draw_published_band(ax: Axes, theme: Theme) -> None:
    """Draw :data:`PUBLISHED_BAND` on axes that show a shape vertically."""
    low, high = PUBLISHED_BAND
    label = f"published band [{low:g}, {high:g}]"
    ax.axhspan(low, high, facecolor=theme.naive, edgecolor=theme.naive, alpha=0.4, linestyle="--", label=label)


@panel
def matrix_statistic_by_layer(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "weibull_shape",
    components: Sequence[str] | None = None,
    published: bool = False,
    *,
    legend: bool = True,
) -> Axes:
    """Draw one statistic of every matrix by layer, a line for each component, with 95 % of the null at its size.

    The band is null_mean ± 1.96 null_std; for the Weibull shape, these belong to the anchor at this number of weights.
    A band narrower than a line is drawn as a line.

    The axes: layer against the statistic.
    """
    every = matrices_of(scores).transpose("layer", "component", ...)
    value = column_of(every, statistic)
    names = [str(one) for one in (every["component"].values if components is None else components)]
    for name in names:
        require_component(every, name)
    if published:
        draw_published_band(ax, theme)
    label = "null, 95 % at this size"
    bands: list[tuple[float, float]] = []
    if statistic in every["statistic"].values:
        one = every.sel(statistic=statistic)
        for name in names:
            own = require_component(one, name)
            mean, spread = own["null_mean"].values, NORMAL_95 * own["null_std"].values
            for layer in np.flatnonzero(np.isfinite(mean + spread)).tolist():
                band = (float(mean[layer] - spread[layer]), float(mean[layer] + spread[layer]))
                if not any(np.allclose(band, other, rtol=1e-12, atol=0.0) for other in bands):
                    bands.append(band)
                    ax.axhspan(*band, color=theme.null, alpha=0.28, linewidth=1.0, label=label)
                    label = ""
    places = np.arange(every.sizes["layer"])
    width = 0.5 / max(len(names) - 1, 1) if len(names) > 1 else 0.0
    for k, (name, colour, marker, style) in enumerate(
        zip(names, cycle(theme.series), cycle(MARKERS), cycle(LINE_STYLES), strict=False)
    ):
        own = value.sel(component=name).values
        there = np.isfinite(own)
        again = k >= len(theme.series)  # colours repeat, with hollow marks
        ax.plot(
            (places + width * (k - 0.5 * (len(names) - 1)))[there], own[there], color=colour, marker=marker,
            linestyle=style, linewidth=0.8, markersize=4.0, markerfacecolor=theme.surface if again else colour,
            label=symbol_of(name),
        )  # fmt: skip
    if prefer_log(value.values):
        ax.set_yscale("log")
    ax.set_xlim(-0.6, len(places) - 0.4)
    layer_axis(ax, "x", every, theme)
    ax.set(xlabel="layer", ylabel=statistic_label(statistic))
    return finished(ax, theme, "", legend)
