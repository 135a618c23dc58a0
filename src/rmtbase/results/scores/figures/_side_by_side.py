"""Several tables in one figure: side by side on shared axes, or overlaid on one pair of axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from rmtbase.drawing.axes import LINE_STYLES, MARKERS, add_legend, literal, new_axes, new_figure, titled
from rmtbase.drawing.color_scales import DENSITY, LOG_DENSITY, MAGNITUDE_DENSITY, Q, Z
from rmtbase.drawing.fitting import fit_figure
from rmtbase.drawing.layout import figure_style, legend_of_all, panels
from rmtbase.drawing.scales import reach_all
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.figures._eigenvalues import (
    EIGENVALUE_SCALES,
    eigenvalue_density_heatmap,
    eigenvalue_heatmap,
)
from rmtbase.results.scores.figures._element_histograms import head_density_heatmap, magnitude_heatmap
from rmtbase.results.scores.figures._flagged_by_statistic import flagged_by_statistic
from rmtbase.results.scores.figures._heatmaps import expert_z_heatmap, matrix_z_heatmap, omnibus_heatmap, z_heatmap

_NULL = "#fe02fe"  # replaces the null's colour while a table is drawn, so that its artists are recognized
_MOST_COLUMNS = 4
_SCALES = dict.fromkeys((z_heatmap, matrix_z_heatmap, expert_z_heatmap), Z) | {
    omnibus_heatmap: Q,
    eigenvalue_heatmap: EIGENVALUE_SCALES["null"],
    eigenvalue_density_heatmap: LOG_DENSITY,
    head_density_heatmap: DENSITY,
    magnitude_heatmap: MAGNITUDE_DENSITY,
}


def compare(
    plot: Callable[..., Axes],
    tables: Mapping[str, xr.Dataset | xr.DataTree],
    *,
    theme: Theme | str = "light",
    width: float | None = None,
    **options: Any,
) -> Figure:
    """Draw several tables side by side with one plot function, on shared axes, so that panels can be compared."""
    if not tables:
        raise ParameterError("tables", tables, "at least one, by title")
    if plot is flagged_by_statistic:
        raise ParameterError("plot", plot.__name__, "one whose axes several tables can share")
    style = figure_style(theme, width)
    scale = EIGENVALUE_SCALES[options["over"]] if options.get("over") in EIGENVALUE_SCALES else _SCALES.get(plot)
    shown = {title: {**options, "table": table} for title, table in tables.items()}
    rows = -(-len(shown) // _MOST_COLUMNS)
    plain, limits = partial(plot, **{"colorbar" if scale else "legend": False}), []

    def noted(table: xr.Dataset | xr.DataTree, *, ax: Axes, **given: Any) -> Axes:
        plain(table, ax=ax, **given)
        limits.append((*ax.get_xlim(), *ax.get_ylim()))
        return ax

    figure = panels(noted, shown, style, -(-len(shown) // rows), share_y=True)
    # Limits set on one of the shared axes apply to all, so they must include the limits of each panel.
    reach_all(figure.axes[0], limits, [(figure.axes[0].get_xscale(), figure.axes[0].get_yscale())] * len(limits))
    for ax, title in zip(figure.axes, shown, strict=True):
        what, *facts = ax.get_title().split("\n")
        titled(ax, "\n".join([literal(title), *facts]), style.theme)
        if scale:
            figure.suptitle(what, fontsize=style.theme.points("figure.titlesize"), color=style.theme.text)
    if scale:
        scale.bar(figure.axes, style.theme)
    else:
        legend_of_all(figure, style.theme)
    fit_figure(figure)
    return figure


def overlay(
    plot: Callable[..., Axes],
    tables: Mapping[str, xr.Dataset | xr.DataTree],
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
    **options: Any,
) -> Axes:
    """Draw several tables on one pair of axes, each in its own colour and marks, with the null band of each.

    A band, law or median that several tables share is drawn once, in the null's colour.

    The axes, whose limits include those of every table.
    """
    theme = as_theme(theme)
    if not 1 <= len(tables) <= len(MARKERS):
        raise ParameterError("tables", list(tables), f"1 to {len(MARKERS)}, by title")
    if plot in _SCALES or plot is flagged_by_statistic:
        raise ParameterError("plot", plot.__name__, "one of lines and marks; compare draws others side by side")
    ax = new_axes(new_figure(theme), theme) if ax is None else ax
    shared, limits, scales = [], [], []
    for name, colour, style, marker in zip(tables, theme.series, LINE_STYLES, MARKERS, strict=False):
        before = set(ax.get_children())
        own = replace(theme, null=_NULL, observed=colour, flagged=colour, series=(colour,) * len(theme.series))
        plot(tables[name], ax=ax, theme=own, legend=False, **options)
        limits.append((*ax.get_xlim(), *ax.get_ylim()))
        scales.append((ax.get_xscale(), ax.get_yscale()))
        for artist in [one for one in ax.get_children() if one not in before]:
            plain, of_null = str(artist.get_label()), _colour(artist) in (_NULL, to_hex(theme.free_law))
            if of_null and (twin := next((one for one in shared if _is_twin(artist, one[0])), None)) is not None:
                artist.remove()
                _set_colour(twin[0], theme.null if twin[2] else theme.free_law)
                twin[0].set_label(twin[1])
                continue
            if of_null:
                shared.append((artist, plain, _colour(artist) == _NULL))
            if _colour(artist) == _NULL:
                _set_colour(artist, colour)
            if isinstance(artist, Line2D):
                _mark(artist, style, marker)
            if plain and not plain.startswith("_"):
                artist.set_label(f"{literal(name)}: {plain}")
    reach_all(ax, limits, scales)
    if len(tables) > 1:
        titled(ax, "", theme)
    if legend:
        add_legend(ax, theme)
    return ax


def _colour(artist: Artist) -> str:
    """Return the colour of an artist, of its line or else of its fill; "" if it has none."""
    if isinstance(artist, Line2D):
        return to_hex(artist.get_color())
    if isinstance(artist, Collection | Patch):
        filled = np.atleast_2d(artist.get_facecolor())
        lined = np.atleast_2d(artist.get_edgecolor())
        colours = filled if filled.size and filled[0][-1] else lined
        return to_hex(colours[0]) if colours.size else ""
    return ""


def _set_colour(artist: Artist, colour: str) -> None:
    if isinstance(artist, Line2D | Collection | Patch):
        alpha = artist.get_alpha()
        artist.set_color(colour)
        artist.set_alpha(alpha)


def _mark(line: Line2D, style: Any, marker: str) -> None:
    """Give a line, or its marks, the style of a table."""
    if line.get_marker() == MARKERS[0]:
        line.set_marker(marker)
    if line.get_linestyle() == "-":
        line.set_linestyle(style)


def _is_twin(one: Artist, other: Artist) -> bool:
    """Test whether two artists of nulls look the same."""
    if type(one) is not type(other):
        return False
    outlines = []
    for artist in (one, other):
        if isinstance(artist, Line2D):
            outlines.append([np.asarray(artist.get_xydata())])
        elif isinstance(artist, Collection):
            outlines.append([path.vertices for path in artist.get_paths()])
        elif isinstance(artist, Patch):
            outlines.append([artist.get_patch_transform().transform(artist.get_path().vertices)])
    first, second = outlines if len(outlines) == 2 else ([], [])
    return len(first) == len(second) > 0 and all(
        a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=0.0, equal_nan=True)
        for a, b in zip(first, second, strict=True)
    )
