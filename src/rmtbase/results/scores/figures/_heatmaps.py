"""Maps of the heads or weight matrices of a model, and the p-values of all heads."""

import numpy as np
import scipy
import xarray as xr
from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from rmtbase.drawing import axes
from rmtbase.drawing.axes import LEVEL, Around, noun_of, panel
from rmtbase.drawing.color_scales import MOVED_SHARE, Q, Z
from rmtbase.drawing.groups import heads_of, matrices_of
from rmtbase.drawing.heatmaps import Cells, draw_layers
from rmtbase.drawing.texts import bound, literal, rounded, text_width, wrapped
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores._how_much import Towards, how_much, layer_p_value_floors, signed_distance, upper_points
from rmtbase.results.scores.words import null_noun
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, heads_present, matrices_present
from rmtbase.words import counted

_NUMBERED = 16  # most layers, and most heads, with a number in each cell
_NARROW = 5.0  # inches; narrower maps with numbers have no colour scale
_NAMES = 0.44  # largest share of the figure's width for the names of statistics
_STRONG = 25.0  # percent: colours from here on are nearer to the text's than to the surface's
_SIGNS = {Towards.MORE: "+", Towards.BOTH: "±"}


@panel
def omnibus_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw the q-value of every head by all statistics together, layer by head, with a dot for heads that differ."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    q, noun = heads["omnibus_q_value"].values, noun_of(scores)
    untested = np.isnan(q) & heads_present(heads)
    marks = draw_layers(ax, theme, Q, Cells(q, q < LEVEL, untested), heads, "head")
    n_tested = int(np.isfinite(q).sum())
    tested = counted(n_tested, f"testable {noun}" if untested.any() else noun)
    number = f"{(q < LEVEL).sum()} of {tested} differ" if n_tested else f"no {noun} can be tested"
    return Around(f"{number}; {marks}", noun, scale=Q)


@panel
def moved_share_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree) -> Around:
    """Draw the moved share of every head, layer by head; in a small model with the number in percent."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    percent, present = 100.0 * heads["moved_share"].values, heads_present(heads)
    towards = {place: _SIGNS[head.towards] for place, head in how_much(scores).items() if head.towards in _SIGNS}
    differs, known = heads["omnibus_q_value"].values < LEVEL, np.isfinite(percent)
    size, width = 0.9 * theme.points("xtick.labelsize"), axes.panel_size(ax)[0]
    numbered = max(percent.shape) <= _NUMBERED and text_width("(99+)", size) * percent.shape[1] < width - axes.BESIDE
    upper = 100.0 * upper_points(scores)
    coloured = np.where(percent < upper, 0.0, percent)  # what 95 % of random heads have is pale at every size
    dots = np.zeros_like(differs) if numbered else differs
    draw_layers(ax, theme, MOVED_SHARE, Cells(coloured, dots, ~known & present), heads, "head")
    for row, column in np.argwhere(known).tolist() if numbered else ():
        number = f"{round(percent[row, column])}{towards.get((row, column), '')}"
        words = number if differs[row, column] else f"({number})"
        colour = theme.text if coloured[row, column] < _STRONG else theme.surface
        ax.text(column, row, words, ha="center", va="center", color=colour, fontsize=size)
    noun = noun_of(scores)
    random_heads = null_noun(scores.attrs["null_entries"], noun)
    explained = {
        f"95 % of {random_heads} below {np.nanmax(upper, initial=0.0):.2g}": np.isfinite(upper).any(),
        f"dot: q < {LEVEL:g}": not numbered and differs.any(),
        f"in brackets: q ≥ {LEVEL:g}": numbered and (known & ~differs).any(),
        "+: towards more directions": numbered and "+" in towards.values(),
        "±: towards fewer and more": numbered and "±" in towards.values(),
        "hatched: not known": (present & ~known).any(),
    }
    marks = "; ".join(bound(words) for words, is_drawn in explained.items() if is_drawn)
    title = rf"moved share of $\Vert {circuit_of(scores.attrs).latex}\Vert^2$ (%)" + f"\n{marks}" * bool(marks)
    scale = None if numbered and width < _NARROW else MOVED_SHARE  # the numbers need the room, and say the same
    return Around(title, noun, legend=None, scale=scale)


@panel
def z_heatmap(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, statistic: str = "normalized_participation_ratio"
) -> Around:
    """Draw z of every head, layer by head, in colours symmetric about the null, with a dot for flagged heads."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    return Around(_z_map(ax, theme, heads, "head", heads_present(heads), statistic), noun_of(scores), scale=Z)


@panel
def matrix_z_heatmap(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, statistic: str = "excess_kurtosis"
) -> Around:
    """Draw z of every weight matrix, layer by component, as in :func:`z_heatmap`."""
    matrices = matrices_of(scores).transpose("layer", "component", ...)
    return Around(_z_map(ax, theme, matrices, "component", matrices_present(matrices), statistic), scale=Z)


@panel
def expert_z_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, component: str) -> Around:
    """Draw z of the excess kurtosis of one matrix of every expert, layer by expert, as in :func:`z_heatmap`."""
    experts = matrices_of(scores, "experts").transpose("layer", "expert", "component", ...).sel(component=component)
    title = _z_map(ax, theme, experts, "expert", experts["n_rows"].notnull().values, "excess_kurtosis")
    return Around(f"{literal(component.replace('_', ' '))}, {title}", scale=Z)


def _z_map(
    ax: Axes, theme: Theme, table: xr.Dataset, across: str, present: Bool[np.ndarray, "layer across"], statistic: str
) -> str:
    row = table.sel(statistic=statistic)
    z = signed_distance(row)
    cells = Cells(z, row["q_value"].values < LEVEL, np.isnan(z) & present)
    marks = draw_layers(ax, theme, Z, cells, table, across)
    on_log_scale = statistic in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[statistic].on_log_scale
    log = rf" of $\ln\,{SPECTRAL_STATISTICS[statistic].symbol}$" if on_log_scale else ""
    largest = f"largest $|z|${log}: {rounded(np.nanmax(np.abs(z)), 3)}; " if not np.isnan(z).all() else ""
    return f"{axes.statistic_label(statistic)}\n{largest}{marks}"


OMNIBUS = "omnibus"
STATISTICS = ("normalized_participation_ratio", "largest_eigenvalue", "smallest_eigenvalue")  # of the figure, beside it
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
    for (name, column), look in zip(columns.items(), axes.looks(theme, len(columns)), strict=True):
        shown = np.arange(column.size)
        if column.size > _EVERY:
            shown = np.unique([*shown[:_EVERY], *np.geomspace(_EVERY, column.size, 100).round().astype(np.int64) - 1])
        ax.plot(
            -np.log10(expected_p_values(column.size)[0][shown]), -np.log10(column[shown]), linestyle="none",
            marker=look.marker, markersize=4.0 if column.size <= _EVERY else 2.8, markerfacecolor="none",
            markeredgecolor=look.colour,
            label="all statistics together" if name == OMNIBUS else literal(axes.statistic_words(name)),
        )  # fmt: skip
    single, joint = (sorted(set(floors.tolist())) for floors in layer_p_value_floors(scores))
    floors = [*((floor, "of one statistic", "--") for floor in single if set(columns) - {OMNIBUS})]
    floors += [(floor, "of all together", ":") for floor in joint if OMNIBUS in columns]
    lines = [(floor, f"floor {whose}, {rounded(floor, 2, [*single, *joint])}", style) for floor, whose, style in floors]
    if scores.attrs.get("null_method") == "analytic":  # drawn only if a column begins on it
        at_floor = any(column[0] <= single[0] for column in columns.values())
        lines = [(single[0], f"floor {rounded(single[0], 1)}", "--")] if at_floor else []
    for floor, label, style in lines:
        if floor:
            ax.axhline(-np.log10(floor), color=theme.muted, linewidth=1.0, linestyle=style, label=label)
    ax.set_xlim(left=0.0)
    ax.set_ylim(bottom=0.0)
    left_out = heads_present(heads).sum() - n
    title = f"p-values of {counted(n, noun)}" + (f"; {left_out} {axes.NOT_TESTABLE}" if left_out > 0 else "")
    x_label, y_label = rf"expected p-value of null {noun}s, $-\log_{{10}} p$", r"observed p-value, $-\log_{10} p$"
    return Around(title, x_label, y_label, legend=axes.BELOW if columns else None)


def expected_p_values(n: int, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean i / (n + 1) and the central interval of each ordered p-value of n independent null heads."""
    i = np.arange(1, n + 1)
    law = scipy.stats.beta(i, n + 1 - i)
    return i / (n + 1), law.ppf((1 - coverage) / 2), law.ppf((1 + coverage) / 2)


@panel
def flagged_by_statistic(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw the number of heads that each statistic flags by itself, with the largest number on top."""
    heads = heads_of(scores)
    q = heads["q_value"].transpose("statistic", ...).values.reshape(heads.sizes["statistic"], -1)
    known, count = np.asarray(np.isfinite(q).any(axis=1)), np.asarray((q < LEVEL).sum(axis=1))
    order = np.lexsort((np.arange(len(count)), -count, ~known))
    place = np.arange(len(order))
    total = int(np.isfinite(heads["omnibus_q_value"].values).sum())
    ax.barh(place, np.where(known, total, 0)[order], color=theme.grid, height=0.72, linewidth=0)
    ax.barh(place, count[order], color=theme.flagged, height=0.72, linewidth=0)
    size = theme.points("xtick.labelsize")
    for y, (heads_flagged, is_known) in enumerate(zip(count[order].tolist(), known[order].tolist(), strict=True)):
        words = f" {heads_flagged}" if is_known else f" {axes.NOT_TESTABLE}"
        ax.text(heads_flagged, y, words, va="center", ha="left", fontsize=size, color=theme.text)
    names = [axes.statistic_words(name) for name in heads["statistic"].values[order].tolist()]
    ax.set_yticks(place, [wrapped(literal(name), size, _NAMES * axes.panel_size(ax)[0]) for name in names])
    ax.set_ylim(len(order) - 0.5, -0.5)
    ax.set_xlim(0, max(total, 1) * 1.08)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    ax.grid(visible=False)
    ax.tick_params(axis="y", length=0)
    share = f", of {total}" if total == int(heads_present(heads).sum()) else f",\nof {total} testable"
    return Around("", f"{noun_of(scores)}s with q < {LEVEL:g}{share}", "", legend=None)
