"""Scales as exact rationals, and their doubles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def variance_factor(dims: Sequence[int], sigmas: Sequence[float], normalization: str) -> Fraction:
    """Return, exactly, what multiplies the eigenvalues of the σ = 1, raw chain.

    It is Π σ_l², divided by n_0 for ``sqrt_d``, which divides the product by √n_0.
    """
    factor = math.prod((Fraction(sigma) ** 2 for sigma in sigmas), start=Fraction(1))
    return factor / dims[0] if normalization == "sqrt_d" else factor


def as_float(value: Fraction) -> float:
    """Return the nearest double, ∞ where the value is too large."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
