"""Scales of axes: logarithmic ones that can be read, on either side of zero too, and one for several pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, SymmetricalLogLocator

_DECADES = 2.5  # up to which a logarithmic axis names 2 and 5 of each decade
_LOG_FROM = 30.0  # largest over smallest value from which a linear axis hides the small ones
_LINE = 1.5  # heights of a tick's label, the least distance of two


def prefer_log(*values: np.ndarray) -> bool:
    """Whether positive values span so much that a linear axis would hide the small ones."""
    finite = np.concatenate([np.ravel(one)[np.isfinite(np.ravel(one))] for one in values])
    return finite.size > 0 and finite.min() > 0 and bool(finite.max() > _LOG_FROM * finite.min())


def log_axis(ax: Axes, which: str = "y") -> None:
    """A logarithmic axis that names enough numbers to be read even where it spans little more than a decade."""
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    axis = ax.xaxis if which == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    if high < low * 10**_DECADES:
        subs = (1.0, 2.0, 5.0) if high > 6.0 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def symmetric_log_axis(ax: Axes, width: float) -> None:
    """A y axis that is linear up to that distance from zero, and logarithmic beyond."""
    ax.set_yscale("symlog", linthresh=width)
    ax.yaxis.set_major_locator(_ApartSymmetricalLog(base=10, linthresh=width, subs=(1.0, 3.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.3g}".replace("-", "−")))


class _ApartSymmetricalLog(SymmetricalLogLocator):
    """Ticks of a y axis on either side of zero, none so near another that their labels would touch."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Zero, then powers of ten from the outermost inwards, then what lies between them: those that have room."""
        values = np.asarray(super().tick_values(vmin, vmax))
        axes: Any = self.axis.axes  # type: ignore[union-attr]  # a locator that draws has an axis
        height = axes.get_window_extent().height / axes.get_figure(root=True).dpi * 72
        low, high = axes.yaxis.get_transform().transform([vmin, vmax])
        least = _LINE * axes.yaxis.get_major_ticks(1)[0].label1.get_fontsize() / height * abs(high - low)
        between = ~np.isclose(np.log10(np.fmax(np.abs(values), 1e-300)) % 1.0, [[0.0], [1.0]]).any(axis=0)
        kept: list[tuple[float, float]] = []
        for value in values[np.lexsort((-np.abs(values), between, values != 0))].tolist():
            place = float(axes.yaxis.get_transform().transform([value])[0])
            if all(abs(place - other) >= least for _, other in kept):
                kept.append((value, place))
        return np.sort([value for value, _ in kept])


def reach_all(ax: Axes, limits: Sequence[tuple[float, ...]], scales: Sequence[tuple[str, str]]) -> None:
    """Axes from the least to the largest of what several pictures ask for.

    They are logarithmic where one of these is and none reaches zero, and, beyond the narrowest linear part, on either
    side of zero where one of these is so.

    Args:
        ax: the axes.
        limits: of each picture left, right, low and high.
        scales: of each picture the names of both scales.
    """
    left, right, low, high = (np.array(ends) for ends in zip(*limits, strict=True))
    x_scales, y_scales = zip(*scales, strict=True)
    for which, asked, least, largest in (("x", set(x_scales), left, right), ("y", set(y_scales), low, high)):
        set_scale, set_limits = (ax.set_xscale, ax.set_xlim) if which == "x" else (ax.set_yscale, ax.set_ylim)
        mixed, positive = len(asked) > 1, bool((least > 0).all())
        if mixed and "symlog" not in asked:
            set_scale("log" if positive else "linear")
        upright = bool((least <= largest).all())
        set_limits(*((least.min(), largest.max()) if upright else (least.max(), largest.min())))
        if mixed and positive and "symlog" not in asked:
            log_axis(ax, which)
