"""A property of the elements of random matrices as their size grows."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import finished, own_axes, prefer_log, statistic_label
from rmtbase.plots._groups import require_statistic
from rmtbase.plots._theme import Theme, as_theme

_PROPERTIES = ("std", "histogram_entropy", "histogram_kl")


def element_property(
    table: xr.Dataset,
    statistic: str = "histogram_kl",
    along: str = "d_head",
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw one statistic of the elements of random matrices against a size: Monte Carlo, and the analytic value.

    Args:
        table: a table of elements whose cases differ in that size.
        statistic: its name.
        along: the coordinate of the cases, ``"d_head"`` say.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one, below the axes.

    Returns:
        The axes: the size (logarithmic) against the statistic, with its standard error.

    Raises:
        ParameterError: another kind of table, no such statistic, or a size that does not differ.
    """
    if "share_outside" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a table of elements")
    name = require_statistic(table, statistic)
    if along not in table.coords and along not in table.data_vars:
        raise ParameterError("along", along, "a size of the cases, d_head say")
    size = table[along].values.astype(float)
    if np.unique(size[np.isfinite(size)]).size < 2:
        raise ParameterError("along", along, "a size in which the cases differ")
    order = np.argsort(size)
    one = table.isel(case=order).sel(statistic=name)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, table)
    analytic = one["analytic_mean"].values
    if np.isfinite(analytic).any():
        ax.plot(size[order], analytic, color=theme.free_law, linestyle="--", linewidth=1.4, label="analytic")
    ax.errorbar(
        size[order], one["mean"].values, one["standard_error"].values, color=theme.observed, linestyle="none",
        marker="o", markersize=4, label="Monte Carlo ± standard error",
    )  # fmt: skip
    ax.set_xscale("log")
    if prefer_log(one["mean"].values):
        ax.set_yscale("log")
    ax.set(xlabel=along.replace("_", " "), ylabel=statistic_label(statistic))
    return finished(ax, theme, "", legend)


def held_properties(table: xr.Dataset) -> tuple[str, ...]:
    """The properties that a figure of a table of elements shows, where its cases differ in d_head; else none."""
    if "d_head" not in table or np.unique(table["d_head"].values[np.isfinite(table["d_head"].values)]).size < 2:
        return ()
    return tuple(name for name in _PROPERTIES if name in table["statistic"].values)
