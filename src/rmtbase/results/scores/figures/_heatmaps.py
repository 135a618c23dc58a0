"""Heat maps of all heads, or of all weight matrices, of a model."""

from __future__ import annotations

import numpy as np
import xarray as xr
from jaxtyping import Bool
from matplotlib.axes import Axes

from rmtbase.drawing.axes import (
    BESIDE,
    LEVEL,
    bound,
    counted,
    literal,
    noun_of,
    panel,
    panel_size,
    rounded,
    statistic_label,
    text_width,
    titled,
)
from rmtbase.drawing.color_scales import MOVED_SHARE, Q, Z
from rmtbase.drawing.groups import heads_of, matrices_of, require_component, require_statistic
from rmtbase.drawing.heatmaps import draw_layers, finished_map
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores._distance import signed_distance
from rmtbase.results.scores._how_much import Towards, how_much, upper_points
from rmtbase.results.scores.words import null_noun
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, heads_present, matrices_present

_NUMBERED = 16  # most layers, and most heads, with a number in each cell
_NARROW = 5.0  # inches; narrower maps with numbers have no colour scale
_STRONG = 25.0  # percent: colours from here on are nearer to the text's than to the surface's


@panel
def omnibus_heatmap(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, level: float = LEVEL, *, colorbar: bool = True
) -> Axes:
    """Draw the q-value of every head by all statistics together, layer by head, with a dot for heads that differ.

    The axes: head against layer, layer 0 on top. Colours change at :data:`Q_LEVELS`.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    q = heads["omnibus_q_value"].values
    there, noun = heads_present(heads), noun_of(scores)
    marks = draw_layers(ax, q, q < level, there, Q, heads, "head", level, theme)
    ax.set_xlabel(noun)
    untested = int((np.isnan(q) & there).sum())
    tested = counted(int(np.isfinite(q).sum()), f"testable {noun}" if untested else noun)
    found = f"{(q < level).sum()} of {tested} differ" if np.isfinite(q).any() else f"no {noun} can be tested"
    return finished_map(ax, theme, f"{found}; {marks}", Q, colorbar)


@panel
def moved_share_heatmap(
    ax: Axes, theme: Theme, scores: xr.DataTree | xr.Dataset, level: float = LEVEL, *, colorbar: bool = True
) -> Axes:
    """Draw the moved share of every head, layer by head; in a small model with the number in percent.

    With numbers, + marks heads that moved towards more directions, ± those that moved towards both.

    The axes: head against layer, layer 0 on top. The colours are the same for all models.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    percent, there = 100.0 * heads["moved_share"].values, heads_present(heads)
    signs = _signs(scores) if isinstance(scores, xr.DataTree) else {}
    differs = heads["omnibus_q_value"].values < level
    size, width = 0.9 * theme.points("xtick.labelsize"), panel_size(ax)[0]
    numbered = max(percent.shape) <= _NUMBERED and text_width("(99+)", size) * percent.shape[1] < width - BESIDE
    colorbar = colorbar and not (numbered and width < _NARROW)  # the numbers need the room, and say the same
    marked = np.zeros_like(differs) if numbered else differs
    upper = 100.0 * upper_points(scores) if isinstance(scores, xr.DataTree) else np.array(np.nan)
    coloured = np.where(percent < upper, 0.0, percent)  # what 95 % of random heads have is pale at every size
    draw_layers(ax, coloured, marked, there, MOVED_SHARE, heads, "head", level, theme)
    if numbered:
        for row, column in np.argwhere(np.isfinite(percent)).tolist():
            number = f"{round(percent[row, column])}{signs.get((row, column), '')}"
            ax.text(
                column,
                row,
                number if differs[row, column] else f"({number})",
                ha="center",
                va="center",
                color=theme.text if coloured[row, column] < _STRONG else theme.surface,
                fontsize=size,
            )
    ax.set_xlabel(noun_of(scores))
    symbol = circuit_of(scores.attrs).latex if isinstance(scores, xr.DataTree) else "W"
    known = np.isfinite(percent)
    marks = [
        *([bound(f"95 % of {_random(scores)} below {np.nanmax(upper):.2g}")] if np.isfinite(upper).any() else []),
        *([bound(f"dot: q < {level:g}")] if not numbered and differs.any() else []),
        *([bound(f"in brackets: q ≥ {level:g}")] if numbered and (known & ~differs).any() else []),
        *([bound("+: towards more directions")] if numbered and "+" in signs.values() else []),
        *([bound("±: towards fewer and more")] if numbered and "±" in signs.values() else []),
        *([bound("hatched: not known")] if (there & ~known).any() else []),
    ]
    title = rf"moved share of $\Vert {symbol}\Vert^2$ (%)" + "\n" * bool(marks) + "; ".join(marks)
    return finished_map(ax, theme, title, MOVED_SHARE, colorbar)


def _random(scores: xr.DataTree | xr.Dataset) -> str:
    return null_noun(scores.attrs["null_entries"], noun_of(scores))


def _signs(scores: xr.DataTree) -> dict[tuple[int, int], str]:
    """Return the marks of heads whose strength moved towards more directions, or both, by layer and head."""
    marks = {Towards.MORE: "+", Towards.BOTH: "±"}
    return {place: marks[one.towards] for place, one in how_much(scores).items() if one.towards in marks}


@panel
def z_heatmap(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "normalized_participation_ratio",
    level: float = LEVEL,
    *,
    colorbar: bool = True,
) -> Axes:
    """Draw z of every head, layer by head, in colours symmetric about the null, with a dot for flagged heads.

    For a statistic that is positive and unbounded, z is that of its logarithm, as the title says. The farthest head is
    always named by this distance.

    The axes: head against layer, layer 0 on top. Colours change at :data:`Z_LEVELS`.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    _z_map(heads, "head", heads_present(heads), statistic, level, ax, theme, colorbar)
    ax.set_xlabel(noun_of(scores))
    return ax


@panel
def matrix_z_heatmap(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "excess_kurtosis",
    level: float = LEVEL,
    *,
    colorbar: bool = True,
) -> Axes:
    """Draw z of every weight matrix, layer by component; arguments, axes and errors as in :func:`z_heatmap`.

    There is no cell if a layer lacks a component.
    """
    matrices = matrices_of(scores).transpose("layer", "component", ...)
    return _z_map(matrices, "component", matrices_present(matrices), statistic, level, ax, theme, colorbar)


@panel
def expert_z_heatmap(
    ax: Axes,
    theme: Theme,
    scores: xr.DataTree | xr.Dataset,
    component: str | None = None,
    statistic: str = "excess_kurtosis",
    level: float = LEVEL,
    *,
    colorbar: bool = True,
) -> Axes:
    """Draw z of one matrix of every expert, layer by expert; arguments, axes and errors as in :func:`z_heatmap`.

    The matrix is ``component``: ``"expert_in"``, ``"expert_gate"`` or ``"expert_out"``; the first if None.
    """
    experts = matrices_of(scores, "experts").transpose("layer", "expert", "component", ...)
    wanted = str(experts["component"].values[0]) if component is None else component
    one = require_component(experts, wanted)
    _z_map(one, "expert", one["n_rows"].notnull().values, statistic, level, ax, theme, colorbar)
    titled(ax, f"{literal(wanted.replace('_', ' '))}, {ax.get_title()}", theme)
    return ax


def _z_map(
    table: xr.Dataset,
    across: str,
    there: Bool[np.ndarray, "layer across"],
    statistic: str,
    level: float,
    ax: Axes,
    theme: Theme,
    colorbar: bool,
) -> Axes:
    one = table.sel(statistic=require_statistic(table, statistic))
    z = signed_distance(one)
    marks = draw_layers(ax, z, one["q_value"].values < level, there, Z, table, across, level, theme)
    known = statistic in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[statistic].on_log_scale
    of = rf" of $\ln\,{SPECTRAL_STATISTICS[statistic].symbol}$" if known else ""
    largest = f"largest $|z|${of}: {rounded(np.nanmax(np.abs(z)), 3)}; " if not np.isnan(z).all() else ""
    return finished_map(ax, theme, f"{statistic_label(statistic)}\n{largest}{marks}", Z, colorbar)
