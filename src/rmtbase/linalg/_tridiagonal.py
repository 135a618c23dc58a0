"""Extreme eigenvalues of symmetric tridiagonal matrices."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64
from scipy.linalg import eigvalsh_tridiagonal


def extreme_eigenvalues(
    main: Float64[np.ndarray, "matrix size"], off: Float64[np.ndarray, "matrix size_less_one"]
) -> tuple[Float64[np.ndarray, " matrix"], Float64[np.ndarray, " matrix"]]:
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


def _one(main: Float64[np.ndarray, " size"], off: Float64[np.ndarray, " size_less_one"], place: int) -> float:
    if main.size == 1:
        return float(main[0])
    return float(eigvalsh_tridiagonal(main, off, select="i", select_range=(place, place))[0])
