"""The density of the elements of random matrices: simulated, with the law of one element where it is offered."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import add_density, case_name, finished, own_axes
from rmtbase.plots._groups import require_case
from rmtbase.plots._theme import Theme, as_theme

_MARGIN = 2.0  # of the axis, as a factor


def element_density(
    table: xr.Dataset,
    case: int = 0,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the density of the elements of a case of a table of elements: Monte Carlo with its standard error, the law.

    In units of their standard deviation, so that matrices of any scale can be compared, and on a logarithmic axis,
    where the tails can be seen. A bin that no element fell into is left out.

    Args:
        table: a table of elements (``kind`` elements).
        case: which row.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one.

    Returns:
        The axes: w over its standard deviation (dimensionless) against its density (logarithmic).

    Raises:
        ParameterError: no such case, or another kind of table.
    """
    if "share_outside" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a table of elements")
    row = require_case(table, case)
    unit = _unit(row)
    edges = row["bin_edge"].values / unit
    density, error, law = (row[name].values * unit for name in ("density", "density_standard_error", "density_law"))
    theme = as_theme(theme)
    ax = own_axes(ax, theme, table)
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
    """From where to where the axis of :func:`element_density` goes for one case: beyond all densities but zero."""
    unit = _unit(row)
    shown = [one[one > 0] * unit for one in (row["density"].values, row["density_law"].values)]
    lowest, highest = shown[0].min(initial=np.inf), max(one.max(initial=0.0) for one in shown)
    return (float(lowest) / _MARGIN, float(highest) * _MARGIN) if shown[0].size else (1 / _MARGIN, _MARGIN)


def _unit(row: xr.Dataset) -> float:
    """The mean standard deviation of a matrix's elements; 1 where the table does not know it."""
    known = row["mean"].where(row["statistic"] == "std", drop=True).values
    return float(known[0]) if known.size and np.isfinite(known[0]) and known[0] > 0 else 1.0
