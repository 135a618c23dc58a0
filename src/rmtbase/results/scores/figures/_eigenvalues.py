"""Eigenvalues of heads relative to the null: a few heads rank by rank, or all heads of a model in one map."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import Around, looks, noun_of, panel, rows_axis
from rmtbase.drawing.color_scales import LOG_DENSITY, RATIO, SHARE
from rmtbase.drawing.groups import heads_of, null_of
from rmtbase.drawing.null_curves import case_title, chain_title
from rmtbase.drawing.scales import log_axis, prefer_log
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores._how_much import farthest_distance
from rmtbase.tables import circuit_of, heads_present, layer_names, shapes_of

BANDS = ((0.01, 0.99, 0.22), (0.16, 0.84, 0.4))  # lower and upper probability of each null band, and its opacity
_RANK = "rank $k$ of the eigenvalue, largest first"
_BAND = (0.01, 0.99)
_LEAST = 1e-9  # lower limit of an axis, relative to the largest eigenvalue of a layer


@panel
def ordered_eigenvalues(
    ax: Axes,
    theme: Theme,
    table: xr.Dataset | xr.DataTree,
    case: int = 0,
    heads: Sequence[tuple[int, int]] | None = None,
) -> Around:
    """Draw the null's ordered eigenvalues with quantile bands (1-99 % and 16-84 %), and heads of a model on top."""
    lines, own_nulls = dict[str, Float[np.ndarray, " index"]](), False
    if isinstance(table, xr.DataTree):
        null, table_heads = null_of(table), heads_of(table)
        rank, probability = table_heads.sizes["index"], null["probability"].values
        names, numbers = layer_names(table_heads), table_heads["head"].values.tolist()
        chosen = farthest_middle_nearest(table_heads)
        if heads is not None:
            layers = table_heads["layer"].values.tolist()
            chosen = {(layers.index(layer), numbers.index(head)): "" for layer, head in heads}
        shapes, title = shapes_of(table), "Ordered eigenvalues"
        title = chain_title(title, circuit_of(table.attrs), shapes[0]) if len(shapes) == 1 else title
        scale, own_nulls = null_scales(table, table_heads), null["eigenvalue_quantile"].ndim > 2
        bands = [null_quantiles(table, *place) for place in (chosen if own_nulls else [(0, 0)])]
        for k, (place, words) in enumerate(chosen.items()):
            median = _at(bands[k if own_nulls else 0], probability, 0.5)
            name = f"{literal(names[place[0]])} {noun_of(table)} {literal(numbers[place[1]])}{words}"
            lines[name] = _over(table_heads["eigenvalue"].values[place] / scale[place], median)
    else:
        row = table.isel(case=case)
        rank = int(row["d_head"])
        bands, probability = [row["eigenvalue_quantile"].values[:rank]], row["probability"].values
        title = case_title(int(row["d_model"]), rank, float(row["sigma_q"]), float(row["sigma_k"]))
    bands = [_over(band, _at(band, probability, 0.5)[:, None]) for band in bands]
    k = np.arange(1, rank + 1)
    across = k if rank > 1 else np.array([0.6, 1.4])  # gives the bands of a single rank some width
    whose, colours, levels = "null", [theme.null], BANDS
    if own_nulls:
        whose, levels = f"the {noun_of(table)}'s null", BANDS[:1]
        colours = [look.colour for look in looks(theme, len(bands))]
    for place, (band, colour) in enumerate(zip(bands, colours, strict=True)):
        for lower, upper, alpha in levels:
            label = "" if place else f"{whose}, {lower * 100:g}–{upper * 100:g} %"
            ends = _at(band, probability, lower), _at(band, probability, upper)
            ax.fill_between(across, *ends, color=colour, alpha=alpha, linewidth=0, label=label)
    if not own_nulls:
        median = np.broadcast_to(_at(bands[0], probability, 0.5), across.shape)
        ax.plot(across, median, color=theme.null, linewidth=1.2, label="null, median")
    size = 3.2 if k.size <= 32 else 1.8
    for (name, values), look in zip(lines.items(), looks(theme, len(lines)), strict=True):
        ax.plot(k, values, color=look.colour, marker=look.marker, markersize=size, linewidth=1.1, label=name)
    if prefer_log(*bands, *lines.values()):
        log_axis(ax)
    ax.set_xlim(across[0] - 0.02 * rank, across[-1] + 0.02 * rank)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return Around(title, _RANK, r"eigenvalue $\lambda_k$ / its median under the null")


def _over(values: Float[np.ndarray, "index ..."], median: Float[np.ndarray, "index ..."]) -> np.ndarray:
    return values / np.where(median > 0, median, np.nan)


def _at(
    band: Float[np.ndarray, "index probability"], probability: Float[np.ndarray, " probability"], level: float
) -> Float[np.ndarray, " index"]:
    return band[:, int(np.argmin(np.abs(probability - level)))]


def farthest_middle_nearest(heads: xr.Dataset) -> dict[tuple[int, int], str]:
    """Return the places of the heads farthest from the null, in the middle and nearest, each with its description."""
    distance = farthest_distance(heads)
    order = [k for k in np.argsort(-np.abs(distance), axis=None) if not np.isnan(distance.flat[k])]
    if not order:
        return {}
    picks = {order[-1]: " (nearest the null)", order[len(order) // 2]: " (middle)", order[0]: " (farthest)"}
    pairs = {k: np.unravel_index(k, distance.shape) for k in picks}
    return {(int(pairs[k][0]), int(pairs[k][1])): picks[k] for k in reversed(picks)}


@panel
def eigenvalue_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree, over: Literal["null", "mean"] = "null") -> Around:
    """Draw every eigenvalue λ_k of every head, one row per head, with layer 0 on top."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    layer, head = np.nonzero(heads_present(heads))
    values = heads["eigenvalue"].values[layer, head]
    medians = null_medians(scores, heads)[layer, head]
    scale, above = RATIO, 0
    if over == "null":
        low, high = (null_medians(scores, heads, end)[layer, head] for end in _BAND)
        cells = np.where((low <= values) & (values <= high), 1.0, _over(values, medians))
        words = "its median under the null,\nthe palest within 1–99 % of the null"
    else:
        null, scale, above = np.nanmedian(medians, axis=0), SHARE, 2
        cells = np.vstack([null, np.full_like(null, np.nan), values]) / np.nanmean(values)
        words = "the mean of all"
    ranks, rows = np.arange(cells.shape[1] + 1) + 0.5, np.arange(len(cells) + 1) - 0.5 - above
    scale.fill(ax, ranks, rows, cells, theme)
    rows_axis(ax, layer.tolist(), heads, theme, null=bool(above))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlim(0.5, ranks[-1])
    title = rf"eigenvalues of ${circuit_of(scores.attrs).latex}$ over {words}"
    return Around(title, _RANK, f"layer, a row for each {noun_of(scores)}", scale=scale)


@panel
def eigenvalue_density_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree) -> Around:
    """Draw the density of ln λ of every head, one row per head, with the median head of the null on top."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    layer, head = np.nonzero(heads_present(heads))
    values = heads["eigenvalue"].values[layer, head]
    mean = np.nanmean(values)
    null = np.nanmedian(null_medians(scores, heads)[layer, head], axis=0)
    logs = [np.log(row[row > 0] / mean) for row in (null, np.zeros(0), *values)]
    pooled = np.concatenate(logs) if mean > 0 else np.zeros(0)
    if not pooled.size:
        raise ParameterError("scores", "no eigenvalue above zero", "heads that are not all zeros")
    low, high = np.floor(10 * pooled.min()) / 10, np.ceil(10 * pooled.max() + 1e-9) / 10
    edges = np.linspace(low, high, int(np.clip(6 * values.shape[1] ** 0.5, 12, 96)) + 1)
    cells = np.array([np.histogram(row, edges)[0] / max(row.size, 1) for row in logs]) / np.diff(edges)
    rows = np.arange(len(cells) + 1) - 2.5
    LOG_DENSITY.fill(ax, np.exp(edges), rows, np.where(cells > 0, cells, np.nan), theme)
    rows_axis(ax, layer.tolist(), heads, theme, null=True)
    ax.set_xlim(np.exp(edges[0]), np.exp(edges[-1]))
    log_axis(ax, "x")
    title, y_label = circuit_of(scores.attrs).latex, f"layer, a row for each {noun_of(scores)}"
    x_label = "eigenvalue over the mean of all"
    return Around(rf"density of the eigenvalues of ${title}$", x_label, y_label, scale=LOG_DENSITY)


def null_quantiles(tree: xr.DataTree, layer: int, head: int) -> Float[np.ndarray, "index probability"]:
    """Return the quantiles of one head's ordered null eigenvalues at σ = 1; layer and head are places."""
    null, quantile = null_of(tree), null_of(tree)["eigenvalue_quantile"].values
    if "layer_shape" in null:
        return quantile[null["layer_shape"].values[layer]]
    return quantile[layer, head] if quantile.ndim > 2 else quantile


def null_scales(tree: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    if "null_scale" in heads.coords:
        return heads["null_scale"].values
    return np.prod([heads[factor.sigma].values for factor in circuit_of(tree.attrs).factors], axis=0) ** 2


def null_medians(tree: xr.DataTree, heads: xr.Dataset, level: float = 0.5) -> Float[np.ndarray, "layer head index"]:
    """Return the median, or another quantile, of each ordered eigenvalue under each head's null, at its own σ̂."""
    scales, probability = null_scales(tree, heads), null_of(tree)["probability"].values
    medians = np.full((*scales.shape, heads.sizes["index"]), np.nan)
    for place in np.ndindex(scales.shape):
        quantile = _at(null_quantiles(tree, *place)[: heads.sizes["index"]], probability, level)
        medians[place][: quantile.size] = quantile * scales[place]
    return medians


class _Head(NamedTuple):
    eigenvalue: Float[np.ndarray, " index"]
    quantile: Float[np.ndarray, "index probability"]  # of its null's ordered eigenvalues, at its own scale
    name: str


@panel
def head_eigenvalues(ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, head: int, title: str = "") -> Around:
    """Draw the eigenvalues λ_k of one head by rank, with the band from 1 to 99 % at each rank under its null."""
    heads, probability = _heads_of_layer(scores, layer), null_of(scores)["probability"].values
    drawn = heads[head]
    rank = np.arange(1, drawn.eigenvalue.size + 1)
    if np.isfinite(drawn.quantile).all():
        band: dict[str, Any] = {"color": theme.null, "alpha": 0.3, "linewidth": 0, "label": "null, 1–99 % at its σ"}
        lowest, highest = (_at(drawn.quantile, probability, level) for level in _BAND)
        ax.fill_between(rank, lowest, highest, **band)
    size = 3.2 if rank.size <= 32 else 2.0
    look: dict[str, Any] = {"color": theme.observed, "marker": ".", "markersize": size, "linewidth": 1.0}
    ax.plot(rank, np.where(drawn.eigenvalue > 0, drawn.eigenvalue, np.nan), label="eigenvalues", **look)
    low, high = _range(heads.values())
    ax.set_ylim(low / 1.3, high * 1.3)
    log_axis(ax)
    ax.set_xlim(0.0, max(shown.eigenvalue.size for shown in heads.values()) + 1.0)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    y_label = rf"eigenvalue $\lambda_k$ of ${circuit_of(scores.attrs).latex}$"
    return Around(title or drawn.name, "rank $k$, largest first", y_label)


@panel
def head_eigenvalue_density(
    ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, head: int, title: str = ""
) -> Around:
    """Draw the density of ln λ of one head's nonzero eigenvalues, with its null's expectation in the same bins."""
    heads, probability = _heads_of_layer(scores, layer), null_of(scores)["probability"].values
    drawn, (low, high) = heads[head], np.log(_range(heads.values()))
    bins = int(np.clip(4 * max(shown.eigenvalue.size for shown in heads.values()) ** 0.5, 12, 64))
    edges = np.linspace(low - 1e-9, high + 1e-9, bins + 1)
    positive = np.log(drawn.eigenvalue[drawn.eigenvalue > 0])
    share = np.histogram(positive, edges)[0] / max(drawn.eigenvalue.size, 1) / np.diff(edges)
    ax.stairs(share, np.exp(edges), fill=True, color=theme.observed, alpha=0.45, label="eigenvalues")
    # The law of each ordered eigenvalue is interpolated linearly in ln λ between its quantiles.
    below = np.zeros(edges.size)
    for quantile in drawn.quantile:
        known = np.isfinite(quantile) & (quantile > 0)
        if known.any():
            below += np.interp(edges, np.log(quantile[known]), probability[known], left=0.0, right=1.0)
    expected = np.diff(below) / max(drawn.eigenvalue.size, 1) / np.diff(edges)
    ax.stairs(expected, np.exp(edges), color=theme.null, linewidth=1.3, label="null at its σ, expected")
    ax.set_xlim(np.exp(edges[0]), np.exp(edges[-1]))
    log_axis(ax, "x")
    ax.set_ylim(bottom=0.0, auto=True)
    return Around(title or drawn.name, r"eigenvalue $\lambda$", r"density of $\ln\lambda$")


def layer_name(scores: xr.DataTree, layer: int) -> str:
    heads = heads_of(scores)
    return literal(layer_names(heads)[heads["layer"].values.tolist().index(layer)])


def _heads_of_layer(scores: xr.DataTree, layer: int) -> dict[int, _Head]:
    heads = heads_of(scores).transpose("layer", "head", ...)
    scales, row, collected = null_scales(scores, heads), heads["layer"].values.tolist().index(layer), {}
    for column in np.flatnonzero(heads_present(heads)[row]).tolist():
        head, values = int(heads["head"].values[column]), heads["eigenvalue"].values[row, column]
        values = values[np.isfinite(values)]
        quantile = null_quantiles(scores, row, column)[: values.size] * scales[row, column]
        name = f"{layer_name(scores, layer)} {noun_of(scores)} {head}"
        collected[head] = _Head(values, quantile, name)
    return collected


def _range(heads: Collection[_Head]) -> tuple[float, float]:
    """Return the smallest and the largest positive eigenvalue of the heads or of their nulls."""
    values = np.concatenate([values for head in heads for values in (head.eigenvalue, head.quantile.ravel())])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        raise ParameterError("scores", "no eigenvalue above zero", "heads that are not all zeros")
    high = float(values.max())
    return max(float(values.min()), _LEAST * high), high
