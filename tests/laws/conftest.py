"""An oracle for the laws that shares no code with them: Bartlett draws of W_QK in NumPy."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest


@cache
def draw_eigenvalues(d_model: int, d_head: int, draws: int) -> np.ndarray:
    """Eigenvalues of W_QK^T W_QK / d_model at sigma = 1, descending, shape (draws, d_head)."""
    rng = np.random.default_rng([d_model, d_head, draws])

    def factor() -> np.ndarray:
        lower = np.tril(rng.standard_normal((draws, d_head, d_head)), -1)
        index = np.arange(d_head)
        lower[:, index, index] = np.sqrt(rng.chisquare(d_model - index, size=(draws, d_head)))
        return lower

    core = np.swapaxes(factor(), 1, 2) @ factor()
    return np.linalg.svd(core, compute_uv=False) ** 2 / d_model


@pytest.fixture(scope="session")
def simulated():
    return draw_eigenvalues
