"""Bar chart of the number of heads that each statistic flags by itself."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing.axes import LEVEL, NOT_TESTABLE, Around, noun_of, panel, panel_size, statistic_words
from rmtbase.drawing.groups import heads_of
from rmtbase.drawing.texts import literal, wrapped
from rmtbase.drawing.theme import Theme
from rmtbase.tables import heads_present

_NAMES = 0.44  # largest share of the figure's width for the names of statistics


@panel
def flagged_by_statistic(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw the number of heads that each statistic flags by itself, with the largest number on top."""
    heads = heads_of(scores)
    q = heads["q_value"].transpose("statistic", ...).values.reshape(heads.sizes["statistic"], -1)
    known, count = np.asarray(np.isfinite(q).any(axis=1)), np.asarray((q < LEVEL).sum(axis=1))
    order = np.lexsort((np.arange(len(count)), -count, ~known))
    place = np.arange(len(order))
    total = int(np.isfinite(heads["omnibus_q_value"].values).sum())
    ax.barh(place, np.where(known, total, 0)[order], color=theme.grid, height=0.72, linewidth=0)
    ax.barh(place, count[order], color=theme.flagged, height=0.72, linewidth=0)
    size = theme.points("xtick.labelsize")
    for y, (heads_flagged, is_known) in enumerate(zip(count[order].tolist(), known[order].tolist(), strict=True)):
        words = f" {heads_flagged}" if is_known else f" {NOT_TESTABLE}"
        ax.text(heads_flagged, y, words, va="center", ha="left", fontsize=size, color=theme.text)
    names = [statistic_words(name) for name in heads["statistic"].values[order].tolist()]
    ax.set_yticks(place, [wrapped(literal(name), size, _NAMES * panel_size(ax)[0]) for name in names])
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlim(0, max(total, 1) * 1.08)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.grid(visible=False)
    ax.tick_params(axis="y", length=0)
    share = f", of {total}" if total == int(heads_present(heads).sum()) else f",\nof {total} testable"
    return Around("", f"{noun_of(scores)}s with q < {LEVEL:g}{share}", "", legend=None)
