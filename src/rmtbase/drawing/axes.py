"""Axes without global state, and the labels that all figures share."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.cbook import is_math_text
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from rmtbase.drawing.figure import ThemedAxes, ThemedFigure
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.shown import shown
from rmtbase.statistics import ELEMENT_STATISTICS, SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, layer_numbers, layer_stacks

LEVEL = 0.05
"""False discovery rate below which a head or a matrix counts as flagged."""

NORMAL_95 = 1.96
"""Number of standard deviations on either side of the mean that hold 95 % of a normal law."""

MARKERS = ("o", "s", "^", "D", "v")
"""Marker shapes, so that series do not differ only in hue."""

LINE_STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))
"""Line styles, likewise."""

BESIDE = 0.5
"""Inches of a panel that tick labels take."""

UNDER_TICKS = 3.9
"""Lines from the axes to a legend below ticks and label."""

BELOW = "below"
"""Place of a legend below the axes, and its label there."""

_FACTS = {
    "moved_share": "moved share",
    "sigma": r"standard deviation $\sigma$ of the elements",
    "sigma_q": r"standard deviation $\sigma_Q$ of $W_Q$",
    "sigma_k": r"standard deviation $\sigma_K$ of $W_K$",
    "d_model": "model width",
    "d_head": "head dimension",
    "entropy": "differential entropy $S$ (nats)",
    "std": "standard deviation $s$ of the elements",
    "histogram_entropy": "entropy by a histogram $S$ (nats)",
    "histogram_kl": "divergence from a normal law (nats)",
}
_LINE = 0.165  # height of a legend's line, in inches at 10 pt
_NOTHING = 1e-300  # a density below any that is shown
_LONGEST_TICK = 20  # characters of a tick label
_STEPS, _MOST_TICKS = (1, 2, 4, 5, 10, 20, 25, 50, 100, 10**9), 12  # layers between ticks; ticks of all stacks
_LONGEST_LINE, _MOST_LINES = 44, 6  # characters in a line of a title, and lines


def new_figure(theme: Theme, width: float = 6.4, height: float = 4.2, title: str = "") -> ThemedFigure:
    """Make a figure in the theme, laid out so that no label is cut off."""
    figure = ThemedFigure(theme, width, height)
    if title:
        figure.suptitle(title, fontsize=theme.points("axes.titlesize"), color=theme.muted)
    return figure


def new_axes(figure: ThemedFigure, theme: Theme) -> Axes:
    """Add the only axes of a figure."""
    return styled(figure.add_subplot(axes_class=ThemedAxes), theme)


def themed_axes(ax: Axes | None, theme: Theme | str, table: object = None) -> tuple[Axes, Theme]:
    """Return the given axes unchanged, or new ones titled with the name of the table's model; and the theme."""
    theme = as_theme(theme)
    return new_axes(new_figure(theme, title=model_title(table)), theme) if ax is None else ax, theme


def panel(draw: Callable[..., Axes]) -> Callable[..., Axes]:
    """Decorate a function of a figure: it draws a table on ``ax``, or on new axes, in a theme or one of that name."""

    @wraps(draw)
    def plot(
        table: object = None, *arguments: Any, ax: Axes | None = None, theme: Theme | str = "light", **options: Any
    ) -> Axes:
        return draw(*themed_axes(ax, theme, table), table, *arguments, **options)

    return plot


def grid_of_axes(figure: ThemedFigure, theme: Theme, rows: int, columns: int, **options: Any) -> np.ndarray:
    """Add rows and columns of axes to a figure; the options are those of ``Figure.subplots``."""
    grid = figure.subplots(rows, columns, squeeze=False, subplot_kw={"axes_class": ThemedAxes}, **options)
    for ax in grid.flat:
        styled(ax, theme)
    return grid


def model_title(table: object) -> str:
    """Return the model and revision of a table, and its circuit if that is not W_QK; empty if the table names none."""
    attributes = getattr(table, "attrs", {})
    model, revision = (str(attributes.get(name, "")) for name in ("model", "revision"))
    circuit = f", ${circuit_of(attributes).latex}$" if "circuit" in attributes else ""
    return literal(model) + (f", revision {literal(revision)}" if model and revision else "") + circuit


def noun_of(table: object) -> str:
    """Return the noun for the rows of scores: head, or key head for some circuits."""
    return circuit_of(getattr(table, "attrs", {})).noun


def styled(ax: Axes, theme: Theme) -> Axes:
    """Style axes in the theme: two spines, small ticks, a faint grid behind the data."""
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(theme.muted)
    ax.tick_params(which="both", color=theme.muted, labelcolor=theme.muted)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set(color=theme.text)
        axis.get_offset_text().set(color=theme.muted)
    ax.title.set(color=theme.text)
    sized(ax, theme)
    ax.grid(color=theme.grid, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def sized(ax: Axes, theme: Theme) -> None:
    """Set the text sizes of the theme on tick labels and axis labels."""
    small = theme.points("xtick.labelsize")
    ax.tick_params(which="both", labelsize=small)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(theme.points("axes.labelsize"))
        axis.get_offset_text().set_fontsize(small)


def without_frame(ax: Axes) -> None:
    """Hide the spines, grid and tick marks of axes, as a map of cells needs none."""
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)


def titled(ax: Axes, title: str, theme: Theme) -> None:
    """Give the axes a title in the theme's size."""
    ax.set_title(title, fontsize=theme.points("axes.titlesize"))


def finished(ax: Axes, theme: Theme, title: str, legend: bool, loc: str = BELOW) -> Axes:
    """Add a title, and a legend if wanted, and return the axes."""
    titled(ax, title, theme)
    if legend:
        add_legend(ax, theme, loc)
    return ax


def panel_size(ax: Axes) -> tuple[float, float]:
    """Width and height in inches of the axes' part of the figure."""
    figure = ax.get_figure(root=True)
    assert figure is not None  # axes always lie in one
    width, height = figure.get_size_inches()
    place = ax.get_subplotspec()
    rows, columns = place.get_gridspec().get_geometry() if place is not None else (1, 1)
    return width / columns, height / rows


def text_width(text: str, size: float) -> float:
    """Return the width of a line of text in inches."""
    formula = is_math_text(text)
    plain = text if formula else text.replace(r"\$", "$")
    width, _, _ = text_to_path.get_text_width_height_descent(plain, FontProperties(size=size), formula)
    return float(width) / 72


def wrapped(text: str, size: float, width: float) -> str:
    """Break text into lines of at most that many inches, within words only if they are too long, never in formulas."""
    lines = []
    for whole in text.split("\n"):
        if text_width(whole, size) <= width:
            lines.append(whole)
            continue
        line = ""
        for word in re.findall(r"(?:(?<!\\)\$.*?(?<!\\)\$|[^ ])+", whole):  # keeps formulas whole
            longer = f"{line} {word}".strip()
            if text_width(longer, size) <= width:
                line = longer
                continue
            *full, line = ([line] if line else []) + _pieces(word, size, width)
            lines += full
        lines.append(line)
    return "\n".join(lines)


def _pieces(word: str, size: float, width: float) -> list[str]:
    """Break a word that is longer than the width into pieces."""
    pieces = math.ceil(text_width(word, size) / width)
    return [word] if pieces == 1 or "$" in word else textwrap.wrap(word, math.ceil(len(word) / pieces))


def bound(words: str) -> str:
    """Join words by no-break spaces, so that they stay on one line."""
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def counted(number: int, noun: str) -> str:
    """Format a number with its noun: 1 head, 2 heads."""
    return f"{number} {noun}{'s' * (number != 1)}"


def rounded(value: float, digits: int, beside: Iterable[float] = ()) -> str:
    """Format a number ≥ 0 to so many digits: whole up to a million, with a power of ten far from one.

    It has a power of ten, too, if one of the numbers ``beside`` it has one, so that all have one format.
    """
    if math.isinf(value) or not value:
        return "∞" if value else "0"
    if all(1e-4 <= number < 1e6 for number in (value, *beside) if number and not math.isinf(number)):
        return f"{value:.0f}" if 10**digits <= value else f"{value:.{digits}g}"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    return rf"${float(mantissa):g} \times 10^{{{int(exponent)}}}$"


def case_name(row: xr.Dataset) -> str:
    """Return the name of a case's ensemble as a title, in lines of a panel's width."""
    lines = textwrap.wrap(str(row["name"].item()).replace("_", " "), _LONGEST_LINE)
    return "\n".join(map(literal, lines[:_MOST_LINES]))


def add_density(
    ax: Axes,
    edges: Float[np.ndarray, " edge"],
    centre: Float[np.ndarray, " bin"],
    density: Float[np.ndarray, " bin"],
    error: Float[np.ndarray, " bin"],
    theme: Theme,
    outline: float = 0.0,
    lowest: float = _NOTHING,
) -> None:
    """Draw a simulated density as filled bars, with its standard error at the centres of visible bars.

    Bars and errors end at ``lowest``, below everything shown, because a logarithmic axis has no zero.
    """
    ax.stairs(
        np.fmax(density, lowest),
        edges,
        baseline=lowest,
        fill=True,
        facecolor=theme.null,
        edgecolor=theme.null,
        linewidth=outline,
        alpha=0.35,
        label="Monte Carlo ± standard error",
    )
    held = density > lowest
    reach = [np.minimum(error, density - lowest)[held], error[held]]
    ax.errorbar(centre[held], density[held], reach, fmt="none", ecolor=theme.null, elinewidth=1.1, capsize=0)


def add_legend(ax: Axes, theme: Theme, loc: str = BELOW) -> None:
    """Add a legend without an edge; ``"below"`` puts it under the axes, away from the data."""
    handles, labels = ax.get_legend_handles_labels()
    size = theme.points("legend.fontsize")
    place: dict[str, Any] = {"loc": loc}
    if loc == BELOW:
        figure = ax.get_figure(root=True)
        assert figure is not None  # axes always lie in one
        down = ScaledTranslation(0, -UNDER_TICKS * theme.points("axes.labelsize") / 72, figure.dpi_scale_trans)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": ax.transAxes + down}
        place |= {"borderaxespad": 0.0, "ncols": legend_columns(labels, size, panel_size(ax)[0] - BESIDE)}
    added = ax.legend(
        handles, labels, **place, fontsize=size, labelcolor=theme.text, facecolor=theme.surface, edgecolor="none",
        framealpha=0.75,
    )  # fmt: skip
    added.set_label(loc)


def legend_columns(labels: Sequence[str], size: float, width: float) -> int:
    """Return the number of columns of a legend of that width and size of letters, at most four."""
    widest = max((text_width(label, size) for label in labels), default=0.0) + 4.8 * size / 72  # with its line
    return max(1, min(len(labels), 4, math.floor(width / widest)))


def legend_height(ax: Axes) -> float:
    """Return the height in inches of a legend below axes; 0 without one."""
    legend = ax.get_legend()
    if legend is None or not legend.get_texts():
        return 0.0
    labels, size = [text.get_text() for text in legend.get_texts()], float(legend.get_texts()[0].get_fontsize())
    lines = -(-len(labels) // legend_columns(labels, size, panel_size(ax)[0] - 0.5))
    return lines * _LINE * size / 8.5


def literal(text: object, longest: int = 60) -> str:
    """Make external text safe for a label or a title: printable, short, and never read as mathematics."""
    words = shown(text)
    return (words if len(words) <= longest else f"{words[: longest - 1]}…").replace("$", r"\$")


def statistic_label(name: str) -> str:
    """Return a statistic in words with its symbol, for an axis or a panel's title."""
    one = SPECTRAL_STATISTICS.get(name) or ELEMENT_STATISTICS.get(name)
    if one is not None:
        return f"{one.long_name} ${one.symbol}$"
    return _FACTS[name] if name in _FACTS else literal(name.replace("_", " "))


def statistic_words(name: str) -> str:
    """Return a statistic in words, without its symbol."""
    one = SPECTRAL_STATISTICS.get(name) or ELEMENT_STATISTICS.get(name)
    return name.replace("_", " ") if one is None else one.long_name


def symbol_of(component: str) -> str:
    """Return ``W_QK`` and the like as a formula; any other name in words."""
    letters = component.removeprefix("W_")
    return (
        f"$W_{{{letters}}}$"
        if component.startswith("W_") and letters.isalpha()
        else literal(component.replace("_", " "))
    )


def layer_axis(ax: Axes, which: str, table: xr.Dataset, theme: Theme) -> None:
    """Set ticks at integers that show the layers' numbers; if there are several stacks, name and separate them."""
    numbers, stacks = layer_numbers(table), layer_stacks(table)
    begins = [k for k in range(1, len(stacks)) if stacks[k] != stacks[k - 1]]
    if not begins:
        index_axis(ax, which, numbers)
        return
    step = next(one for one in _STEPS if len(stacks) <= _MOST_TICKS * one)
    ticks: dict[int, str] = {}
    for first, beyond in pairwise([0, *begins, len(stacks)]):
        # No tick so near the next stack that their labels would overlap.
        ends = beyond if beyond == len(stacks) else max(first + 1, beyond - step // 2)
        ticks |= {k: literal(numbers[k], _LONGEST_TICK) for k in range(first, ends, step)}
        stack = literal(stacks[first], _LONGEST_TICK)
        ticks[first] = f"{stack} {ticks[first]}" if which == "y" else f"{ticks[first]}\n{stack}"
    (ax.set_xticks if which == "x" else ax.set_yticks)(list(ticks), list(ticks.values()))
    for place in begins:
        (ax.axvline if which == "x" else ax.axhline)(place - 0.5, color=theme.muted, linewidth=0.8)


def index_axis(ax: Axes, which: str, labels: Sequence[object]) -> None:
    """Set ticks at integers 0, 1, … that show the labels at those places."""
    names = [literal(one, _LONGEST_TICK) for one in labels]

    def name_at(place: float, position: int | None = None) -> str:
        k = round(place)
        return names[k] if 0 <= k < len(names) and abs(place - k) < 1e-6 else ""

    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(nbins=12, integer=True, steps=[1, 2, 4, 5, 10], min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(name_at))


def rows_axis(ax: Axes, layers: Sequence[int], table: xr.Dataset, theme: Theme, null: bool = False) -> None:
    """Set a y axis with one row for each head, the first on top; layers are named at their middle and separated.

    A row for the null is placed above them, with one empty row between.
    """
    rows, numbers, stacks = np.asarray(layers), layer_numbers(table), layer_stacks(table)
    held = np.unique(rows)
    step = next(one for one in _STEPS if len(held) <= _MOST_TICKS * one)
    names = {
        float(np.flatnonzero(rows == k).mean()): literal(f"{stacks[k]} {numbers[k]}".lstrip(), _LONGEST_TICK)
        for k in held[::step].tolist()
    }
    names = ({-2.0: "null"} if null else {}) | names
    ax.set_yticks(list(names), list(names.values()))
    for place in np.flatnonzero(np.diff(rows)):
        ax.axhline(place + 0.5, color=theme.surface, linewidth=0.8)
    ax.set_ylim(len(rows) - 0.5, -2.5 if null else -0.5)
    without_frame(ax)
    ax.set_ylabel("layer, a row for each head")


def step_name(step: float) -> str:
    """Format a training step for an axis: 1000 as 1k."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if step >= size:
            return f"{step / size:g}{letter}"
    return f"{step:g}"
