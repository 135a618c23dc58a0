"""Extreme eigenvalues of symmetric tridiagonal matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

Array = NDArray[np.float64]


def extreme_eigenvalues(main: Array, off: Array) -> tuple[Array, Array]:
    """Largest and smallest eigenvalue of each of a stack of symmetric tridiagonal matrices, by bisection.

    Args:
        main: diagonals, (n, size).
        off: off-diagonals, (n, size - 1).

    Returns:
        Two arrays of shape (n,). Absolute accuracy is that of the largest eigenvalue times the float64 precision.
    """
    size = main.shape[1]
    ends = np.array([[_one(m, o, size - 1), _one(m, o, 0)] for m, o in zip(main, off, strict=True)])
    return ends[:, 0], ends[:, 1]


def _one(main: Array, off: Array, place: int) -> float:
    if main.size == 1:
        return float(main[0])
    return float(eigvalsh_tridiagonal(main, off, select="i", select_range=(place, place))[0])
