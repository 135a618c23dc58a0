"""Figures of the measures of grouped models, at the end of training and along its steps."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.special import stdtrit

from rmtbase.drawing.axes import LEVEL, LINE_STYLES, MARKERS, finished, literal, own_axes, titled
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError
from rmtbase.results.comparison.figures._models import comparison_group
from rmtbase.results.trajectory.figures import step_axis

_LONGEST = 16  # most characters of a group's name on an axis


def group_measure(
    comparison: xr.DataTree,
    measure: str,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
) -> Axes:
    """Draw a measure of every model by its group, with each group's mean and 95 % confidence interval (Student's t).

    Args:
        comparison: a comparison tree of groups.
        measure: name of a measure in ``/members``.
        ax: where to draw; new axes if None.
        theme: colours, or their name.

    Returns:
        The axes: group against the measure.

    Raises:
        ParameterError: it is not a comparison of groups, or has no such measure.
    """
    members, between = (_of_measure(comparison, name, measure) for name in ("members", "between"))
    groups = between["group"].values.tolist()
    theme = as_theme(theme)
    ax = own_axes(ax, theme, comparison)
    owner = members["group_of"].values
    for place, (name, colour, marker) in enumerate(zip(groups, cycle(theme.series), cycle(MARKERS), strict=False)):
        values = members["value"].values[owner == name]
        shifts = 0.16 * (np.arange(values.size) - (values.size - 1) / 2) / max(1, values.size - 1)
        ax.plot(
            place - 0.12 + shifts, values, color=colour, linestyle="none", marker=marker, markersize=5,
            markerfacecolor="none",
        )  # fmt: skip
        half = stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / np.sqrt(values.size)
        ax.errorbar(
            place + 0.18, values.mean(), half, color=colour, marker="_", markersize=10, capsize=4, linewidth=1.4
        )
    ax.set_xticks(range(len(groups)), [literal(name, _LONGEST) for name in groups])
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.set_ylabel(literal(measure.replace("_", " "), 60))
    titled(ax, f"adjusted p = {between['adjusted_p_value'].item():.2g}", theme)
    return ax


def group_measure_by_step(
    comparison: xr.DataTree,
    measure: str,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the mean of a measure over each group's models along the steps, with the standard deviation of its seeds.

    Arguments as in :func:`group_measure`. Marks at the bottom show the steps at which groups differ, adjusted for all
    steps and measures.

    Returns:
        The axes: step against the measure.

    Raises:
        ParameterError: it is not a comparison of groups of trajectories, or has no such measure.
    """
    members, between = (_of_measure(comparison, f"along/{name}", measure) for name in ("members", "between"))
    theme = as_theme(theme)
    ax = own_axes(ax, theme, comparison)
    steps, owner = members["step"].values, members["group_of"].values
    each = zip(between["group"].values.tolist(), cycle(theme.series), cycle(LINE_STYLES), cycle(MARKERS), strict=False)
    for name, colour, style, marker in each:
        values = members["value"].transpose("step", "model").values[:, owner == name]
        mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1)
        ax.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        ax.plot(
            steps, mean, color=colour, linestyle=style, marker=marker, markersize=3, linewidth=1.3,
            label=literal(name, _LONGEST),
        )  # fmt: skip
    differ = steps[between["adjusted_p_value"].values < LEVEL]
    if differ.size:
        ax.plot(
            differ, np.full(differ.size, 0.02), transform=ax.get_xaxis_transform(), color=theme.text, marker="|",
            markersize=6, linestyle="none", label=f"groups differ, adjusted p < {LEVEL:g}",
        )  # fmt: skip
    step_axis(ax, steps)
    ax.set_ylabel(literal(measure.replace("_", " "), 60))
    return finished(ax, theme, "", legend)


def _of_measure(comparison: xr.DataTree, name: str, measure: str) -> xr.Dataset:
    """Select one measure from a group of a comparison."""
    variable = "value" if name.endswith("members") else "adjusted_p_value"
    table = comparison_group(comparison, name, variable)
    if measure not in table["measure"].values:
        raise ParameterError("measure", measure, f"one of {', '.join(table['measure'].values)}")
    return table.sel(measure=measure)
