"""W_QK = W_Qᵀ W_K with standard normal W_Q, W_K of shape (d_head, d_model), drawn thin or dense."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Key

from rmtbase.ensembles._chi import chi
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_head_shape


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

    d_model: int
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
        l_q, l_k = self._bartlett(key_q), self._bartlett(key_k)
        return ProductDraw(l_q.T @ l_k, jnp.sum(l_q**2), jnp.sum(l_k**2))

    def _bartlett(self, key: Key[Array, ""]) -> Float[Array, "d_head d_head"]:
        h = self.d_head
        key_diagonal, key_below = jax.random.split(key)
        diagonal = chi(key_diagonal, self.d_model - jnp.arange(h, dtype=float))
        normals = jax.random.normal(key_below, (h * (h - 1) // 2,))
        # A gather, not a scatter: XLA's scatter costs more than the normals themselves. Position 0 stands for zero.
        position = np.zeros((h, h), dtype=np.int32)
        position[np.tril_indices(h, -1)] = 1 + np.arange(normals.size)
        below = jnp.concatenate([jnp.zeros(1), normals])[position]
        return below + jnp.diag(diagonal)


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


LowRankProduct = ThinLowRankProduct | DenseLowRankProduct


def low_rank_product(
    d_model: int, d_head: int, method: Literal["thin", "dense"] = "thin"
) -> ThinLowRankProduct | DenseLowRankProduct:
    """The ensemble W_QK = W_Qᵀ W_K with i.i.d. standard normal factors of shape (d_head, d_model).

    Any other scale is exact rescaling: the singular values at (σ_Q, σ_K) are σ_Q σ_K times these.

    Args:
        d_model: width of the residual stream.
        d_head: head dimension, at most d_model.
        method: ``"thin"`` draws an h × h core with the same singular values, ``"dense"`` the matrix itself.

    Raises:
        ParameterError: a dimension is not a positive integer, d_head > d_model, or the method is unknown.
    """
    d_model, d_head = require_head_shape(d_model, d_head)
    if method == "thin":
        return ThinLowRankProduct(d_model, d_head)
    if method == "dense":
        return DenseLowRankProduct(d_model, d_head)
    raise ParameterError("method", method, "'thin' or 'dense'")
