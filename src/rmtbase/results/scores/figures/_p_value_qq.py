"""Plot of observed against expected p-values of all heads."""

import numpy as np
import scipy
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import BELOW, NOT_TESTABLE, Around, looks, noun_of, panel, statistic_words
from rmtbase.drawing.groups import heads_of
from rmtbase.drawing.texts import literal, rounded
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores._distance import layer_p_value_floors
from rmtbase.tables import heads_present
from rmtbase.words import counted

OMNIBUS = "omnibus"
STATISTICS = ("normalized_participation_ratio", "largest_eigenvalue", "smallest_eigenvalue")
"""Statistics of the figure, beside the test of all statistics together."""

_EVERY = 200  # smallest p-values that are all drawn; beyond, ranks are thinned evenly on the figure's scale


@panel
def p_value_qq(ax: Axes, theme: Theme, scores: xr.DataTree) -> Around:
    """Draw the sorted p-values of all heads against those expected of as many null heads, both as -log10 p."""
    heads, noun = heads_of(scores), noun_of(scores)
    p_values = {OMNIBUS: heads["omnibus_p_value"].values}
    p_values |= {name: heads["p_value"].sel(statistic=name).values for name in STATISTICS}
    columns = {name: np.sort(p[np.isfinite(p)]) for name, p in p_values.items() if np.isfinite(p).any()}
    n = max((column.size for column in columns.values()), default=0)
    if n:
        expected, lower, upper = (-np.log10(p) for p in expected_p_values(n))
        wide = 8.0 if n == 1 else 0.0  # points: a band and line of a single rank would have no width
        band = {"color": theme.null, "alpha": 0.28, "linewidth": wide}
        ax.fill_between(expected, upper, lower, label="null, 95 % at each rank", **band)
        line = {"color": theme.null, "linewidth": 1.2, "marker": "_" if n == 1 else None, "markersize": 8.0}
        ax.plot(expected, expected, label="null, expected", **line)
    for (name, column), look in zip(columns.items(), looks(theme, len(columns)), strict=True):
        shown = np.arange(column.size)
        if column.size > _EVERY:
            shown = np.unique([*shown[:_EVERY], *np.geomspace(_EVERY, column.size, 100).round().astype(np.int64) - 1])
        ax.plot(
            -np.log10(expected_p_values(column.size)[0][shown]), -np.log10(column[shown]), linestyle="none",
            marker=look.marker, markersize=4.0 if column.size <= _EVERY else 2.8, markerfacecolor="none",
            markeredgecolor=look.colour,
            label="all statistics together" if name == OMNIBUS else literal(statistic_words(name)),
        )  # fmt: skip
    single, joint = (sorted(set(floors.tolist())) for floors in layer_p_value_floors(scores))
    lines = [(floor, f"floor of one statistic, {rounded(floor, 2, [*single, *joint])}", "--") for floor in single]
    lines = lines if set(columns) - {OMNIBUS} else []
    if OMNIBUS in columns:
        lines += [(floor, f"floor of all together, {rounded(floor, 2, [*single, *joint])}", ":") for floor in joint]
    if scores.attrs.get("null_method") == "analytic":  # drawn only if a column begins on it
        at_floor = any(column[0] <= single[0] for column in columns.values())
        lines = [(single[0], f"floor {rounded(single[0], 1)}", "--")] if at_floor else []
    for floor, label, style in lines:
        if floor:
            ax.axhline(-np.log10(floor), color=theme.muted, linewidth=1.0, linestyle=style, label=label)
    ax.set_xlim(left=0.0)
    ax.set_ylim(bottom=0.0)
    left_out = heads_present(heads).sum() - n
    title = f"p-values of {counted(n, noun)}" + (f"; {left_out} {NOT_TESTABLE}" if left_out > 0 else "")
    x_label, y_label = rf"expected p-value of null {noun}s, $-\log_{{10}} p$", r"observed p-value, $-\log_{10} p$"
    return Around(title, x_label, y_label, legend=BELOW if columns else None)


def expected_p_values(n: int, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean i / (n + 1) and the central interval of each ordered p-value of n independent null heads."""
    i = np.arange(1, n + 1)
    law = scipy.stats.beta(i, n + 1 - i)
    return i / (n + 1), law.ppf((1 - coverage) / 2), law.ppf((1 + coverage) / 2)
