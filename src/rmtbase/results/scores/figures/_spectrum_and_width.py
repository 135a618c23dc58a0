"""Dependence of four spectral statistics of heads on the width σ of their elements."""

from collections.abc import Callable
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


def _entropy(x: Float[np.ndarray, "head index"]) -> _Numbers:
    share = x / np.nansum(x, axis=1, keepdims=True)
    return -np.nansum(share * np.log(np.where(share > 0, share, 1.0)), axis=1)


_PANELS = {
    "eigenvalue": (
        _Panel(r"$\lambda_1$", lambda x: x[:, 0], "stable_rank", lambda norm, rank: norm / rank),
        _Panel(r"$\Sigma\lambda$", lambda x: np.nansum(x, axis=1), None, lambda norm, _: norm),
        _Panel(
            r"$\Sigma\lambda^2$", lambda x: np.nansum(x**2, axis=1), "participation_ratio",
            lambda norm, ratio: norm**2 / ratio,
        ),
        _Panel(
            r"spectral entropy $S$", _entropy, "spectral_entropy", lambda norm, entropy: entropy + 0.0 * norm, log=False
        ),
    ),
    "singular value": (
        _Panel("$s_1$", lambda x: x[:, 0], "stable_rank", lambda norm, rank: np.sqrt(norm / rank)),
        _Panel(
            r"$\Sigma s$", lambda x: np.nansum(x, axis=1), "participation_ratio_singular",
            lambda norm, ratio: np.sqrt(norm * ratio),
        ),
        _Panel(r"$\Sigma s^2$", lambda x: np.nansum(x**2, axis=1), None, lambda norm, _: norm),
        _Panel(
            "spectral entropy $S^{(s)}$", _entropy, "spectral_entropy_singular",
            lambda norm, entropy: entropy + 0.0 * norm, log=False,
        ),
    ),
}  # fmt: skip


def spectrum_and_width(
    scores: xr.DataTree, convention: Literal["eigenvalue", "singular value"], style: FigureStyle
) -> ThemedFigure:
    """Draw the largest value, the sum, the sum of squares and the entropy of spectra against the elements' σ."""
    table = heads_of(scores).transpose("layer", "head", ...)
    present = heads_present(table) & (table["eigenvalue"].fillna(0.0).sum("index").values > 0)
    values, size = table["eigenvalue"].values[present], _sizes(scores, table)[present]
    sigma = np.sqrt(np.nansum(values, axis=1) / size)
    spectra = values if convention == "eigenvalue" else np.sqrt(values)
    probability = table["probability"].values
    ends = [int(np.argmin(np.abs(probability - level))) for level in BAND]
    width = style.width or 9.6
    columns = 2 if width >= 5.2 else 1
    figure = new_figure(style.theme, width, 3.0 * (4 // columns), model_title(scores))
    grid = grid_of_axes(figure, style.theme, 4 // columns, columns, sharex=True)
    component = symbol_of(f"W_{circuit_of(scores.attrs).name.upper()}")
    for place, (ax, panel) in enumerate(zip(grid.flat, _PANELS[convention], strict=True)):
        nulls = np.column_stack([size, np.ones((size.size, 2))])  # elements, and the null's lower and upper end
        if panel.free is not None:
            quantile = table["null_quantile"].sel(statistic=panel.free).transpose("layer", "head", "probability")
            nulls[:, 1:] = quantile.values[present][:, ends]
        _draw(ax, style.theme, panel, sigma, panel.of(spectra), nulls, noun_of(scores))
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


def _draw(
    ax: Axes, theme: Theme, panel: _Panel, sigma: _Numbers, values: _Numbers, nulls: np.ndarray, noun: str
) -> None:
    reach = np.geomspace(0.9 * sigma.min(), 1.1 * sigma.max(), 50)
    kinds = np.unique(np.round(nulls[np.isfinite(nulls).all(axis=1)], 9), axis=0)
    name = f"null, 99 % of {noun}s at this σ"
    if len(kinds) > _MOST_BANDS and panel.free is not None:
        low, high = (np.asarray(panel.law(nulls[:, 0] * sigma**2, nulls[:, end])) for end in (1, 2))
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
        sigma, values, linestyle="none", marker="o", markerfacecolor="none",
        markersize=float(np.clip(40 / sigma.size**0.4, 1.6, 5.0)), markeredgecolor=theme.observed, markeredgewidth=0.9,
        label=f"{noun}s",
    )  # fmt: skip
    ax.set_xlim(reach[0], reach[-1])
    log_axis(ax, "x")
    if panel.log:
        log_axis(ax)
