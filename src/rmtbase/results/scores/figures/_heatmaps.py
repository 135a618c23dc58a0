"""Heat maps of all heads, or of all weight matrices, of a model."""

import numpy as np
import xarray as xr
from jaxtyping import Bool
from matplotlib.axes import Axes

from rmtbase.drawing.axes import BESIDE, LEVEL, Around, noun_of, panel, panel_size, statistic_label
from rmtbase.drawing.color_scales import MOVED_SHARE, Q, Z
from rmtbase.drawing.groups import heads_of, matrices_of
from rmtbase.drawing.heatmaps import Cells, draw_layers
from rmtbase.drawing.texts import bound, literal, rounded, text_width
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores._distance import signed_distance
from rmtbase.results.scores._how_much import Towards, how_much, upper_points
from rmtbase.results.scores.words import null_noun
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, heads_present, matrices_present
from rmtbase.words import counted

_NUMBERED = 16  # most layers, and most heads, with a number in each cell
_NARROW = 5.0  # inches; narrower maps with numbers have no colour scale
_STRONG = 25.0  # percent: colours from here on are nearer to the text's than to the surface's
_SIGNS = {Towards.MORE: "+", Towards.BOTH: "±"}


@panel
def omnibus_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset) -> Around:
    """Draw the q-value of every head by all statistics together, layer by head, with a dot for heads that differ."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    q, noun = heads["omnibus_q_value"].values, noun_of(scores)
    untested = np.isnan(q) & heads_present(heads)
    marks = draw_layers(ax, theme, Q, Cells(q, q < LEVEL, untested), heads, "head")
    tested = counted(int(np.isfinite(q).sum()), f"testable {noun}" if untested.any() else noun)
    number = f"{(q < LEVEL).sum()} of {tested} differ" if np.isfinite(q).any() else f"no {noun} can be tested"
    return Around(f"{number}; {marks}", noun, scale=Q)


@panel
def moved_share_heatmap(ax: Axes, theme: Theme, scores: xr.DataTree) -> Around:
    """Draw the moved share of every head, layer by head; in a small model with the number in percent."""
    heads = heads_of(scores).transpose("layer", "head", ...)
    percent, present = 100.0 * heads["moved_share"].values, heads_present(heads)
    towards = {place: _SIGNS[head.towards] for place, head in how_much(scores).items() if head.towards in _SIGNS}
    differs, known = heads["omnibus_q_value"].values < LEVEL, np.isfinite(percent)
    size, width = 0.9 * theme.points("xtick.labelsize"), panel_size(ax)[0]
    numbered = max(percent.shape) <= _NUMBERED and text_width("(99+)", size) * percent.shape[1] < width - BESIDE
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
    return f"{statistic_label(statistic)}\n{largest}{marks}"
