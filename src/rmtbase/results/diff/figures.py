"""Figures of the change between two checkpoints: along old directions, or along new ones."""

from __future__ import annotations

from functools import partial
from typing import Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from rmtbase.drawing.axes import LEVEL, literal, model_title, themed_axes
from rmtbase.drawing.color_scales import Z, z_colorbar
from rmtbase.drawing.figure import ThemedFigure
from rmtbase.drawing.heatmaps import draw_layers, finished_map
from rmtbase.drawing.layout import FigureRecipe, FigureStyle, panels
from rmtbase.drawing.theme import Theme
from rmtbase.errors import ParameterError
from rmtbase.tables import matrices_present

_SIDES = {"in": "inputs", "out": "outputs"}


def change_heatmap(
    tree: xr.DataTree,
    side: Literal["in", "out"] = "in",
    component: str | None = None,
    level: float = LEVEL,
    *,
    ax: Axes | None = None,
    theme: Theme | str = "light",
    colorbar: bool = True,
) -> Axes:
    """Draw how far each change's share along old directions is above that of a random rotation, as a z-score.

    Args:
        tree: the tree of ``rmtbase.results.diff.diff``.
        side: ``"in"``, old directions of the inputs, or ``"out"``, of the outputs.
        component: a matrix of heads, for example ``"attention_query"``, drawn by head; whole matrices if None.
        level: changes with a q-value below it carry a dot.
        ax: where to draw; new axes if None.
        theme: colours, or their name.
        colorbar: whether to draw one beside the axes.

    Returns:
        The axes: component or head against layer, layer 0 on top.

    Raises:
        ParameterError: the tree is not of changes, or has no such side or component.
    """
    if not isinstance(tree, xr.DataTree) or tree.attrs.get("kind") != "changes":
        raise ParameterError("tree", type(tree).__name__, "changes, as rmtbase.results.diff.diff makes them")
    if side not in _SIDES:
        raise ParameterError("side", side, f"one of {', '.join(_SIDES)}")
    ax, theme = themed_axes(ax, theme, tree)
    if component is None:
        table, across = tree["matrices"].to_dataset(), "component"
        there = matrices_present(table)
    else:
        held = _of_heads(tree)
        if component not in held:
            raise ParameterError("component", component, f"one of {', '.join(held) or 'none: it has no heads'}")
        table, across = tree["heads"].to_dataset().sel(component=component), "head"
        there = table["n_rows"].notnull().transpose("layer", "head").values
    z, q = (table[f"{name}_{side}"].transpose("layer", across).values for name in ("z_score", "q_value"))
    marks = draw_layers(ax, z, q < level, there, Z, table, across, level, theme)
    what = "" if component is None else f"{literal(component.replace('_', ' '))}, "
    return finished_map(ax, theme, f"{what}old directions of the {_SIDES[side]}\n{marks}", Z, colorbar)


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Map the name of each figure of changes to its recipe: matrices, and heads on the residual stream's side."""
    sides = {side: {"table": tree, "side": side} for side in _SIDES}
    found = {"changes": FigureRecipe(partial(_maps, tree, sides, style))}
    if heads := _of_heads(tree):
        of_heads = {
            name: {"table": tree, "side": "out" if name.endswith("output") else "in", "component": name}
            for name in heads
        }
        found["changes-of-heads"] = FigureRecipe(partial(_maps, tree, of_heads, style))
    return found


def _maps(tree: xr.DataTree, options: dict[str, dict], style: FigureStyle) -> ThemedFigure:
    plot = partial(change_heatmap, colorbar=False)
    layers = tree["matrices"].sizes["layer"]
    height = float(np.clip(1.8 + 0.22 * layers, 3.6, 9.0))
    figure = panels(plot, options, style, 2, share_y=True, height=height, title=model_title(tree), share_x=False)
    z_colorbar(figure.axes, style.theme)
    return figure


def _of_heads(tree: xr.DataTree) -> list[str]:
    return [str(one) for one in tree["heads"].to_dataset()["component"].values] if "heads" in tree.children else []
