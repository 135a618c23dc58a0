"""Plot of observed against expected p-values of all heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle

import numpy as np
import scipy
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes

from rmtbase.drawing.axes import MARKERS, counted, finished, literal, noun_of, panel, rounded, statistic_words
from rmtbase.drawing.groups import heads_of, require_statistic
from rmtbase.drawing.not_testable import NOT_TESTABLE
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores._distance import layer_p_value_floors, p_value_floors
from rmtbase.tables import heads_present

OMNIBUS = "omnibus"
QQ_STATISTICS = (OMNIBUS, "normalized_participation_ratio", "largest_eigenvalue", "smallest_eigenvalue")
"""Default statistics of the figure: the test of all statistics together, and three statistics by themselves."""

_EVERY = 200  # smallest p-values that are all drawn; beyond, ranks are thinned evenly on the figure's scale


@panel
def p_value_qq(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    statistics: Sequence[str] | None = None,
    draws: int | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw the sorted p-values of all heads against those expected of as many null heads, both as -log10 p.

    The band holds 95 % of null models at each rank: the i-th smallest of n independent uniform p-values has the law
    Beta(i, n + 1 - i). Heads that read the same key head are dependent, so for grouped-query models the true band is
    somewhat wider. No Monte Carlo p-value is below its floor, 2 / (draws + 1), which a dashed line shows. The
    omnibus test is one-sided and has half that floor. The floor of an analytic null is drawn if a head lies on it.

    The axes: expected against observed -log10 p.
    """
    heads = heads_of(scores)
    found = {name: _p_values(heads, name) for name in statistics or QQ_STATISTICS}
    columns = {name: column for name, column in found.items() if column.size}
    n = max((column.size for column in columns.values()), default=0)
    if n:
        expected, lower, upper = expected_p_values(n)
        wide = 8.0 if n == 1 else 0.0  # points: a band and line of a single rank would have no width
        ax.fill_between(
            -np.log10(expected), -np.log10(upper), -np.log10(lower), color=theme.null, alpha=0.28, linewidth=wide,
            label="null, 95 % at each rank",
        )  # fmt: skip
        ax.plot(
            -np.log10(expected), -np.log10(expected), color=theme.null, linewidth=1.2, label="null, expected",
            marker="_" if n == 1 else None, markersize=8.0,
        )  # fmt: skip
    for (name, column), colour, marker in zip(columns.items(), cycle(theme.series), cycle(MARKERS), strict=False):
        shown = _thinned(column.size)
        ax.plot(
            -np.log10(expected_p_values(column.size)[0][shown]), -np.log10(column[shown]), linestyle="none",
            marker=marker, markersize=4.0 if column.size <= _EVERY else 2.8, markerfacecolor="none",
            markeredgecolor=colour, label=_label(name),
        )  # fmt: skip
    for floor, label, style in _floors(draws, scores, columns):
        ax.axhline(-np.log10(floor), color=theme.muted, linewidth=1.0, linestyle=style, label=label)
    ax.set_xlim(left=0.0)
    ax.set_ylim(bottom=0.0)
    ax.set(
        xlabel=rf"expected p-value of null {noun_of(scores)}s, $-\log_{{10}} p$",
        ylabel=r"observed p-value, $-\log_{10} p$",
    )
    left_out = heads_present(heads).sum() - n
    title = f"p-values of {counted(n, noun_of(scores))}" + (f"; {left_out} {NOT_TESTABLE}" if left_out > 0 else "")
    return finished(ax, theme, title, legend and bool(columns))


def _floors(
    draws: int | None, scores: xr.DataTree | xr.Dataset, columns: Mapping[str, Float[np.ndarray, " n"]]
) -> Iterator[tuple[float, str, str]]:
    """Return each floor of the drawn statistics, with its name and the style of its line.

    The floors follow from the number of draws, or from a scores file, whose shapes may have different floors. The floor
    of an analytic null is included only if one of the columns begins on it.
    """
    if draws is None and isinstance(scores, xr.DataTree):
        single, joint = (sorted(set(each.tolist())) for each in layer_p_value_floors(scores))
    else:
        single, joint = ([floor] for floor in p_value_floors({} if draws is None else {"null_draws": draws}))
    if draws is None and scores.attrs.get("null_method") == "analytic":
        if any(column[0] <= single[0] for column in columns.values()):
            yield single[0], f"floor {rounded(single[0], 1)}", "--"
        return
    for floors, name, style, drawn in (
        (single, "one statistic", "--", set(columns) - {OMNIBUS}),
        (joint, "all together", ":", OMNIBUS in columns),
    ):
        for floor in floors:
            if floor and drawn:
                yield floor, f"floor of {name}, {rounded(floor, 2, [*single, *joint])}", style


def expected_p_values(n: int, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean i / (n + 1) and the central interval of each ordered p-value of n independent null heads."""
    i = np.arange(1, n + 1)
    law = scipy.stats.beta(i, n + 1 - i)
    return i / (n + 1), law.ppf((1 - coverage) / 2), law.ppf((1 + coverage) / 2)


def _label(name: str) -> str:
    return "all statistics together" if name == OMNIBUS else literal(statistic_words(name))


def _p_values(heads: xr.Dataset, name: str) -> Float[np.ndarray, " n"]:
    if name == OMNIBUS:
        column = heads["omnibus_p_value"].values
    else:
        column = heads["p_value"].sel(statistic=require_statistic(heads, name)).values
    return np.sort(column[np.isfinite(column)])


def _thinned(n: int) -> Int[np.ndarray, " rank"]:
    if n <= _EVERY:
        return np.arange(n)
    tail = np.geomspace(_EVERY, n, 100).round().astype(np.int64) - 1
    return np.unique(np.concatenate([np.arange(_EVERY), tail]))
