"""Axes that belong to no global state, and the labels that all pictures share."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from rmtbase.errors import ParameterError
from rmtbase.plots._theme import Theme
from rmtbase.shown import shown
from rmtbase.statistics import SPECTRAL_STATISTICS

LEVEL = 0.05
"""False discovery rate under which a head or a matrix counts as flagged."""

MARKERS = ("o", "s", "^", "D", "v")
"""Shapes of marks, so that no two series are told apart by hue alone."""

_ELEMENTS = {
    "mean": (r"mean $\bar w / s$", "mean"),
    "skewness": ("skewness", "skewness"),
    "excess_kurtosis": ("excess kurtosis", "excess kurtosis"),
    "largest_magnitude": (r"largest magnitude $\max|w - \bar w| / s$", "largest magnitude"),
}
_NOTHING = 1e-300  # density, below any that is shown
_LONGEST_TICK = 20  # characters beside an axis
_LONGEST_LINE, _MOST_LINES = 44, 6  # of a title, in characters and lines
_DECADES = 2.5  # up to which a logarithmic axis names 2 and 5 of each decade
_LOG_FROM = 30.0  # largest over smallest value from which a linear axis hides the small ones


def new_figure(theme: Theme, width: float = 6.4, height: float = 4.2) -> Figure:
    """A figure in the theme, laid out so that no label is cut."""
    return Figure(figsize=(width, height), layout="constrained", facecolor=theme.surface)


def own_axes(ax: Axes | None, theme: Theme) -> Axes:
    """The axes given, untouched, or new ones in the theme."""
    if ax is not None:
        return ax
    return styled(new_figure(theme).add_subplot(), theme)


def styled(ax: Axes, theme: Theme) -> Axes:
    """Quiet axes in the theme: two spines, small ticks, a faint grid behind the data."""
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(theme.muted)
    ax.tick_params(which="both", color=theme.muted, labelcolor=theme.muted, labelsize=8.5)
    ax.xaxis.label.set(color=theme.text, fontsize=9.5)
    ax.yaxis.label.set(color=theme.text, fontsize=9.5)
    for offset in (ax.xaxis.get_offset_text(), ax.yaxis.get_offset_text()):
        offset.set(color=theme.muted, fontsize=8.5)
    ax.title.set(color=theme.text, fontsize=10.5)
    ax.grid(color=theme.grid, linewidth=0.6)
    ax.set_axisbelow(True)
    return ax


def titled(ax: Axes, title: str) -> None:
    """Give the axes a title of the house's size."""
    ax.set_title(title, fontsize=10.5)


def finished(ax: Axes, theme: Theme, title: str, legend: bool, loc: str = "best") -> Axes:
    """The axes with their title, and with a legend where one is wanted."""
    titled(ax, title)
    if legend:
        add_legend(ax, theme, loc)
    return ax


def case_name(row: xr.Dataset) -> str:
    """The name of a case's ensemble as a title, in lines of a panel's width."""
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
    """Draw a simulated density as filled bars, and its standard error at the centres of those that are not empty.

    Bars and errors end at ``lowest``: not at zero, which a logarithmic axis does not have, but below all that is shown.
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
    held = density > 0
    reach = [np.minimum(error, density - lowest)[held], error[held]]
    ax.errorbar(centre[held], density[held], reach, fmt="none", ecolor=theme.null, elinewidth=1.1, capsize=0)


def add_legend(ax: Axes, theme: Theme, loc: str = "best") -> None:
    """A legend without a frame's weight; ``"outside"`` puts it to the right of the axes."""
    place: dict[str, Any] = {"loc": loc}
    if loc == "outside":
        place = {"loc": "center left", "bbox_to_anchor": (1.01, 0.5)}
    ax.legend(**place, fontsize=8.5, labelcolor=theme.text, facecolor=theme.surface, edgecolor="none", framealpha=0.75)


def log_axis(ax: Axes) -> None:
    """A logarithmic y axis that names enough numbers to be read even where it spans little more than a decade."""
    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high < low * 10**_DECADES:
        ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())


def literal(text: object, longest: int = 60) -> str:
    """Text that comes from outside, for a label or a title: harmless, short, and never read as mathematics."""
    words = shown(text)
    return (words if len(words) <= longest else f"{words[: longest - 1]}…").replace("$", r"\$")


def statistic_label(name: str) -> str:
    """A statistic in words with its symbol, for an axis or a panel's title."""
    if name in SPECTRAL_STATISTICS:
        one = SPECTRAL_STATISTICS[name]
        return f"{one.long_name} ${one.symbol}$"
    return _ELEMENTS[name][0] if name in _ELEMENTS else literal(name.replace("_", " "))


def statistic_words(name: str) -> str:
    """A statistic in words alone."""
    if name in SPECTRAL_STATISTICS:
        return SPECTRAL_STATISTICS[name].long_name
    return _ELEMENTS[name][1] if name in _ELEMENTS else name.replace("_", " ")


def heads_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """The /heads dataset, with a layer axis, of a scores tree, of its /heads, or of plain arrays' scores.

    Raises:
        ParameterError: it holds no scores of heads.
    """
    heads = _group(scores, "heads", "z_score", "head", "a scores tree (rmtbase.score) or its /heads dataset")
    return heads if "layer" in heads.dims else heads.expand_dims(layer=[0])


def matrices_of(scores: xr.DataTree | xr.Dataset) -> xr.Dataset:
    """The /matrices dataset of a scores tree, or the dataset itself.

    Raises:
        ParameterError: it holds no scores of matrices.
    """
    return _group(scores, "matrices", "z_score", "component", "a scores tree with /matrices, or its /matrices dataset")


def null_of(scores: xr.DataTree) -> xr.Dataset:
    """The /null dataset of a scores tree.

    Raises:
        ParameterError: it has none.
    """
    return _group(scores, "null", "eigenvalue_quantile", "probability", "a scores tree with /null")


def _group(scores: xr.DataTree | xr.Dataset, name: str, variable: str, dim: str, expected: str) -> xr.Dataset:
    """The group of a tree, or the dataset itself, if it has that variable and that dimension."""
    is_tree = isinstance(scores, xr.DataTree)
    found = (scores[name].to_dataset() if name in scores.children else None) if is_tree else scores
    if found is None or variable not in found or dim not in found.dims:
        raise ParameterError("scores", _kind(scores), expected)
    return found


def _kind(table: object) -> str:
    if isinstance(table, xr.DataTree):
        return f"a tree with {sorted(table.children)}"
    if isinstance(table, xr.Dataset):
        return f"a dataset with {sorted(map(str, table.data_vars))}"
    return type(table).__name__


def require_statistic(table: xr.Dataset, name: str) -> str:
    """The name, or :class:`~rmtbase.errors.ParameterError` if the table does not hold that statistic."""
    held = table["statistic"].values.tolist()
    if name not in held:
        raise ParameterError("statistic", name, f"one that the table holds: {', '.join(held)}")
    return name


def require_case(table: xr.Dataset, case: int) -> xr.Dataset:
    """That row of a baseline table, or :class:`~rmtbase.errors.ParameterError` if there is no such row."""
    if "case" not in table.dims:
        raise ParameterError("table", _kind(table), "a baseline table or a scores tree")
    if not 0 <= case < table.sizes["case"]:
        raise ParameterError("case", case, f"0 to {table.sizes['case'] - 1}")
    return table.isel(case=case)


def prefer_log(*values: np.ndarray) -> bool:
    """Whether positive values span so much that a linear axis would hide the small ones."""
    finite = np.concatenate([np.ravel(one)[np.isfinite(np.ravel(one))] for one in values])
    return finite.size > 0 and finite.min() > 0 and bool(finite.max() > _LOG_FROM * finite.min())


def index_axis(ax: Axes, which: str, labels: Sequence[object]) -> None:
    """Ticks at whole places 0, 1, … that show the labels found there."""
    names = [literal(one, _LONGEST_TICK) for one in labels]

    def name_at(place: float, position: int | None = None) -> str:
        k = round(place)
        return names[k] if 0 <= k < len(names) and abs(place - k) < 1e-6 else ""

    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(MaxNLocator(nbins=12, integer=True, steps=[1, 2, 4, 5, 10], min_n_ticks=1))
    axis.set_major_formatter(FuncFormatter(name_at))
