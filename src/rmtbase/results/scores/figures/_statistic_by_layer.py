"""Statistic of every head or weight matrix by layer, against the bands of its null."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from rmtbase.drawing import axes
from rmtbase.drawing.axes import LEVEL, NORMAL_95, Around, panel, statistic_label, symbol_of
from rmtbase.drawing.groups import column_of, group_of, matrices_of
from rmtbase.drawing.scales import log_axis, prefer_log, symmetric_log_axis
from rmtbase.drawing.texts import bound
from rmtbase.drawing.theme import Theme
from rmtbase.statistics import Statistic, get_statistic
from rmtbase.tables import heads_present

BAND = (0.005, 0.995)  # null band of the figure, which contains 99 % of null heads
_HIDDEN = 15.0  # widths of the null's band beyond which a linear axis hides the band
_FAR, _FEWEST = 1.5, 8  # interquartile ranges beyond which a value is named; fewest values for that
_SAME = 1e-6  # relative difference up to which null levels of heads belong to one null
_UNIT = 0.5 * np.log(2 * np.pi * np.e)  # nats, the entropy of a normal law of width 1
_APART = 0.8  # share of its own range by which each axis extends beyond its data, towards the other's


@dataclass(frozen=True)
class _OfHeads:
    value: Float[np.ndarray, "layer head"]
    null: Float[np.ndarray, "level layer head"]  # lower end, median and upper end
    q_value: Float[np.ndarray, "layer head"]
    share: float | None  # of null heads between the ends, in percent; None without a null
    label: str
    core: Float[np.ndarray, "layer head"] | None = None  # σ_fit


@panel
def statistic_by_layer(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "normalized_participation_ratio",
    group: Literal["heads", "elements"] = "heads",
    component: str = "W_QK",
    over: Literal["null", "nothing"] = "null",
) -> Around:
    """Draw every head as a point at its layer, the layers' medians, and the band that holds 99 % of null heads."""
    heads = group_of(scores, group, component).transpose("layer", "head", ...)
    points = _of_spectra(heads, statistic, over == "null") if group == "heads" else _of_elements(heads, statistic)
    value, noun = points.value, axes.noun_of(scores)
    flagged, untested = points.q_value < LEVEL, np.isnan(points.q_value)
    x = places_in_layer(np.isfinite(value) if group == "elements" else heads_present(heads))
    size = _mark_size(value)
    marks: dict[str, Any] = {"linestyle": "none", "marker": "o", "markersize": size, "markeredgewidth": 0.9}
    hollow: dict[str, Any] = marks | {"markeredgecolor": theme.observed, "markerfacecolor": "none"}
    if points.share is None:
        ax.plot(x[~flagged], value[~flagged], label="", **hollow)
    else:
        _draw_null(ax, theme, x, points, noun)
        within = ~flagged & ~untested
        ax.plot(x[within], value[within], label=f"{noun}, q ≥ {LEVEL:g}", **hollow)
        ax.plot(x[flagged], value[flagged], color=theme.flagged, label=f"{noun}, q < {LEVEL:g}", **marks)
        measured = untested & np.isfinite(value)
        if measured.any():
            crosses = {"linestyle": "none", "marker": "x", "markersize": size}
            ax.plot(x[measured], value[measured], color=theme.muted, label=axes.NOT_TESTABLE, **crosses)
        axes.cross_at_foot(ax, x[untested & ~np.isfinite(value) & heads_present(heads)], theme, size)
    if points.core is not None:
        ax.plot(
            x.ravel(), points.core.ravel(), linestyle="none", marker="x", markersize=size, color=theme.series[2],
            label=r"$\sigma_\mathrm{fit}$ of its core",
        )  # fmt: skip
    places = np.arange(len(value))
    medians = [np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in value]
    ax.hlines(medians, places - 0.4, places + 0.4, color=theme.text, linewidth=1.6, label="median of the layer")
    _scale(ax, value, points.null)
    if np.isfinite(value).sum() < _FEWEST:
        return Around(y=points.label, layers=heads)
    # Name the largest and the smallest value if they are far from those of the other heads, beyond all points.
    low, high = np.nanquantile(value, [0.25, 0.75])
    size, on_scale = theme.points("xtick.labelsize"), ax.yaxis.get_transform()
    room = 1.8 * size / 72 / axes.panel_size(ax)[1]
    for place, is_far, side in (
        (np.nanargmax(value), np.nanmax(value) > high + _FAR * (high - low), 1),
        (np.nanargmin(value), np.nanmin(value) < low - _FAR * (high - low), -1),
    ):
        if is_far:
            layer, head = map(int, np.unravel_index(place, value.shape))
            ax.annotate(
                f"{noun} {heads['head'].values[head]}", (x[layer, head], value[layer, head]), xytext=(0, 4 * side),
                ha="center", textcoords="offset points", va="bottom" if side > 0 else "top", fontsize=size,
                color=theme.muted,
            )  # fmt: skip
            ends = on_scale.transform(ax.get_ylim())
            ends[(side + 1) // 2] += side * room * np.ptp(ends)
            ax.set_ylim(*on_scale.inverted().transform(ends))
    return Around(y=points.label, layers=heads)


def _of_spectra(heads: xr.Dataset, statistic: str, over_null: bool) -> _OfHeads:
    definition = get_statistic(statistic) if over_null else replace(get_statistic(statistic), scaling=0)
    table = heads.sel(statistic=statistic)
    mean, quantile, probability = (table[name].values for name in ("null_mean", "null_quantile", "probability"))
    places = [int(np.argmin(np.abs(probability - level))) for level in (BAND[0], 0.5, BAND[1])]
    null = np.stack([relative_to_null(definition, quantile[..., place], mean) for place in places])
    value = relative_to_null(definition, table["observed"].values, mean)
    share = 100 * float(probability[places[2]] - probability[places[0]])
    return _OfHeads(value, null, table["q_value"].values, share, relative_label(definition))


def _of_elements(elements: xr.Dataset, statistic: str) -> _OfHeads:
    value = column_of(elements, statistic).transpose("layer", "head").values
    if statistic not in elements["statistic"].values:
        nothing, core = np.full(value.shape, np.nan), None
        if statistic == "sigma" and "core_sigma" in elements["statistic"].values:
            core = value * elements["observed"].sel(statistic="core_sigma").values
        return _OfHeads(value, np.stack([nothing] * 3), nothing, None, statistic_label(statistic), core)
    table = elements.sel(statistic=statistic)
    mean, spread = table["null_mean"].values, NORMAL_95 * table["null_std"].values
    null = np.stack([mean - spread, mean, mean + spread])
    return _OfHeads(value, null, table["q_value"].values, 95.0, statistic_label(statistic))


def places_in_layer(present: Bool[np.ndarray, "layer head"]) -> Float[np.ndarray, "layer head"]:
    """Place the heads of a layer from left to right; NaN where there is no head."""
    count, place = present.sum(axis=1, keepdims=True), np.cumsum(present, axis=1) - 1
    offset = np.where(count > 1, -0.3 + 0.6 * place / np.maximum(count - 1, 1), 0.0)
    return np.where(present, np.arange(len(present))[:, None] + offset, np.nan)


def relative_to_null(
    definition: Statistic, value: Float[np.ndarray, "layer head"], null_mean: Float[np.ndarray, "layer head"]
) -> Float[np.ndarray, "layer head"]:
    """Divide a statistic that scales with the elements by its null mean, or subtract that of a logarithm."""
    if definition.scaling == 0:
        return value
    return value - null_mean if definition.scaling == "additive" else value / null_mean


def relative_label(definition: Statistic) -> str:
    name = statistic_label(definition.name)
    if definition.scaling == 0:
        return name
    return f"{name} {bound('− null mean' if definition.scaling == 'additive' else '/ null mean')}"


def _draw_null(ax: Axes, theme: Theme, x: Float[np.ndarray, "layer head"], points: _OfHeads, noun: str) -> None:
    """Draw the null as one band if all heads share it, as a band for each run of layers that do, or as bars."""
    levels, share = points.null, f"{points.share:.3g} %"
    lower, middle, upper = levels
    scored = np.isfinite(lower) & np.isfinite(upper)
    if not scored.any():
        return
    labels = [f"null, {share} of {noun}s", "null, median"]
    if _is_one_null(levels, scored):
        low, median, high = (float(level[scored][0]) for level in levels)
        ax.axhspan(low, high, color=theme.null, alpha=0.28, linewidth=0, label=labels[0])
        ax.axhline(median, color=theme.null, linewidth=1.2, label=labels[1])
        return
    runs = _runs_of_one_null(levels, scored)
    for first, beyond in runs or ():
        low, median, high = (float(level[first:beyond][scored[first:beyond]][0]) for level in levels)
        ends = first - 0.5, beyond - 0.5
        ax.fill_between(ends, low, high, color=theme.null, alpha=0.28, linewidth=0, label=labels[0])
        ax.hlines(median, *ends, color=theme.null, linewidth=1.2, label=labels[1])
        labels = ["", ""]
    if runs is None:
        width, own = float(np.clip(240 / x.size, 1.0, 7.0)), f"each {noun}'s null"
        bars = {"color": theme.null, "alpha": 0.45, "linewidth": width, "label": f"{own}, {share}"}
        ax.vlines(x[scored], lower[scored], upper[scored], **bars)
        marks = {"linestyle": "none", "marker": "_", "markersize": width + 1.0, "color": theme.null}
        ax.plot(x[scored], middle[scored], label=f"{own}, median", **marks)


def _is_one_null(levels: np.ndarray, scored: np.ndarray) -> bool:
    return all(np.ptp(level[scored]) <= _SAME * np.abs(level[scored]).max() for level in levels)


def _runs_of_one_null(
    levels: Float[np.ndarray, "level layer head"], scored: Bool[np.ndarray, "layer head"]
) -> list[tuple[int, int]] | None:
    """Find the runs (first, beyond the last) of layers whose heads share a null; None if a layer's heads do not."""
    runs: list[tuple[int, int]] = []
    for layer in np.flatnonzero(scored.any(axis=1)).tolist():
        first, beyond = runs[-1][0] if runs else layer, layer + 1
        if runs and _is_one_null(levels[:, first:beyond], scored[first:beyond]):
            runs[-1] = first, beyond
        elif _is_one_null(levels[:, layer:beyond], scored[layer:beyond]):
            runs.append((layer, beyond))
        else:
            return None
    return runs


def _mark_size(value: Float[np.ndarray, "layer head"]) -> float:
    return float(np.clip(30 / len(value) ** 0.5 / value.shape[1] ** 0.25, 2.0, 4.5))


def _scale(ax: Axes, value: Float[np.ndarray, "layer head"], null: Float[np.ndarray, "level layer head"]) -> None:
    """Choose a logarithmic axis where a linear one would hide the null's band or the smallest values."""
    if prefer_log(value, null[0], null[2]):
        log_axis(ax)
        return
    finite, ends = value[np.isfinite(value)], null[np.isfinite(null)]
    if finite.size and ends.size and min(finite.min(), ends.min()) < 0:
        width = float(np.abs(ends).max())
        if 0 < _HIDDEN * width < np.abs(finite).max():
            symmetric_log_axis(ax, width)


@panel
def matrix_statistic_by_layer(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, statistic: str = "weibull_shape"
) -> Around:
    """Draw one statistic of every matrix by layer, a line for each component, with 95 % of the null at its size."""
    matrices = matrices_of(scores).transpose("layer", "component", ...)
    value, names = column_of(matrices, statistic), matrices["component"].values.tolist()
    label, bands = "null, 95 % at this size", []
    if statistic in matrices["statistic"].values:
        row = matrices.sel(statistic=statistic).transpose("component", "layer", ...)
        mean, spread = row["null_mean"].values, NORMAL_95 * row["null_std"].values
        for band in np.stack([mean - spread, mean + spread], axis=-1)[np.isfinite(mean + spread)]:
            if not any(np.allclose(band, drawn, rtol=1e-12, atol=0.0) for drawn in bands):
                bands.append(band)
                ax.axhspan(*band, color=theme.null, alpha=0.28, linewidth=1.0, label=label)
                label = ""
    places = np.arange(matrices.sizes["layer"])
    width = 0.5 / max(len(names) - 1, 1)
    for k, (name, look) in enumerate(zip(names, axes.looks(theme, len(names)), strict=True)):
        line = value.sel(component=name).values
        known = np.isfinite(line)
        x = (places + width * (k - 0.5 * (len(names) - 1)))[known]
        ax.plot(x, line[known], linewidth=0.8, markersize=4.0, label=symbol_of(name), **look.line())
    if prefer_log(value.values):
        ax.set_yscale("log")
    return Around(y=statistic_label(statistic), layers=matrices)


@panel
def width_by_layer(
    ax: Axes, theme: Theme, scores: xr.DataTree, beside: Literal["entropy", "kl_matched_normal"], component: str
) -> Around:
    """Draw σ of the elements of every head by layer, and a second quantity beside it."""
    table = group_of(scores, "elements", component).transpose("layer", "head", ...)
    sigma = column_of(table, "sigma").where(lambda widths: widths > 0).values
    x = places_in_layer(np.isfinite(sigma))
    size = _mark_size(sigma)
    mark: dict[str, Any] = {"linestyle": "none", "marker": "x", "markersize": size, "markeredgewidth": 0.9}
    circle: dict[str, Any] = mark | {"marker": "o", "markerfacecolor": "none", "color": theme.observed}
    ax.plot(x.ravel(), sigma.ravel(), label=r"standard deviation $\sigma$", **circle)
    if beside == "entropy":
        normal_width = np.exp(column_of(table, "entropy").values - _UNIT)
        ax.plot(x.ravel(), normal_width.ravel(), color=theme.flagged, label="entropy $S$ (right axis)", **mark)
        log_axis(ax)
        entropy_and_width = (
            lambda width: _UNIT + np.log(np.fmax(width, 1e-300)),
            lambda entropy: np.exp(np.clip(np.asarray(entropy) - _UNIT, -600.0, 600.0)),
        )
        right = ax.secondary_yaxis("right", functions=entropy_and_width)
        right.set_yscale("linear")
        right.set_ylabel("entropy $S$ (nats)", color=theme.flagged, fontsize=theme.points("axes.labelsize"))
        right.tick_params(colors=theme.flagged, labelsize=theme.points("xtick.labelsize"))
        right.spines["right"].set_color(theme.flagged)
    else:
        core = sigma * column_of(table, "core_sigma").values
        ax.plot(x.ravel(), core.ravel(), color=theme.series[2], label=r"$\sigma_\mathrm{fit}$ of the core", **mark)
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
    row = table.sel(statistic="kl_matched_normal")
    value, mean, spread = (row[name].values for name in ("observed", "null_mean", "null_std"))
    right = axes.styled(ax.twinx(), theme)
    right.spines["right"].set(visible=True, color=theme.flagged)
    right.spines["left"].set_visible(False)
    right.tick_params(axis="y", colors=theme.flagged)
    right.grid(False)
    lower, upper = mean - NORMAL_95 * spread, mean + NORMAL_95 * spread
    look = {"color": theme.null, "alpha": 0.28, "linewidth": 0}
    layers = np.flatnonzero(np.isfinite(upper).any(axis=1)).tolist()
    for layer in layers:
        band = float(np.nanmin(lower[layer])), float(np.nanmax(upper[layer]))
        right.fill_between((layer - 0.5, layer + 0.5), *band, **look)
    if layers:
        ax.fill_between([], [], label="null of $D_{\\mathrm{KL}}$, 95 %", **look)
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
