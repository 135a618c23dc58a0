"""Figures of a training run along its steps: statistics, spectra, and departures from the nulls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator, SymmetricalLogLocator

from rmtbase.drawing.axes import (
    LINE_STYLES,
    NORMAL_95,
    NOT_TESTABLE,
    Around,
    layer_axis,
    looks,
    noun_of,
    panel,
    statistic_label,
    step_name,
    symbol_of,
)
from rmtbase.drawing.groups import Group, column_of, group_of, heads_of, matrices_of
from rmtbase.drawing.layout import FigureRecipe, Panels, Single
from rmtbase.drawing.scales import log_axis, prefer_log, symmetric_log_axis
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.results.scores.figures._eigenvalues import null_quantiles, null_scales
from rmtbase.results.scores.figures._element_histograms import magnitudes_along_steps, weibull_plane
from rmtbase.results.scores.figures._scores import MAIN_STATISTICS
from rmtbase.results.scores.figures._statistic_by_layer import relative_label, relative_to_null
from rmtbase.results.scores.words import null_noun
from rmtbase.results.trajectory.report import against
from rmtbase.results.trajectory.schema import steps_before
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import heads_present

_MOST_LINES = 48  # beyond which heads are drawn as bands
_SHARES = ((0.05, 0.95, 0.2), (0.25, 0.75, 0.4))  # quantiles of the heads, with the opacity of their band
_MARKED = 12  # most steps with a marker each
_HIDDEN = 8.0  # multiple of the null's width beyond which an axis is logarithmic


@panel
def statistic_along_steps(
    ax: Axes, theme: Theme, trajectory: xr.DataTree, statistic: str, group: Group = "heads"
) -> Around:
    """Draw a statistic of every head, or matrix, along the steps of a training run, with the 95 % range of the null.

    A statistic that scales with σ_Q² σ_K² is divided by its null mean, as in :func:`statistic_by_layer`. The band of
    the null extends from the lowest to the highest end over all heads.
    """
    table = group_of(trajectory, group)
    steps = table["step"].values
    values, ends, layer_of_head, y_label = _curves(table, statistic)
    band = f"{'random matrices' if group == 'matrices' else null_noun(trajectory.attrs['null_entries'])}, 95 %"
    if ends:
        low, high = np.nanmin(ends[0], axis=1), np.nanmax(ends[1], axis=1)
        ax.fill_between(steps, low, high, color=theme.null, alpha=0.28, linewidth=0.8, label=band)
    if statistic == "moved_share" and group == "heads":
        upper = trajectory["null"].to_dataset()["moved_share_upper"].values
        if np.isfinite(upper).any():
            ax.axhspan(0.0, float(np.nanmax(upper)), color=theme.null, alpha=0.28, linewidth=0.8, label=band)
    if group == "matrices":
        median = column_of(table, statistic).median("layer").transpose("component", "step")
        names = table["component"].values.tolist()
        for name, line, look in zip(names, median.values, looks(theme, len(names)), strict=True):
            ax.plot(steps, line, linewidth=1.2, markersize=3.0, label=symbol_of(name), **look.line())
    elif values.shape[1] > _MOST_LINES:
        for lower, upper, alpha in _SHARES:
            label = f"{100 * (upper - lower):.0f} % of heads"
            quantiles = np.nanquantile(values, [lower, upper], axis=1)
            ax.fill_between(steps, *quantiles, color=theme.observed, alpha=alpha, linewidth=0, label=label)
        median = np.nanmedian(values, axis=1)
        ax.plot(steps, median, color=theme.observed, linewidth=1.6, label="median head")
    else:
        layers = np.unique(layer_of_head).tolist()
        several = len(layers) > len(theme.series)
        shades = theme.sequential[2:]
        for k, layer in enumerate(layers):
            colour = shades[k * (len(shades) - 1) // (len(layers) - 1)] if several else theme.series[k]
            style, marker = "-" if several else LINE_STYLES[k], "o" if len(steps) <= _MARKED else ""
            look = {"color": colour, "linestyle": style, "linewidth": 1.0, "marker": marker, "markersize": 2.5}
            label = f"layer {layer}" if not several or k in (0, len(layers) - 1) else ""
            for line in values[:, layer_of_head == layer].T:
                ax.plot(steps, line, label=label, **look)
                label = ""
    if prefer_log(values):
        log_axis(ax)
    elif ends:
        # Heads may lie so far out that the null's band would be invisible on a linear axis.
        width = float(np.nanmax(np.abs(ends)))
        farthest = float(np.nanmax(np.abs(values), initial=0.0))
        if width > 0 and farthest > _HIDDEN * width and float(np.nanmin(values, initial=0.0)) < 0:
            symmetric_log_axis(ax, width)
    step_axis(ax, steps)
    return Around(y=y_label)


@panel
def spectra_along_steps(ax: Axes, theme: Theme, trajectory: xr.DataTree) -> Around:
    """Draw the ordered eigenvalues of the head with the largest one, a line for each rank, over the null's median.

    The null is at the head's own σ̂ at each step. The bands are 1–99 % of the null at the first and the last rank.
    """
    heads = heads_of(trajectory).transpose("step", "layer", "head", ...)
    last = heads.isel(step=-1)
    largest = last["z_score"].sel(statistic="largest_eigenvalue").values
    if np.isnan(largest).all():
        largest = last["eigenvalue"].values[..., 0]
    layer, head = map(int, np.unravel_index(np.nanargmax(largest), largest.shape))
    steps, rank = heads["step"].values, heads.sizes["index"]
    quantile = null_quantiles(trajectory, layer, head)[:rank]
    probability = trajectory["null"].to_dataset()["probability"].values
    low, middle, high = (quantile[:, int(np.argmin(np.abs(probability - level)))] for level in (0.01, 0.5, 0.99))
    scale = null_scales(trajectory, heads)[:, layer, head]
    values = heads["eigenvalue"].values[:, layer, head] / scale[:, None] / np.where(middle > 0, middle, np.nan)
    for k, alpha, name in ((0, 0.2, "first"), (rank - 1, 0.3 if rank > 1 else 0.2, "last")):
        label = f"random heads, the {name}, 1–99 %"
        ends = low[k] / middle[k], high[k] / middle[k]
        ax.axhspan(*ends, color=theme.null, alpha=alpha, linewidth=0.8, label=label)
    shades = theme.sequential[::-1]
    labels = {0: "rank 1, the largest", rank - 1: f"rank {rank}"}
    for k in range(rank):
        colour = shades[min(k * (len(shades) - 2) // max(rank - 1, 1), len(shades) - 1)]
        ax.plot(steps, values[:, k], color=colour, linewidth=1.2, label=labels.get(k, ""))
    if prefer_log(values):
        log_axis(ax)
    step_axis(ax, steps)
    title = f"layer {heads['layer'].values[layer]} {noun_of(trajectory)} {heads['head'].values[head]}"
    return Around(title, y=r"eigenvalue $\lambda_k$ / its median in random heads")


@panel
def departures(ax: Axes, theme: Theme, trajectory: xr.DataTree) -> Around:
    """Draw between which checkpoints each head departs from each null for good, by layer.

    A mark for each head and null is at the first checkpoint from which on the head differs, and a line begins at the
    last one before at which it was tested; without a line, the head differs at the first. Heads that do not depart by
    the last step are drawn beyond it, at "never"; heads that could not be tested at the last step are drawn farther
    right.
    """
    group, heads = trajectory["departures"].to_dataset(), heads_of(trajectory)
    present = heads_present(heads.isel(step=-1))
    steps = heads["step"].values
    never = float(max(steps[-1], 1)) * 3.0
    layer, head = np.nonzero(present)
    count = present.sum(axis=1)
    y = layer - 0.4 + 0.8 * (head + 0.5) / np.maximum(count[layer], 1)
    q_values = group["omnibus_q_value"].transpose("step", "null", "layer", "head").values
    lasting = group["lasting_step"].transpose("null", "layer", "head").values[:, layer, head]
    before, q_value = steps_before(q_values, steps)[:, layer, head], q_values[-1][:, layer, head]
    untested, beyond = np.any(np.isnan(q_value), axis=0), 2.5 * never
    size = float(np.clip(80 / y.size**0.6, 1.6, 5.5))
    names = group["null"].values.tolist()
    for name, step, earlier, q, look in zip(names, lasting, before, q_value, looks(theme, len(names)), strict=True):
        tested, known = np.isfinite(q), np.isfinite(earlier)
        departed = step[tested]
        ax.hlines(y[known], earlier[known], step[known], color=look.colour, linewidth=0.9, alpha=0.6)
        testable = " testable" if departed.size < y.size else ""
        number = f"{np.isfinite(departed).sum()} of {departed.size}{testable} differ"
        if not departed.size:
            number = f"cannot be told: {NOT_TESTABLE}"
        ax.plot(
            np.where(np.isfinite(departed), departed, never), y[tested], linestyle="none", marker=look.marker,
            markersize=size, markerfacecolor="none", markeredgecolor=look.colour, markeredgewidth=1.0,
            label=f"{literal(against(name))} ({number})",
        )  # fmt: skip
    if untested.any():
        marks = {"linestyle": "none", "marker": "x", "markersize": size, "color": theme.muted}
        ax.plot(np.full(untested.sum(), beyond), y[untested], label=NOT_TESTABLE, **marks)
    step_axis(ax, np.append(steps, never))
    ax.axvline(float(max(steps[-1], 1)) * 1.6, color=theme.muted, linewidth=0.9, linestyle=":")
    ticks = [tick for tick in ax.get_xticks() if tick <= steps[-1]]
    ends = {never: "never"} | ({beyond: "not\ntestable"} if untested.any() else {})
    ax.set_xticks([*ticks, *ends], [*(step_name(tick) for tick in ticks), *ends.values()])
    ax.set_xlim(-0.3, max(ends) * 1.5)
    ax.set_ylim(len(count) - 0.5, -0.5)
    layer_axis(ax, "y", heads, theme)
    return Around("", "step (a head comes to differ somewhere on its line)", "layer")


def step_axis(ax: Axes, steps: Int[np.ndarray, " step"]) -> None:
    low, last = float(np.min(steps)), float(max(np.max(steps), 1))
    if low > 0:
        ax.set_xscale("log")
    else:
        ax.set_xscale("symlog", linthresh=1.0, linscale=0.4)
        ax.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1.0))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, position: step_name(value)))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set_xlim(low * 0.9 if low > 0 else -0.15, last * 1.1)
    ax.set_xlabel("step")


def _curves(table: xr.Dataset, statistic: str) -> tuple[np.ndarray, list[np.ndarray], np.ndarray, str]:
    """Return a statistic by step and head, the ends of 95 % of its null, if known, the layers, and a label."""
    column = column_of(table, statistic)
    places = [str(dim) for dim in column.dims if dim != "step"]
    layers = np.broadcast_to(
        np.arange(table.sizes["layer"]).reshape([-1 if dim == "layer" else 1 for dim in places]),
        [table.sizes[dim] for dim in places],
    ).ravel()

    def flat(array: xr.DataArray) -> np.ndarray:
        return array.transpose("step", *places).values.reshape(table.sizes["step"], -1)

    value, ends, label = flat(column), [], statistic_label(statistic)
    if statistic in table["statistic"].values:
        row = table.sel(statistic=statistic)
        mean = flat(row["null_mean"])
        if "null_quantile" in row:
            ends = [flat(row["null_quantile"].sel(probability=level, method="nearest")) for level in (0.025, 0.975)]
        else:
            ends = [mean + sign * NORMAL_95 * flat(row["null_std"]) for sign in (-1, 1)]
        if statistic in SPECTRAL_STATISTICS:
            definition = SPECTRAL_STATISTICS[statistic]
            value, *ends = (relative_to_null(definition, numbers, mean) for numbers in (value, *ends))
            label = relative_label(definition)
    known = np.isfinite(value).any(axis=0)
    return value[:, known], [end[:, known] for end in ends] if np.isfinite(ends).any() else [], layers[known], label


def figure_recipes(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return the figures of a trajectory by name; figures of single statistics are drawn only on request."""

    def several(names: Sequence[str], group: Group) -> Panels:
        return Panels(statistic_along_steps, tree, [{"statistic": name, "group": group} for name in names], 2)

    heads = heads_of(tree)
    statistics = heads["statistic"].values.tolist()
    recipes: dict[str, FigureRecipe] = {}
    if heads["moved_share"].notnull().any():
        recipes["moved-share-along-steps"] = Single(statistic_along_steps, tree, {"statistic": "moved_share"})
    recipes["statistics-along-steps"] = several([name for name in MAIN_STATISTICS if name in statistics], "heads")
    if "departures" in tree.children:
        recipes["departures"] = Single(departures, tree, height=min(1.6 + 0.5 * heads.sizes.get("layer", 1), 8.0))
    if str(tree.attrs["null_method"]) != "resampled":
        recipes["spectra-along-steps"] = Single(spectra_along_steps, tree)
    for name in statistics:
        recipes[f"along-steps-{name}"] = Single(statistic_along_steps, tree, {"statistic": name}, standard=False)
    if "matrices" not in tree.children:
        return recipes
    matrices = matrices_of(tree)
    statistics = matrices["statistic"].values.tolist()
    main = [name for name in ("weibull_shape", "weibull_scale", "excess_kurtosis") if name in statistics]
    recipes["matrices-along-steps"] = several(main, "matrices")
    if "weibull_shape" in statistics:
        recipes["weibull-plane"] = Single(weibull_plane, tree)
    for name in matrices["component"].values.tolist() if "log_magnitude_histogram" in matrices else ():
        magnitudes = Single(magnitudes_along_steps, tree, {"component": name}, standard=False)
        recipes[f"magnitudes-along-steps-{name}"] = magnitudes
    for name in [*statistics, "sigma"]:
        options = {"statistic": name, "group": "matrices"}
        recipes[f"matrices-along-steps-{name}"] = Single(statistic_along_steps, tree, options, standard=False)
    return recipes
