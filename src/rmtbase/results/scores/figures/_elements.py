"""Figures of the elements of heads and matrices, if a scores tree holds their statistics and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.drawing.axes import grid_of_axes, model_title, new_figure, symbol_of, titled
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import elements_of, matrices_of
from rmtbase.drawing.layout import NARROWEST, FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.results.scores.figures._element_histograms import head_density, head_density_heatmap, magnitude_heatmap
from rmtbase.results.scores.figures._statistic_by_layer import matrix_statistic_by_layer, statistic_by_layer
from rmtbase.results.scores.figures._statistic_scatter import moment_corner, statistic_scatter
from rmtbase.results.scores.figures._weibull_plane import body_and_tail, weibull_plane
from rmtbase.results.scores.figures._weibull_plot import tail_counts, trim_noise, weibull_plot, weibull_residuals
from rmtbase.results.scores.figures._width_by_layer import width_by_layer

_ROW = 0.055  # inches per row of a head
_BY_LAYER = ("sigma", "kl_matched_normal", "entropy_residual", "weibull_shape")
_WIDTHS = (
    ("width-and-entropy", ("entropy_residual",), "entropy"),
    ("width-and-divergence", ("core_sigma", "kl_matched_normal"), "kl_matched_normal"),
)
_LAWS = ("weibull_shape", "weibull_scale")


_GRIDS = (("", "log", "spread"), ("-linear", "linear", "spread"), ("-weights", "linear", "weight"))
"""Variants of the figures of a layer's heads: ending of the name, scale of densities, unit of the elements."""


def recipes_of_elements(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Return a drawing for each figure of elements, by name; empty if the file has no such groups."""
    recipes: dict[str, FigureRecipe] = {}
    if "matrices" in tree.children:
        recipes |= _of_matrices(tree, style)
    if "elements" in tree["heads"].children:
        recipes |= _of_heads(tree, style)
    return recipes


def _of_matrices(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    matrices, recipes = matrices_of(tree), {}
    held = matrices["statistic"].values.tolist()
    if not set(_LAWS) <= set(held):
        return {}
    recipes["weibull-by-layer"] = FigureRecipe(partial(_weibull_by_layer, tree, style, False))
    recipes["weibull-by-layer-published"] = FigureRecipe(partial(_weibull_by_layer, tree, style, True), standard=False)
    recipes["weibull-plane"] = FigureRecipe(Single(weibull_plane, style, tree), standard=False)
    recipes["trim-noise"] = FigureRecipe(Single(trim_noise, style, tree), standard=False)
    if "body_tail_gap" in held:
        recipes["body-and-tail"] = FigureRecipe(Single(body_and_tail, style, tree, 8.0), standard=False)
    if "log_magnitude_histogram" not in matrices:
        return recipes
    components = [str(one) for one in matrices["component"].values]
    recipes["magnitude-map"] = FigureRecipe(partial(_magnitude_maps, tree, components, style), standard=False)
    for component in components:
        fits = matrices["observed"].sel(component=component, statistic=list(_LAWS)).notnull().all("statistic")
        layers = matrices["layer"].values[fits.values].tolist()
        for layer in layers:
            draw = partial(_weibull_plots, tree, layer, component, style)
            recipes[f"weibull-plot-{component}-{layer}"] = FigureRecipe(draw, standard=False)
            tail = Single(tail_counts, style, tree, layer=layer, component=component)
            recipes[f"tail-{component}-{layer}"] = FigureRecipe(tail, standard=False)
    return recipes


def _of_heads(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    elements = elements_of(tree)
    components = [str(one) for one in elements["component"].values]
    held = elements["statistic"].values.tolist()
    recipes: dict[str, FigureRecipe] = {}
    for name, unit in (("head-density-map", "spread"), ("head-density-map-weights", "weight")):
        if "histogram" in elements and (unit == "spread" or "sigma" in elements):
            recipes[name] = FigureRecipe(partial(_density_maps, tree, components, unit, style), standard=False)
    shown = [name for name in _BY_LAYER if name in held or name in elements]
    for component in components if shown else ():
        draw = partial(_by_layer, tree, component, shown, style)
        recipes[f"elements-by-layer-{component}"] = FigureRecipe(draw, standard=False)
    for name, needed, beside in _WIDTHS:
        for component in components if set(needed) <= set(held) and "sigma" in elements else ():
            draw = partial(_widths, tree, beside, component, style)
            recipes[f"{name}-{component}"] = FigureRecipe(draw, standard=False)
    if "W_QK" in components and {"mean", "skewness", "excess_kurtosis"} <= set(held):
        theme, width = style
        recipes["moment-corner"] = FigureRecipe(partial(moment_corner, tree, theme=theme, width=width), standard=False)
    pairs = [("skewness", "excess_kurtosis"), ("sigma", "entropy_residual"), ("sigma", "kl_matched_normal")]
    pairs += [("sigma", "core_sigma")]
    pairs += [("sigma", "entropy")] if "entropy_residual" in held else []
    for x, y in pairs:
        if (y in held or y == "entropy") and (x in held or x in elements):
            name = f"scatter-{x}-{y}".replace("_", "-")
            recipes[name] = FigureRecipe(partial(_scatters, tree, x, y, components, style), standard=False)
    if "histogram" in elements:
        for component in components:
            there = elements["histogram"].sel(component=component).notnull().any("bin")
            for layer in elements["layer"].values[there.any("head").values].tolist():
                heads = there["head"].values[there.sel(layer=layer).values].tolist()
                for ending, scale, unit in _GRIDS:
                    if unit == "weight" and not ("sigma" in elements and "mean" in held):
                        continue
                    of = {"scale": scale, "unit": unit}
                    draw = partial(_density_grid, tree, component, layer, heads, of, style)
                    recipes[f"head-densities-{component}-{layer}{ending}"] = FigureRecipe(draw, standard=False)
    return recipes


def _weibull_by_layer(tree: xr.DataTree, style: FigureStyle, published: bool) -> ThemedFigure:
    options = {
        name: {"table": tree, "statistic": name, "published": published and name == "weibull_shape"} for name in _LAWS
    }
    plain = partial(matrix_statistic_by_layer, legend=False)
    figure = panels(plain, options, style, 2, share_y=False, height=3.8, title=model_title(tree))
    legend_of_all(figure, style.theme)
    return figure


def _by_layer(tree: xr.DataTree, component: str, names: Sequence[str], style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "statistic": name, "component": component} for name in names}
    plain = partial(statistic_by_layer, group="elements", legend=False)
    title = "\n".join(part for part in (model_title(tree), f"elements of {symbol_of(component)} of each head") if part)
    figure = panels(plain, options, style, 2, share_y=False, height=4.4, title=title)
    for ax in figure.axes:
        titled(ax, "", style.theme)
    legend_of_all(figure, style.theme, same=True)
    return figure


def _widths(tree: xr.DataTree, beside: str, component: str, style: FigureStyle) -> ThemedFigure:
    figure = Single(width_by_layer, style, tree, 8.0, beside=beside, component=component, legend=False)()
    legend_of_all(figure, style.theme)
    return figure


def _magnitude_maps(tree: xr.DataTree, components: Sequence[str], style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "component": name} for name in components}
    plain = partial(magnitude_heatmap, colorbar=False)
    figure = panels(plain, options, style, 4, share_y=True, height=2.7, title=model_title(tree), panel=3.4)
    MAGNITUDE_DENSITY.bar(figure.axes, style.theme)
    return figure


def _density_maps(tree: xr.DataTree, components: Sequence[str], unit: str, style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "component": name, "unit": unit} for name in components}
    first = elements_of(tree)["histogram"].isel(bin=0, component=0)
    rows = int(np.isfinite(first.values).sum())
    height = min(max(2.6, 1.2 + _ROW * rows), 8.0)
    plain = partial(head_density_heatmap, colorbar=False)
    figure = panels(plain, options, style, 3, share_y=False, height=height, title=model_title(tree), panel=3.6)
    DENSITY.bar(figure.axes, style.theme)
    return figure


def _scatters(tree: xr.DataTree, x: str, y: str, components: Sequence[str], style: FigureStyle) -> ThemedFigure:
    options = {name: {"table": tree, "x": x, "y": y, "component": name} for name in components}
    plain = partial(statistic_scatter, group="elements", legend=False)
    figure = panels(plain, options, style, 3, share_y=False, share_x=False, title=model_title(tree), panel=3.6)
    legend_of_all(figure, style.theme)
    return figure


def _density_grid(
    tree: xr.DataTree, component: str, layer: int, heads: Sequence[int], of: dict[str, Any], style: FigureStyle
) -> ThemedFigure:
    options = {str(head): {"table": tree, "layer": layer, "head": head, "component": component} for head in heads}
    plain = partial(head_density, legend=False, **of)
    figure = panels(plain, options, style, 4, share_y=True, height=2.2, title=model_title(tree), panel=2.7)
    what, _, _ = figure.axes[0].get_title().rpartition(" head ")
    _entitle(figure, style, model_title(tree), what)
    for ax, head in zip(figure.axes, options, strict=True):
        titled(ax, f"head {head}", style.theme)
        ax.set_ylabel("density" if ax.get_ylabel() else "")
        ax.set_xlabel(("element $w$" if of["unit"] == "weight" else r"$(w - \bar w)/s$") if ax.get_xlabel() else "")
    legend_of_all(figure, style.theme)
    return figure


def _weibull_plots(tree: xr.DataTree, layer: int, component: str, style: FigureStyle) -> ThemedFigure:
    """Draw the Weibull plot and its residuals, side by side or one below the other."""
    width = style.width or 9.6
    columns = 2 if width >= 2 * NARROWEST else 1
    figure = new_figure(style.theme, width, 4.0 if columns == 2 else 6.6, model_title(tree))
    grid = grid_of_axes(figure, style.theme, 2 // columns, columns)
    for ax, plot in zip(grid.flat, (weibull_plot, weibull_residuals), strict=True):
        plot(tree, layer, component, ax=ax, theme=style.theme, legend=False)
    title, _, fit = grid.flat[0].get_title().partition("\n")
    _entitle(figure, style, model_title(tree), title)
    titled(grid.flat[0], fit, style.theme)
    titled(grid.flat[1], "less the fit", style.theme)
    legend_of_all(figure, style.theme)
    return figure


def _entitle(figure: ThemedFigure, style: FigureStyle, *parts: str) -> None:
    """Give the figure the nonempty lines of its title."""
    size = style.theme.points("axes.titlesize")
    figure.suptitle("\n".join(part for part in parts if part), fontsize=size, color=style.theme.muted)
