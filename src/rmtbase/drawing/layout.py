"""Layout of figures: single axes, or panels on a grid, at a given width, and their legends."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from rmtbase.drawing.color_scales import ColorScale
from rmtbase.drawing.figure import FiguresByName, ThemedFigure, figure_of
from rmtbase.drawing.fitting import fit_axes, fit_figure
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError

NARROWEST = 2.6  # least width of a panel, in inches
_HIGHEST_LEGEND = 0.25  # share of the height of a panel on a caller's figure
_LEAST = 0.62  # least width of a panel relative to its default, if that is less than NARROWEST
_SMALL_PRINT = 5.0  # inches; narrower figures have smaller letters
_SMALLER = {"font.size": 8.5}
WIDTHS = (2.0, 40.0)  # least and largest width of a figure, in inches


class FigureStyle(NamedTuple):
    """Common settings of a set of figures: theme, and width in inches or None for the default."""

    theme: Theme
    width: float | None


def figure_style(theme: Theme | str, width: float | None) -> FigureStyle:
    """Return the common settings of figures with that theme and width."""
    theme = as_theme(theme)
    if width is not None:
        if not WIDTHS[0] <= width <= WIDTHS[1]:
            raise ParameterError("width", width, f"{WIDTHS[0]:g} to {WIDTHS[1]:g} inches")
        if width < _SMALL_PRINT:
            theme = replace(theme, settings={**_SMALLER, **theme.settings})
    return FigureStyle(theme, width)


@dataclass(frozen=True)
class Custom:
    """Recipe of a figure that lays out its own axes."""

    draw: Callable[[FigureStyle], ThemedFigure]
    standard: bool = True

    def __call__(self, style: FigureStyle) -> ThemedFigure:
        """Draw a new figure."""
        return self.draw(style)


@dataclass(frozen=True)
class Single:
    """Recipe of a figure with a single pair of axes, width × height in inches without the legend."""

    plot: Callable[..., Axes]
    table: xr.Dataset | xr.DataTree
    options: Mapping[str, Any] = field(default_factory=dict)
    width: float = 7.0
    height: float | None = None
    standard: bool = True

    def on(self, ax: Axes, style: FigureStyle) -> Axes:
        """Draw on given axes; a legend of more than a quarter of its panel's height is left to ``ax.legend()``."""
        drawn = self.plot(self.table, ax=ax, theme=style.theme, **self.options)
        width, height = panel_size(drawn)
        if width < _SMALL_PRINT:
            sized(drawn, style.theme)
        if legend_height(drawn) > _HIGHEST_LEGEND * height:
            drawn.get_legend().remove()  # type: ignore[union-attr]  # it has a height
        if figure_of(drawn).get_layout_engine() is None:
            figure_of(drawn).set_layout_engine("constrained")
        fit_axes(drawn)
        return drawn

    def __call__(self, style: FigureStyle) -> ThemedFigure:
        """Draw a new figure."""
        width = style.width or self.width
        figure = new_figure(style.theme, width, self.height or 0.9 + 0.48 * width, model_title(self.table))
        ax = self.plot(self.table, ax=new_axes(figure, style.theme), theme=style.theme, **self.options)
        figure.set_figheight(figure.get_figheight() + legend_height(ax))
        return figure


@dataclass(frozen=True)
class Panels:
    """Recipe of a grid of panels, one for each set of options, with one colour scale or one legend for all."""

    plot: Callable[..., Axes]
    table: xr.Dataset | xr.DataTree
    options: Sequence[Mapping[str, Any]]
    columns: int
    share_x: bool = True
    share_y: bool = False
    height: float = 3.2
    panel: float = 4.8
    scale: ColorScale | None = None
    join: bool = False
    title: str | None = None
    standard: bool = True

    def __call__(self, style: FigureStyle) -> ThemedFigure:
        """Draw a new figure."""
        figure = self.draw(style)
        if self.scale is not None:
            self.scale.bar(figure.axes, style.theme)
        else:
            legend_of_all(figure, style.theme, self.join)
        return figure

    def draw(self, style: FigureStyle) -> ThemedFigure:
        """Draw the panels, without legend or colour scale."""
        number, columns = len(self.options), min(self.columns, len(self.options))
        if style.width is not None:
            columns = min(columns, max(1, int(style.width / min(NARROWEST, _LEAST * self.panel))))
        width = style.width or max(6.4, self.panel * columns)
        height = self.height * min(1.0, max(0.72, width / columns / self.panel))
        rows = -(-number // columns)
        title = model_title(self.table) if self.title is None else self.title
        figure = new_figure(style.theme, width, height * rows, title)
        grid = grid_of_axes(figure, style.theme, rows, columns, sharex=self.share_x, sharey=self.share_y)
        for place, (ax, options) in enumerate(zip(grid.flat, self.options, strict=False)):
            self.plot(self.table, ax=ax, theme=style.theme, legend=False, **options)
            label = ax.get_xlabel()
            if self.share_y:
                ax.label_outer()
            is_lowest = place + columns >= number
            ax.set_xlabel(label if is_lowest or not self.share_x else "")
            if is_lowest:
                ax.tick_params(axis="x", labelbottom=True)
        for ax in list(grid.flat)[number:]:
            ax.remove()
        return figure


FigureRecipe = Custom | Single | Panels


def draw_figures(
    recipes: Mapping[str, FigureRecipe], style: FigureStyle, names: Collection[str] | None = None, titles: bool = True
) -> FiguresByName:
    """Draw the standard figures, or those whose names match (``*`` and ``?``), with or without titles."""
    figures = {
        name: recipe(style)
        for name, recipe in recipes.items()
        if (recipe.standard if names is None else any(fnmatchcase(name, pattern) for pattern in names))
    }
    for figure in figures.values():
        if not titles:
            figure.suptitle("")
        fit_figure(figure)
    return FiguresByName(figures)


def legend_of_all(figure: ThemedFigure, theme: Theme, join: bool = False) -> None:
    """Add one legend below all panels if one panel has, or all ``join``, every entry; else one to each panel."""
    fullest = max(figure.axes, key=lambda ax: len(ax.get_legend_handles_labels()[1]))
    named: dict[str, Any] = {}
    for ax in (fullest, *figure.axes) if join else (fullest,):
        handles, labels = ax.get_legend_handles_labels()
        named = dict(zip(labels, handles, strict=True)) | named
    handles, labels = list(named.values()), list(named)
    if not all(set(ax.get_legend_handles_labels()[1]) <= set(labels) for ax in figure.axes):
        legend_of_each(figure, theme)
        return
    size = theme.points("legend.fontsize")
    place: dict[str, Any] = {"loc": "outside lower center", "fontsize": size, "labelcolor": theme.text}
    columns = legend_columns(labels, size, figure.get_figwidth() - 0.3)
    figure.legend(handles, labels, **place, ncols=columns, frameon=False)


def legend_of_each(figure: ThemedFigure, theme: Theme) -> None:
    """Add a legend below each of the panels, and make the figure higher accordingly."""
    for ax in figure.axes:
        add_legend(ax, theme)
    height = figure.get_figheight()
    rows = height / panel_size(figure.axes[0])[1]
    figure.set_figheight(height + rows * max(legend_height(ax) for ax in figure.axes))
