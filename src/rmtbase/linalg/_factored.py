"""W_QK = W_Qᵀ W_K through its small core: the d × d matrix is never formed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmtbase.linalg._solver import singular_values


def product_core(w_q: ArrayLike, w_k: ArrayLike) -> NDArray[np.float64]:
    """The core ``(..., d_head, d_head)`` of W_Qᵀ W_K for factors of shape ``(..., d_head, d_model)``.

    With the thin factorisations W_Qᵀ = O_Q R_Q and W_Kᵀ = O_K R_K (orthonormal columns),
    W_Qᵀ W_K = O_Q (R_Q R_Kᵀ) O_Kᵀ: the core R_Q R_Kᵀ has exactly the structurally nonzero singular values of the
    product. Orthogonal factorisation in float64, rather than a Gram matrix, keeps all the digits of the smallest.
    """
    return core_of_triangles(triangle(w_q), triangle(w_k))


def core_of_triangles(r_q: NDArray[np.float64], r_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """The core R_Q R_Kᵀ from the two triangles."""
    return r_q @ np.swapaxes(r_k, -1, -2)


def product_singular_values(w_q: ArrayLike, w_k: ArrayLike) -> NDArray[np.float64]:
    """The ``d_head`` structurally nonzero singular values of W_Qᵀ W_K, descending.

    Args:
        w_q: query factors of shape ``(..., d_head, d_model)``, so that q = W_Q x.
        w_k: key factors of the same shape; leading axes broadcast.

    Returns:
        Array of shape ``(..., min(d_head, d_model))``. The d_model - d_head structural zeros of the full matrix are
        never computed, so that no rounding noise stands in for them.
    """
    return core_singular_values(product_core(w_q, w_k))


def core_singular_values(core: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values (..., h) of cores (..., h, h), descending, with those below their own rounding error set to zero.

    A value under h ε s_1 (ε of float64) is the noise of the factorisation: it stands for an exact zero.
    """
    return without_noise(singular_values(core))


def without_noise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values (..., h) of h × h matrices, descending, with those up to h ε s_1 set to zero."""
    noise = values[..., :1] * (values.shape[-1] * np.finfo(np.float64).eps)
    return np.where(values > noise, values, 0.0)


def triangle(factor: ArrayLike) -> NDArray[np.float64]:
    """R (..., d_head, d_head) of the thin factorisation Wᵀ = O R, for W of shape (..., d_head, d_model), in float64.

    What a key head that several query heads read need give only once.
    """
    columns = np.swapaxes(np.asarray(factor, dtype=np.float64), -1, -2)
    return np.asarray(np.linalg.qr(columns, mode="r"), dtype=np.float64)
