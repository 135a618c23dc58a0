"""Figures of signal and noise: learned directions, and exponents of heavy tails if these were computed."""

from __future__ import annotations

import xarray as xr

from rmtbase.drawing.layout import FigureRecipe, FigureStyle, Single
from rmtbase.results.signal.figures._learned_directions import groups_of_signal, learned_directions
from rmtbase.results.signal.figures._tail_exponents import tail_exponents


def figure_recipes(tree: xr.DataTree, style: FigureStyle) -> dict[str, FigureRecipe]:
    """Map the name of each figure of signal and noise to its recipe: each circuit, and whole matrices."""
    held = groups_of_signal(tree)
    directions = {
        f"directions-{what}": FigureRecipe(Single(learned_directions, style, tree, what=what)) for what in held
    }
    tails = {
        f"tails-{what}": FigureRecipe(Single(tail_exponents, style, tree, what=what))
        for what, group in held.items()
        if "tail_verdict" in group
    }
    return directions | tails
