"""Figures of the change between two checkpoints: its size, each head's share of it, and old directions in it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import LEVEL, Around, panel
from rmtbase.drawing.color_scales import CHANGE, RATIO, ColorScale, Z
from rmtbase.drawing.heatmaps import Cells, draw_layers
from rmtbase.drawing.layout import FigureRecipe, Panels
from rmtbase.drawing.texts import literal
from rmtbase.drawing.theme import Theme
from rmtbase.results.diff.schema import PRODUCTS
from rmtbase.tables import CIRCUITS, matrices_present

__all__ = ["figure_recipes"]


class _Map(NamedTuple):
    values: str  # variable of the cells
    q_value: str  # variable of the q-values that dots mark; empty if nothing is tested
    words: str  # what the cells are, in the title
    scale: ColorScale  # colour scale
    over: str = ""  # variable that the values are divided by


_SHARE = replace(RATIO, label="share of the change over that by chance")
_MAPS = {
    "size": _Map("relative_change", "", "size of the change", CHANGE),
    "share": _Map("share_head", "q_value_head", "share of each head", _SHARE, "expected_share_head"),
    **{item.name: _Map(f"relative_change_{item.name}", "", f"change of ${item.latex}$", CHANGE) for item in PRODUCTS},
    "in": _Map("z_score_in", "q_value_in", "old directions of the inputs", Z),
    "out": _Map("z_score_out", "q_value_out", "old directions of the outputs", Z),
}


@panel
def change_heatmap(
    ax: Axes, theme: Theme, tree: xr.DataTree, quantity: str = "size", component: str | None = None
) -> Around:
    """Draw the change of each matrix, or of each head's part of one matrix, layer 0 on top."""
    drawn, across = _MAPS[quantity], "head"
    if quantity in CIRCUITS:
        table = tree["heads"].to_dataset()
        present = np.asarray(table[drawn.values]) >= 0.0
    elif component is None:
        table, across = tree["matrices"].to_dataset(), "component"
        present = matrices_present(table)
    else:
        table = tree["heads"].to_dataset().sel(component=component)
        present = table["n_rows"].notnull().transpose("layer", "head").values
    cells = table[drawn.values] / table[drawn.over] if drawn.over else table[drawn.values]
    values = cells.transpose("layer", across).values
    flagged = table[drawn.q_value].transpose("layer", across).values < LEVEL if drawn.q_value else None
    marks = draw_layers(ax, theme, drawn.scale, Cells(values, flagged, np.isnan(values) & present), table, across)
    matrix = "" if component is None else f"{literal(component.replace('_', ' '))}, "
    return Around("\n".join([f"{matrix}{drawn.words}", *([marks] if marks else [])]), scale=drawn.scale)


def figure_recipes(tree: xr.DataTree) -> dict[str, FigureRecipe]:
    """Map the name of each figure of changes to its recipe; first the one that shows what the first sentence says."""
    heads = tree["heads"].to_dataset() if "heads" in tree.children else xr.Dataset()
    components = [str(name) for name in heads["component"].values] if "component" in heads else []
    has_shares = components if "share_head" in heads else []
    shares = [name for name in has_shares if heads["share_head"].sel(component=name).notnull().any()]
    products = [item.name for item in PRODUCTS if f"relative_change_{item.name}" in heads]
    options = {
        "changes-of-heads": [{"quantity": name} for name in products],
        "shares-of-heads": [{"quantity": "share", "component": name} for name in shares],
        "changes": [{"quantity": "size"}],
        "old-directions": [{"quantity": side} for side in ("in", "out")],
        "old-directions-of-heads": [
            {"quantity": "out" if name.endswith("output") else "in", "component": name} for name in components
        ],
    }
    height = float(np.clip(1.8 + 0.22 * tree["matrices"].sizes["layer"], 3.6, 9.0))
    layout = {"columns": 2, "share_x": False, "share_y": True, "height": height}
    return {
        name: Panels(change_heatmap, tree, maps, scale=_MAPS[maps[0]["quantity"]].scale, **layout)
        for name, maps in options.items()
        if maps
    }
