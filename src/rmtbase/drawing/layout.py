"""Layout of figures: single axes, or panels on a grid, at a given width, and the fit of texts, ticks and legends."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.ticker import AutoLocator, FixedLocator, FuncFormatter, MaxNLocator, ScalarFormatter
from matplotlib.transforms import ScaledTranslation

from rmtbase.drawing.axes import (
    BELOW,
    BESIDE,
    UNDER_TICKS,
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
from rmtbase.drawing.texts import bound, text_width, wrapped
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError

NARROWEST = 2.6  # least width of a panel, in inches
_HIGHEST_LEGEND = 0.25  # share of the height of a panel on a caller's figure
_LEAST = 0.62  # least width of a panel relative to its default, if that is less than NARROWEST
_SMALL_PRINT = 5.0  # inches; narrower figures have smaller letters
_SMALLER = {"font.size": 8.5}
WIDTHS = (2.0, 40.0)  # least and largest width of a figure, in inches
_NARROW = 4.0  # inches; narrower panels have few ticks
_FEW_TICKS = 5
_PLAIN_POWERS = range(-1, 4)  # powers of ten that tick labels always write out
_LONGEST_NUMBER = 5  # characters of a tick label that writes out another one
_TURNED = 45.0  # degrees
_BETWEEN = 0.06  # inches between names along an axis
_POWERS = 0.15  # inches by which powers of ten along an axis are wider than other numbers
_LEADING = 1.3  # of lines of a label
_COLOURBAR = 0.6  # inches for the colour bar of panels that share one


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


def fit_figure(figure: ThemedFigure) -> None:
    """Fit the texts and ticks of all axes to their panels, and the figure's title to the figure."""
    beside = BESIDE + (_COLOURBAR if any(ax.get_subplotspec() is None for ax in figure.axes) else 0.0)
    for ax in figure.axes:
        fit_axes(ax, beside)
    if figure.get_suptitle():
        _wrap(figure._suptitle, figure.get_figwidth() - 0.2)  # type: ignore[attr-defined]  # there is no public name


def fit_axes(ax: Axes, beside: float = BESIDE) -> None:
    """Break title and labels into lines that fit the panel, and make tick labels few and short enough not to touch."""
    width, height = panel_size(ax)
    if ax.get_subplotspec() is None:  # a colour bar's label runs along the figure
        _wrap(ax.yaxis.label, max(height - BESIDE, 1.0))
        return
    beside += _POWERS if ax.get_yscale() == "log" else 0.0
    for axis in (ax.xaxis, ax.yaxis):
        locator = axis.get_major_locator()
        if width < _NARROW and isinstance(locator, MaxNLocator):
            low, high = sorted(axis.get_view_interval())
            ticks = np.asarray(locator.tick_values(low, high))
            is_few = np.count_nonzero((ticks >= low) & (ticks <= high)) <= _FEW_TICKS
            if isinstance(locator, AutoLocator) or not is_few:  # the former has more on longer axes
                locator.set_params(nbins=_FEW_TICKS - 1)
        _name_power(axis)
    _turn_names(ax, width - beside)
    unbroken = {text: text.get_text() for text in (ax.title, ax.xaxis.label)}
    for text in unbroken:
        _wrap(text, width - beside)
    legend = ax.get_legend()
    legend = legend if legend is not None and legend.get_label() == BELOW and legend_height(ax) else None
    height -= (legend_height(ax) if legend else 0.0) + sum(map(_text_height, unbroken))
    _wrap(ax.yaxis.label, max(height - 0.5 * BESIDE, 1.0))
    for text, words in unbroken.items():  # the label of y leaves them less room if it has several lines
        text.set_text(words)
        _wrap(text, width - beside - _further_lines(ax.yaxis.label))
    if legend is not None:  # it moves under turned names and the last line of the x axis's label
        size = float(ax.xaxis.label.get_fontsize()) / 72
        turned = [label for label in ax.get_xticklabels() if label.get_rotation()]
        names = max((text_width(label.get_text(), float(label.get_fontsize())) for label in turned), default=0.0)
        lowered = _further_lines(ax.xaxis.label) + names * math.sin(math.radians(_TURNED))
        down = ScaledTranslation(0, -UNDER_TICKS * size - lowered, figure_of(ax).dpi_scale_trans)
        legend.set_bbox_to_anchor((0.5, 0.0), ax.transAxes + down)


def _text_height(text: Text) -> float:
    lines = text.get_text().count("\n") + 1 if text.get_text() else 0
    return _LEADING * lines * float(text.get_fontsize()) / 72


def _further_lines(text: Text) -> float:
    return max(0.0, _text_height(text) - _LEADING * float(text.get_fontsize()) / 72)


class _PowerOfTen(FuncFormatter):
    """Formatter of tick labels in units of a power of ten, which the axis label names."""

    def __init__(self, power: int) -> None:
        self.unit = bound(rf"in units of $10^{{{power}}}$")
        super().__init__(lambda value, position: f"{value / 10.0**power:g}".replace("-", "\N{MINUS SIGN}"))


def _name_power(axis: Axis) -> None:
    """Move the power of ten of very large or small numbers into the label; beside the axis it would cover the label."""
    interval = np.sort(axis.get_view_interval())
    largest = float(np.abs(interval).max())
    if type(axis.get_major_formatter()) is ScalarFormatter and largest > 0 and axis.get_label_text():
        power = math.floor(math.log10(largest))
        ticks = np.asarray(axis.get_major_locator().tick_values(*interval))
        longest = max(len(np.format_float_positional(abs(tick), 6, trim="-", fractional=False)) for tick in ticks)
        if power not in _PLAIN_POWERS and longest > _LONGEST_NUMBER:
            axis.set_major_formatter(_PowerOfTen(power))
    formatter = axis.get_major_formatter()  # axes that share ticks share it
    if isinstance(formatter, _PowerOfTen) and axis.get_label_text():
        # The power takes the place of the unit, without which the label of the text is kept.
        axis.set_label_text(f"{axis.label.get_label() or axis.get_label_text()} ({formatter.unit})")


def _turn_names(ax: Axes, width: float) -> None:
    if not isinstance(ax.xaxis.get_major_locator(), FixedLocator):
        return
    labels = {float(label.get_position()[0]): label for label in ax.get_xticklabels() if label.get_text()}
    half = [
        max(text_width(line, float(label.get_fontsize())) for line in label.get_text().split("\n")) / 2
        for label in labels.values()
    ]
    inch = abs(float(np.diff(ax.get_xlim())[0])) / width
    gaps = np.abs(np.diff(list(labels))) / inch
    if any(left + right + _BETWEEN > gap for left, right, gap in zip(half, half[1:], gaps, strict=False)):
        names = [label.get_text().replace("\n", " ") for label in labels.values()]
        ax.set_xticks(list(labels), names, rotation=_TURNED, ha="right", rotation_mode="anchor")


def _wrap(text: Text, width: float) -> None:
    text.set_text(wrapped(text.get_text(), float(text.get_fontsize()), width))
