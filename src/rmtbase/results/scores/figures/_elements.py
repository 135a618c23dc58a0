"""Figures of the elements of heads and matrices, if a scores tree holds their statistics and histograms."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.drawing.axes import model_title, symbol_of
from rmtbase.drawing.color_scales import DENSITY, MAGNITUDE_DENSITY
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.groups import elements_of, matrices_of
from rmtbase.drawing.layout import Custom, FigureRecipe, FigureStyle, Panels, Single, legend_of_all
from rmtbase.results.scores.figures._element_histograms import head_density, head_density_heatmap, magnitude_heatmap
from rmtbase.results.scores.figures._statistic_by_layer import matrix_statistic_by_layer, statistic_by_layer
from rmtbase.results.scores.figures._statistic_scatter import moment_corner, statistic_scatter
from rmtbase.results.scores.figures._weibull_plot import tail_counts, weibull_and_residuals, weibull_plane
from rmtbase.results.scores.figures._width_by_layer import width_by_layer
from rmtbase.tables import layer_numbers

_ROW = 0.055  # inches per row of a head
_BY_LAYER = ("sigma", "kl_matched_normal", "entropy_residual", "weibull_shape")
_WIDTHS = (
    ("width-and-entropy", {"entropy_residual", "sigma"}, "entropy"),
    ("width-and-divergence", {"core_sigma", "kl_matched_normal", "sigma"}, "kl_matched_normal"),
)
_PAIRS = (
    ("skewness", "excess_kurtosis", {"skewness", "excess_kurtosis"}),
    ("sigma", "entropy_residual", {"sigma", "entropy_residual"}),
    ("sigma", "kl_matched_normal", {"sigma", "kl_matched_normal"}),
    ("sigma", "core_sigma", {"sigma", "core_sigma"}),
    ("sigma", "entropy", {"sigma", "entropy_residual"}),
)
"""Statistics of scatter plots, x and y, with what they need."""

_LAWS = ("weibull_shape", "weibull_scale")
_GRIDS = (("", "log"), ("-linear", "linear"), ("-weights", "weights"))
"""Variants of the figures of a layer's heads: ending of the name, and scale."""


def recipes_of_elements(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Return a recipe of each figure of elements, by name; empty if the file has no such groups."""
    recipes = _of_matrices(tree) if "matrices" in tree.children else {}
    return recipes | (_of_heads(tree) if "elements" in tree["heads"].children else {})


def _of_matrices(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    matrices = matrices_of(tree)
    if not set(_LAWS) <= set(matrices["statistic"].values):
        return {}
    shape, scale = ({"statistic": name} for name in _LAWS)
    layout = {"columns": 2, "height": 3.8}
    published = [shape | {"published": True}, scale]
    recipes: dict[str, FigureRecipe] = {
        "weibull-by-layer": Panels(matrix_statistic_by_layer, tree, [shape, scale], **layout),
        "weibull-by-layer-published": Panels(matrix_statistic_by_layer, tree, published, **layout, standard=False),
        "weibull-plane": Single(weibull_plane, tree, standard=False),
    }
    if "log_magnitude_histogram" not in matrices:
        return recipes
    components = matrices["component"].values.tolist()
    maps = {"columns": 4, "share_y": True, "height": 2.7, "panel": 3.4, "scale": MAGNITUDE_DENSITY}
    options = [{"component": name} for name in components]
    recipes["magnitude-map"] = Panels(magnitude_heatmap, tree, options, **maps, standard=False)
    for component in components:
        fits = matrices["observed"].sel(component=component, statistic=list(_LAWS)).notnull().all("statistic")
        for layer in matrices["layer"].values[fits.values].tolist():
            place = {"layer": layer, "component": component}
            plot = Custom(partial(weibull_and_residuals, tree, **place), standard=False)
            recipes[f"weibull-plot-{component}-{layer}"] = plot
            recipes[f"tail-{component}-{layer}"] = Single(tail_counts, tree, place, standard=False)
    return recipes


def _of_heads(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    elements = elements_of(tree)
    components = elements["component"].values.tolist()
    statistics = {*elements["statistic"].values.tolist(), *(["sigma"] if "sigma" in elements else [])}
    options = [{"component": name} for name in components]
    recipes: dict[str, FigureRecipe] = {}
    if "histogram" in elements:
        rows = int(elements["histogram"].isel(bin=0, component=0).notnull().sum())
        maps = {"columns": 3, "height": min(max(2.6, 1.2 + _ROW * rows), 8.0), "panel": 3.6, "scale": DENSITY}
        for ending, unit in (("", "spread"), ("-weights", "weight")):
            if unit == "spread" or "sigma" in statistics:
                panels = [of_one | {"unit": unit} for of_one in options]
                recipes[f"head-density-map{ending}"] = Panels(
                    head_density_heatmap, tree, panels, **maps, standard=False
                )
    shown = [name for name in _BY_LAYER if name in statistics]
    for component in components if shown else ():
        panels = [{"statistic": name, "group": "elements", "component": component} for name in shown]
        title = "\n".join(filter(None, [model_title(tree), f"elements of {symbol_of(component)} of each head"]))
        recipes[f"elements-by-layer-{component}"] = Panels(
            statistic_by_layer, tree, panels, 2, height=4.4, join=True, title=title, standard=False
        )
    for name, needed, beside in _WIDTHS:
        for component in components if needed <= statistics else ():
            draw = partial(_width, tree, {"beside": beside, "component": component, "legend": False})
            recipes[f"{name}-{component}"] = Custom(draw, standard=False)
    if "W_QK" in components and {"mean", "skewness", "excess_kurtosis"} <= statistics:
        recipes["moment-corner"] = Custom(partial(moment_corner, tree), standard=False)
    for x, y, needed in _PAIRS:
        if needed <= statistics:
            panels = [{"x": x, "y": y, "component": name} for name in components]
            scatter = Panels(statistic_scatter, tree, panels, 3, share_x=False, panel=3.6, standard=False)
            recipes[f"scatter-{x}-{y}".replace("_", "-")] = scatter
    for component in components if "histogram" in elements else ():
        present = elements["histogram"].sel(component=component).notnull().any("bin").transpose("layer", "head")
        for place in np.flatnonzero(present.any("head").values).tolist():
            layer, heads = int(elements["layer"][place]), elements["head"].values[present.values[place]].tolist()
            title = f"{symbol_of(component)}, layer {layer_numbers(elements)[place]}"
            for ending, scale in _GRIDS:
                if scale == "weights" and not {"sigma", "mean"} <= statistics:
                    continue
                shared = {"layer": layer, "component": component, "scale": scale}
                recipes[f"head-densities-{component}-{layer}{ending}"] = Panels(
                    head_density, tree, [shared | {"head": head} for head in heads], 4, share_y=True, height=2.2,
                    panel=2.7, title="\n".join(filter(None, [model_title(tree), title])), standard=False,
                )  # fmt: skip
    return recipes


def _width(tree: xr.DataTree, options: Mapping[str, Any], style: FigureStyle) -> ThemedFigure:
    figure = Single(width_by_layer, tree, options, width=8.0)(style)
    legend_of_all(figure, style.theme)
    return figure
