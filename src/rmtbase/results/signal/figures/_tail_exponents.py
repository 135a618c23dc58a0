"""Exponents of heavy tails compared with noise, for every head or matrix, layer by layer."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from rmtbase.drawing.axes import MARKERS, own_axes
from rmtbase.drawing.not_testable import NOT_TESTABLE, cross_at_foot
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError
from rmtbase.results.signal.figures._learned_directions import (
    MATRICES,
    finished_by_layer,
    groups_of_signal,
    places_in_layers,
    spectra_of,
)
from rmtbase.results.signal.schema import TAIL_VERDICTS

_BAND = 0.6  # part of a layer's width that its spectra share


def tail_exponents(
    tree: xr.DataTree,
    what: str = "qk",
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the exponent of the power law fitted to every spectrum, layer by layer, over the band of noise exponents.

    Args:
        tree: tree of signal and noise, as ``rmtbase.results.signal.signal(..., heavy_tails=True)`` makes it.
        what: name of a circuit, each of whose heads has its place within its layer, or ``"matrices"``.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one.

    Returns:
        The axes: layer against exponent. The band holds 95 % of the exponents of matrices of the same shape that
        learned nothing. A mark's shape and colour show the verdict by the likelihood of the whole spectrum.

    Raises:
        ParameterError: the tree is not of signal and noise with heavy tails, or has no such circuit or matrices.
    """
    held = {name: group for name, group in groups_of_signal(tree).items() if "tail_verdict" in group}
    if what not in held:
        raise ParameterError("what", what, f"one of {', '.join(held)}, of a tree of signal and noise with heavy tails")
    group, theme = held[what], as_theme(theme)
    ax = own_axes(ax, theme, tree)
    of = "component" if what == MATRICES else "head"
    x, verdict = places_in_layers(group, of), group["tail_verdict"].values
    exponent, low, high = (
        group[name].values for name in ("power_law_exponent", "null_exponent_low", "null_exponent_high")
    )
    there = np.isfinite(exponent)
    half = 0.5 * _BAND / max(group.sizes[of], 1)
    for k, at in enumerate(np.argwhere(there)):
        place, ends = x[tuple(at)], (low[tuple(at)], high[tuple(at)])
        ax.fill_between(
            [place - half, place + half], *ends, color=theme.null, alpha=0.35, linewidth=0.0,
            label="95 % of noise" if k == 0 else None,
        )  # fmt: skip
    colours = (theme.muted, *theme.series, theme.text)
    for k, name in enumerate(TAIL_VERDICTS):
        own = there & (verdict == name)
        if own.any():
            ax.plot(
                x[own], exponent[own], linestyle="none", marker=(*MARKERS, "x")[k], markersize=4.2, label=name,
                color=colours[k % len(colours)],
            )  # fmt: skip
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.set_ylabel("exponent of the power law fitted")
    untested = group["sigma"].notnull().values & ~there
    cross_at_foot(ax, x[untested], theme)
    heavier = int((group["exponent_p_value"].values[there] <= float(tree.attrs["level"])).sum())
    said = f"heavier tails than chance makes in {heavier} of {int(there.sum())} {spectra_of(what)}"
    if untested.any():
        said = (
            f"{said}; {int(untested.sum())} {NOT_TESTABLE}"
            if there.any()
            else f"none of {untested.sum()} can be tested"
        )
    return finished_by_layer(ax, group, what, said, theme, legend)
