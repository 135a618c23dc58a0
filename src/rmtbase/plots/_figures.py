"""Whole figures: panels that share their axes, and the standard set of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import add_legend, literal, matrices_of, new_figure, styled, titled
from rmtbase.plots._effective_depth import depth_profile, depth_spectrum
from rmtbase.plots._element_density import density_limits, element_density
from rmtbase.plots._ensemble_spectrum import ensemble_spectrum, spectrum_limits
from rmtbase.plots._null_spectrum import null_spectrum
from rmtbase.plots._ordered_eigenvalues import ordered_eigenvalues
from rmtbase.plots._p_value_qq import p_value_qq
from rmtbase.plots._statistic_by_layer import statistic_by_layer
from rmtbase.plots._theme import LIGHT, Theme
from rmtbase.plots._z_heatmap import matrix_z_heatmap, z_colorbar, z_heatmap
from rmtbase.statistics import ELEMENT_STATISTICS
from rmtbase.tables import null_method

MAIN_STATISTICS = ("normalized_participation_ratio", "effective_rank", "largest_eigenvalue", "log_determinant")
"""What the standard figures of a model show: how many directions carry the spectrum (on λ and on s), its largest
eigenvalue, and all of them together."""

_PANELS = 12  # of one figure of spectra
_FLAT = 8.0  # times: heights of panels further apart share a logarithmic axis


def compare(
    plot: Callable[..., Axes], tables: Mapping[str, xr.Dataset | xr.DataTree], theme: Theme = LIGHT, **options: Any
) -> Figure:
    """Draw several tables side by side with one plot function, on shared axes, so that panels can be compared.

    Args:
        plot: a function of this room, ``statistic_by_layer`` say.
        tables: what to draw by title: models, revisions or baselines.
        theme: colours.
        **options: passed on to ``plot``.

    Raises:
        ParameterError: no tables, or what ``plot`` raises.
    """
    if not tables:
        raise ParameterError("tables", tables, "at least one, by title")
    heat = plot in (z_heatmap, matrix_z_heatmap)
    panels = {title: {**options, "table": table} for title, table in tables.items()}
    figure = _panels(
        partial(plot, **{"colorbar" if heat else "legend": False}), panels, theme, len(panels), share_y=True
    )
    if not heat:
        _legend(figure, theme)
    for ax, title in zip(figure.axes, panels, strict=True):
        what, *facts = ax.get_title().split("\n")
        titled(ax, "\n".join([literal(title), *facts]))
        if heat:
            figure.suptitle(what, fontsize=11, color=theme.text)
    if heat:
        z_colorbar(figure.axes, theme)
    return figure


def figures(table: xr.Dataset | xr.DataTree, theme: Theme = LIGHT) -> dict[str, Figure]:
    """Draw the standard figures of a baseline table, of effective depths or of a scores tree, by name.

    A baseline table gives the null's spectrum and its ordered eigenvalues for each shape, at its first σ: the others
    are the same picture, rescaled. A scores tree gives heat maps of z, ordered eigenvalues, statistics by layer,
    p-values, and the null's spectrum; where it has /matrices, their heat maps too. Effective depths give one picture of
    the middle layer: a row for each matrix, with the distance to each depth's law and the laws beside its spectrum. A
    table of spectra of any ensemble gives the spectrum of each case, on shared axes, and one of elements their density.

    Raises:
        ParameterError: none of them.
    """
    if isinstance(table, xr.DataTree):
        return _of_scores(table, theme)
    if "distance_profile" in table:
        return {"effective-depth": _of_depths(table, theme)}
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    if "density_law" in table:
        return _of_elements(table, theme) if "share_outside" in table else _of_spectra(table, theme)
    if "bin_edge" not in table:
        raise ParameterError("table", table.attrs.get("kind"), "a baseline table: an atlas has no pictures of its own")
    first: dict[tuple[int, int], int] = {}
    for case, shape in enumerate(zip(table["d_model"].values.tolist(), table["d_head"].values.tolist(), strict=True)):
        first.setdefault(shape, case)
    named = {}
    for (d_model, d_head), case in first.items():
        named[f"null-spectrum-{d_model}x{d_head}"] = _single(null_spectrum, theme, table, case=case)
        named[f"ordered-eigenvalues-{d_model}x{d_head}"] = _single(ordered_eigenvalues, theme, table, case=case)
    return named


def _of_spectra(table: xr.Dataset, theme: Theme) -> dict[str, Figure]:
    def share_limits(panels: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        # One range of x and one of y for all; y is logarithmic where the highest would leave the lowest flat.
        left, right, top = zip(*map(spectrum_limits, rows), strict=True)
        for ax in panels:
            ax.set_xlim(min(left), max(right))
            if max(top) > _FLAT * min(top):
                ax.set_yscale("log")
                ax.set_ylim(min(top) / 1e3, 1.5 * max(top))
            else:
                ax.set_ylim(0.0, max(top))

    return _pages(ensemble_spectrum, table, "spectra", theme, share_limits)


def _of_elements(table: xr.Dataset, theme: Theme) -> dict[str, Figure]:
    def share_limits(panels: Sequence[Axes], rows: Sequence[xr.Dataset]) -> None:
        low, high = zip(*map(density_limits, rows), strict=True)
        panels[0].set_ylim(min(low), max(high))

    return _pages(element_density, table, "elements", theme, share_limits)


def _pages(
    plot: Callable[..., Axes],
    table: xr.Dataset,
    name: str,
    theme: Theme,
    share_limits: Callable[[Sequence[Axes], Sequence[xr.Dataset]], None],
) -> dict[str, Figure]:
    """A panel for each case, on axes that those of a page share."""
    cases = range(table.sizes["case"])
    pages = [cases[first : first + _PANELS] for first in range(0, len(cases), _PANELS)]
    named = {}
    for number, page in enumerate(pages, 1):
        panels = {str(case): {"table": table, "case": case} for case in page}
        figure = _panels(partial(plot, legend=False), panels, theme, 3, share_y=True)
        share_limits(figure.axes, [table.isel(case=case) for case in page])
        # A case without a law has fewer lines; the legend is that of the panel with most.
        named_lines = (ax.get_legend_handles_labels() for ax in figure.axes)
        _legend_below(figure, max(named_lines, key=lambda named: len(named[1])), 2, theme)
        named[name if len(pages) == 1 else f"{name}-{number}"] = figure
    return named


def _of_scores(tree: xr.DataTree, theme: Theme) -> dict[str, Figure]:
    named = {
        "z-heat-map": _heat_maps(z_heatmap, tree, _main_statistics(tree), theme),
        "ordered-eigenvalues": _single(ordered_eigenvalues, theme, tree, width=8.0),
        "statistics-by-layer": _by_layer(tree, theme),
        "p-value-qq": _single(p_value_qq, theme, tree, width=8.0),
    }
    if null_method(tree.attrs) != "resampled":
        named["null-spectrum"] = _single(null_spectrum, theme, tree, width=8.0)
    if "matrices" in tree.children:
        held = matrices_of(tree)["statistic"].values.tolist()
        shown = tuple(name for name in ELEMENT_STATISTICS if name in held)
        named["matrix-z-heat-map"] = _heat_maps(matrix_z_heatmap, tree, shown, theme)
    return named


def _of_depths(table: xr.Dataset, theme: Theme) -> Figure:
    """Rows on shared axes: one scale for all distances, one for all spectra."""
    components = table["component"].values.tolist()
    figure = new_figure(theme, 10.5, 2.9 * len(components))
    grid = figure.subplots(len(components), 2, sharex="col", sharey="col", squeeze=False)
    for row, component in zip(grid, components, strict=True):
        for ax, plot in zip(row, (depth_profile, depth_spectrum), strict=True):
            plot(table, component=component, ax=styled(ax, theme), theme=theme)
            if not ax.get_subplotspec().is_last_row():
                ax.set_xlabel("")
    return figure


def _main_statistics(tree: xr.DataTree) -> tuple[str, ...]:
    """:data:`MAIN_STATISTICS`, the trace in the place of one that the null holds fixed."""
    spread = tree["heads"].to_dataset()["null_std"]
    fixed, unscored = spread == 0, spread.isnull()
    held = spread["statistic"].values[(fixed.any(("layer", "head")) & (fixed | unscored).all(("layer", "head"))).values]
    return tuple("trace" if name in held else name for name in MAIN_STATISTICS)


def _single(
    plot: Callable[..., Axes], theme: Theme, table: xr.Dataset | xr.DataTree, width: float = 7.0, **options: Any
) -> Figure:
    figure = new_figure(theme, width, 4.4)
    plot(table, ax=styled(figure.add_subplot(), theme), theme=theme, **options)
    return figure


def _heat_maps(plot: Callable[..., Axes], tree: xr.DataTree, statistics: tuple[str, ...], theme: Theme) -> Figure:
    panels = {name: {"table": tree, "statistic": name} for name in statistics}
    layers = tree["heads"].sizes["layer"]
    height = min(3.6, max(2.2, 1.0 + 0.22 * layers))
    figure = _panels(partial(plot, colorbar=False), panels, theme, 2, share_y=True, height=height)
    z_colorbar(figure.axes, theme)
    return figure


def _by_layer(tree: xr.DataTree, theme: Theme) -> Figure:
    panels = {name: {"table": tree, "statistic": name} for name in _main_statistics(tree)}
    figure = _panels(partial(statistic_by_layer, legend=False), panels, theme, 2, share_y=False)
    _legend(figure, theme)
    return figure


def _legend(figure: Figure, theme: Theme) -> None:
    """One legend below panels that say the same; one in each where they do not."""
    named = [ax.get_legend_handles_labels() for ax in figure.axes]
    if all(labels == named[0][1] for _, labels in named):
        _legend_below(figure, named[0], 5, theme)
    else:
        for ax in figure.axes:
            add_legend(ax, theme)


def _legend_below(figure: Figure, named: tuple[list[Any], list[Any]], most_columns: int, theme: Theme) -> None:
    columns = min(len(named[1]), most_columns)
    place: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    figure.legend(*named, **place, fontsize=8.5, labelcolor=theme.text, frameon=False)


def _panels(
    plot: Callable[..., Axes],
    panels: Mapping[str, dict[str, Any]],
    theme: Theme,
    columns: int,
    share_y: bool,
    height: float = 3.2,
) -> Figure:
    """A grid of panels with a shared x axis, whose labels are at the rim: below the lowest panel of each column."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(theme, max(6.4, 4.8 * columns), height * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=share_y, squeeze=False)
    for place, (ax, options) in enumerate(zip(grid.flat, panels.values(), strict=False)):
        options = dict(options)
        plot(options.pop("table"), ax=styled(ax, theme), theme=theme, **options)
        label = ax.get_xlabel()
        if share_y:
            ax.label_outer()
        is_lowest = place + columns >= len(panels)
        ax.set_xlabel(label if is_lowest else "")
        if is_lowest:
            ax.tick_params(axis="x", labelbottom=True)
    for ax in list(grid.flat)[len(panels) :]:
        ax.remove()
    return figure
