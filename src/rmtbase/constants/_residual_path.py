"""Edges of residual-path products P_L = Π_{l≤L} (I + (σ/√d) G_l): eigenvalues of PPᵀ, d → ∞."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mpmath import mp

from rmtbase.constants._digits import Number


def _continuum_edge(side: int) -> Number:
    """(1 + t ± √(t² + 2t)) exp(± √(t² + 2t)) at t = 1, for σ² = t/L and L → ∞ (free Brownian motion)."""
    root = side * mp.sqrt(3)
    return (2 + root) * mp.exp(root)


CONSTANTS: dict[str, Callable[[], Number]] = {
    "residual_path_upper_edge": lambda: mp.mpf(27) / 4,
    "residual_path_continuum_upper_edge": partial(_continuum_edge, +1),
    "residual_path_continuum_lower_edge": partial(_continuum_edge, -1),
    "residual_path_continuum_participation_ratio": lambda: mp.mpf(1) / 3,  # m_1²/m_2 = 1/(1 + 2t)
}
