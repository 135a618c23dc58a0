"""Ordered eigenvalues: the null's bands, and heads on top of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import MARKERS, finished, literal, log_axis, noun_of, own_axes, prefer_log
from rmtbase.plots._groups import heads_of, null_of, require_case
from rmtbase.plots._null_eigenvalues import null_quantiles, null_scales
from rmtbase.plots._null_spectrum import case_title, chain_title
from rmtbase.plots._theme import Theme, as_theme
from rmtbase.scoring import farthest_distance
from rmtbase.tables import circuit_of, heads_present, layer_names, shapes_of

BANDS = ((0.01, 0.99, 0.22), (0.16, 0.84, 0.4))
"""Lower and upper probability of each null band, with its opacity."""


def ordered_eigenvalues(
    table: xr.Dataset | xr.DataTree,
    heads: Sequence[tuple[int, int]] | None = None,
    case: int = 0,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the null's ordered eigenvalues with quantile bands (1-99 % and 16-84 %), and heads of a model on top.

    Each eigenvalue is divided by the null's median at its rank, so that every rank is seen alike, and has its own band:
    a head can leave it at any rank. A head's eigenvalues are at the scale of its own σ̂_Q² σ̂_K², as those of the null
    are. Heads that have a null each, or several shapes, stand in front of their own bands (1-99 %).

    Args:
        table: a baseline table (the null alone) or a scores tree.
        heads: (layer, head) pairs of a scores tree, at most five. Three if None: the head farthest from the null, the
            middle one and the nearest, by the distance of each one's farthest statistic.
        case: which row of a baseline table.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one, below the axes.

    Returns:
        The axes: rank k of the eigenvalue against λ_k over its median under the null (dimensionless).

    Raises:
        ParameterError: no such head or case, more than five heads, heads asked of a baseline table.
    """
    lines: dict[str, Float[np.ndarray, " index"]] = {}
    own_nulls = False
    if isinstance(table, xr.DataTree):
        null, held = null_of(table), heads_of(table)
        rank, probability = held.sizes["index"], null["probability"].values
        picked = _picked(held, heads, noun_of(table))
        circuit, shapes = circuit_of(table.attrs), shapes_of(table)
        scale, own_nulls = null_scales(table, held), null["eigenvalue_quantile"].ndim > 2
        bands = [null_quantiles(table, *place) for place in picked] if own_nulls else [null_quantiles(table, 0, 0)]
        for k, (place, name) in enumerate(picked.items()):
            own = bands[k if own_nulls else 0]
            lines[name] = _over(held["eigenvalue"].values[place] / scale[place], _at(own, probability, 0.5))
        title = chain_title("Ordered eigenvalues", circuit, shapes[0]) if len(shapes) == 1 else "Ordered eigenvalues"
    else:
        if heads is not None:
            raise ParameterError("heads", heads, "None for a baseline table, which holds no heads")
        row = require_case(table, case)
        rank = int(row["d_head"])
        bands, probability = [row["eigenvalue_quantile"].values[:rank]], row["probability"].values
        title = case_title(int(row["d_model"]), rank, float(row["sigma_q"]), float(row["sigma_k"]))
    bands = [_over(band, _at(band, probability, 0.5)[:, None]) for band in bands]
    theme = as_theme(theme)
    ax = own_axes(ax, theme, table)
    k = np.arange(1, rank + 1)
    across = k if rank > 1 else np.array([0.6, 1.4])  # the bands of one rank have some width
    if own_nulls:
        lower, upper, alpha = BANDS[0]
        names = [f"the {noun_of(table)}'s null, {lower * 100:g}–{upper * 100:g} %", *[None] * len(bands)]
        for band, colour, name in zip(bands, cycle(theme.series), names, strict=False):
            low, high = _at(band, probability, lower), _at(band, probability, upper)
            ax.fill_between(across, low, high, color=colour, alpha=alpha, linewidth=0, label=name)
    else:
        for lower, upper, alpha in BANDS:
            ax.fill_between(
                across, _at(bands[0], probability, lower), _at(bands[0], probability, upper), color=theme.null,
                alpha=alpha, linewidth=0, label=f"null, {lower * 100:g}–{upper * 100:g} %",
            )  # fmt: skip
        median = np.broadcast_to(_at(bands[0], probability, 0.5), across.shape)
        ax.plot(across, median, color=theme.null, linewidth=1.2, label="null, median")
    for (name, values), colour, marker in zip(lines.items(), cycle(theme.series), cycle(MARKERS), strict=False):
        ax.plot(
            k, values, color=colour, marker=marker, markersize=3.2 if k.size <= 32 else 1.8, linewidth=1.1, label=name
        )
    if prefer_log(*bands, *lines.values()):
        log_axis(ax)
    ax.set_xlim(across[0] - 0.02 * rank, across[-1] + 0.02 * rank)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set(xlabel="rank $k$ of the eigenvalue, largest first", ylabel=r"$\lambda_k$ / its median under the null")
    return finished(ax, theme, title, legend)


def _over(values: Float[np.ndarray, "index ..."], median: Float[np.ndarray, "index ..."]) -> np.ndarray:
    """Values over the null's median; NaN where that is zero."""
    return values / np.where(median > 0, median, np.nan)


def _at(
    band: Float[np.ndarray, "index probability"], probability: Float[np.ndarray, " probability"], level: float
) -> Float[np.ndarray, " index"]:
    return band[:, int(np.argmin(np.abs(probability - level)))]


def _picked(heads: xr.Dataset, chosen: Sequence[tuple[int, int]] | None, noun: str) -> dict[tuple[int, int], str]:
    """Place and label of the heads to draw."""
    layers, places = heads["layer"].values.tolist(), heads["head"].values.tolist()
    names, there = layer_names(heads), heads_present(heads)
    if chosen is None:
        named = farthest_middle_nearest(heads)
    else:
        if not 1 <= len(chosen) <= len(MARKERS):
            raise ParameterError("heads", chosen, f"1 to {len(MARKERS)} pairs (layer, head)")
        for layer, head in chosen:
            if layer not in layers or head not in places or not there[layers.index(layer), places.index(head)]:
                raise ParameterError(
                    "heads", (layer, head), f"a layer from {layers[0]} to {layers[-1]}, a head from 0 to {places[-1]}"
                )
        named = {(layers.index(layer), places.index(head)): "" for layer, head in chosen}
    return {(i, j): f"{literal(names[i])} {noun} {literal(places[j])}{words}" for (i, j), words in named.items()}


def farthest_middle_nearest(heads: xr.Dataset) -> dict[tuple[int, int], str]:
    """Places of the head farthest from the null, the middle one and the nearest, each with words that say which."""
    distance = farthest_distance(heads)
    order = [k for k in np.argsort(-np.abs(distance), axis=None) if not np.isnan(distance.flat[k])]
    if not order:
        return {}
    picks = {order[-1]: " (nearest the null)", order[len(order) // 2]: " (middle)", order[0]: " (farthest)"}
    pairs = {k: np.unravel_index(k, distance.shape) for k in picks}
    return {(int(pairs[k][0]), int(pairs[k][1])): picks[k] for k in reversed(picks)}
