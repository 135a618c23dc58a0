"""Figures of a training run along its steps: statistics, spectra, and departures from the nulls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

from rmtbase.drawing.axes import (
    LINE_STYLES,
    MARKERS,
    NORMAL_95,
    finished,
    layer_axis,
    literal,
    model_title,
    noun_of,
    panel,
    statistic_label,
    step_name,
    symbol_of,
)
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import Group, column_of, elements_of, group_of, heads_of, matrices_of
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.drawing.not_testable import NOT_TESTABLE
from rmtbase.drawing.scales import log_axis, prefer_log, symmetric_log_axis
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.figures._eigenvalues import null_quantiles, null_scales
from rmtbase.results.scores.figures._element_histograms import magnitudes_along_steps
from rmtbase.results.scores.figures._scores import MAIN_ELEMENT_STATISTICS, MAIN_STATISTICS
from rmtbase.results.scores.figures._statistic_by_layer import relative_label, relative_to_null
from rmtbase.results.scores.figures._weibull_plane import weibull_plane
from rmtbase.results.scores.words import null_noun
from rmtbase.results.trajectory.schema import steps_before
from rmtbase.results.trajectory.summary import against
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present

_MOST_LINES = 48  # beyond which heads are drawn as bands
_SHARES = ((0.05, 0.95, 0.2), (0.25, 0.75, 0.4))  # quantiles of the heads, with the opacity of their band
_MARKED = 12  # most steps with a marker each
_HIDDEN = 8.0  # multiple of the null's width beyond which an axis is logarithmic


@panel
def statistic_along_steps(
    ax: Axes,
    theme: Theme,
    trajectory: xr.DataTree,
    statistic: str = "normalized_participation_ratio",
    group: Group = "heads",
    component: str | None = None,
    show: Literal["lines", "bands"] | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw a statistic of every head, or matrix, along the steps of a training run, with the 95 % range of the null.

    A statistic that scales with σ_Q² σ_K² is divided by its null mean, as in :func:`statistic_by_layer`. The band of
    the null extends from the lowest to the highest end over all heads.

    The axes: step (logarithmic, with 0 shown) against the statistic.
    """
    if show not in (None, "lines", "bands"):
        raise ParameterError("show", show, "'lines', 'bands' or None")
    table = _stepped(trajectory, group, component)
    steps = table["step"].values
    curves = _curves(table, statistic)
    if curves.low is not None and curves.high is not None:
        low, high = np.nanmin(curves.low, axis=1), np.nanmax(curves.high, axis=1)
        band = f"{_random(trajectory, group)}, 95 %"
        ax.fill_between(steps, low, high, color=theme.null, alpha=0.28, linewidth=0.8, label=band)
    if statistic == "moved_share" and group == "heads":
        _upper_point(ax, trajectory, theme)
    if group == "matrices" and component is None:
        _component_lines(ax, table, statistic, theme)
    elif show == "bands" or (show is None and curves.value.shape[1] > _MOST_LINES):
        _share_bands(ax, steps, curves.value, theme)
    else:
        _layer_lines(ax, steps, curves, theme)
    if prefer_log(curves.value):
        log_axis(ax)
    else:
        _symmetric_log(ax, curves)
    step_axis(ax, steps)
    ax.set_ylabel(curves.label)
    what = {"heads": "", "elements": symbol_of(component or "W_QK"), "matrices": component and symbol_of(component)}
    return finished(ax, theme, what[group] or "", legend)


def _upper_point(ax: Axes, trajectory: xr.DataTree, theme: Theme) -> None:
    """Shade what 95 % of random heads have."""
    upper = trajectory["null"].to_dataset()["moved_share_upper"].values
    if np.isfinite(upper).any():
        label = f"{_random(trajectory, 'heads')}, 95 %"
        ax.axhspan(0.0, float(np.nanmax(upper)), color=theme.null, alpha=0.28, linewidth=0.8, label=label)


@panel
def spectra_along_steps(
    ax: Axes,
    theme: Theme,
    trajectory: xr.DataTree,
    layer: int | None = None,
    head: int | None = None,
    *,
    legend: bool = True,
) -> Axes:
    """Draw the ordered eigenvalues of one head along the steps, a line for each rank, relative to the null's median.

    Each eigenvalue is divided by the null's median at its rank, for the head's own σ̂ at the step. The bands are 1–99 %
    of the null at the first and the last rank.

    The axes: step against λ_k divided by its median under the null.
    """
    heads = _stepped(trajectory, "heads", None).transpose("step", "layer", "head", ...)
    if trajectory["null"].to_dataset()["eigenvalue_quantile"].dims[:1] == ("step",):
        raise ParameterError("trajectory", "heads that have a null each", "one null of all heads, or of each shape")
    place = _picked_head(heads, layer, head)
    steps, rank = heads["step"].values, heads.sizes["index"]
    quantile = null_quantiles(trajectory, *place)[:rank]
    probability = trajectory["null"].to_dataset()["probability"].values
    low, middle, high = (quantile[:, int(np.argmin(np.abs(probability - level)))] for level in (0.01, 0.5, 0.99))
    scale = null_scales(trajectory, heads)[:, *place]
    values = heads["eigenvalue"].values[:, *place, :] / scale[:, None] / np.where(middle > 0, middle, np.nan)
    for k, name in ((0, "random heads, the first, 1–99 %"), (rank - 1, "random heads, the last, 1–99 %")):
        ax.axhspan(
            low[k] / middle[k],
            high[k] / middle[k],
            color=theme.null,
            alpha=0.3 if k else 0.2,
            linewidth=0.8,
            label=name,
        )
    shades = theme.sequential[::-1]
    for k in range(rank):
        colour = shades[min(k * (len(shades) - 2) // max(rank - 1, 1), len(shades) - 1)]
        ends = {0: "rank 1, the largest", rank - 1: f"rank {rank}"}
        ax.plot(steps, values[:, k], color=colour, linewidth=1.2, label=ends.get(k, ""))
    if prefer_log(values):
        log_axis(ax)
    step_axis(ax, steps)
    ax.set_ylabel(r"eigenvalue $\lambda_k$ / its median in random heads")
    names = heads["layer"].values[place[0]], heads["head"].values[place[1]]
    return finished(ax, theme, f"layer {names[0]} {noun_of(trajectory)} {names[1]}", legend)


@panel
def departures(ax: Axes, theme: Theme, trajectory: xr.DataTree, *, legend: bool = True) -> Axes:
    """Draw between which checkpoints each head departs from each null for good, by layer.

    A mark for each head and null is at the first checkpoint from which on the head differs, and a line begins at the
    last one before at which it was tested; without a line, the head differs at the first. Heads that do not depart by
    the last step are drawn beyond it, at "never"; heads that could not be tested at the last step are drawn farther
    right.

    The axes: step against layer, with the heads of each layer from top to bottom.
    """
    group = trajectory.children["departures"].to_dataset() if "departures" in trajectory.children else None
    if group is None or "lasting_step" not in group:
        raise ParameterError("trajectory", sorted(trajectory.children), "a trajectory tree with /departures")
    heads = _stepped(trajectory, "heads", None)
    there = heads_present(heads.isel(step=-1))
    steps = heads["step"].values
    never = float(max(steps[-1], 1)) * 3.0
    layer, head = np.nonzero(there)
    count = there.sum(axis=1)
    y = layer - 0.4 + 0.8 * (head + 0.5) / np.maximum(count[layer], 1)
    lasting = group["lasting_step"].transpose("null", "layer", "head").values
    q_values = group["omnibus_q_value"].transpose("step", "null", "layer", "head").values
    before, q_value = steps_before(q_values, steps), q_values[-1]
    lacking, beyond = np.any(np.isnan(q_value), axis=0)[layer, head], 2.5 * never
    size = float(np.clip(80 / y.size**0.6, 1.6, 5.5))
    for name, own, earlier, q, colour, marker in zip(
        group["null"].values.tolist(), lasting, before, q_value, cycle(theme.series), cycle(MARKERS), strict=False
    ):
        tested = np.isfinite(q[layer, head])
        when = own[layer, head][tested]
        out = int(np.isfinite(when).sum())
        known = np.isfinite(earlier[layer, head])
        ax.hlines(
            y[known], earlier[layer, head][known], own[layer, head][known], color=colour, linewidth=0.9, alpha=0.6
        )
        ax.plot(
            np.where(np.isfinite(when), when, never), y[tested], linestyle="none", marker=marker, markersize=size,
            markerfacecolor="none", markeredgecolor=colour, markeredgewidth=1.0,
            label=f"{literal(against(name))} ({_that_differ(out, when.size, y.size)})",
        )  # fmt: skip
    if lacking.any():
        ax.plot(
            np.full(lacking.sum(), beyond), y[lacking], linestyle="none", marker="x", markersize=size,
            color=theme.muted, label=NOT_TESTABLE,
        )  # fmt: skip
    step_axis(ax, np.append(steps, never))
    ax.axvline(float(max(steps[-1], 1)) * 1.6, color=theme.muted, linewidth=0.9, linestyle=":")
    ticks = [tick for tick in ax.get_xticks() if tick <= steps[-1]]
    ends = [never, beyond] if lacking.any() else [never]
    ax.set_xticks([*ticks, *ends], [*(step_name(tick) for tick in ticks), *("never", "not\ntestable")[: len(ends)]])
    ax.set_xlim(-0.3, ends[-1] * 1.5)
    ax.set_ylim(len(count) - 0.5, -0.5)
    layer_axis(ax, "y", heads, theme)
    ax.set(xlabel="step (a head comes to differ somewhere on its line)", ylabel="layer")
    return finished(ax, theme, "", legend)


def _that_differ(count: int, tested: int, total: int) -> str:
    """Say how many heads differ of those that could be tested at the last step."""
    if not tested:
        return f"cannot be told: {NOT_TESTABLE}"
    return f"{count} of {tested}{' testable' * (tested < total)} differ"


def _random(trajectory: xr.DataTree, group: Group) -> str:
    """Say what a group is compared with: random matrices, random heads, or copies of the heads."""
    return "random matrices" if group == "matrices" else null_noun(trajectory.attrs["null_entries"])


def step_axis(ax: Axes, steps: Int[np.ndarray, " step"]) -> None:
    """Make the x axis a logarithmic axis of steps that includes step 0."""
    last = float(max(np.max(steps), 1))
    if np.min(steps) > 0:
        ax.set_xscale("log")
    else:
        ax.set_xscale("symlog", linthresh=1.0, linscale=0.4)
        ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1.0))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, position: step_name(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    low = float(np.min(steps))
    ax.set_xlim(low * 0.9 if low > 0 else -0.15, last * 1.1)
    ax.set_xlabel("step")


class _Curves(NamedTuple):
    """Values drawn for every head, (step, head): the statistic, and the ends of the 95 % range of its null."""

    value: Float[np.ndarray, "step head"]
    low: Float[np.ndarray, "step head"] | None
    high: Float[np.ndarray, "step head"] | None
    layer: Int[np.ndarray, " head"]
    label: str


def require_trajectory(trajectory: xr.DataTree) -> xr.Dataset:
    """Return the heads of a trajectory along the steps, or raise :class:`~rmtbase.errors.ParameterError`."""
    if not isinstance(trajectory, xr.DataTree) or "heads" not in trajectory.children:
        raise ParameterError("trajectory", type(trajectory).__name__, "a trajectory tree; open a file by open_table")
    if "step" not in trajectory["heads"].dims:
        raise ParameterError("trajectory", f"a file of kind {trajectory.attrs.get('kind')}", "one of kind trajectory")
    return heads_of(trajectory)


def _stepped(trajectory: xr.DataTree, group: Group, component: str | None) -> xr.Dataset:
    """Return a group of a trajectory, restricted to one component if given."""
    require_trajectory(trajectory)
    return group_of(trajectory, group, component)


def _curves(table: xr.Dataset, statistic: str) -> _Curves:
    column = column_of(table, statistic)
    places = [str(dim) for dim in column.dims if dim != "step"]
    layers = np.broadcast_to(
        np.arange(table.sizes["layer"]).reshape([-1 if dim == "layer" else 1 for dim in places]),
        [table.sizes[dim] for dim in places],
    ).ravel()

    def flat(array: xr.DataArray) -> np.ndarray:
        return array.transpose("step", *places).values.reshape(table.sizes["step"], -1)

    value, low, high, label = flat(column), None, None, statistic_label(statistic)
    if statistic in table["statistic"].values:
        one = table.sel(statistic=statistic)
        mean = flat(one["null_mean"])
        if "null_quantile" in one:
            ends = [flat(one["null_quantile"].sel(probability=level, method="nearest")) for level in (0.025, 0.975)]
        else:
            ends = [mean + sign * NORMAL_95 * flat(one["null_std"]) for sign in (-1, 1)]
        if statistic in SPECTRAL_STATISTICS:
            of = SPECTRAL_STATISTICS[statistic]
            value, *ends = (relative_to_null(of, each, mean) for each in (value, *ends))
            label = relative_label(of)
        if np.isfinite(ends).any():
            low, high = ends
    there = np.isfinite(value).any(axis=0)
    return _Curves(
        value[:, there], None if low is None else low[:, there], None if high is None else high[:, there],
        layers[there], label,
    )  # fmt: skip


def _layer_lines(ax: Axes, steps: Int[np.ndarray, " step"], curves: _Curves, theme: Theme) -> None:
    """Draw a line for each head, with one colour and one style for each layer."""
    held = np.unique(curves.layer).tolist()
    several = len(held) > len(theme.series)
    shades = theme.sequential[2:]
    for k, layer in enumerate(held):
        own = curves.value[:, curves.layer == layer]
        colour = shades[k * (len(shades) - 1) // (len(held) - 1)] if several else theme.series[k]
        style = "-" if several else LINE_STYLES[k]
        named = not several or k in (0, len(held) - 1)
        labels = [f"layer {layer}" if named else "", *[""] * (own.shape[1] - 1)]
        for line, label in zip(own.T, labels, strict=True):
            marker = "o" if len(steps) <= _MARKED else ""
            ax.plot(
                steps, line, color=colour, linestyle=style, linewidth=1.0, marker=marker, markersize=2.5, label=label
            )


def _share_bands(
    ax: Axes, steps: Int[np.ndarray, " step"], value: Float[np.ndarray, "step head"], theme: Theme
) -> None:
    for lower, upper, alpha in _SHARES:
        low, high = np.nanquantile(value, [lower, upper], axis=1)
        ax.fill_between(
            steps, low, high, color=theme.observed, alpha=alpha, linewidth=0,
            label=f"{100 * (upper - lower):.0f} % of heads",
        )  # fmt: skip
    ax.plot(steps, np.nanmedian(value, axis=1), color=theme.observed, linewidth=1.6, label="median head")


def _component_lines(ax: Axes, table: xr.Dataset, statistic: str, theme: Theme) -> None:
    """Draw the median over layers for each component."""
    median = column_of(table, statistic).median("layer").transpose("component", "step")
    for k, (name, own, colour, marker, style) in enumerate(
        zip(
            table["component"].values.tolist(), median.values, cycle(theme.series), cycle(MARKERS), cycle(LINE_STYLES),
            strict=False,
        )
    ):  # fmt: skip
        hollow = k >= len(theme.series)
        ax.plot(
            table["step"].values, own, color=colour, marker=marker, linestyle=style, linewidth=1.2, markersize=3.0,
            markerfacecolor=theme.surface if hollow else colour, label=symbol_of(str(name)),
        )  # fmt: skip


def _symmetric_log(ax: Axes, curves: _Curves) -> None:
    """Make the y axis logarithmic beyond the null's width if heads lie so far out that its band would be invisible."""
    if curves.low is None or curves.high is None:
        return
    width = float(np.nanmax(np.abs([curves.low, curves.high])))
    farthest = float(np.nanmax(np.abs(curves.value), initial=0.0))
    if width > 0 and farthest > _HIDDEN * width and float(np.nanmin(curves.value, initial=0.0)) < 0:
        symmetric_log_axis(ax, width)


def _picked_head(heads: xr.Dataset, layer: int | None, head: int | None) -> tuple[int, int]:
    layers, places = heads["layer"].values.tolist(), heads["head"].values.tolist()
    last = heads.isel(step=-1)
    if layer is None and head is None:
        largest = last["z_score"].sel(statistic="largest_eigenvalue").values
        if np.isnan(largest).all():
            largest = last["eigenvalue"].values[..., 0]
        row, column = np.unravel_index(np.nanargmax(largest), largest.shape)
        return int(row), int(column)
    there = heads_present(last)
    if layer not in layers or head not in places or not there[layers.index(layer), places.index(head)]:
        raise ParameterError("head", (layer, head), f"a layer among {layers} and a head of it, both named")
    return layers.index(layer), places.index(head)


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return the figures of a trajectory by name; figures of single statistics are drawn only on request."""
    heads = heads_of(tree)
    held = heads["statistic"].values.tolist()
    main = [name for name in MAIN_STATISTICS if name in held]
    recipes: dict[str, FigureRecipe] = {}
    if heads["moved_share"].notnull().any():
        draw = Single(statistic_along_steps, style, tree, statistic="moved_share")
        recipes["moved-share-along-steps"] = FigureRecipe(draw)
    recipes["statistics-along-steps"] = FigureRecipe(partial(_several, tree, main, "heads", style))
    if "departures" in tree.children:
        layers = heads.sizes.get("layer", 1)
        draw = Single(departures, style, tree, height=min(1.6 + 0.5 * layers, 8.0))
        recipes["departures"] = FigureRecipe(draw)
    if str(tree.attrs["null_method"]) != "resampled":
        recipes["spectra-along-steps"] = FigureRecipe(Single(spectra_along_steps, style, tree))
    for name in held:
        draw = Single(statistic_along_steps, style, tree, statistic=name)
        recipes[f"along-steps-{name}"] = FigureRecipe(draw, standard=False)
    if "matrices" in tree.children:
        of_matrices = matrices_of(tree)["statistic"].values.tolist()
        main = [name for name in ("weibull_shape", "weibull_scale", "excess_kurtosis") if name in of_matrices]
        recipes["matrices-along-steps"] = FigureRecipe(partial(_several, tree, main, "matrices", style))
        if "weibull_shape" in of_matrices:
            recipes["weibull-plane"] = FigureRecipe(Single(weibull_plane, style, tree))
        if "log_magnitude_histogram" in matrices_of(tree):
            for name in matrices_of(tree)["component"].values.tolist():
                draw = Single(magnitudes_along_steps, style, tree, component=name)
                recipes[f"magnitudes-along-steps-{name}"] = FigureRecipe(draw, standard=False)
        for name in [*of_matrices, "sigma"]:
            draw = Single(statistic_along_steps, style, tree, statistic=name, group="matrices")
            recipes[f"matrices-along-steps-{name}"] = FigureRecipe(draw, standard=False)
    if "elements" in tree["heads"].children:
        of_elements = elements_of(tree)["statistic"].values.tolist()
        main = [name for name in MAIN_ELEMENT_STATISTICS if name in of_elements]
        recipes["elements-along-steps"] = FigureRecipe(partial(_several, tree, main, "elements", style), standard=False)
    return recipes


def _several(tree: xr.DataTree, names: Sequence[str], group: str, style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "statistic": name, "group": group} for name in names}
    plain = partial(statistic_along_steps, legend=False)
    figure = panels(plain, options, style, 2, share_y=False, title=model_title(tree))
    legend_of_all(figure, style.theme)
    return figure
