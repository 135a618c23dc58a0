"""Layout of figures: single axes, or panels on a grid, at a given width, and their legends."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import (
    add_legend,
    grid_of_axes,
    legend_columns,
    legend_height,
    model_title,
    new_axes,
    new_figure,
    panel_size,
    sized,
)
from rmtbase.drawing.figure import FiguresByName, ThemedFigure
from rmtbase.drawing.fitting import fit_axes, fit_figure
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError

NARROWEST = 2.6
"""Least width of a panel, in inches."""

_HIGHEST_LEGEND = 0.25  # share of the height of a panel on a caller's figure
_PANEL = 4.8  # default width of a panel, in inches
_LEAST = 0.62  # least width of a panel relative to its default, if that is less than NARROWEST
_SMALL_PRINT = 5.0  # inches; narrower figures have smaller letters
_SMALLER = {"font.size": 8.5}
WIDTHS = (2.0, 40.0)  # least and largest width of a figure, in inches


class FigureStyle(NamedTuple):
    """Common settings of a set of figures: theme, and width in inches or None for the default."""

    theme: Theme
    width: float | None


class FigureRecipe(NamedTuple):
    """Function that draws one figure of a table, and whether the figure is drawn by default."""

    draw: Callable[[], ThemedFigure]
    standard: bool = True


def draw_figures(
    recipes: Mapping[str, FigureRecipe], names: Collection[str] | None = None, titles: bool = True
) -> FiguresByName:
    """Draw the standard figures, or those whose names match; ``*`` stands for any characters and ``?`` for one.

    ``titles`` is whether figures keep the title above their panels.
    """
    named = {
        name: recipe.draw()
        for name, recipe in recipes.items()
        if (recipe.standard if names is None else any(fnmatchcase(name, pattern) for pattern in names))
    }
    for figure in named.values():
        if not titles:
            figure.suptitle("")
        fit_figure(figure)
    return FiguresByName(named)


def figure_style(theme: Theme | str, width: float | None) -> FigureStyle:
    """Return the common settings of figures with that theme and width."""
    theme = as_theme(theme)
    if width is not None:
        if not WIDTHS[0] <= width <= WIDTHS[1]:
            raise ParameterError("width", width, f"{WIDTHS[0]:g} to {WIDTHS[1]:g} inches")
        if width < _SMALL_PRINT:
            theme = replace(theme, settings={**_SMALLER, **theme.settings})
    return FigureStyle(theme, width)


class Single:
    """Figure with a single pair of axes: a call draws a new figure, :meth:`on` draws on given axes.

    Args:
        plot: function that draws a table on axes.
        style: theme and width.
        table: the table to draw.
        width: width of the figure in inches, unless ``style`` has one.
        height: height of the figure in inches, without the legend; chosen by the width if None.
        options: options of ``plot``.
    """

    def __init__(
        self,
        plot: Callable[..., Axes],
        style: FigureStyle,
        table: xr.Dataset | xr.DataTree,
        width: float = 7.0,
        height: float | None = None,
        **options: Any,
    ) -> None:
        self._plot, self._style, self._table, self._options = plot, style, table, options
        self._width = style.width or width
        self._height = height or 0.9 + 0.48 * self._width

    def on(self, ax: Axes) -> Axes:
        """Draw on given axes, whose figure leaves room for their labels unless it has a layout of its own.

        A legend that would take more than a quarter of its panel's height is left to ``ax.legend()``.
        """
        theme = self._style.theme
        drawn = self._plot(self._table, ax=ax, theme=theme, **self._options)
        width, height = panel_size(drawn)
        if width < _SMALL_PRINT:
            sized(drawn, theme)
        if legend_height(drawn) > _HIGHEST_LEGEND * height:
            drawn.get_legend().remove()  # type: ignore[union-attr]  # it has a height
        figure = drawn.get_figure(root=True)
        if figure is not None and figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        fit_axes(drawn)
        return drawn

    def __call__(self) -> ThemedFigure:
        """Draw a new figure."""
        figure = new_figure(self._style.theme, self._width, self._height, model_title(self._table))
        ax = self._plot(self._table, ax=new_axes(figure, self._style.theme), theme=self._style.theme, **self._options)
        figure.set_figheight(figure.get_figheight() + legend_height(ax))
        return figure


def panels(
    plot: Callable[..., Axes],
    options_of: Mapping[str, dict[str, Any]],
    style: FigureStyle,
    columns: int,
    share_y: bool,
    height: float = 3.2,
    title: str = "",
    share_x: bool = True,
    panel: float = _PANEL,
) -> ThemedFigure:
    """Draw a grid of panels; the label of a shared x axis is only below the lowest panel of each column."""
    columns = min(columns, len(options_of))
    if style.width is not None:
        columns = min(columns, max(1, int(style.width / min(NARROWEST, _LEAST * panel))))
    width = style.width or max(6.4, panel * columns)
    height *= min(1.0, max(0.72, width / columns / panel))
    rows = -(-len(options_of) // columns)
    figure = new_figure(style.theme, width, height * rows, title)
    grid = grid_of_axes(figure, style.theme, rows, columns, sharex=share_x, sharey=share_y)
    for place, (ax, options) in enumerate(zip(grid.flat, options_of.values(), strict=False)):
        options = dict(options)
        plot(options.pop("table"), ax=ax, theme=style.theme, **options)
        label = ax.get_xlabel()
        if share_y:
            ax.label_outer()
        is_lowest = place + columns >= len(options_of)
        ax.set_xlabel(label if is_lowest or not share_x else "")
        if is_lowest:
            ax.tick_params(axis="x", labelbottom=True)
    for ax in list(grid.flat)[len(options_of) :]:
        ax.remove()
    return figure


def legend_of_all(figure: ThemedFigure, theme: Theme, same: bool = False) -> None:
    """Add one legend below all panels if one panel has all entries, or one legend to each panel otherwise.

    If equal names mean the ``same`` in all panels, one legend joins their entries.
    """
    fullest = max(figure.axes, key=lambda ax: len(ax.get_legend_handles_labels()[1]))
    named: dict[str, Any] = {}
    for ax in (fullest, *figure.axes) if same else (fullest,):
        handles, labels = ax.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True)) | named
    handles, labels = list(named.values()), list(named)
    if all(set(ax.get_legend_handles_labels()[1]) <= set(labels) for ax in figure.axes):
        place: dict[str, Any] = {"loc": "outside lower center"}
        size = theme.points("legend.fontsize")
        place["ncols"] = legend_columns(labels, size, figure.get_figwidth() - 0.3)
        figure.legend(handles, labels, **place, fontsize=size, labelcolor=theme.text, frameon=False)
        return
    legend_of_each(figure, theme)


def legend_of_each(figure: ThemedFigure, theme: Theme) -> None:
    """Add a legend below each of the panels, and make the figure higher accordingly."""
    for ax in figure.axes:
        add_legend(ax, theme)
    height = figure.get_figheight()
    rows = height / panel_size(figure.axes[0])[1]
    figure.set_figheight(height + rows * max(legend_height(ax) for ax in figure.axes))
