"""What one draw of W_Qᵀ W_K gives."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array
from jaxtyping import Float


class ProductDraw(NamedTuple):
    """One draw of W_Qᵀ W_K.

    Attributes:
        matrix: a matrix whose ``d_head`` largest singular values are those of W_Qᵀ W_K: (d_head, d_head) for the thin
            draw; (d_model, d_model), the product itself, for the dense one.
        norm_squared_q: ‖W_Q‖_F², from which a trained head's σ_Q would be estimated.
        norm_squared_k: ‖W_K‖_F².
    """

    matrix: Float[Array, "rows columns"]
    norm_squared_q: Float[Array, ""]
    norm_squared_k: Float[Array, ""]
