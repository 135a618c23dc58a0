"""Shares of W_QK that read the row space of W_Q, from the factors and their triangles."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped
from scipy.linalg import solve_triangular

_SINGULAR = 1e-10  # smallest ratio of the diagonal of a triangle with which the row space is known
_SINGLE = 1e-12  # smallest norm of rows, and the inverse of the largest, whose products are taken in float32


class KeyShares(NamedTuple):
    """Shares of each W_QK that read the row space of W_Q, of projector P; NaN where W_Q has no full rank."""

    share: Float[np.ndarray, "..."]  # ‖W_QK P‖²/‖W_QK‖²
    query_columns: Float[np.ndarray, "..."]  # Σ_j P_jj², with P taken as if the rows of W_Q were orthogonal
    # Σ_j of the squared share of ‖W_QK‖² in column j, with the same approximation
    key_columns: Float[np.ndarray, "..."]


def key_shares_of(
    w_q: Shaped[np.ndarray, "group member rank width"],
    w_k: Shaped[np.ndarray, "group one rank width"],
    r_q: Float[np.ndarray, "group member rank rows"],
    r_k: Float[np.ndarray, "group one rank rows"],
) -> KeyShares:
    """Measure how much of each W_QK reads the row space of W_Q.

    With W_Qᵀ = O R, P = O Oᵀ and W_QK P = O R (W_K O) Oᵀ, where W_K O = W_K W_Qᵀ R⁻¹.
    """
    shares = KeyShares(*(np.full(r_q.shape[:2], np.nan) for _ in KeyShares._fields))
    if r_q.shape[-2] < r_q.shape[-1]:  # more rows than columns
        return shares
    for place in np.ndindex(*r_q.shape[:2]):
        r, r_key = r_q[place], r_k[place[0], 0]
        diagonal = np.abs(np.diagonal(r))
        if not (diagonal.min() > _SINGULAR * diagonal.max() and r_key.any()):
            continue
        q, k = w_q[place], w_k[place[0], 0]
        scale_q, scale_k = np.abs(r).max(), np.abs(r_key).max()
        in_single = np.result_type(q, k, np.float32) == np.float32 and min(scale_q, scale_k) > _SINGLE
        dtype = np.float32 if in_single and max(scale_q, scale_k) < 1.0 / _SINGLE else np.float64
        q, k = q.astype(dtype) / dtype(scale_q), k.astype(dtype) / dtype(scale_k)
        r, r_key = r / scale_q, r_key / scale_k
        crossed = solve_triangular(r, q @ k.T, trans=1, check_finite=False)
        inside, norm = np.linalg.norm(r @ crossed.T), np.linalg.norm(r @ r_key.T)
        norms = np.sum(r * r, axis=0)
        of_query = (1.0 / norms) @ q**2
        of_key = norms @ k**2
        shares.share[place] = min((inside / norm) ** 2, 1.0)
        shares.query_columns[place] = np.sum(of_query**2)
        shares.key_columns[place] = np.sum((of_key / of_key.sum()) ** 2)
    return shares
