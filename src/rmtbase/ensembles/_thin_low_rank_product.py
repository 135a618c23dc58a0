"""W_QK = W_Qᵀ W_K with standard normal factors, drawn as a d_head × d_head core with the same singular values."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Key

from rmtbase.ensembles._chi import chi
from rmtbase.ensembles._product_draw import ProductDraw


@partial(jax.tree_util.register_dataclass, data_fields=["d_model"], meta_fields=["d_head"])
@dataclass(frozen=True)
class ThinLowRankProduct:
    """The exact law of W_QK's spectrum at a cost that does not depend on d_model.

    An orthogonal change of basis brings a Gaussian W (h × d) to W = L O, with O Oᵀ = I and L lower triangular
    (Bartlett): standard normals below the diagonal, and χ with d, d-1, …, d-h+1 degrees of freedom on it, all
    independent. Then W_Qᵀ W_K = O_Qᵀ (L_Qᵀ L_K) O_K, and the h × h core L_Qᵀ L_K has *exactly* the structurally
    nonzero singular values of the product. O(h³) for any d. ‖W‖_F² = ‖L‖_F² comes for free.

    ``d_model`` is data, not shape, so that one compilation serves every d_model.

    Source: M. S. Bartlett, Proc. R. Soc. Edinburgh 53, 260 (1934); N. R. Goodman, Ann. Math. Stat. 34, 178 (1963).
    """

    d_model: int | Int[Array, ""]
    d_head: int

    @property
    def rank(self) -> int:
        """How many singular values are structurally nonzero."""
        return self.d_head

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a draw's ``matrix``."""
        return (self.d_head, self.d_head)

    def sample(self, key: Key[Array, ""]) -> ProductDraw:
        """One draw; ``matrix`` is the core L_Qᵀ L_K, of shape (d_head, d_head)."""
        key_q, key_k = jax.random.split(key)
        (l_q, norm_squared_q), (l_k, norm_squared_k) = self._bartlett(key_q), self._bartlett(key_k)
        return ProductDraw(l_q.T @ l_k, norm_squared_q, norm_squared_k)

    def _bartlett(self, key: Key[Array, ""]) -> tuple[Float[Array, "d_head d_head"], Float[Array, ""]]:
        h = self.d_head
        key_diagonal, key_below = jax.random.split(key)
        diagonal = chi(key_diagonal, self.d_model - jnp.arange(h, dtype=float))
        normals = jax.random.normal(key_below, (h * (h - 1) // 2,))
        # One gather, not a scatter: XLA's scatter costs more than the normals themselves. Position 0 stands for zero.
        position = np.zeros((h, h), dtype=np.int32)
        position[np.diag_indices(h)] = 1 + np.arange(h)
        position[np.tril_indices(h, -1)] = 1 + h + np.arange(normals.size)
        # The barrier keeps XLA from drawing the normals anew in each of the fused loops that read them.
        entries = jax.lax.optimization_barrier(jnp.concatenate([jnp.zeros(1), diagonal, normals]))
        return entries[position], jnp.sum(entries**2)
