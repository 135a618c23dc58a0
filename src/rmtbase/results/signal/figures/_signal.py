"""Figures of signal and noise: learned directions, and exponents of heavy tails if these were computed."""

from __future__ import annotations

import xarray as xr

from rmtbase.drawing.layout import Drawing, Look, Single
from rmtbase.results.signal.figures._learned_directions import groups_of_signal, learned_directions
from rmtbase.results.signal.figures._tail_exponents import tail_exponents


def drawings(tree: xr.DataTree, look: Look) -> dict[str, Drawing]:
    """Map the name of each figure of signal and noise to its drawing: each circuit, and whole matrices."""
    held = groups_of_signal(tree)
    directions = {f"directions-{what}": Drawing(Single(learned_directions, look, tree, what=what)) for what in held}
    tails = {
        f"tails-{what}": Drawing(Single(tail_exponents, look, tree, what=what))
        for what, group in held.items()
        if "tail_verdict" in group
    }
    return directions | tails
