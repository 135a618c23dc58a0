"""Elements of random matrices: their density with its law, and their properties as the size grows."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from rmtbase.drawing.axes import add_density, case_name, finished, panel, statistic_label
from rmtbase.drawing.groups import require_case, require_statistic
from rmtbase.drawing.scales import prefer_log
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError

_MARGIN = 2.0  # margin of the axis, as a factor
_PROPERTIES = ("std", "histogram_entropy", "histogram_kl")


@panel
def element_density(ax: Axes, theme: Theme, table: xr.Dataset, case: int = 0, *, legend: bool = True) -> Axes:
    """Draw the density of the elements for a case of a table of elements: Monte Carlo, its standard error, the law.

    Elements are in units of their standard deviation, so that matrices of any scale can be compared. The axis of the
    density is logarithmic to show the tails. Empty bins are left out.

    The axes: w over its standard deviation (dimensionless) against its density (logarithmic).
    """
    if "share_outside" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a table of elements")
    row = require_case(table, case)
    unit = _unit(row)
    edges = row["bin_edge"].values / unit
    density, error, law = (row[name].values * unit for name in ("density", "density_standard_error", "density_law"))
    centre = 0.5 * (edges[1:] + edges[:-1])
    add_density(ax, edges, centre, density, error, theme)
    if np.isfinite(law).any():
        ax.plot(centre, np.where(law > 0, law, np.nan), color=theme.free_law, linewidth=1.6, label="law of one element")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(density_limits(row))
    ax.set(xlabel=r"element over its standard deviation, $w/\sigma_w$", ylabel=r"density of $w/\sigma_w$")
    return finished(ax, theme, case_name(row), legend)


def density_limits(row: xr.Dataset) -> tuple[float, float]:
    """Return the limits of the density axis of :func:`element_density`, beyond all nonzero densities of a case."""
    unit = _unit(row)
    shown = [one[one > 0] * unit for one in (row["density"].values, row["density_law"].values)]
    lowest, highest = shown[0].min(initial=np.inf), max(one.max(initial=0.0) for one in shown)
    return (float(lowest) / _MARGIN, float(highest) * _MARGIN) if shown[0].size else (1 / _MARGIN, _MARGIN)


def _unit(row: xr.Dataset) -> float:
    """Return the mean standard deviation of a matrix's elements; 1 if the table lacks it."""
    known = row["mean"].where(row["statistic"] == "std", drop=True).values
    return float(known[0]) if known.size and np.isfinite(known[0]) and known[0] > 0 else 1.0


@panel
def element_property(
    ax: Axes,
    theme: Theme,
    table: xr.Dataset,
    statistic: str = "histogram_kl",
    along: str = "d_head",
    *,
    legend: bool = True,
) -> Axes:
    """Draw one statistic of the elements of random matrices against a size: Monte Carlo, and the analytic value.

    The axes: the size (logarithmic) against the statistic, with its standard error.
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
    ax.set(xlabel=statistic_label(along), ylabel=statistic_label(statistic))
    return finished(ax, theme, "", legend)


def held_properties(table: xr.Dataset) -> tuple[str, ...]:
    """Return the properties that a figure of a table of elements shows; none unless its cases differ in d_head."""
    if "d_head" not in table or np.unique(table["d_head"].values[np.isfinite(table["d_head"].values)]).size < 2:
        return ()
    return tuple(name for name in _PROPERTIES if name in table["statistic"].values)
