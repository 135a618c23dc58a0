"""Heads with planted directions, a few lines of NumPy: nothing here comes from rmtbase."""

from collections.abc import Sequence
from functools import reduce
from itertools import pairwise

import numpy as np


def head(
    rng: np.random.Generator, dims: Sequence[int], strengths: Sequence[float]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw cores (k + h, h) with the singular values of noise and signal in W_QᵀW_K, and a core of W_Q, (h, k + h).

    W_Q = G + Σ_j θ_j a_j e_jᵀ with random orthonormal a_j: the first k of the d columns are kept; the other d - k, and
    W_K, are replaced by Bartlett factors, which have the same Gram matrices.
    """
    d_query, d_head, d_key = dims
    k = len(strengths)
    a = np.linalg.qr(rng.standard_normal((d_head, max(k, 1))))[0][:, :k]
    planted = np.hstack([a * strengths, np.zeros((d_head, d_head))])
    w_q = np.hstack([rng.standard_normal((d_head, k)), bartlett(rng, d_head, d_query - k)])
    w_k = bartlett(rng, d_head, d_key)
    return w_q.T @ w_k, planted.T @ w_k, w_q + planted


def aligned_head(rng: np.random.Generator, dims: Sequence[int], strength: float) -> np.ndarray:
    """Draw the core of a head with one direction learned by queries and keys alike: θ a uᵀ in W_Q and θ a vᵀ in W_K."""
    sides = []
    for d in dims[::2]:
        side = np.hstack([rng.standard_normal((dims[1], 1)), bartlett(rng, dims[1], d - 1)])
        side[0, 0] += strength  # a is the first direction of the head
        sides.append(side)
    return sides[0].T @ sides[1]


def chain(rng: np.random.Generator, dims: Sequence[int]) -> np.ndarray:
    """Draw a product of Gaussian matrices, X_1 of shape (n_0, n_1) and so on."""
    return reduce(np.matmul, (rng.standard_normal(shape) for shape in pairwise(dims)))


def bartlett(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Lower triangular L (rows, rows): L Lᵀ is a Wishart matrix of so many columns."""
    lower = np.tril(rng.standard_normal((rows, rows)), -1)
    lower[np.diag_indices(rows)] = np.sqrt(rng.chisquare(columns - np.arange(rows)))
    return lower
