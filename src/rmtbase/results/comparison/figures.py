"""Figures that compare models: shapes, drifts, differing pairs, scales, and measures of groups."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.special import stdtrit

from rmtbase.drawing.axes import LEVEL, NORMAL_95, NOT_TESTABLE, Around, looks, panel, symbols_in_lines
from rmtbase.drawing.color_scales import Q
from rmtbase.drawing.heatmaps import Cells, draw_cells
from rmtbase.drawing.layout import FigureRecipe, Panels, Single
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.results.trajectory.figures._along_steps import step_axis

__all__ = ["figure_recipes"]

_LONGEST = 24  # most characters of a model's name on an axis
_LONGEST_OF_GROUP = 16  # most characters of a group's name on an axis
_LONGEST_OF_MEASURE = 60  # most characters of a measure's name on an axis


@panel
def component_shapes(ax: Axes, theme: Theme, comparison: xr.DataTree) -> Around:
    """Draw the median Weibull shape of each component of every model, before a bar of 95 % of untrained weights."""
    table = comparison["components"].to_dataset()
    names, places = table["model"].values.tolist(), np.arange(table.sizes["component"])
    label, wide = "null, 95 % of each median", float(np.clip(60 / table["shape"].size, 1.5, 7.0))
    for k, (name, look) in enumerate(zip(names, looks(theme, len(names)), strict=True)):
        row, x = table.sel(model=name), places + 0.7 * ((k + 0.5) / len(names) - 0.5)
        shape, mean, spread = (row[field].values for field in ("shape", "shape_null_mean", "shape_null_std"))
        known = np.isfinite(shape)
        ends = (mean - NORMAL_95 * spread)[known], (mean + NORMAL_95 * spread)[known]
        ax.vlines(x[known], *ends, color=theme.null, alpha=0.5, linewidth=wide, label=label)
        ax.plot(x[known], shape[known], markersize=5, label=literal(name, _LONGEST), **look.marks())
        label = ""
    ax.set_xticks(places, symbols_in_lines(table["component"].values.tolist()))
    ax.set_xlim(-0.5, len(places) - 0.5)
    return Around(y=r"median Weibull shape $\hat k$")


@panel
def pair_heatmap(ax: Axes, theme: Theme, comparison: xr.DataTree) -> Around:
    """Draw the q-values of pairs of models, by all statistics of their heads together; a cross marks duplicates."""
    table, models = comparison["pairs"].to_dataset(), comparison["models"].to_dataset()["model"].values.tolist()
    q, duplicate = np.full((len(models), len(models)), np.nan), np.zeros((len(models), len(models)), dtype=bool)
    for k, ends in enumerate(zip(table["first"].values.tolist(), table["second"].values.tolist(), strict=True)):
        if set(ends) <= set(models):
            row, column = map(models.index, ends)
            q[row, column] = q[column, row] = table["omnibus_q_value"].values[k]
            duplicate[row, column] = duplicate[column, row] = bool(table["duplicate"].values[k])
    untested = np.isnan(q) & ~np.eye(len(models), dtype=bool)
    draw_cells(ax, theme, Q, Cells(q, q < LEVEL, untested), markersize=4)
    y, x = np.nonzero(duplicate)
    ax.plot(x, y, linestyle="none", marker="x", markersize=6, color=theme.text)
    names = [literal(name, _LONGEST) for name in models]
    ax.set_xticks(range(len(models)), names, rotation=90 if max(map(len, names)) > 4 else 0)
    ax.set_yticks(range(len(models)), names)
    ax.set(xlim=(-0.5, len(models) - 0.5), ylim=(len(models) - 0.5, -0.5))
    marks = [f"dot: q < {LEVEL:g}"]
    marks += ["cross: the same weights"] if duplicate.any() else []
    marks += [f"hatched: {NOT_TESTABLE}"] if untested.any() else []
    title = "heads of two models, all statistics together\n" + "; ".join(marks)
    return Around(title, "model", "model", scale=Q)


@panel
def scale_law(ax: Axes, theme: Theme, comparison: xr.DataTree) -> Around:
    """Draw the Weibull scale of each model against √(η/λ_wd), with the line through the origin and published models."""
    table = comparison["models"].to_dataset()
    root, scale = table["root"].values, table["transmission_scale"].values
    known = np.isfinite(root) & np.isfinite(scale)
    points = [(root[known], scale[known], theme.observed, "o", "models")]
    if "published" in comparison.children:
        models = comparison["published"].to_dataset()
        points.insert(0, (models["root"].values, models["mean_scale"].values, theme.naive, "s", "published models"))
    for x, y, colour, marker, label in points:
        marks = {"linestyle": "none", "marker": marker, "markersize": 5, "markerfacecolor": "none"}
        ax.plot(x, y, color=colour, label=label, **marks)
    findings = comparison["findings"].to_dataset() if "findings" in comparison.children else xr.Dataset()
    if "scale_law_slope" in findings:
        slope = float(findings["scale_law_slope"])
        x = np.array([0.0, 1.05 * max(float(np.nanmax(x)) for x, *_ in points)])
        ax.plot(x, slope * x, color=theme.free_law, linewidth=1.3, label=f"line through the origin, slope {slope:.3g}")
    ax.set_xlim(left=0.0)
    ax.set_ylim(bottom=0.0)
    x_label = r"root of learning rate over weight decay, $\sqrt{\eta / \lambda_\mathrm{wd}}$"
    return Around("", x_label, r"mean Weibull scale $\hat\lambda$")


@panel
def group_measure(ax: Axes, theme: Theme, comparison: xr.DataTree, measure: str) -> Around:
    """Draw a measure of every model by its group, with each group's mean and 95 % confidence interval (Student's t)."""
    members, between = (comparison[name].to_dataset().sel(measure=measure) for name in ("members", "between"))
    groups = between["group"].values.tolist()
    for place, (name, look) in enumerate(zip(groups, looks(theme, len(groups)), strict=True)):
        values = members["value"].values[members["group_of"].values == name]
        shifts = 0.16 * (np.arange(values.size) - (values.size - 1) / 2) / max(1, values.size - 1)
        ax.plot(
            place - 0.12 + shifts, values, color=look.colour, linestyle="none", marker=look.marker, markersize=5,
            markerfacecolor="none",
        )  # fmt: skip
        half = stdtrit(values.size - 1, 0.975) * values.std(ddof=1) / np.sqrt(values.size)
        mean = {"color": look.colour, "marker": "_", "markersize": 10, "capsize": 4, "linewidth": 1.4}
        ax.errorbar(place + 0.18, values.mean(), half, **mean)
    ax.set_xticks(range(len(groups)), [literal(name, _LONGEST_OF_GROUP) for name in groups])
    ax.set_xlim(-0.5, len(groups) - 0.5)
    title = f"adjusted p = {between['adjusted_p_value'].item():.2g}"
    return Around(title, y=literal(measure.replace("_", " "), _LONGEST_OF_MEASURE))


@panel
def group_measure_by_step(ax: Axes, theme: Theme, comparison: xr.DataTree, measure: str) -> Around:
    """Draw the mean of a measure over each group's models along the steps, with the standard deviation of its seeds.

    Marks at the bottom show the steps at which groups differ, adjusted for all steps and measures.
    """
    members, between = (
        comparison[f"along/{name}"].to_dataset().sel(measure=measure) for name in ("members", "between")
    )
    steps, groups = members["step"].values, between["group"].values.tolist()
    for name, look in zip(groups, looks(theme, len(groups)), strict=True):
        values = members["value"].transpose("step", "model").values[:, members["group_of"].values == name]
        mean, spread = values.mean(axis=1), values.std(axis=1, ddof=1)
        ax.fill_between(steps, mean - spread, mean + spread, color=look.colour, alpha=0.18, linewidth=0)
        line = {"color": look.colour, "linestyle": look.style, "marker": look.marker, "markersize": 3}
        ax.plot(steps, mean, linewidth=1.3, label=literal(name, _LONGEST_OF_GROUP), **line)
    differ = steps[between["adjusted_p_value"].values < LEVEL]
    if differ.size:
        ax.plot(
            differ, np.full(differ.size, 0.02), transform=ax.get_xaxis_transform(), color=theme.text, marker="|",
            markersize=6, linestyle="none", label=f"groups differ, adjusted p < {LEVEL:g}",
        )  # fmt: skip
    step_axis(ax, steps)
    return Around(y=literal(measure.replace("_", " "), _LONGEST_OF_MEASURE))


def figure_recipes(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return the figures of a comparison by name, for every group that it has."""
    recipes: dict[str, FigureRecipe] = {}
    models, groups = tree["models"].to_dataset(), dict(tree.subtree_with_keys)
    if tree["pairs"].sizes["pair"] if "pairs" in tree.children else 0:
        recipes["pairs"] = Single(pair_heatmap, tree, width=5.6, height=2.4 + 0.3 * models.sizes["model"])
    if "components" in tree.children:
        recipes["component-shapes"] = Single(component_shapes, tree, width=8.0)
    if "transmission_scale" in models and np.isfinite((models["root"] * models["transmission_scale"]).values).any():
        recipes["scale-law"] = Single(scale_law, tree)
    if "between" in groups:
        recipes["group-measures"] = _measures(group_measure, tree, groups["between"].to_dataset())
    if "along/between" in groups:
        recipes["group-measures-by-step"] = _measures(group_measure_by_step, tree, groups["along/between"].to_dataset())
    return recipes


def _measures(plot: Callable[..., Axes], tree: xr.DataTree, between: xr.Dataset) -> Panels:
    """Return a panel for each headline measure, or for the first measure if there are no headlines."""
    names, first = between["measure"].values, between["headline"].values == 1
    options = [{"measure": name} for name in (names[first] if first.any() else names[:1]).tolist()]
    return Panels(plot, tree, options, 3, share_x=False, panel=3.6, title="")
