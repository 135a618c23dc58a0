"""Figures of a table of draws, and the spectrum of any ensemble with its limiting law where one is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from rmtbase.drawing.axes import add_density, case_name, finished, panel
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import require_case
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.baseline.figures._baseline_panels import baseline_panels
from rmtbase.results.baseline.figures._element_tables import (
    density_limits,
    element_density,
    element_property,
    held_properties,
)
from rmtbase.results.scores.figures._eigenvalues import ordered_eigenvalues

_UNSEEN = 1e-3  # share of the smallest eigenvalues that is left out of the figure
_MARGIN = 1.05  # margin of the axis, as a factor
_PANELS = 12  # in one figure of spectra
_FLAT = 8.0  # ratio of heights above which panels share a logarithmic axis


@panel
def ensemble_spectrum(ax: Axes, theme: Theme, table: xr.Dataset, case: int = 0, *, legend: bool = True) -> Axes:
    """Draw the density of ln λ for a case of a table of spectra: Monte Carlo with its standard error, and the law.

    Eigenvalues are in units of their mean, so that ensembles of any scale can be compared, and on a logarithmic axis,
    which shows spectra over many powers of ten: equal areas are equal shares of the eigenvalues. The smallest 0.1 % of
    the eigenvalues lie outside the figure. The dotted lines are the edges of the law.

    The axes: λ over its mean (dimensionless, logarithmic) against density per unit of ln λ.
    """
    if "density_law" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a table of spectra")
    row = require_case(table, case)
    unit, edges, density, error, law = _curves(row)
    left, right, top = spectrum_limits(row)
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


def figure_recipes(table: xr.Dataset, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Name the figures of a dataset."""
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    if "density_law" in table:
        return _of_elements(table, style) if "share_outside" in table else _of_spectra(table, style)
    if "bin_edge" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a baseline table: an atlas has no pictures of its own")
    first: dict[tuple[int, int], int] = {}
    for case, shape in enumerate(zip(table["d_model"].values.tolist(), table["d_head"].values.tolist(), strict=True)):
        first.setdefault(shape, case)
    named, more = {}, {}
    for (d_model, d_head), case in first.items():
        for name, plot in (("null-spectrum", null_spectrum), ("ordered-eigenvalues", ordered_eigenvalues)):
            named[f"{name}-{d_model}x{d_head}"] = FigureRecipe(Single(plot, style, table, case=case))
        of_s = Single(null_spectrum, style, table, case=case, singular_values=True)
        more[f"null-singular-values-{d_model}x{d_head}"] = FigureRecipe(of_s, standard=False)
    full_rank = FigureRecipe(partial(baseline_panels, table, style, with_full_rank=True), standard=False)
    return {
        **named,
        "baseline": FigureRecipe(partial(baseline_panels, table, style)),
        "baseline-full-rank": full_rank,
        **more,
    }


def _of_spectra(table: xr.Dataset, style: FigureStyle) -> dict[str, FigureRecipe]:
    def share_limits(axes: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        # All panels share one range of x and one of y; y is logarithmic if the lowest would look flat otherwise.
        left, right, top = zip(*map(spectrum_limits, rows), strict=True)
        for ax in axes:
            ax.set_xlim(min(left), max(right))
            if max(top) > _FLAT * min(top):
                ax.set_yscale("log")
                ax.set_ylim(min(top) / 1e3, 1.5 * max(top))
            else:
                ax.set_ylim(0.0, max(top))

    return _pages(ensemble_spectrum, table, "spectra", style, share_limits)


def _of_elements(table: xr.Dataset, style: FigureStyle) -> dict[str, FigureRecipe]:
    def share_limits(axes: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        low, high = zip(*map(density_limits, rows), strict=True)
        axes[0].set_ylim(min(low), max(high))

    recipes = _pages(element_density, table, "elements", style, share_limits)
    if properties := held_properties(table):
        options = {name: {"table": table, "statistic": name} for name in properties}
        recipes["element-properties"] = FigureRecipe(partial(_properties, options, style), standard=False)
    return recipes


def _properties(options: Mapping[str, dict], style: FigureStyle) -> ThemedFigure:
    figure = panels(partial(element_property, legend=False), options, style, len(options), share_y=False, panel=4.0)
    legend_of_all(figure, style.theme)
    return figure


def _pages(
    plot: Callable[..., Axes],
    table: xr.Dataset,
    name: str,
    style: FigureStyle,
    share_limits: Callable[[Sequence[Axes], Sequence[xr.Dataset]], None],
) -> dict[str, FigureRecipe]:
    """Make figures with a panel for each case; panels of a figure share their axes."""
    cases = range(table.sizes["case"])
    pages = [cases[first : first + _PANELS] for first in range(0, len(cases), _PANELS)]
    return {
        name if len(pages) == 1 else f"{name}-{number}": FigureRecipe(
            partial(_page, plot, table, page, style, share_limits)
        )
        for number, page in enumerate(pages, 1)
    }


def _page(
    plot: Callable[..., Axes],
    table: xr.Dataset,
    cases: Sequence[int],
    style: FigureStyle,
    share_limits: Callable[[Sequence[Axes], Sequence[xr.Dataset]], None],
) -> ThemedFigure:
    options = {str(case): {"table": table, "case": case} for case in cases}
    figure = panels(partial(plot, legend=False), options, style, 3, share_y=True)
    share_limits(figure.axes, [table.isel(case=case) for case in cases])
    legend_of_all(figure, style.theme)  # a case without a law has fewer lines
    return figure
