"""Eigenvalues of single heads by rank, and their density, at the head's own scale and with its own null."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import Around, noun_of, panel
from rmtbase.drawing.groups import heads_of, null_of
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.figures._eigenvalues import null_quantiles, null_scales
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
def head_eigenvalues(ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, head: int, title: str = "") -> Around:
    """Draw the eigenvalues λ_k of one head by rank, with the band from 1 to 99 % at each rank under its null.

    The null is at the head's own σ̂. The axes are the same for all heads of a layer.
    """
    heads = _heads_of_layer(scores, layer)
    drawn = heads[head]
    rank = np.arange(1, drawn.eigenvalue.size + 1)
    if np.isfinite(drawn.quantile).all():
        band = {"color": theme.null, "alpha": 0.3, "linewidth": 0, "label": "null, 1–99 % at its σ"}
        ax.fill_between(rank, drawn.at(0.01), drawn.at(0.99), **band)
    look = {"color": theme.observed, "marker": ".", "markersize": 3.2 if rank.size <= 32 else 2.0, "linewidth": 1.0}
    ax.plot(rank, np.where(drawn.eigenvalue > 0, drawn.eigenvalue, np.nan), label="eigenvalues", **look)
    low, high = _range(heads.values())
    ax.set_ylim(low / 1.3, high * 1.3)
    log_axis(ax)
    ax.set_xlim(0.0, max(each.eigenvalue.size for each in heads.values()) + 1.0)
    ax.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
    y_label = rf"eigenvalue $\lambda_k$ of ${circuit_of(scores.attrs).latex}$"
    return Around(title or drawn.name, "rank $k$, largest first", y_label)


@panel
def head_eigenvalue_density(
    ax: Axes, theme: Theme, scores: xr.DataTree, layer: int, head: int, title: str = ""
) -> Around:
    """Draw the density of ln λ of one head's nonzero eigenvalues, with its null's expectation in the same bins.

    The null is computed from the quantiles of its ordered eigenvalues, at the head's own σ̂. The bins are the same for
    all heads of a layer. The d − h zeros that the rank imposes are left out.
    """
    heads = _heads_of_layer(scores, layer)
    drawn, edges = heads[head], _edges(heads.values())
    positive = np.log(drawn.eigenvalue[drawn.eigenvalue > 0])
    share = np.histogram(positive, edges)[0] / max(drawn.eigenvalue.size, 1) / np.diff(edges)
    ax.stairs(share, np.exp(edges), fill=True, color=theme.observed, alpha=0.45, label="eigenvalues")
    ax.stairs(_expected(drawn, edges), np.exp(edges), color=theme.null, linewidth=1.3, label="null at its σ, expected")
    ax.set_xlim(np.exp(edges[0]), np.exp(edges[-1]))
    log_axis(ax, "x")
    ax.set_ylim(bottom=0.0, auto=True)
    return Around(title or drawn.name, r"eigenvalue $\lambda$", r"density of $\ln\lambda$")


def layer_name(scores: xr.DataTree, layer: int) -> str:
    """Return the name of a layer, and of its stack if there are several."""
    heads = heads_of(scores)
    return literal(layer_names(heads)[heads["layer"].values.tolist().index(layer)])


def _heads_of_layer(scores: xr.DataTree, layer: int) -> dict[int, _Head]:
    """Collect all heads of a layer, by number."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    scales, probability = null_scales(scores, heads), null_of(scores)["probability"].values
    row = heads["layer"].values.tolist().index(layer)
    collected: dict[int, _Head] = {}
    for column in np.flatnonzero(heads_present(heads)[row]).tolist():
        head = int(heads["head"].values[column])
        values = heads["eigenvalue"].values[row, column]
        values = values[np.isfinite(values)]
        quantile = null_quantiles(scores, row, column)[: values.size] * scales[row, column]
        name = f"{layer_name(scores, layer)} {noun_of(scores)} {head}"
        collected[head] = _Head(values, quantile, probability, name)
    return collected


def _range(heads: Collection[_Head]) -> tuple[float, float]:
    """Return the smallest and the largest positive eigenvalue of the heads or of their nulls."""
    values = np.concatenate([np.concatenate([head.eigenvalue, head.quantile.ravel()]) for head in heads])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        raise ParameterError("scores", "no eigenvalue above zero", "heads that are not all zeros")
    high = float(values.max())
    return max(float(values.min()), _LEAST * high), high


def _edges(heads: Collection[_Head]) -> Float[np.ndarray, " edge"]:
    """Return the edges of the bins of ln λ that these heads share."""
    low, high = np.log(_range(heads))
    bins = int(np.clip(4 * max(head.eigenvalue.size for head in heads) ** 0.5, 12, 64))
    return np.linspace(low - 1e-9, high + 1e-9, bins + 1)


def _expected(head: _Head, edges: Float[np.ndarray, " edge"]) -> Float[np.ndarray, " bin"]:
    """Return the density that the null expects in each bin.

    The law of each ordered eigenvalue is interpolated linearly in ln λ between its quantiles.
    """
    below = np.zeros(edges.size)
    for quantile in head.quantile:
        known = np.isfinite(quantile) & (quantile > 0)
        if known.any():
            below += np.interp(edges, np.log(quantile[known]), head.probability[known], left=0.0, right=1.0)
    return np.diff(below) / max(head.eigenvalue.size, 1) / np.diff(edges)
