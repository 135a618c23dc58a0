"""The eigenvalues of every head of a model at a glance."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import noun_of, own_axes, rows_axis, titled
from rmtbase.plots._color_scales import MOST_CELLS, RATIO, SHARE
from rmtbase.plots._groups import heads_of
from rmtbase.plots._null_eigenvalues import null_medians
from rmtbase.plots._theme import Theme, as_theme
from rmtbase.tables import circuit_of, heads_present

EIGENVALUE_SCALES = {"null": RATIO, "mean": SHARE}
"""The colours of the map, by what eigenvalues are shown over."""


def eigenvalue_heatmap(
    scores: xr.DataTree,
    over: Literal["null", "mean"] = "null",
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw every eigenvalue λ_k of every head, a row for each head, layer 0 on top.

    Args:
        scores: a scores tree.
        over: ``"null"``: λ_k over its median under the null at the head's own σ̂, so that every rank is seen alike;
            ``"mean"``: over the mean eigenvalue of all heads, which shows scales and decay, with a row of the null
            (the median of the heads' medians) on top.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: rank k of the eigenvalue against head. Colours change at the same ratios in every picture.

    Raises:
        ParameterError: no scores tree, or another ``over``.
    """
    if over not in EIGENVALUE_SCALES:
        raise ParameterError("over", over, "'null' or 'mean'")
    heads = heads_of(scores).transpose("layer", "head", ...)
    layer, head = np.nonzero(heads_present(heads))
    values = heads["eigenvalue"].values[layer, head]
    medians = null_medians(scores, heads)[layer, head]
    theme = as_theme(theme)
    ax = own_axes(ax, theme, scores)
    scale = EIGENVALUE_SCALES[over]
    if over == "null":
        cells = values / np.where(medians > 0, medians, np.nan)
    else:
        null = np.nanmedian(medians, axis=0)
        cells = np.vstack([null, np.full_like(null, np.nan), values]) / np.nanmean(values)
    cmap, norm = scale.of(theme)
    with np.errstate(divide="ignore", invalid="ignore"):
        shown = scale.on_scale(cells)
    above = len(cells) - len(values)
    ranks, rows = np.arange(cells.shape[1] + 1) + 0.5, np.arange(len(cells) + 1) - 0.5 - above
    ax.pcolormesh(
        ranks, rows, np.ma.masked_invalid(np.where(cells == 0, norm.boundaries[0] - 1, shown)), cmap=cmap, norm=norm,
        linewidth=0, rasterized=cells.size > MOST_CELLS,
    )  # fmt: skip
    rows_axis(ax, layer.tolist(), heads, theme, null=bool(above))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set(xlabel="rank $k$ of the eigenvalue, largest first", xlim=(0.5, ranks[-1]))
    ax.set_ylabel(f"layer, a row for each {noun_of(scores)}")
    of = "its median under the null" if over == "null" else "the mean of all"
    titled(ax, rf"eigenvalues of ${circuit_of(scores.attrs).latex}$ over {of}", theme)
    if colorbar:
        scale.bar(ax, theme)
    return ax
