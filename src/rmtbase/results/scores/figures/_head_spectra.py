"""Eigenvalues of single heads by rank, and their density, at the head's own scale and with its own null."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import cycle
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import (
    LINE_STYLES,
    MARKERS,
    finished,
    grid_of_axes,
    literal,
    model_title,
    new_figure,
    noun_of,
    panel,
)
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.fitting import fit_figure
from rmtbase.drawing.groups import heads_of, null_of
from rmtbase.drawing.layout import figure_style, legend_of_all
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.figures._eigenvalues import BANDS, farthest_middle_nearest, null_quantiles, null_scales
from rmtbase.tables import circuit_of, heads_present, layer_names

_LEAST = 1e-9  # lower limit of an axis, relative to the largest eigenvalue of a layer


class _Head(NamedTuple):
    """Head with its eigenvalues, the quantiles of its null's ordered eigenvalues at its own scale, and its name."""

    eigenvalue: Float[np.ndarray, " index"]
    quantile: Float[np.ndarray, "index probability"]
    probability: Float[np.ndarray, " probability"]
    name: str

    def at(self, level: float) -> Float[np.ndarray, " index"]:
        return self.quantile[:, int(np.argmin(np.abs(self.probability - level)))]


@panel
def head_eigenvalues(
    ax: Axes, theme: Theme, scores: xr.DataTree, layer: int = 0, head: int = 0, *, legend: bool = True
) -> Axes:
    """Draw the eigenvalues λ_k of one head by rank, with the band from 1 to 99 % at each rank under its null.

    The null is at the head's own σ̂. The axes are the same for all heads of a layer.

    The axes: rank k against λ_k of the raw product (logarithmic).
    """
    heads = _heads_of_layers(scores, [layer])
    one = _one_of(heads, layer, head)
    _by_rank(ax, one, theme.null, theme.observed, "eigenvalues", "null, 1–99 % at its σ", ".")
    _rank_axes(ax, scores, heads.values())
    return finished(ax, theme, one.name, legend)


@panel
def head_eigenvalue_density(
    ax: Axes, theme: Theme, scores: xr.DataTree, layer: int = 0, head: int = 0, *, legend: bool = True
) -> Axes:
    """Draw the density of ln λ of one head's nonzero eigenvalues, with its null's expectation in the same bins.

    The null is computed from the quantiles of its ordered eigenvalues, at the head's own σ̂. The bins are the same for
    all heads of a layer. The d − h zeros that the rank imposes are left out.

    The axes: λ of the raw product (logarithmic) against the density of ln λ: the share of eigenvalues per unit.
    """
    heads = _heads_of_layers(scores, [layer])
    one, edges = _one_of(heads, layer, head), _edges(heads.values())
    ax.stairs(_share(one, edges), np.exp(edges), fill=True, color=theme.observed, alpha=0.45, label="eigenvalues")
    ax.stairs(_expected(one, edges), np.exp(edges), color=theme.null, linewidth=1.3, label="null at its σ, expected")
    _density_axes(ax, edges)
    return finished(ax, theme, one.name, legend)


def head_spectra(
    scores: xr.DataTree,
    heads: Sequence[tuple[int, int]] | None = None,
    *,
    theme: Theme | str = "light",
    width: float | None = None,
) -> ThemedFigure:
    """Draw the spectra of a few heads on the same axes, by rank and as density of ln λ, each with its own null."""
    theme, width = figure_style(theme, width)
    if heads is None:
        held = heads_of(scores)
        places = farthest_middle_nearest(held)
        ends = [places_of for places_of, words in places.items() if "middle" not in words] or list(places)
        named = {(int(held["layer"].values[i]), int(held["head"].values[j])): places[i, j] for i, j in reversed(ends)}
    else:
        named = dict.fromkeys(heads, "")
    if not 1 <= len(named) <= len(MARKERS):
        raise ParameterError("heads", heads, f"1 to {len(MARKERS)} pairs (layer, head)")
    width = width or 9.6
    columns = 2 if width >= 6.0 else 1
    figure = new_figure(theme, width, 4.2 if columns == 2 else 6.6, model_title(scores))
    left, right = grid_of_axes(figure, theme, 2 // columns, columns).flat
    every = _heads_of_layers(scores, [layer for layer, _ in named])
    drawn = [_one_of(every, *place) for place in named]
    edges = _edges(drawn)
    styles = zip(drawn, named.values(), cycle(theme.series), MARKERS, LINE_STYLES, strict=False)
    for one, words, colour, marker, style in styles:
        _by_rank(left, one, colour, colour, one.name + words, f"null of {one.name}, 1–99 %", marker)
        right.stairs(_share(one, edges), np.exp(edges), color=colour, linewidth=1.6, linestyle=style)
        right.stairs(_expected(one, edges), np.exp(edges), fill=True, color=colour, alpha=0.22)
    _rank_axes(left, scores, drawn)
    _density_axes(right, edges)
    legend_of_all(figure, theme)
    fit_figure(figure)
    return figure


def _heads_of_layers(scores: xr.DataTree, layers: Iterable[int]) -> dict[tuple[int, int], _Head]:
    """Collect all heads of these layers, by layer and head."""
    null, heads = null_of(scores), heads_of(scores).transpose("layer", "head", ...)
    there, scales, names = heads_present(heads), null_scales(scores, heads), layer_names(heads)
    places, probability = heads["layer"].values.tolist(), null["probability"].values
    found: dict[tuple[int, int], _Head] = {}
    for layer in dict.fromkeys(layers):
        if layer not in places:
            raise ParameterError("layer", layer, f"one of {places}")
        row = places.index(layer)
        for column in np.flatnonzero(there[row]).tolist():
            head = int(heads["head"].values[column])
            values = heads["eigenvalue"].values[row, column]
            values = values[np.isfinite(values)]
            quantile = null_quantiles(scores, row, column)[: values.size] * scales[row, column]
            name = f"{literal(names[row])} {noun_of(scores)} {head}"
            found[layer, head] = _Head(values, quantile, probability, name)
    return found


def _one_of(heads: Mapping[tuple[int, int], _Head], layer: int, head: int) -> _Head:
    if (layer, head) not in heads:
        raise ParameterError("head", (layer, head), f"a head that layer {layer} has")
    return heads[layer, head]


def _by_rank(ax: Axes, one: _Head, null: str, colour: str, name: str, band: str, marker: str) -> None:
    lower, upper, _ = BANDS[0]
    rank = np.arange(1, one.eigenvalue.size + 1)
    if np.isfinite(one.quantile).all():
        ax.fill_between(rank, one.at(lower), one.at(upper), color=null, alpha=0.3, linewidth=0, label=band)
    size = 3.2 if rank.size <= 32 else 2.0
    shown = np.where(one.eigenvalue > 0, one.eigenvalue, np.nan)
    ax.plot(rank, shown, color=colour, marker=marker, markersize=size, linewidth=1.0, label=name)


def _rank_axes(ax: Axes, scores: xr.DataTree, heads: Collection[_Head]) -> None:
    low, high = _range(heads)
    ax.set_ylim(low / 1.3, high * 1.3)
    log_axis(ax)
    ax.set_xlim(0.0, max(one.eigenvalue.size for one in heads) + 1.0)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    ax.set(xlabel="rank $k$, largest first", ylabel=rf"eigenvalue $\lambda_k$ of ${circuit_of(scores.attrs).latex}$")


def _density_axes(ax: Axes, edges: Float[np.ndarray, " edge"]) -> None:
    ax.set_xlim(np.exp(edges[0]), np.exp(edges[-1]))
    log_axis(ax, "x")
    ax.set_ylim(bottom=0.0, auto=True)
    ax.set(xlabel=r"eigenvalue $\lambda$", ylabel=r"density of $\ln\lambda$")


def _range(heads: Iterable[_Head]) -> tuple[float, float]:
    """Return the smallest and the largest positive eigenvalue of the heads or of their nulls."""
    values = np.concatenate([np.concatenate([one.eigenvalue, one.quantile.ravel()]) for one in heads])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        raise ParameterError("scores", "no eigenvalue above zero", "heads that are not all zeros")
    high = float(values.max())
    return max(float(values.min()), _LEAST * high), high


def _edges(heads: Collection[_Head]) -> Float[np.ndarray, " edge"]:
    """Return the edges of the bins of ln λ that these heads share."""
    low, high = np.log(_range(heads))
    bins = int(np.clip(4 * max(one.eigenvalue.size for one in heads) ** 0.5, 12, 64))
    return np.linspace(low - 1e-9, high + 1e-9, bins + 1)


def _share(one: _Head, edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, " bin"]:
    held = np.log(one.eigenvalue[one.eigenvalue > 0])
    return np.histogram(held, edges)[0] / max(one.eigenvalue.size, 1) / np.diff(edges)


def _expected(one: _Head, edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, " bin"]:
    """Return the density that the null expects in each bin.

    The law of each ordered eigenvalue is interpolated linearly in ln λ between its quantiles.
    """
    below = np.zeros(edges.size)
    for own in one.quantile:
        known = np.isfinite(own) & (own > 0)
        if known.any():
            below += np.interp(edges, np.log(own[known]), one.probability[known], left=0.0, right=1.0)
    return np.diff(below) / max(one.eigenvalue.size, 1) / np.diff(edges)
