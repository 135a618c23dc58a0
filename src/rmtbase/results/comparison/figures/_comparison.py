"""The figures of a comparison."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.layout import Drawing, Look, Single, legend_of_all, panels
from rmtbase.drawing.picture import Picture
from rmtbase.results.comparison.figures._group_measures import group_measure, group_measure_by_step
from rmtbase.results.comparison.figures._models import component_shapes, pair_heatmap, scale_law, shape_drifts


def drawings(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Return the figures of a comparison by name, for every group that it has."""
    drawings: dict[str, Drawing] = {}
    models, held = tree["models"].to_dataset(), dict(tree.subtree_with_keys)
    if tree["pairs"].sizes["pair"] if "pairs" in tree.children else 0:
        height = 2.4 + 0.3 * models.sizes["model"]
        drawings["pairs"] = Drawing(Single(pair_heatmap, look, tree, 5.6, height=height))
    if "components" in tree.children:
        drawings["component-shapes"] = Drawing(Single(component_shapes, look, tree, 8.0))
        published = Single(component_shapes, look, tree, 8.0, published=True)
        drawings["component-shapes-published"] = Drawing(published, standard=False)
    if "drifts" in tree.children:
        drawings["shape-drifts"] = Drawing(Single(shape_drifts, look, tree, 8.0), standard=False)
    if "transmission_scale" in models and np.isfinite((models["root"] * models["transmission_scale"]).values).any():
        drawings["scale-law"] = Drawing(Single(scale_law, look, tree))
    if "between" in held:
        drawings["group-measures"] = Drawing(partial(_measures, tree, held["between"], look, group_measure))
    if "along/between" in held:
        by_step = partial(group_measure_by_step, legend=False)
        drawings["group-measures-by-step"] = Drawing(partial(_measures, tree, held["along/between"], look, by_step))
    return drawings


def _measures(tree: xr.DataTree, between: xr.DataTree, look: Look, plot: Callable[..., Axes]) -> Picture:
    """Draw a panel for each headline measure, or for the first measure if there are no headlines."""
    table = between.to_dataset()
    names, first = table["measure"].values, table["headline"].values == 1
    options = {name: {"table": tree, "measure": name} for name in (names[first] if first.any() else names[:1]).tolist()}
    figure = panels(plot, options, look, 3, share_y=False, share_x=False, panel=3.6)
    legend_of_all(figure, look.theme)
    return figure
