"""Dependence of four spectral statistics of heads on the width σ of their elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import grid_of_axes, model_title, new_figure, noun_of, symbol_of
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import heads_of
from rmtbase.drawing.layout import FigureStyle, legend_of_all
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores.figures._statistic_by_layer import BAND
from rmtbase.tables import circuit_of, heads_present, shapes_of

_MOST_BANDS = 8  # most shapes of heads with a band; with more nulls, each head has a bar
_Numbers = Float[np.ndarray, " head"]


class _Panel(NamedTuple):
    """Statistic of eigenvalues, and its formula in terms of ‖W‖² and of a scale-free statistic."""

    label: str
    of: Callable[[Float[np.ndarray, "head index"]], _Numbers]
    free: str | None
    law: Callable[[np.ndarray, np.ndarray], np.ndarray]
    log: bool = True


def _largest(x: Float[np.ndarray, "head index"]) -> _Numbers:
    return x[:, 0]


def _sum(x: Float[np.ndarray, "head index"]) -> _Numbers:
    return np.nansum(x, axis=1)


def _sum_of_squares(x: Float[np.ndarray, "head index"]) -> _Numbers:
    return np.nansum(x**2, axis=1)


def _entropy(x: Float[np.ndarray, "head index"]) -> _Numbers:
    share = x / np.nansum(x, axis=1, keepdims=True)
    return -np.nansum(share * np.log(np.where(share > 0, share, 1.0)), axis=1)


def _its_entropy(norm: np.ndarray, entropy: np.ndarray) -> np.ndarray:
    return entropy + 0.0 * norm


_PANELS = {
    "eigenvalue": (
        _Panel(r"$\lambda_1$", _largest, "stable_rank", lambda norm, rank: norm / rank),
        _Panel(r"$\Sigma\lambda$", _sum, None, lambda norm, _: norm),
        _Panel(r"$\Sigma\lambda^2$", _sum_of_squares, "participation_ratio", lambda norm, ratio: norm**2 / ratio),
        _Panel(r"spectral entropy $S$", _entropy, "spectral_entropy", _its_entropy, log=False),
    ),
    "singular value": (
        _Panel("$s_1$", _largest, "stable_rank", lambda norm, rank: np.sqrt(norm / rank)),
        _Panel(r"$\Sigma s$", _sum, "participation_ratio_singular", lambda norm, ratio: np.sqrt(norm * ratio)),
        _Panel(r"$\Sigma s^2$", _sum_of_squares, None, lambda norm, _: norm),
        _Panel("spectral entropy $S^{(s)}$", _entropy, "spectral_entropy_singular", _its_entropy, log=False),
    ),
}


@dataclass(frozen=True)
class _Heads:
    """Heads that are not all zeros: σ of their elements, their numbers of elements, and their spectra."""

    sigma: _Numbers
    size: _Numbers
    spectra: Float[np.ndarray, "head index"]
    noun: str


def spectrum_and_width(
    scores: xr.DataTree, convention: Literal["eigenvalue", "singular value"], style: FigureStyle
) -> ThemedFigure:
    """Draw the largest value, the sum, the sum of squares and the entropy of spectra against the elements' σ.

    σ is the root mean square of the elements, so that Σλ = Σs² = d_q d_k σ² is an identity, drawn as a line. Given σ,
    the other statistics depend only on scale-free ones: λ₁ = Σλ/r_s, Σλ² = (Σλ)²/PR, Σs = √(Σλ PR⁽ˢ⁾). The bands hold
    99 % of random heads with that σ. Heads on a line parallel to the band differ only in scale; deviations from such a
    line are differences of shape.
    """
    table = heads_of(scores).transpose("layer", "head", ...)
    present = heads_present(table) & (table["eigenvalue"].fillna(0.0).sum("index").values > 0)
    values, size = table["eigenvalue"].values[present], _sizes(scores, table)[present]
    sigma = np.sqrt(np.nansum(values, axis=1) / size)
    heads = _Heads(sigma, size, values if convention == "eigenvalue" else np.sqrt(values), noun_of(scores))
    width = style.width or 9.6
    columns = 2 if width >= 5.2 else 1
    figure = new_figure(style.theme, width, 3.0 * (4 // columns), model_title(scores))
    grid = grid_of_axes(figure, style.theme, 4 // columns, columns, sharex=True)
    component = symbol_of(f"W_{circuit_of(scores.attrs).name.upper()}")
    for place, (ax, panel) in enumerate(zip(grid.flat, _PANELS[convention], strict=True)):
        _draw(ax, style.theme, panel, heads, _null_ends(table, present, panel.free))
        ax.set_ylabel(panel.label)
        if place + columns >= 4:
            ax.set_xlabel(rf"standard deviation $\sigma$ of the elements of {component}")
            ax.tick_params(axis="x", labelbottom=True)
    legend_of_all(figure, style.theme, join=True)
    return figure


def _sizes(scores: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    """Return the number of elements of each head's product."""
    shapes = np.array([shape[0] * shape[-1] for shape in shapes_of(scores)], dtype=float)
    null, layers = scores["null"].to_dataset(), heads.sizes["layer"]
    if "layer_shape" in null:
        by_layer = shapes[null["layer_shape"].values]
    elif len(shapes) == 1:
        by_layer = np.full(layers, shapes[0])
    else:
        first, *_, last = circuit_of(scores.attrs).dims
        by_layer = (heads[first].values * heads[last].values).astype(float)
    return np.repeat(by_layer[:, None], heads.sizes["head"], axis=1)


def _null_ends(heads: xr.Dataset, present: np.ndarray, free: str | None) -> Float[np.ndarray, "head level"]:
    """Return the null's lower and upper end for each head, for a scale-free statistic; 1 if none is needed."""
    if free is None:
        return np.ones((int(present.sum()), 2))
    probability = heads["probability"].values
    places = [int(np.argmin(np.abs(probability - level))) for level in BAND]
    quantile = heads["null_quantile"].sel(statistic=free).transpose("layer", "head", "probability")
    return quantile.values[present][:, places]


def _draw(ax: Axes, theme: Theme, panel: _Panel, heads: _Heads, ends: Float[np.ndarray, "head level"]) -> None:
    """Draw heads, and the band of each null along σ."""
    sigma = heads.sigma
    reach = np.geomspace(0.9 * sigma.min(), 1.1 * sigma.max(), 50)
    nulls = np.column_stack([heads.size, ends])
    kinds = np.unique(np.round(nulls[np.isfinite(nulls).all(axis=1)], 9), axis=0)
    name = f"null, 99 % of {heads.noun}s at this σ"
    if len(kinds) > _MOST_BANDS and panel.free is not None:
        low, high = (np.asarray(panel.law(heads.size * sigma**2, ends[:, end])) for end in (0, 1))
        ax.vlines(sigma, low, high, color=theme.null, alpha=0.45, linewidth=3.0, label=name)
        kinds = kinds[:0]
    for number, low, high in kinds.tolist():
        lower, upper = (np.asarray(panel.law(number * reach**2, np.asarray(end))) for end in (low, high))
        if panel.free is None:
            ax.plot(reach, lower, color=theme.free_law, linewidth=1.2, label="identity")
        else:
            ax.fill_between(reach, lower, upper, color=theme.null, alpha=0.3, linewidth=0, label=name)
        name = ""
    ax.plot(
        sigma, panel.of(heads.spectra), linestyle="none", marker="o", markerfacecolor="none",
        markersize=float(np.clip(40 / sigma.size**0.4, 1.6, 5.0)), markeredgecolor=theme.observed, markeredgewidth=0.9,
        label=f"{heads.noun}s",
    )  # fmt: skip
    ax.set_xlim(reach[0], reach[-1])
    log_axis(ax, "x")
    if panel.log:
        log_axis(ax)
