"""The spectrum of any ensemble: simulated, with its limiting law where one is known."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import add_legend, own_axes, require_case, titled
from rmtbase.plots._theme import LIGHT, Theme


def ensemble_spectrum(
    table: xr.Dataset,
    case: int = 0,
    ax: Axes | None = None,
    theme: Theme = LIGHT,
    legend: bool = True,
) -> Axes:
    """Draw the density of ln λ of a case of a table of spectra: Monte Carlo with its standard error, and the law.

    On a logarithmic axis, where spectra over many powers of ten can be seen whole: equal areas are equal shares of the
    eigenvalues. The dotted lines are the law's edges.

    Args:
        table: a table of spectra (``kind`` spectra).
        case: which row.
        ax: where to draw; new axes if None.
        theme: colours.
        legend: whether to draw one.

    Returns:
        The axes: eigenvalue λ (dimensionless, logarithmic) against density per unit of ln λ.

    Raises:
        ParameterError: no such case, or another kind of table.
    """
    if "density_law" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a table of spectra")
    row = require_case(table, case)
    edges = row["bin_edge"].values
    per_log = np.diff(edges) / np.diff(np.log(edges))
    density, error, law = (row[name].values * per_log for name in ("density", "density_standard_error", "density_law"))
    ax = own_axes(ax, theme)
    centre = np.sqrt(edges[1:] * edges[:-1])
    ax.stairs(density, edges, fill=True, color=theme.null, alpha=0.35, label="Monte Carlo ± standard error")
    held = density > 0
    ax.errorbar(centre[held], density[held], error[held], fmt="none", ecolor=theme.null, elinewidth=1.1, capsize=0)
    if np.isfinite(law).any():
        ax.plot(centre, law, color=theme.free_law, linewidth=1.6, label="limiting law")
        for edge in (float(row["edge_lower"]), float(row["edge_upper"])):
            if edge > 0:
                ax.axvline(edge, color=theme.free_law, linewidth=1.2, linestyle=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(numticks=7))
    ax.set_ylim(bottom=0.0)
    ax.set(xlabel=r"eigenvalue $\lambda$ (dimensionless)", ylabel=r"density per unit of $\ln\lambda$")
    titled(ax, str(row["name"].item()).replace("_", " "))
    if legend:
        add_legend(ax, theme)
    return ax
