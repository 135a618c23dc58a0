"""Dependence of four spectral statistics of heads on the width σ of their elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import MARKERS, finished, grid_of_axes, model_title, new_figure, noun_of, symbol_of
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.fitting import fit_figure
from rmtbase.drawing.groups import heads_of
from rmtbase.drawing.layout import figure_style, legend_of_all
from rmtbase.drawing.scales import log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
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


def _entropy(x: Float[np.ndarray, "head index"]) -> _Numbers:
    share = x / np.nansum(x, axis=1, keepdims=True)
    return -np.nansum(share * np.log(np.where(share > 0, share, 1.0)), axis=1)


_EIGENVALUES = (
    _Panel(r"$\lambda_1$", lambda x: x[:, 0], "stable_rank", lambda norm, rank: norm / rank),
    _Panel(r"$\Sigma\lambda$", lambda x: np.nansum(x, axis=1), None, lambda norm, rank: norm),
    _Panel(r"$\Sigma\lambda^2$", lambda x: np.nansum(x**2, axis=1), "participation_ratio", lambda n, r: n**2 / r),
    _Panel(r"spectral entropy $S$", _entropy, "spectral_entropy", lambda norm, entropy: entropy + 0.0 * norm),
)
_SINGULAR = (
    _Panel("$s_1$", lambda x: x[:, 0], "stable_rank", lambda norm, rank: np.sqrt(norm / rank)),
    _Panel(r"$\Sigma s$", lambda x: np.nansum(x, axis=1), "participation_ratio_singular", lambda n, r: np.sqrt(n * r)),
    _Panel(r"$\Sigma s^2$", lambda x: np.nansum(x**2, axis=1), None, lambda norm, rank: norm),
    _Panel(
        "spectral entropy $S^{(s)}$", _entropy, "spectral_entropy_singular", lambda norm, entropy: entropy + 0.0 * norm
    ),
)


def spectrum_and_width(
    scores: xr.DataTree,
    convention: Literal["eigenvalue", "singular value"] = "eigenvalue",
    *,
    theme: Theme | str = "light",
    width: float | None = None,
) -> ThemedFigure:
    """Draw the largest value, the sum, the sum of squares and the entropy of spectra against the elements' σ.

    σ is the root mean square of the elements, so that Σλ = Σs² = d_q d_k σ² is an identity, drawn as a line. Given σ,
    the other statistics depend only on scale-free ones: λ₁ = Σλ/r_s, Σλ² = (Σλ)²/PR, Σs = √(Σλ PR⁽ˢ⁾). The bands hold
    99 % of random heads with that σ. Heads on a line parallel to the band differ only in scale; deviations from such a
    line are differences of shape.
    """
    if convention not in ("eigenvalue", "singular value"):
        raise ParameterError("convention", convention, "'eigenvalue' or 'singular value'")
    heads = heads_of(scores).transpose("layer", "head", ...)
    there = heads_present(heads) & (heads["eigenvalue"].fillna(0.0).sum("index").values > 0)
    values = heads["eigenvalue"].values[there]
    size = _sizes(scores, heads)[there]
    sigma = np.sqrt(np.nansum(values, axis=1) / size)
    spectra = values if convention == "eigenvalue" else np.sqrt(values)
    theme, width = figure_style(theme, width)
    width = width or 9.6
    columns = 2 if width >= 5.2 else 1
    circuit = circuit_of(scores.attrs)
    figure = new_figure(theme, width, 3.0 * (4 // columns), model_title(scores))
    grid = grid_of_axes(figure, theme, 4 // columns, columns, sharex=True)
    panels = _EIGENVALUES if convention == "eigenvalue" else _SINGULAR
    for place, (ax, panel) in enumerate(zip(grid.flat, panels, strict=True)):
        levels = _levels(heads, there, panel.free)
        _draw(ax, panel, sigma, size, panel.of(spectra), levels, theme, noun_of(scores))
        ax.set_ylabel(panel.label)
        if place + columns >= len(panels):
            ax.set_xlabel(rf"standard deviation $\sigma$ of the elements of {symbol_of(f'W_{circuit.name.upper()}')}")
            ax.tick_params(axis="x", labelbottom=True)
    legend_of_all(figure, theme, same=True)
    fit_figure(figure)
    return figure


def _sizes(scores: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, "layer head"]:
    """Return the number of elements of each head's product."""
    shapes = [shape[0] * shape[-1] for shape in shapes_of(scores)]
    null = scores["null"].to_dataset()
    of_layers = np.asarray(null["layer_shape"].values) if "layer_shape" in null else None
    layers, n_heads = heads.sizes["layer"], heads.sizes["head"]
    if of_layers is None:
        by_layer = np.full(layers, shapes[0]) if len(shapes) == 1 else _of_coordinates(scores, heads)
    else:
        by_layer = np.array(shapes)[of_layers]
    return np.repeat(np.asarray(by_layer, dtype=float)[:, None], n_heads, axis=1)


def _of_coordinates(scores: xr.DataTree, heads: xr.Dataset) -> Float[np.ndarray, " layer"]:
    first, *_, last = circuit_of(scores.attrs).dims
    return heads[first].values * heads[last].values


def _levels(heads: xr.Dataset, there: np.ndarray, free: str | None) -> Float[np.ndarray, "head level"]:
    """Return the null's lower and upper end for each head, for a scale-free statistic; 1 if none is needed."""
    if free is None:
        return np.ones((int(there.sum()), 2))
    one = heads.sel(statistic=free)
    probability = one["probability"].values
    places = [int(np.argmin(np.abs(probability - level))) for level in BAND]
    return one["null_quantile"].transpose("layer", "head", "probability").values[there][:, places]


def _draw(
    ax: Axes, panel: _Panel, sigma: _Numbers, size: _Numbers, value: _Numbers,
    levels: Float[np.ndarray, "head level"], theme: Theme, noun: str,
) -> None:  # fmt: skip
    """Draw heads, and the band of each null along σ."""
    reach = np.geomspace(0.9 * sigma.min(), 1.1 * sigma.max(), 50)
    own = np.column_stack([size, levels])
    kinds = np.unique(np.round(own[np.isfinite(own).all(axis=1)], 9), axis=0)
    name = f"null, 99 % of {noun}s at this σ"
    if len(kinds) > _MOST_BANDS and panel.free is not None:
        low, high = (np.asarray(panel.law(size * sigma**2, levels[:, end])) for end in (0, 1))
        ax.vlines(sigma, low, high, color=theme.null, alpha=0.45, linewidth=3.0, label=name)
        kinds = kinds[:0]
    for number, low, high in kinds.tolist():
        norm = number * reach**2
        ends = [np.asarray(panel.law(norm, np.asarray(end))) for end in (low, high)]
        if panel.free is None:
            ax.plot(reach, ends[0], color=theme.free_law, linewidth=1.2, label="identity")
        else:
            ax.fill_between(reach, ends[0], ends[1], color=theme.null, alpha=0.3, linewidth=0, label=name)
        name = ""
    mark = float(np.clip(40 / sigma.size**0.4, 1.6, 5.0))
    ax.plot(
        sigma, value, linestyle="none", marker=MARKERS[0], markersize=mark, markerfacecolor="none",
        markeredgecolor=theme.observed, markeredgewidth=0.9, label=f"{noun}s",
    )  # fmt: skip
    ax.set_xlim(reach[0], reach[-1])
    log_axis(ax, "x")
    if panel.free is None or not panel.free.startswith("spectral_entropy"):
        log_axis(ax)
    finished(ax, theme, "", legend=False)
