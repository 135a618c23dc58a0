"""An oracle for the laws that shares no code with them: Bartlett draws of W_QK in NumPy."""

from functools import cache
from itertools import pairwise

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


@cache
def draw_chain(dims: tuple[int, ...], draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Nonzero eigenvalues of W^T W for dense W = X_1 ... X_L, shape (draws, rank), and prod_l sigma_hat_l^2 of each."""
    rng = np.random.default_rng([*dims, draws])
    rank, own = min(dims), np.ones(draws)
    narrowest = dims.index(rank)
    left, right = np.eye(dims[0])[None], np.eye(rank)[None]
    for level, (rows, columns) in enumerate(pairwise(dims)):
        factor = rng.standard_normal((draws, rows, columns))
        own = own * (factor**2).mean(axis=(1, 2))
        left, right = (left @ factor, right) if level < narrowest else (left, right @ factor)
    # W = left right has the singular values of the product of their triangular factors.
    upper, lower = np.linalg.qr(left, mode="r"), np.swapaxes(np.linalg.qr(np.swapaxes(right, 1, 2), mode="r"), 1, 2)
    return np.linalg.svd(upper @ lower, compute_uv=False) ** 2, own


@pytest.fixture(scope="session")
def simulated_chain():
    return draw_chain
