"""Fit of texts, tick labels and legends to the panels that hold them."""

import math

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.text import Text
from matplotlib.ticker import AutoLocator, FixedLocator, FuncFormatter, MaxNLocator, ScalarFormatter
from matplotlib.transforms import ScaledTranslation

from rmtbase.drawing.axes import BELOW, BESIDE, UNDER_TICKS, legend_height, panel_size
from rmtbase.drawing.figure import ThemedFigure, figure_of
from rmtbase.drawing.texts import bound, text_width, wrapped

_NARROW = 4.0  # inches; narrower panels have few ticks
_FEW_TICKS = 5
_PLAIN_POWERS = range(-1, 4)  # powers of ten that tick labels always write out
_LONGEST_NUMBER = 5  # characters of a tick label that writes out another one
_TURNED = 45.0  # degrees
_BETWEEN = 0.06  # inches between names along an axis
_POWERS = 0.15  # inches by which powers of ten along an axis are wider than other numbers
_LEADING = 1.3  # of lines of a label
_COLOURBAR = 0.6  # inches for the colour bar of panels that share one


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
