"""Sums over an arithmetic progression by a few terms."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.linalg import eigh_tridiagonal

from rmtbase.laws._arrays import FloatArray

_NODES = 10


def progression_rule(count: int, distance: float) -> tuple[FloatArray, FloatArray]:
    """Return (nodes, weights) with Σ_{k < count} f(k) = weights @ f(nodes), to rounding.

    For f analytic but on k ≤ -distance, distance ≥ 0: blocks no longer than their distance from there are summed by
    Gauss's rule of the discrete uniform law (Gram's polynomials), which converges as (3 + sqrt 8)^(-2 nodes) or faster.

    Args:
        count: number of terms.
        distance: of the singularities from the first term.
    """
    nodes, weights, start = [], [], 0
    while start < count:
        length = min(max(_NODES, int(distance + start)), count - start)
        block_nodes, block_weights = _gauss_rule(length)
        nodes.append(start + block_nodes)
        weights.append(block_weights)
        start += length
    return np.concatenate(nodes), np.concatenate(weights)


@cache
def _gauss_rule(length: int) -> tuple[FloatArray, FloatArray]:
    """Gauss's rule for the sum over 0, ..., length - 1; the sum itself where that is as short."""
    if length <= _NODES:
        return np.arange(length, dtype=np.float64), np.ones(length)
    k = np.arange(1.0, _NODES)
    off_diagonal = 0.5 * k * np.sqrt((length**2 - k**2) / (4.0 * k**2 - 1.0))
    nodes, vectors = eigh_tridiagonal(np.full(_NODES, 0.5 * (length - 1)), off_diagonal)
    return nodes, length * vectors[0] ** 2
