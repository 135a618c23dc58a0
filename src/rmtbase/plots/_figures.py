"""Whole figures: panels that share their axes, and the standard set of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rmtbase.errors import ParameterError
from rmtbase.plots._axes import add_legend, matrices_of, new_figure, styled, titled
from rmtbase.plots._null_spectrum import null_spectrum
from rmtbase.plots._ordered_eigenvalues import ordered_eigenvalues
from rmtbase.plots._p_value_qq import p_value_qq
from rmtbase.plots._statistic_by_layer import statistic_by_layer
from rmtbase.plots._theme import LIGHT, Theme
from rmtbase.plots._z_heatmap import matrix_z_heatmap, z_colorbar, z_heatmap
from rmtbase.statistics import ELEMENT_STATISTICS

MAIN_STATISTICS = ("normalized_participation_ratio", "effective_rank", "largest_eigenvalue", "log_determinant")
"""What the standard figures of a model show: how many directions carry the spectrum (on λ and on s), its largest
eigenvalue, and all of them together."""


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
        titled(ax, "\n".join([title, *facts]))
        if heat:
            figure.suptitle(what, fontsize=11, color=theme.text)
    if heat:
        z_colorbar(figure.axes, theme)
    return figure


def figures(table: xr.Dataset | xr.DataTree, theme: Theme = LIGHT) -> dict[str, Figure]:
    """Draw the standard figures of a baseline table or of a scores tree, by name.

    A baseline table gives the null's spectrum and its ordered eigenvalues for each shape, at its first σ: the others
    are the same picture, rescaled. A scores tree gives heat maps of z, ordered eigenvalues, statistics by layer,
    p-values, and the null's spectrum; where it has /matrices, their heat maps too.

    Raises:
        ParameterError: neither a baseline table nor a scores tree.
    """
    if isinstance(table, xr.DataTree):
        return _of_scores(table, theme)
    if "case" not in table.dims:
        raise ParameterError("table", sorted(map(str, table.dims)), "a baseline table (dim case) or a scores tree")
    first: dict[tuple[int, int], int] = {}
    for case, shape in enumerate(zip(table["d_model"].values.tolist(), table["d_head"].values.tolist(), strict=True)):
        first.setdefault(shape, case)
    named = {}
    for (d_model, d_head), case in first.items():
        named[f"null-spectrum-{d_model}x{d_head}"] = _single(null_spectrum, theme, table, case=case)
        named[f"ordered-eigenvalues-{d_model}x{d_head}"] = _single(ordered_eigenvalues, theme, table, case=case)
    return named


def _of_scores(tree: xr.DataTree, theme: Theme) -> dict[str, Figure]:
    named = {
        "z-heat-map": _heat_maps(z_heatmap, tree, MAIN_STATISTICS, theme),
        "ordered-eigenvalues": _single(ordered_eigenvalues, theme, tree, width=8.0),
        "statistics-by-layer": _by_layer(tree, theme),
        "p-value-qq": _single(p_value_qq, theme, tree, width=8.0),
        "null-spectrum": _single(null_spectrum, theme, tree, width=8.0),
    }
    if "matrices" in tree.children:
        held = matrices_of(tree)["statistic"].values.tolist()
        shown = tuple(name for name in ELEMENT_STATISTICS if name in held)
        named["matrix-z-heat-map"] = _heat_maps(matrix_z_heatmap, tree, shown, theme)
    return named


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
    panels = {name: {"table": tree, "statistic": name} for name in MAIN_STATISTICS}
    figure = _panels(partial(statistic_by_layer, legend=False), panels, theme, 2, share_y=False)
    _legend(figure, theme)
    return figure


def _legend(figure: Figure, theme: Theme) -> None:
    """One legend below panels that say the same; one in each where they do not."""
    named = [ax.get_legend_handles_labels() for ax in figure.axes]
    if all(labels == named[0][1] for _, labels in named):
        handles, labels = named[0]
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=8.5,
            labelcolor=theme.text, frameon=False,
        )  # fmt: skip
    else:
        for ax in figure.axes:
            add_legend(ax, theme)


def _panels(
    plot: Callable[..., Axes],
    panels: Mapping[str, dict[str, Any]],
    theme: Theme,
    columns: int,
    share_y: bool,
    height: float = 3.2,
) -> Figure:
    """A grid of panels with a shared x axis; ``label_outer`` leaves the labels at the rim."""
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    figure = new_figure(theme, max(6.4, 4.8 * columns), height * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=share_y, squeeze=False)
    for ax, options in zip(grid.flat, panels.values(), strict=False):
        options = dict(options)
        plot(options.pop("table"), ax=styled(ax, theme), theme=theme, **options)
        if share_y:
            ax.label_outer()
        elif not ax.get_subplotspec().is_last_row():  # type: ignore[union-attr]  # made by subplots
            ax.set_xlabel("")
    for ax in list(grid.flat)[len(panels) :]:
        ax.remove()
    return figure
