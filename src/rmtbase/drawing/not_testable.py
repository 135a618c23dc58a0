"""Mark of what cannot be tested, off the maps: a grey cross."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from rmtbase.drawing.theme import Theme

NOT_TESTABLE = "not testable"
"""Name of the mark in legends."""


def cross_at_foot(ax: Axes, x: Float[np.ndarray, " place"], theme: Theme, size: float = 3.5) -> None:
    """Mark places along x with a grey cross at the lower end of the axes."""
    if x.size:
        ax.plot(
            x, np.full(x.size, 0.02), transform=ax.get_xaxis_transform(), linestyle="none", marker="x",
            markersize=size, color=theme.muted, markeredgewidth=0.9, label=NOT_TESTABLE,
        )  # fmt: skip
