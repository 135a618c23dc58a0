"""The figures of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single, legend_of_all, panels
from rmtbase.results.comparison.figures._group_measures import group_measure, group_measure_by_step
from rmtbase.results.comparison.figures._models import component_shapes, pair_heatmap, scale_law, shape_drifts


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
