"""Spectrum of any ensemble: simulated, with its limiting law where one is known."""

from __future__ import annotations

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from rmtbase.drawing.axes import add_density, case_name, finished, own_axes
from rmtbase.drawing.groups import require_case
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError

_UNSEEN = 1e-3  # share of the smallest eigenvalues that is left out of the figure
_MARGIN = 1.05  # margin of the axis, as a factor


def ensemble_spectrum(
    table: xr.Dataset,
    case: int = 0,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the density of ln λ for a case of a table of spectra: Monte Carlo with its standard error, and the law.

    Eigenvalues are in units of their mean, so that ensembles of any scale can be compared, and on a logarithmic axis,
    which shows spectra over many powers of ten: equal areas are equal shares of the eigenvalues. The smallest 0.1 % of
    the eigenvalues lie outside the figure. The dotted lines are the edges of the law.

    Args:
        table: a table of spectra (``kind`` spectra).
        case: index of the row.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw one.

    Returns:
        The axes: λ over its mean (dimensionless, logarithmic) against density per unit of ln λ.

    Raises:
        ParameterError: no such case, or another kind of table.
    """
    if "density_law" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a table of spectra")
    row = require_case(table, case)
    unit, edges, density, error, law = _curves(row)
    left, right, top = spectrum_limits(row)
    theme = as_theme(theme)
    ax = own_axes(ax, theme, table)
    centre = np.sqrt(edges[1:] * edges[:-1])
    # The outline shows a spectrum that is narrower than a pixel, such as that of an orthogonal matrix.
    add_density(ax, edges, centre, density, error, theme, outline=1.0)
    if np.isfinite(law).any():
        ax.plot(centre, law, color=theme.free_law, linewidth=1.6, label="limiting law")
        for edge in (float(row["edge_lower"]), float(row["edge_upper"])):
            if edge > 0:
                ax.axvline(edge / unit, color=theme.free_law, linewidth=1.2, linestyle=":")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(LogLocator(numticks=7))
    ax.set_xlim(left, right)
    ax.set_ylim(0.0, top)
    ax.set(
        xlabel=r"eigenvalue over their mean, $\lambda/\langle\lambda\rangle$",
        ylabel=r"density per unit of $\ln\lambda$",
    )
    return finished(ax, theme, case_name(row), legend)


def spectrum_limits(row: xr.Dataset) -> tuple[float, float, float]:
    """Return the axis limits of :func:`ensemble_spectrum` for one case: left, right and top."""
    _, edges, density, _, law = _curves(row)
    below = np.cumsum(density * np.diff(np.log(edges)))
    shown = np.flatnonzero((below >= _UNSEEN * below[-1]) & (density > 0))
    top = 1.05 * float(np.nanmax(np.fmax(density, law)))
    return float(edges[shown[0]]) / _MARGIN, float(edges[shown[-1] + 1]) * _MARGIN, top


def _curves(row: xr.Dataset) -> tuple[float, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean eigenvalue, bin edges in its units, and densities of ln λ: simulated, standard error, law.

    If the trace has no mean, its median divided by the rank takes the place of the mean eigenvalue.
    """
    trace = row.sel(statistic="trace")
    center = trace["mean"] if np.isfinite(trace["mean"]) else trace["quantile"].sel(probability=0.5)
    unit = float(center) / int(row["rank"])
    edges = row["bin_edge"].values
    per_log = np.diff(edges) / np.diff(np.log(edges))
    density, error, law = (row[name].values * per_log for name in ("density", "density_standard_error", "density_law"))
    return unit, edges / unit, density, error, law
