"""Scales of axes: readable logarithmic and symmetric logarithmic axes, and common limits for several figures."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, SymmetricalLogLocator

_DECADES = 2.5  # largest span at which a logarithmic axis also labels 2 and 5 of each decade
_LOG_FROM = 30.0  # ratio of largest to smallest value above which a linear axis hides the small ones
_LINE = 1.5  # least distance of two tick labels, in heights of a label


def prefer_log(*values: np.ndarray) -> bool:
    """Return True if values are positive and span so much that a linear axis would hide the small ones."""
    finite = np.concatenate([np.ravel(array)[np.isfinite(np.ravel(array))] for array in values])
    return finite.size > 0 and finite.min() > 0 and bool(finite.max() > _LOG_FROM * finite.min())


def log_axis(ax: Axes, direction: str = "y") -> None:
    """Make an axis logarithmic, with enough labels to be readable even if it spans little more than a decade."""
    (ax.set_xscale if direction == "x" else ax.set_yscale)("log")
    axis = ax.xaxis if direction == "x" else ax.yaxis
    low, high = axis.get_view_interval()
    if high < low * 10**_DECADES:
        subs = (1.0, 2.0, 5.0) if high > 6.0 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())


def symmetric_log_axis(ax: Axes, width: float) -> None:
    """Make the y axis linear up to that distance from zero, and logarithmic beyond."""
    ax.set_yscale("symlog", linthresh=width)
    ax.yaxis.set_major_locator(_ApartSymmetricalLog(base=10, linthresh=width, subs=(1.0, 3.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:.3g}".replace("-", "−")))


class _ApartSymmetricalLog(SymmetricalLogLocator):
    """Tick locator of a y axis on both sides of zero that keeps tick labels from touching."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the ticks that have room: first zero, then powers of ten from the outermost inwards, then others."""
        values = np.asarray(super().tick_values(vmin, vmax))
        axes: Any = self.axis.axes  # type: ignore[union-attr]  # a locator that draws has an axis
        height = axes.get_window_extent().height / axes.get_figure(root=True).dpi * 72
        low, high = axes.yaxis.get_transform().transform([vmin, vmax])
        least = _LINE * axes.yaxis.get_major_ticks(1)[0].label1.get_fontsize() / height * abs(high - low)
        between = ~np.isclose(np.log10(np.fmax(np.abs(values), 1e-300)) % 1.0, [[0.0], [1.0]]).any(axis=0)
        ticks: dict[float, float] = {}
        for value in values[np.lexsort((-np.abs(values), between, values != 0))].tolist():
            place = float(axes.yaxis.get_transform().transform([value])[0])
            if all(abs(place - neighbour) >= least for neighbour in ticks.values()):
                ticks[value] = place
        return np.sort(list(ticks))


def reach_all(ax: Axes, limits: Sequence[tuple[float, ...]], scales: Sequence[tuple[str, str]]) -> None:
    """Extend axes to the limits of several figures; if scales differ, logarithmic for positive limits."""
    left, right, low, high = (np.array(ends) for ends in zip(*limits, strict=True))
    for direction, kinds, first, last in zip("xy", zip(*scales, strict=True), (left, low), (right, high), strict=True):
        is_x = direction == "x"
        mixed, positive = len(set(kinds)) > 1 and "symlog" not in kinds, bool((first > 0).all())
        if mixed:
            (ax.set_xscale if is_x else ax.set_yscale)("log" if positive else "linear")
        upright = bool((first <= last).all())
        ends = (first.min(), last.max()) if upright else (first.max(), last.min())
        (ax.set_xlim if is_x else ax.set_ylim)(*ends)
        if mixed and positive:
            log_axis(ax, direction)
