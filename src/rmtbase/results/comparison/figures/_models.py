"""Figures that compare models: shapes of components, drifts between models, differing pairs, and scales."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.axes import LEVEL, LINE_STYLES, MARKERS, NORMAL_95, finished, literal, own_axes, symbol_of, titled
from rmtbase.drawing.color_scales import Q
from rmtbase.drawing.not_testable import NOT_TESTABLE, hatch_cells
from rmtbase.drawing.theme import Theme, as_theme
from rmtbase.errors import ParameterError
from rmtbase.results.scores.figures import draw_published_band

_LONGEST = 24  # most characters of a model's name on an axis


def component_shapes(
    comparison: xr.DataTree,
    published: bool = False,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the median Weibull shape of each component of every model, with the 95 % range of untrained weights.

    Args:
        comparison: a comparison tree.
        published: whether to draw the published band of shapes as well,
            :data:`rmtbase.results.scores.figures.PUBLISHED_BAND`.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        legend: whether to draw a legend below the axes.

    Returns:
        The axes: component against k̂; the bar behind each mark is its null.

    Raises:
        ParameterError: it is not a comparison of models whose matrices were scored.
    """
    table = comparison_group(comparison, "components", "shape")
    theme = as_theme(theme)
    ax = own_axes(ax, theme, comparison)
    if published:
        draw_published_band(ax, theme)
    mean, spread = table["shape_null_mean"], NORMAL_95 * table["shape_null_std"]
    label, wide = "null, 95 % of each median", float(np.clip(60 / table["shape"].size, 1.5, 7.0))
    for one in _beside(table, "model", theme):
        ends = [(mean + sign * spread).sel(model=one.name).values for sign in (-1, 1)]
        one.bars(ax, table["shape"], ends, color=theme.null, alpha=0.5, linewidth=wide, label=label)
        one.marks(ax, table["shape"], theme, markersize=5, label=literal(one.name, _LONGEST))
        label = ""
    _names(ax, [symbol_of(str(one)) for one in table["component"].values])
    ax.set_ylabel(r"median Weibull shape $\hat k$")
    return finished(ax, theme, "", legend)


def shape_drifts(
    comparison: xr.DataTree,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the mean change of the Weibull shape of each component from the first model of a pair to the second.

    Arguments as in :func:`component_shapes`. The bars are ± 1.96 standard errors for untrained weights.

    Returns:
        The axes: component against the change of k̂.

    Raises:
        ParameterError: it is not a comparison of models of equal sizes whose matrices were scored.
    """
    table = comparison_group(comparison, "drifts", "drift")
    theme = as_theme(theme)
    ax = own_axes(ax, theme, comparison)
    ax.axhline(0.0, color=theme.null, linewidth=1.2, label="no change")
    drift, error = table["drift"], NORMAL_95 * table["standard_error"]
    for one in _beside(table, "pair", theme):
        ends = [(drift + sign * error).sel(pair=one.name).values for sign in (-1, 1)]
        one.bars(ax, drift, ends, color=one.colour, linestyle=one.style, linewidth=1.1)
        one.marks(ax, drift, theme, markersize=4.5, label=literal(one.name, 2 * _LONGEST))
    _names(ax, [symbol_of(str(one)) for one in table["component"].values])
    ax.set_ylabel(r"change of $\hat k$, ± 95 %")
    return finished(ax, theme, "", legend)


def pair_heatmap(
    comparison: xr.DataTree,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw the q-values of pairs of models, by all statistics of their heads together; a cross marks duplicates.

    Args:
        comparison: a comparison tree.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw a colour bar beside the axes.

    Returns:
        The axes: one model against the other. Colours change at the same q-values as in all figures.

    Raises:
        ParameterError: it is not a comparison.
    """
    table = comparison_group(comparison, "pairs", "omnibus_q_value")
    models = comparison_group(comparison, "models", "name")["model"].values.tolist()
    q, duplicate = np.full((len(models), len(models)), np.nan), np.zeros((len(models), len(models)), dtype=bool)
    for k, ends in enumerate(zip(table["first"].values.tolist(), table["second"].values.tolist(), strict=True)):
        if set(ends) <= set(models):
            row, column = (models.index(one) for one in ends)
            q[row, column] = q[column, row] = table["omnibus_q_value"].values[k]
            duplicate[row, column] = duplicate[column, row] = bool(table["duplicate"].values[k])
    theme = as_theme(theme)
    ax = own_axes(ax, theme, comparison)
    cmap, norm = Q.of(theme)
    with np.errstate(divide="ignore"):
        cells = np.ma.masked_where(np.isnan(q), Q.on_scale(q))
    edges = np.arange(len(models) + 1) - 0.5
    ax.pcolormesh(edges, edges, cells, cmap=cmap, norm=norm, linewidth=0)
    untested = np.isnan(q) & ~np.eye(len(models), dtype=bool)
    hatch_cells(ax, untested, theme)
    y, x = np.nonzero(q < LEVEL)
    ax.plot(x, y, linestyle="none", marker="o", markersize=4, markerfacecolor=theme.surface, markeredgecolor=theme.text)
    y, x = np.nonzero(duplicate)
    ax.plot(x, y, linestyle="none", marker="x", markersize=6, color=theme.text)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    names = [literal(one, _LONGEST) for one in models]
    ax.set_xticks(range(len(models)), names, rotation=90 if max(map(len, names)) > 4 else 0)
    ax.set_yticks(range(len(models)), names)
    ax.set(xlim=(-0.5, len(models) - 0.5), ylim=(len(models) - 0.5, -0.5), xlabel="model", ylabel="model")
    crosses = "; cross: the same weights" if duplicate.any() else ""
    crosses += f"; hatched: {NOT_TESTABLE}" if untested.any() else ""
    titled(ax, f"heads of two models, all statistics together\ndot: q < {LEVEL:g}{crosses}", theme)
    if colorbar:
        Q.bar(ax, theme)
    return ax


def scale_law(
    comparison: xr.DataTree,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    legend: bool = True,
) -> Axes:
    """Draw the Weibull scale of each model against √(η/λ_wd), with the line through the origin and published models.

    Arguments as in :func:`component_shapes`.

    Returns:
        The axes: √(η/λ_wd) against λ̂, the mean over the Transmission Class.

    Raises:
        ParameterError: it is not a comparison of models with known scales and training settings.
    """
    table = comparison_group(comparison, "models", "transmission_scale")
    root, scale = table["root"].values, table["transmission_scale"].values
    there = np.isfinite(root) & np.isfinite(scale)
    if not there.any():
        raise ParameterError("comparison", "no model's learning rate and weight decay", "those of one at least")
    theme = as_theme(theme)
    ax = own_axes(ax, theme, comparison)
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
    ax.set(xlabel=r"$\sqrt{\eta / \lambda_\mathrm{wd}}$", ylabel=r"mean Weibull scale $\hat\lambda$")
    return finished(ax, theme, "", legend)


def comparison_group(comparison: xr.DataTree, name: str, variable: str) -> xr.Dataset:
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
