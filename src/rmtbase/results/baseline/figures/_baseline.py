"""Figures of tables without a model: baselines, spectra, elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.drawing.null_curves import null_spectrum
from rmtbase.errors import ParameterError
from rmtbase.results.baseline.figures._baseline_panels import baseline_panels
from rmtbase.results.baseline.figures._element_tables import (
    density_limits,
    element_density,
    element_property,
    held_properties,
)
from rmtbase.results.baseline.figures._ensemble_spectrum import ensemble_spectrum, spectrum_limits
from rmtbase.results.scores.figures import ordered_eigenvalues

_PANELS = 12  # in one figure of spectra
_FLAT = 8.0  # ratio of heights above which panels share a logarithmic axis


def figure_recipes(table: xr.Dataset, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Name the figures of a dataset.

    Raises:
        ParameterError: a dataset that has no figures.
    """
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    if "density_law" in table:
        return _of_elements(table, style) if "share_outside" in table else _of_spectra(table, style)
    if "bin_edge" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a baseline table: an atlas has no pictures of its own")
    first: dict[tuple[int, int], int] = {}
    for case, shape in enumerate(zip(table["d_model"].values.tolist(), table["d_head"].values.tolist(), strict=True)):
        first.setdefault(shape, case)
    named = {}
    for (d_model, d_head), case in first.items():
        for name, plot in (("null-spectrum", null_spectrum), ("ordered-eigenvalues", ordered_eigenvalues)):
            named[f"{name}-{d_model}x{d_head}"] = FigureRecipe(Single(plot, style, table, case=case))
    full_rank = FigureRecipe(partial(baseline_panels, table, style, with_full_rank=True), standard=False)
    return {**named, "baseline": FigureRecipe(partial(baseline_panels, table, style)), "baseline-full-rank": full_rank}


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
