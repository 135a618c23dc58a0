"""Elements of random matrices: their density with its law, and their properties as the size grows."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from rmtbase.drawing.axes import Around, panel, statistic_label
from rmtbase.drawing.null_curves import Histogram, add_density, case_name
from rmtbase.drawing.scales import prefer_log
from rmtbase.drawing.theme import Theme

_MARGIN = 2.0  # margin of the axis, as a factor
_PROPERTIES = ("std", "histogram_entropy", "histogram_kl")


@panel
def element_density(ax: Axes, theme: Theme, table: xr.Dataset, case: int = 0) -> Around:
    """Draw the density of the elements for a case of a table of elements: Monte Carlo, its standard error, the law.

    Elements are in units of their standard deviation. The axis of the density is logarithmic to show the tails.
    """
    row = table.isel(case=case)
    unit = _unit(row)
    edges = row["bin_edge"].values / unit
    density, error, law = (row[name].values * unit for name in ("density", "density_standard_error", "density_law"))
    centre = 0.5 * (edges[1:] + edges[:-1])
    add_density(ax, theme, Histogram(edges, density, error), centre)
    if np.isfinite(law).any():
        ax.plot(centre, np.where(law > 0, law, np.nan), color=theme.free_law, linewidth=1.6, label="law of one element")
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(numticks=7))
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(density_limits(row))
    x_label = r"element over its standard deviation, $w/\sigma_w$"
    return Around(case_name(row), x_label, r"density of $w/\sigma_w$")


def density_limits(row: xr.Dataset) -> tuple[float, float]:
    """Return the limits of the density axis of :func:`element_density`, beyond all nonzero densities of a case."""
    unit = _unit(row)
    simulated, law = (row[name].values[row[name].values > 0] * unit for name in ("density", "density_law"))
    if not simulated.size:
        return 1 / _MARGIN, _MARGIN
    highest = max(simulated.max(), law.max(initial=0.0))
    return float(simulated.min()) / _MARGIN, float(highest) * _MARGIN


def _unit(row: xr.Dataset) -> float:
    """Return the mean standard deviation of a matrix's elements; 1 if the table lacks it."""
    spread = row["mean"].where(row["statistic"] == "std", drop=True).values
    return float(spread[0]) if spread.size and np.isfinite(spread[0]) and spread[0] > 0 else 1.0


@panel
def element_property(ax: Axes, theme: Theme, table: xr.Dataset, statistic: str) -> Around:
    """Draw one statistic of the elements of random matrices against d_head: Monte Carlo, and the analytic value."""
    size = table["d_head"].values.astype(float)
    order = np.argsort(size)
    row = table.isel(case=order).sel(statistic=statistic)
    analytic = row["analytic_mean"].values
    if np.isfinite(analytic).any():
        ax.plot(size[order], analytic, color=theme.free_law, linestyle="--", linewidth=1.4, label="analytic")
    ax.errorbar(
        size[order], row["mean"].values, row["standard_error"].values, color=theme.observed, linestyle="none",
        marker="o", markersize=4, label="Monte Carlo ± standard error",
    )  # fmt: skip
    ax.set_xscale("log")
    if prefer_log(row["mean"].values):
        ax.set_yscale("log")
    return Around("", statistic_label("d_head"), statistic_label(statistic))


def properties_of(table: xr.Dataset) -> tuple[str, ...]:
    """Return the properties that a figure of a table of elements shows; none unless its cases differ in d_head."""
    if "d_head" not in table or np.unique(table["d_head"].values[np.isfinite(table["d_head"].values)]).size < 2:
        return ()
    return tuple(name for name in _PROPERTIES if name in table["statistic"].values)
