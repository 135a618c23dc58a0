"""Figures of the change between two checkpoints: its size, each head's share of it, and old directions in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import LEVEL, literal, model_title, panel
from rmtbase.drawing.color_scales import CHANGE, RATIO, ColorScale, Z
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.heatmaps import draw_layers, finished_map
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, panels
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.results.diff.schema import PRODUCTS
from rmtbase.tables import CIRCUITS, matrices_present


class _Map(NamedTuple):
    """Quantity of a heat map of changes."""

    values: str  # variable of the cells
    q_value: str  # variable of the q-values that dots mark; empty if nothing is tested
    words: str  # what the cells are, in the title
    scale: ColorScale  # colour scale
    over: str = ""  # variable that the values are divided by


_SHARE = replace(RATIO, label="share of the change over that by chance")
_MAPS = {
    "size": _Map("relative_change", "", "size of the change", CHANGE),
    "share": _Map("share_head", "q_value_head", "share of each head", _SHARE, "expected_share_head"),
    **{one.name: _Map(f"relative_change_{one.name}", "", f"change of ${one.latex}$", CHANGE) for one in PRODUCTS},
    "in": _Map("z_score_in", "q_value_in", "old directions of the inputs", Z),
    "out": _Map("z_score_out", "q_value_out", "old directions of the outputs", Z),
}


@panel
def change_heatmap(
    ax: Axes,
    theme: Theme,
    tree: xr.DataTree,
    quantity: Literal["size", "share", "in", "out", "qk", "ov"] = "size",
    component: str | None = None,
    level: float = LEVEL,
    *,
    colorbar: bool = True,
) -> Axes:
    """Draw the change of each matrix, or of each head's part of one matrix.

    The axes: component or head against layer, layer 0 on top.
    """
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("kind") != "changes":
        raise ParameterError("tree", type(tree).__name__, "changes, as rmtbase.results.diff.diff makes them")
    if quantity not in _MAPS:
        raise ParameterError("quantity", quantity, f"one of {', '.join(_MAPS)}")
    drawn = _MAPS[quantity]
    if quantity in CIRCUITS:
        table, across = tree["heads"].to_dataset() if "heads" in tree.children else xr.Dataset(), "head"
        there = np.asarray(table.get(drawn.values, np.zeros(()))) >= 0.0
    elif component is None:
        table, across = tree["matrices"].to_dataset(), "component"
        there = matrices_present(table)
    else:
        held = _of_heads(tree)
        if component not in held:
            raise ParameterError("component", component, f"one of {', '.join(held) or 'none: it has no heads'}")
        table, across = tree["heads"].to_dataset().sel(component=component), "head"
        there = table["n_rows"].notnull().transpose("layer", "head").values
    if drawn.values not in table:
        raise ParameterError(
            "quantity", quantity, "one that the tree has: shares and products are of heads, and of files that have them"
        )
    cells = table[drawn.values] / table[drawn.over] if drawn.over else table[drawn.values]
    values = cells.transpose("layer", across).values
    tested = bool(drawn.q_value)
    flagged = table[drawn.q_value].transpose("layer", across).values < level if tested else np.zeros_like(there)
    marks = draw_layers(ax, values, flagged, there, drawn.scale, table, across, level if tested else None, theme)
    what = "" if component is None else f"{literal(component.replace('_', ' '))}, "
    return finished_map(ax, theme, f"{what}{drawn.words}" + f"\n{marks}" * bool(marks), drawn.scale, colorbar)


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Map the name of each figure of changes to its recipe; first the one that shows what the first sentence says."""
    of_heads = _of_heads(tree)
    sides: dict[str, Any] = {name: "out" if name.endswith("output") else "in" for name in of_heads}
    shares = tree["heads"]["share_head"] if of_heads and "share_head" in tree["heads"] else None
    changed = [] if shares is None else [name for name in of_heads if shares.sel(component=name).notnull().any()]
    products = [one.name for one in PRODUCTS if of_heads and f"relative_change_{one.name}" in tree["heads"]]
    found = {
        "changes-of-heads": [{"quantity": name} for name in products],
        "shares-of-heads": [{"quantity": "share", "component": name} for name in changed],
        "changes": [{"quantity": "size"}],
        "old-directions": [{"quantity": side} for side in ("in", "out")],
        "old-directions-of-heads": [{"quantity": side, "component": name} for name, side in sides.items()],
    }
    return {name: FigureRecipe(partial(_maps, tree, each, style)) for name, each in found.items() if each}


def _maps(tree: xr.DataTree, options: Sequence[dict[str, Any]], style: FigureStyle) -> ThemedFigure:
    plot = partial(change_heatmap, colorbar=False)
    layers = tree["matrices"].sizes["layer"]
    height = float(np.clip(1.8 + 0.22 * layers, 3.6, 9.0))
    named = {str(number): {"table": tree, **each} for number, each in enumerate(options)}
    figure = panels(plot, named, style, 2, share_y=True, height=height, title=model_title(tree), share_x=False)
    _MAPS[options[0]["quantity"]].scale.bar(figure.axes, style.theme)
    return figure


def _of_heads(tree: xr.DataTree) -> list[str]:
    return [str(one) for one in tree["heads"].to_dataset()["component"].values] if "heads" in tree.children else []
