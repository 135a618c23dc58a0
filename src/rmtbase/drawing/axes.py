"""Axes without global state: what surrounds a drawing, axes of layers and rows, legends, and labels."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import ScaledTranslation

from rmtbase.drawing.color_scales import ColorScale
from rmtbase.drawing.figure import ThemedAxes, ThemedFigure, figure_of
from rmtbase.drawing.texts import literal, text_width
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.statistics import ELEMENT_STATISTICS, SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, layer_numbers, layer_stacks

LEVEL = 0.05  # false discovery rate below which a head or a matrix counts as flagged
NORMAL_95 = 1.96  # standard deviations on either side of the mean that hold 95 % of a normal law
NOT_TESTABLE = "not testable"  # name of the mark of what cannot be tested
MARKERS = ("o", "s", "^", "D", "v")  # so that series do not differ only in hue
LINE_STYLES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1, 2)), (0, (3, 1, 1, 1, 1, 1)))  # likewise
BESIDE = 0.5  # inches of a panel that tick labels take
UNDER_TICKS = 3.9  # lines from the axes to a legend below ticks and label
BELOW = "below"  # place of a legend below the axes, and its label there

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
_LONGEST_TICK = 20  # characters of a tick label
_STEPS, _MOST_TICKS = (1, 2, 4, 5, 10, 20, 25, 50, 100, 10**9), 12  # layers between ticks; ticks of all stacks


def new_figure(theme: Theme, width: float = 6.4, height: float = 4.2, title: str = "") -> ThemedFigure:
    """Make a figure in the theme, laid out so that no label is cut off."""
    figure = ThemedFigure(theme, width, height)
    if title:
        figure.suptitle(title, fontsize=theme.points("axes.titlesize"), color=theme.muted)
    return figure


def new_axes(figure: ThemedFigure, theme: Theme) -> Axes:
    """Add the only axes of a figure."""
    return styled(figure.add_subplot(axes_class=ThemedAxes), theme)


@dataclass(frozen=True)
class Around:
    """Title, labels, and legend or colour scale around a drawing; ``layers`` is the table whose layers lie along x."""

    title: str = ""
    x: str | None = None
    y: str | None = None
    unit: str = ""  # unit of x
    layers: xr.Dataset | None = None
    legend: str | None = BELOW  # place of the legend; None if there is nothing to name
    scale: ColorScale | None = None


def panel(draw: Callable[..., Around]) -> Callable[..., Axes]:
    """Decorate a drawing: it draws a table on ``ax`` or on new axes, in a theme, with its legend or colour scale."""

    @wraps(draw)
    def plot(
        table: object = None,
        *arguments: Any,
        ax: Axes | None = None,
        theme: Theme | str = "light",
        legend: bool = True,
        **options: Any,
    ) -> Axes:
        theme = as_theme(theme)
        ax = new_axes(new_figure(theme, title=model_title(table)), theme) if ax is None else ax
        around = draw(ax, theme, table, *arguments, **options)
        if around.layers is not None:
            layer_axis(ax, "x", around.layers, theme)
            ax.set(xlabel="layer", xlim=(-0.6, around.layers.sizes["layer"] - 0.4))
        for label, words in ((ax.xaxis.label, around.x), (ax.yaxis.label, around.y)):
            if words is not None:
                label.set(text=words, label="")
        if around.unit:
            ax.xaxis.label.set(text=f"{around.x} ({around.unit})", label=around.x)  # the label is kept without the unit
        ax.set_title(around.title, fontsize=theme.points("axes.titlesize"))
        if legend and around.scale is not None:
            around.scale.bar(ax, theme)
        elif legend and around.legend is not None:
            add_legend(ax, theme, around.legend)
        return ax

    return plot


class Look(NamedTuple):
    """Appearance of one of several series."""

    colour: str
    marker: str
    style: Any
    fill: str

    def line(self) -> dict[str, Any]:
        """Return the options of a line with marks."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.style, "markerfacecolor": self.fill}

    def marks(self) -> dict[str, Any]:
        """Return the options of marks without a line."""
        return self.line() | {"linestyle": "none"}


def looks(theme: Theme, number: int) -> Iterator[Look]:
    """Yield the appearance of each of so many series; repeated colours have hollow marks."""
    for k in range(number):
        colour = theme.series[k % len(theme.series)]
        fill = colour if k < len(theme.series) else theme.surface
        yield Look(colour, MARKERS[k % len(MARKERS)], LINE_STYLES[k % len(LINE_STYLES)], fill)


def cross_at_foot(ax: Axes, x: Float[np.ndarray, " place"], theme: Theme, size: float = 3.5) -> None:
    """Mark places along x that cannot be tested with a grey cross at the lower end of the axes."""
    if x.size:
        ax.plot(
            x, np.full(x.size, 0.02), transform=ax.get_xaxis_transform(), linestyle="none", marker="x",
            markersize=size, color=theme.muted, markeredgewidth=0.9, label=NOT_TESTABLE,
        )  # fmt: skip


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


def panel_size(ax: Axes) -> tuple[float, float]:
    """Return width and height in inches of the axes' part of the figure."""
    width, height = figure_of(ax).get_size_inches()
    place = ax.get_subplotspec()
    rows, columns = place.get_gridspec().get_geometry() if place is not None else (1, 1)
    return width / columns, height / rows


def add_legend(ax: Axes, theme: Theme, loc: str = BELOW) -> None:
    """Add a legend without an edge; ``"below"`` puts it under the axes, away from the data."""
    handles, labels = ax.get_legend_handles_labels()
    size = theme.points("legend.fontsize")
    place: dict[str, Any] = {"loc": loc}
    if loc == BELOW:
        down = ScaledTranslation(0, -UNDER_TICKS * theme.points("axes.labelsize") / 72, figure_of(ax).dpi_scale_trans)
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": ax.transAxes + down}
        place |= {"borderaxespad": 0.0, "ncols": legend_columns(labels, size, panel_size(ax)[0] - BESIDE)}
    legend = ax.legend(
        handles, labels, **place, fontsize=size, labelcolor=theme.text, facecolor=theme.surface, edgecolor="none",
        framealpha=0.75,
    )  # fmt: skip
    legend.set_label(loc)


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


def statistic_label(name: str) -> str:
    """Return a statistic in words with its symbol, for an axis or a panel's title."""
    statistic = SPECTRAL_STATISTICS.get(name) or ELEMENT_STATISTICS.get(name)
    if statistic is None:
        return _FACTS.get(name) or literal(name.replace("_", " "))
    return f"{statistic.long_name} ${statistic.symbol}$"


def statistic_words(name: str) -> str:
    """Return a statistic in words, without its symbol."""
    statistic = SPECTRAL_STATISTICS.get(name) or ELEMENT_STATISTICS.get(name)
    return name.replace("_", " ") if statistic is None else statistic.long_name


def symbol_of(component: str | None) -> str:
    """Return ``W_QK`` and the like as a formula, any other component in words, and "" for none."""
    name = component or ""
    letters = name.removeprefix("W_")
    if name.startswith("W_") and letters.isalpha():
        return f"$W_{{{letters}}}$"
    return literal(name.replace("_", " "))


def symbols_in_lines(components: Iterable[str]) -> list[str]:
    """Return :func:`symbol_of` each component, broken after the first of its words."""
    return ["\n".join(symbol_of(part) for part in name.split("_", 1 - name.startswith("W_"))) for name in components]


def layer_axis(ax: Axes, axis: str, table: xr.Dataset, theme: Theme) -> None:
    """Set ticks of an axis, x or y, at integers that show the layers' numbers; name and separate several stacks."""
    numbers, stacks = layer_numbers(table), layer_stacks(table)
    begins = [k for k in range(1, len(stacks)) if stacks[k] != stacks[k - 1]]
    if not begins:
        index_axis(ax, axis, numbers)
        return
    step = next(size for size in _STEPS if len(stacks) <= _MOST_TICKS * size)
    ticks: dict[int, str] = {}
    for first, beyond in pairwise([0, *begins, len(stacks)]):
        # No tick so near the next stack that their labels would overlap.
        ends = beyond if beyond == len(stacks) else max(first + 1, beyond - step // 2)
        ticks |= {k: literal(numbers[k], _LONGEST_TICK) for k in range(first, ends, step)}
        stack = literal(stacks[first], _LONGEST_TICK)
        ticks[first] = f"{stack} {ticks[first]}" if axis == "y" else f"{ticks[first]}\n{stack}"
    (ax.set_xticks if axis == "x" else ax.set_yticks)(list(ticks), list(ticks.values()))
    for place in begins:
        (ax.axvline if axis == "x" else ax.axhline)(place - 0.5, color=theme.muted, linewidth=0.8)


def index_axis(ax: Axes, axis: str, labels: Sequence[object]) -> None:
    """Set ticks at integers 0, 1, … that show the labels at those places."""
    names = [literal(label, _LONGEST_TICK) for label in labels]

    def name_at(place: float, position: int | None = None) -> str:
        k = round(place)
        return names[k] if 0 <= k < len(names) and abs(place - k) < 1e-6 else ""

    ticked = ax.xaxis if axis == "x" else ax.yaxis
    ticked.set_major_locator(MaxNLocator(nbins=12, integer=True, steps=[1, 2, 4, 5, 10], min_n_ticks=1))
    ticked.set_major_formatter(FuncFormatter(name_at))


def rows_axis(ax: Axes, layers: Sequence[int], table: xr.Dataset, theme: Theme, null: bool = False) -> None:
    """Set a y axis with a row for each head, the first on top; layers are named at their middle and separated."""
    rows, numbers, stacks = np.asarray(layers), layer_numbers(table), layer_stacks(table)
    layers_shown = np.unique(rows)
    step = next(size for size in _STEPS if len(layers_shown) <= _MOST_TICKS * size)
    names = {
        float(np.flatnonzero(rows == k).mean()): literal(f"{stacks[k]} {numbers[k]}".lstrip(), _LONGEST_TICK)
        for k in layers_shown[::step].tolist()
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
