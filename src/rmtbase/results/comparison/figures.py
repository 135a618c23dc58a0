"""Figures that compare models: shapes, drifts, differing pairs, scales, and measures of groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes
from scipy.special import stdtrit

from rmtbase.drawing.axes import LEVEL, LINE_STYLES, MARKERS, NORMAL_95, finished, literal, panel, symbol_of, titled
from rmtbase.drawing.color_scales import Q
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.heatmaps import draw_cells, finished_map
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.drawing.not_testable import NOT_TESTABLE
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.figures._statistic_by_layer import draw_published_band
from rmtbase.results.trajectory.figures._along_steps import step_axis

_LONGEST = 24  # most characters of a model's name on an axis
_LONGEST_OF_GROUP = 16  # most characters of a group's name on an axis


@panel
def component_shapes(
    ax: Axes, theme: Theme, comparison: xr.DataTree, published: bool = False, *, legend: bool = True
) -> Axes:
    """Draw the median Weibull shape of each component of every model, with the 95 % range of untrained weights.

    The axes: component against k̂; the bar behind each mark is its null.
    """
    table = _comparison_group(comparison, "components", "shape")
    if published:
        draw_published_band(ax, theme)
    mean, spread = table["shape_null_mean"], NORMAL_95 * table["shape_null_std"]
    label, wide = "null, 95 % of each median", float(np.clip(60 / table["shape"].size, 1.5, 7.0))
    for one in _beside(table, "model", theme):
        ends = [(mean + sign * spread).sel(model=one.name).values for sign in (-1, 1)]
        one.bars(ax, table["shape"], ends, color=theme.null, alpha=0.5, linewidth=wide, label=label)
        one.marks(ax, table["shape"], theme, markersize=5, label=literal(one.name, _LONGEST))
        label = ""
    if published and "published" in comparison.children and "shape" in comparison["published"].data_vars:
        other = comparison["published"].to_dataset()["shape"].reindex(component=table["component"])
        x = np.broadcast_to(np.arange(other.sizes["component"]), other.shape)
        ax.plot(x.ravel(), other.values.ravel(), color=theme.naive, linestyle="none", marker="_", markersize=9,
                label="published models (npm-weibull-py, CC BY 4.0)")  # fmt: skip
    _names(ax, [symbol_of(str(one)) for one in table["component"].values])
    ax.set_ylabel(r"median Weibull shape $\hat k$")
    return finished(ax, theme, "", legend)


@panel
def shape_drifts(ax: Axes, theme: Theme, comparison: xr.DataTree, *, legend: bool = True) -> Axes:
    """Draw the mean change of the Weibull shape of each component from the first model of a pair to the second.

    Arguments as in :func:`component_shapes`. The bars are ± 1.96 standard errors for untrained weights.

    The axes: component against the change of k̂.
    """
    table = _comparison_group(comparison, "drifts", "drift")
    ax.axhline(0.0, color=theme.null, linewidth=1.2, label="no change")
    drift, error = table["drift"], NORMAL_95 * table["standard_error"]
    for one in _beside(table, "pair", theme):
        ends = [(drift + sign * error).sel(pair=one.name).values for sign in (-1, 1)]
        one.bars(ax, drift, ends, color=one.colour, linestyle=one.style, linewidth=1.1)
        one.marks(ax, drift, theme, markersize=4.5, label=literal(one.name, 2 * _LONGEST))
    _names(ax, [symbol_of(str(one)) for one in table["component"].values])
    ax.set_ylabel(r"change of the Weibull shape $\hat k$, ± 95 %")
    return finished(ax, theme, "", legend)


@panel
def pair_heatmap(ax: Axes, theme: Theme, comparison: xr.DataTree, *, colorbar: bool = True) -> Axes:
    """Draw the q-values of pairs of models, by all statistics of their heads together; a cross marks duplicates.

    The axes: one model against the other. Colours change at the same q-values as in all figures.
    """
    table = _comparison_group(comparison, "pairs", "omnibus_q_value")
    models = _comparison_group(comparison, "models", "name")["model"].values.tolist()
    q, duplicate = np.full((len(models), len(models)), np.nan), np.zeros((len(models), len(models)), dtype=bool)
    for k, ends in enumerate(zip(table["first"].values.tolist(), table["second"].values.tolist(), strict=True)):
        if set(ends) <= set(models):
            row, column = (models.index(one) for one in ends)
            q[row, column] = q[column, row] = table["omnibus_q_value"].values[k]
            duplicate[row, column] = duplicate[column, row] = bool(table["duplicate"].values[k])
    untested = np.isnan(q) & ~np.eye(len(models), dtype=bool)
    draw_cells(ax, q, q < LEVEL, untested, Q, LEVEL, theme, markersize=4)
    y, x = np.nonzero(duplicate)
    ax.plot(x, y, linestyle="none", marker="x", markersize=6, color=theme.text)
    names = [literal(one, _LONGEST) for one in models]
    ax.set_xticks(range(len(models)), names, rotation=90 if max(map(len, names)) > 4 else 0)
    ax.set_yticks(range(len(models)), names)
    ax.set(xlim=(-0.5, len(models) - 0.5), ylim=(len(models) - 0.5, -0.5), xlabel="model", ylabel="model")
    crosses = "; cross: the same weights" if duplicate.any() else ""
    crosses += f"; hatched: {NOT_TESTABLE}" if untested.any() else ""
    title = f"heads of two models, all statistics together\ndot: q < {LEVEL:g}{crosses}"
    return finished_map(ax, theme, title, Q, colorbar)


@panel
def scale_law(ax: Axes, theme: Theme, comparison: xr.DataTree, *, legend: bool = True) -> Axes:
    """Draw the Weibull scale of each model against √(η/λ_wd), with the line through the origin and published models.

    Arguments as in :func:`component_shapes`.

    The axes: √(η/λ_wd) against λ̂, the mean over the Transmission Class.
    """
    table = _comparison_group(comparison, "models", "transmission_scale")
    root, scale = table["root"].values, table["transmission_scale"].values
    there = np.isfinite(root) & np.isfinite(scale)
    if not there.any():
        raise ParameterError("comparison", "no model's learning rate and weight decay", "those of one at least")
    drawn: list[tuple[np.ndarray, np.ndarray, str, Literal["o", "s"], str]] = []
    if "published" in comparison.children:
        other = comparison["published"].to_dataset()
        drawn.append((other["root"].values, other["mean_scale"].values, theme.naive, "s", "published models"))
    drawn.append((root[there], scale[there], theme.observed, "o", "models"))
    for x, y, colour, marker, label in drawn:
        ax.plot(x, y, color=colour, linestyle="none", marker=marker, markersize=5, markerfacecolor="none", label=label)
    findings = comparison["findings"].to_dataset() if "findings" in comparison.children else xr.Dataset()
    if "scale_law_slope" in findings:
        slope = float(findings["scale_law_slope"])
        x = np.array([0.0, 1.05 * max(float(np.nanmax(one[0])) for one in drawn)])
        ax.plot(x, slope * x, color=theme.free_law, linewidth=1.3, label=f"line through the origin, slope {slope:.3g}")
    ax.set_xlim(left=0.0)
    ax.set_ylim(bottom=0.0)
    ax.set(
        xlabel=r"root of learning rate over weight decay, $\sqrt{\eta / \lambda_\mathrm{wd}}$",
        ylabel=r"mean Weibull scale $\hat\lambda$",
    )
    return finished(ax, theme, "", legend)


def _comparison_group(comparison: xr.DataTree, name: str, variable: str) -> xr.Dataset:
    """Return a group of a comparison, or raise :class:`~rmtbase.errors.ParameterError` if it lacks the variable."""
    group = dict(comparison.subtree_with_keys).get(name) if isinstance(comparison, xr.DataTree) else None
    if group is None or variable not in group or "models" not in comparison.children:
        found = sorted(comparison.children) if isinstance(comparison, xr.DataTree) else type(comparison).__name__
        raise ParameterError("comparison", found, f"a comparison tree with {variable} in /{name}")
    return group.to_dataset()


class _Series(NamedTuple):
    """Style and horizontal positions of one model or pair, next to the others at each component."""

    along: str
    name: str
    x: Float[np.ndarray, " component"]
    colour: str
    marker: str
    style: Any
    hollow: bool

    def bars(self, ax: Axes, value: xr.DataArray, ends: list[np.ndarray], **options: Any) -> None:
        there = np.isfinite(value.sel({self.along: self.name}).values)
        ax.vlines(self.x[there], ends[0][there], ends[1][there], **options)

    def marks(self, ax: Axes, value: xr.DataArray, theme: Theme, **options: Any) -> None:
        own = value.sel({self.along: self.name}).values
        there = np.isfinite(own)
        face = theme.surface if self.hollow else self.colour
        ax.plot(
            self.x[there], own[there], color=self.colour, linestyle="none", marker=self.marker, markerfacecolor=face,
            **options,
        )  # fmt: skip


def _beside(table: xr.Dataset, along: str, theme: Theme) -> Iterator[_Series]:
    """Iterate over the models or pairs of a table; repeated colours have hollow marks."""
    names, places = table[along].values.tolist(), np.arange(table.sizes["component"])
    styles = zip(names, cycle(theme.series), cycle(MARKERS), cycle(LINE_STYLES), strict=False)
    for k, (name, colour, marker, style) in enumerate(styles):
        x = places + 0.7 * ((k + 0.5) / len(names) - 0.5)
        yield _Series(along, name, x, colour, marker, style, k >= len(theme.series))


def _names(ax: Axes, names: list[str]) -> None:
    ax.set_xticks(range(len(names)), [name.replace(" ", "\n", 1) for name in names])
    ax.set_xlim(-0.5, len(names) - 0.5)
    ax.set_xlabel("")  # the names of components say what they are


@panel
def group_measure(ax: Axes, theme: Theme, comparison: xr.DataTree, measure: str) -> Axes:
    """Draw a measure of every model by its group, with each group's mean and 95 % confidence interval (Student's t).

    The axes: group against the measure.
    """
    members, between = (_of_measure(comparison, name, measure) for name in ("members", "between"))
    groups = between["group"].values.tolist()
    owner = members["group_of"].values
    for place, (name, colour, marker) in enumerate(zip(groups, cycle(theme.series), cycle(MARKERS), strict=False)):
        values = members["value"].values[owner == name]
        shifts = 0.16 * (np.arange(values.size) - (values.size - 1) / 2) / max(1, values.size - 1)
        ax.plot(
            place - 0.12 + shifts, values, color=colour, linestyle="none", marker=marker, markersize=5,
            markerfacecolor="none",
        )  # fmt: skip
        half = stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / np.sqrt(values.size)
        ax.errorbar(
            place + 0.18, values.mean(), half, color=colour, marker="_", markersize=10, capsize=4, linewidth=1.4
        )
    ax.set_xticks(range(len(groups)), [literal(name, _LONGEST_OF_GROUP) for name in groups])
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.set_ylabel(literal(measure.replace("_", " "), 60))
    titled(ax, f"adjusted p = {between['adjusted_p_value'].item():.2g}", theme)
    return ax


@panel
def group_measure_by_step(
    ax: Axes, theme: Theme, comparison: xr.DataTree, measure: str, *, legend: bool = True
) -> Axes:
    """Draw the mean of a measure over each group's models along the steps, with the standard deviation of its seeds.

    Arguments as in :func:`group_measure`. Marks at the bottom show the steps at which groups differ, adjusted for all
    steps and measures.

    The axes: step against the measure.
    """
    members, between = (_of_measure(comparison, f"along/{name}", measure) for name in ("members", "between"))
    steps, owner = members["step"].values, members["group_of"].values
    each = zip(between["group"].values.tolist(), cycle(theme.series), cycle(LINE_STYLES), cycle(MARKERS), strict=False)
    for name, colour, style, marker in each:
        values = members["value"].transpose("step", "model").values[:, owner == name]
        mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1)
        ax.fill_between(steps, mean - spread, mean + spread, color=colour, alpha=0.18, linewidth=0)
        ax.plot(
            steps, mean, color=colour, linestyle=style, marker=marker, markersize=3, linewidth=1.3,
            label=literal(name, _LONGEST_OF_GROUP),
        )  # fmt: skip
    differ = steps[between["adjusted_p_value"].values < LEVEL]
    if differ.size:
        ax.plot(
            differ, np.full(differ.size, 0.02), transform=ax.get_xaxis_transform(), color=theme.text, marker="|",
            markersize=6, linestyle="none", label=f"groups differ, adjusted p < {LEVEL:g}",
        )  # fmt: skip
    step_axis(ax, steps)
    ax.set_ylabel(literal(measure.replace("_", " "), 60))
    return finished(ax, theme, "", legend)


def _of_measure(comparison: xr.DataTree, name: str, measure: str) -> xr.Dataset:
    """Select one measure from a group of a comparison."""
    variable = "value" if name.endswith("members") else "adjusted_p_value"
    table = _comparison_group(comparison, name, variable)
    if measure not in table["measure"].values:
        raise ParameterError("measure", measure, f"one of {', '.join(table['measure'].values)}")
    return table.sel(measure=measure)


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return the figures of a comparison by name, for every group that it has."""
    recipes: dict[str, FigureRecipe] = {}
    models, held = tree["models"].to_dataset(), dict(tree.subtree_with_keys)
    if tree["pairs"].sizes["pair"] if "pairs" in tree.children else 0:
        height = 2.4 + 0.3 * models.sizes["model"]
        recipes["pairs"] = FigureRecipe(Single(pair_heatmap, style, tree, 5.6, height=height))
    if "components" in tree.children:
        recipes["component-shapes"] = FigureRecipe(Single(component_shapes, style, tree, 8.0))
        published = Single(component_shapes, style, tree, 8.0, published=True)
        recipes["component-shapes-published"] = FigureRecipe(published, standard=False)
    if "drifts" in tree.children:
        recipes["shape-drifts"] = FigureRecipe(Single(shape_drifts, style, tree, 8.0), standard=False)
    if "transmission_scale" in models and np.isfinite((models["root"] * models["transmission_scale"]).values).any():
        recipes["scale-law"] = FigureRecipe(Single(scale_law, style, tree))
    if "between" in held:
        recipes["group-measures"] = FigureRecipe(partial(_measures, tree, held["between"], style, group_measure))
    if "along/between" in held:
        by_step = partial(group_measure_by_step, legend=False)
        recipes["group-measures-by-step"] = FigureRecipe(
            partial(_measures, tree, held["along/between"], style, by_step)
        )
    return recipes


def _measures(tree: xr.DataTree, between: xr.DataTree, style: FigureStyle, plot: Callable[..., Axes]) -> ThemedFigure:
    """Draw a panel for each headline measure, or for the first measure if there are no headlines."""
    table = between.to_dataset()
    names, first = table["measure"].values, table["headline"].values == 1
    options = {name: {"table": tree, "measure": name} for name in (names[first] if first.any() else names[:1]).tolist()}
    figure = panels(plot, options, style, 3, share_y=False, share_x=False, panel=3.6)
    legend_of_all(figure, style.theme)
    return figure
