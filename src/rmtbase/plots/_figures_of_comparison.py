"""The figures of a comparison."""

from __future__ import annotations

from functools import partial

import numpy as np
import xarray as xr

from rmtbase.plots._comparison import component_shapes, pair_heatmap, scale_law, shape_drifts
from rmtbase.plots._layout import Drawing, Look, single


def drawings_of_comparison(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """What draws each picture of a comparison, by name: of each group that it has."""
    drawings: dict[str, Drawing] = {}
    models = tree["models"].to_dataset()
    if tree["pairs"].sizes["pair"] if "pairs" in tree.children else 0:
        height = 2.4 + 0.3 * models.sizes["model"]
        drawings["pairs"] = Drawing(partial(single, pair_heatmap, look, tree, 5.6, height=height))
    if "components" in tree.children:
        drawings["component-shapes"] = Drawing(partial(single, component_shapes, look, tree, 8.0))
        published = partial(single, component_shapes, look, tree, 8.0, published=True)
        drawings["component-shapes-published"] = Drawing(published, standard=False)
    if "drifts" in tree.children:
        drawings["shape-drifts"] = Drawing(partial(single, shape_drifts, look, tree, 8.0), standard=False)
    if "transmission_scale" in models and np.isfinite((models["root"] * models["transmission_scale"]).values).any():
        drawings["scale-law"] = Drawing(partial(single, scale_law, look, tree))
    return drawings
