"""The figures of tables without a model: baselines, spectra, elements; of effective depths and of compositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import xarray as xr
from matplotlib.axes import Axes

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import model_title, new_figure, styled
from rmtbase.plots._baseline_panels import baseline_panels
from rmtbase.plots._color_scales import z_colorbar
from rmtbase.plots._composition import composition_graph, composition_heatmap
from rmtbase.plots._effective_depth import depth_profile, depth_spectrum
from rmtbase.plots._eigenvalues import ordered_eigenvalues
from rmtbase.plots._element_tables import density_limits, element_density, element_property, held_properties
from rmtbase.plots._ensemble_spectrum import ensemble_spectrum, spectrum_limits
from rmtbase.plots._layout import NARROWEST, Drawing, Look, legend_of_all, panels, single
from rmtbase.plots._null_spectrum import null_spectrum
from rmtbase.plots._picture import Picture

_PANELS = 12  # of one figure of spectra
_FLAT = 8.0  # times: heights of panels further apart share a logarithmic axis


def drawings_of_table(table: xr.Dataset, look: Look) -> dict[str, Drawing]:
    """What draws each picture of a dataset, by name.

    Raises:
        ParameterError: a dataset that no picture is of.
    """
    if table.attrs.get("kind") == "composition":
        return _of_compositions(table, look)
    if "distance_profile" in table:
        return {"effective-depth": Drawing(partial(_of_depths, table, look))}
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    if "density_law" in table:
        return _of_elements(table, look) if "share_outside" in table else _of_spectra(table, look)
    if "bin_edge" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a baseline table: an atlas has no pictures of its own")
    first: dict[tuple[int, int], int] = {}
    for case, shape in enumerate(zip(table["d_model"].values.tolist(), table["d_head"].values.tolist(), strict=True)):
        first.setdefault(shape, case)
    named = {}
    for (d_model, d_head), case in first.items():
        for name, plot in (("null-spectrum", null_spectrum), ("ordered-eigenvalues", ordered_eigenvalues)):
            named[f"{name}-{d_model}x{d_head}"] = Drawing(partial(single, plot, look, table, case=case))
    full_rank = Drawing(partial(baseline_panels, table, look, with_full_rank=True), standard=False)
    return {**named, "baseline": Drawing(partial(baseline_panels, table, look)), "baseline-full-rank": full_rank}


def _of_spectra(table: xr.Dataset, look: Look) -> dict[str, Drawing]:
    def share_limits(axes: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        # One range of x and one of y for all; y is logarithmic where the highest would leave the lowest flat.
        left, right, top = zip(*map(spectrum_limits, rows), strict=True)
        for ax in axes:
            ax.set_xlim(min(left), max(right))
            if max(top) > _FLAT * min(top):
                ax.set_yscale("log")
                ax.set_ylim(min(top) / 1e3, 1.5 * max(top))
            else:
                ax.set_ylim(0.0, max(top))

    return _pages(ensemble_spectrum, table, "spectra", look, share_limits)


def _of_elements(table: xr.Dataset, look: Look) -> dict[str, Drawing]:
    def share_limits(axes: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        low, high = zip(*map(density_limits, rows), strict=True)
        axes[0].set_ylim(min(low), max(high))

    drawings = _pages(element_density, table, "elements", look, share_limits)
    if properties := held_properties(table):
        options = {name: {"table": table, "statistic": name} for name in properties}
        drawings["element-properties"] = Drawing(partial(_properties, options, look), standard=False)
    return drawings


def _properties(options: Mapping[str, dict], look: Look) -> Picture:
    figure = panels(partial(element_property, legend=False), options, look, len(options), share_y=False, panel=4.0)
    legend_of_all(figure, look.theme)
    return figure


def _pages(
    plot: Callable[..., Axes],
    table: xr.Dataset,
    name: str,
    look: Look,
    share_limits: Callable[[Sequence[Axes], Sequence[xr.Dataset]], None],
) -> dict[str, Drawing]:
    """A panel for each case, on axes that those of a page share."""
    cases = range(table.sizes["case"])
    pages = [cases[first : first + _PANELS] for first in range(0, len(cases), _PANELS)]
    return {
        name if len(pages) == 1 else f"{name}-{number}": Drawing(partial(_page, plot, table, page, look, share_limits))
        for number, page in enumerate(pages, 1)
    }


def _page(
    plot: Callable[..., Axes],
    table: xr.Dataset,
    cases: Sequence[int],
    look: Look,
    share_limits: Callable[[Sequence[Axes], Sequence[xr.Dataset]], None],
) -> Picture:
    options = {str(case): {"table": table, "case": case} for case in cases}
    figure = panels(partial(plot, legend=False), options, look, 3, share_y=True)
    share_limits(figure.axes, [table.isel(case=case) for case in cases])
    legend_of_all(figure, look.theme)  # a case without a law has fewer lines
    return figure


def _of_compositions(table: xr.Dataset, look: Look) -> dict[str, Drawing]:
    rows = len(dict.fromkeys(table["later_layer"].values.tolist()))
    height = min(max(3.2, 1.6 + 0.62 * rows), 12.0)
    return {
        "composition": Drawing(partial(_composition_maps, table, look)),
        "composition-graph": Drawing(partial(single, composition_graph, look, table, 8.5, height)),
    }


def _composition_maps(table: xr.Dataset, look: Look) -> Picture:
    """A map for each kind, with one scale of colours."""
    options = {kind: {"table": table, "kind": kind} for kind in table["kind"].values.tolist()}
    plot = partial(composition_heatmap, colorbar=False)
    figure = panels(plot, options, look, len(options), share_y=True, height=4.4, title=model_title(table), panel=4.2)
    z_colorbar(figure.axes, look.theme)
    return figure


def _of_depths(table: xr.Dataset, look: Look) -> Picture:
    """Rows on shared axes: one scale for all distances, one for all spectra."""
    components = table["component"].values.tolist()
    width = look.width or 10.5
    columns = 2 if width >= 2 * NARROWEST else 1
    rows = len(components) * 2 // columns
    figure = new_figure(look.theme, width, 2.9 * rows, model_title(table))
    grid = figure.subplots(rows, columns, sharex="col" if columns == 2 else False, squeeze=False)
    places = iter(grid.flat)
    for component in components:
        for plot in (depth_profile, depth_spectrum):
            ax = styled(next(places), look.theme)
            plot(table, component=component, ax=ax, theme=look.theme)
            if columns == 2 and component != components[-1]:
                ax.set_xlabel("")
    return figure
