"""W_QK = W_Qᵀ W_K with standard normal factors, drawn as the matrix itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Key

from rmtbase.ensembles._product_draw import ProductDraw


@partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["d_model", "d_head"])
@dataclass(frozen=True)
class DenseLowRankProduct:
    """The product W_Qᵀ W_K itself, (d_model, d_model), from dense Gaussian factors.

    The slow and obvious way: the oracle that the thin draw is tested against, and the way to look at elements.
    """

    d_model: int
    d_head: int

    @property
    def rank(self) -> int:
        """How many singular values are structurally nonzero; the other d_model - d_head are not to be reported."""
        return self.d_head

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a draw's ``matrix``."""
        return (self.d_model, self.d_model)

    def sample(self, key: Key[Array, ""]) -> ProductDraw:
        """One draw; ``matrix`` is W_Qᵀ W_K, of shape (d_model, d_model)."""
        key_q, key_k = jax.random.split(key)
        w_q = jax.random.normal(key_q, (self.d_head, self.d_model))
        w_k = jax.random.normal(key_k, (self.d_head, self.d_model))
        return ProductDraw(w_q.T @ w_k, jnp.sum(w_q**2), jnp.sum(w_k**2))
