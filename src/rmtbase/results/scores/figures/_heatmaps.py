"""Heat maps of all heads, or of all weight matrices, of a model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import (
    LEVEL,
    bound,
    counted,
    index_axis,
    layer_axis,
    literal,
    noun_of,
    panel_size,
    rounded,
    statistic_label,
    themed_axes,
    titled,
    without_frame,
)
from rmtbase.drawing.color_scales import BEYOND_NOISE, ColorScale, Q, Z
from rmtbase.drawing.groups import heads_of, matrices_of, require_statistic
from rmtbase.drawing.not_testable import dot_cells, hatch_cells, legend_of_marks
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.summary import signed_distance
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import circuit_of, heads_present, matrices_present

_UPRIGHT_BELOW = 0.6  # inches for each component's name
_NUMBERED = 16  # most layers, and most heads, with a number in each cell
_STRONG = 50.0  # percent: colours from here on are nearer to the text's than to the surface's


def omnibus_heatmap(
    scores: xr.DataTree | xr.Dataset,
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw the q-value of every head by all statistics together, layer by head, with a dot for heads that differ.

    Args:
        scores: a scores tree, or its /heads.
        level: heads with an omnibus q-value under it have a dot.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: head against layer, layer 0 on top. Colours change at :data:`Q_LEVELS`.

    Raises:
        ParameterError: no scores of heads.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    ax, theme = themed_axes(ax, theme, scores)
    q = heads["omnibus_q_value"].values
    there, noun = heads_present(heads), noun_of(scores)
    add_cells(ax, q, q < level, there, Q, heads, "head", level, theme)
    ax.set_xlabel(noun)
    untested = int((np.isnan(q) & there).sum())
    tested = counted(int(np.isfinite(q).sum()), f"testable {noun}" if untested else noun)
    differ = f"{(q < level).sum()} of {tested} unlike random ones"
    found = differ if np.isfinite(q).any() else f"no {noun} can be tested"
    titled(ax, f"all statistics together\n{found}; {legend_of_marks(level, np.isnan(q[there]).any())}", theme)
    if colorbar:
        Q.bar(ax, theme)
    return ax


def beyond_noise_heatmap(
    scores: xr.DataTree | xr.Dataset,
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw the share beyond noise of every head, layer by head; in a small model with the number in percent.

    Args:
        scores: a scores tree, or its /heads.
        level: heads with an omnibus q-value of at least this are in brackets or, without numbers, have no dot.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: head against layer, layer 0 on top. The colours are the same for all models.

    Raises:
        ParameterError: no scores of heads.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    ax, theme = themed_axes(ax, theme, scores)
    percent, there = 100.0 * heads["beyond_noise"].values, heads_present(heads)
    differs = heads["omnibus_q_value"].values < level
    numbered = percent.shape[0] <= _NUMBERED and percent.shape[1] <= _NUMBERED
    marked = np.zeros_like(differs) if numbered else differs
    add_cells(ax, percent, marked, there, BEYOND_NOISE, heads, "head", level, theme)
    if numbered:
        for row, column in np.argwhere(np.isfinite(percent)).tolist():
            number = f"{round(percent[row, column])}".replace("-", "−")
            ax.text(
                column,
                row,
                number if differs[row, column] else f"({number})",
                ha="center",
                va="center",
                color=theme.text if percent[row, column] < _STRONG else theme.surface,
                fontsize=0.9 * theme.points("xtick.labelsize"),
            )
    ax.set_xlabel(noun_of(scores))
    symbol = circuit_of(scores.attrs).latex if isinstance(scores, xr.DataTree) else "W"
    marks = bound(f"in brackets: q ≥ {level:g}") if numbered else bound(f"dot: q < {level:g}")
    untested = f"; {bound('hatched: not known')}" if np.isnan(percent[there]).any() else ""
    titled(ax, rf"share of $\Vert {symbol}\Vert^2$ beyond noise (%)" + f"\n{marks}{untested}", theme)
    if colorbar:
        BEYOND_NOISE.bar(ax, theme)
    return ax


def z_heatmap(
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "normalized_participation_ratio",
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw z of every head, layer by head, in colours symmetric about the null, with a dot for flagged heads.

    For a statistic that is positive and unbounded, z is that of its logarithm, as the title says. The farthest head is
    always named by this distance.

    Args:
        scores: a scores tree, or its /heads.
        statistic: its name.
        level: heads with a q-value of this statistic under it have a dot.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: head against layer, layer 0 on top. Colours change at :data:`Z_LEVELS`.

    Raises:
        ParameterError: no scores of heads, or not of this statistic.
    """
    heads = heads_of(scores).transpose("layer", "head", ...)
    ax, theme = themed_axes(ax, theme, scores)
    _z_map(heads, "head", heads_present(heads), statistic, level, ax, theme, colorbar)
    ax.set_xlabel(noun_of(scores))
    return ax


def matrix_z_heatmap(
    scores: xr.DataTree | xr.Dataset,
    statistic: str = "excess_kurtosis",
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw z of every weight matrix, layer by component; arguments, axes and errors as in :func:`z_heatmap`.

    There is no cell if a layer lacks a component.
    """
    matrices = matrices_of(scores).transpose("layer", "component", ...)
    ax, theme = themed_axes(ax, theme, scores)
    _z_map(matrices, "component", matrices_present(matrices), statistic, level, ax, theme, colorbar)
    components_axis(ax, [str(one) for one in matrices["component"].values], theme)
    return ax


def components_axis(ax: Axes, components: Sequence[str], theme: Theme) -> None:
    """Label ticks along x with components, vertically if there is too little room."""
    upright = panel_size(ax)[0] < _UPRIGHT_BELOW * len(components)
    breaks = " " if upright else "\n"
    parts = [[part.replace("_", " ") for part in one.rsplit("_", 1)] for one in components]
    names = [breaks.join(literal(part, 20) for part in own) for own in parts]
    small = 0.88 * theme.points("xtick.labelsize")
    ax.set_xticks(np.arange(len(names)), names, fontsize=small, rotation=90 if upright else 0)


def expert_z_heatmap(
    scores: xr.DataTree | xr.Dataset,
    component: str | None = None,
    statistic: str = "excess_kurtosis",
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw z of one matrix of every expert, layer by expert; arguments, axes and errors as in :func:`z_heatmap`.

    The matrix is ``component``: ``"expert_in"``, ``"expert_gate"`` or ``"expert_out"``; the first if None.
    """
    experts = matrices_of(scores, "experts").transpose("layer", "expert", "component", ...)
    held = [str(one) for one in experts["component"].values]
    wanted = held[0] if component is None else component
    if wanted not in held:
        raise ParameterError("component", wanted, f"one of {', '.join(held)}")
    one = experts.sel(component=wanted)
    ax, theme = themed_axes(ax, theme, scores)
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
) -> None:
    one = table.sel(statistic=require_statistic(table, statistic))
    z = signed_distance(one)
    add_cells(ax, z, one["q_value"].values < level, there, Z, table, across, level, theme)
    known = statistic in SPECTRAL_STATISTICS and SPECTRAL_STATISTICS[statistic].on_log_scale
    of = rf" of $\ln\,{SPECTRAL_STATISTICS[statistic].symbol}$" if known else ""
    largest = f"largest $|z|${of}: {rounded(np.nanmax(np.abs(z)), 3)}; " if not np.isnan(z).all() else ""
    titled(ax, f"{statistic_label(statistic)}\n{largest}{legend_of_marks(level, np.isnan(z[there]).any())}", theme)
    if colorbar:
        Z.bar(ax, theme)


def add_cells(
    ax: Axes,
    values: Float[np.ndarray, "layer across"],
    flagged: Bool[np.ndarray, "layer across"],
    there: Bool[np.ndarray, "layer across"],
    scale: ColorScale,
    table: xr.Dataset,
    across: str,
    level: float,
    theme: Theme,
) -> None:
    """Draw a coloured cell for each value, layer 0 on top.

    Flagged cells have a dot, and cells without a value are hatched.
    """
    n_layers, n_across = values.shape
    scale.fill(ax, np.arange(n_across + 1) - 0.5, np.arange(n_layers + 1) - 0.5, values, theme)
    size = float(np.clip(60 / max(n_layers, n_across / 2), 1.2, 4.0))
    dot_cells(ax, flagged, theme, markersize=size, markeredgewidth=0.5, label=f"q < {level:g}")
    hatch_cells(ax, np.isnan(values) & there, theme)
    without_frame(ax)
    ax.set_ylim(n_layers - 0.5, -0.5)
    ax.set_xlim(-0.5, n_across - 0.5)
    index_axis(ax, "x", table[across].values.tolist())
    layer_axis(ax, "y", table, theme)
    ax.set(xlabel=across, ylabel="layer")
