"""A given head whose query and key directions meet at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Key
from numpy.typing import ArrayLike, NDArray

from rmtbase.ensembles._ensemble import Draw
from rmtbase.ensembles._given_head import given_head, head_name
from rmtbase.ensembles._orthonormal import orthonormal_columns
from rmtbase.ensembles._sum_of_squares import sum_of_squares


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HaarAlignedHead:
    """W_Qᵀ O W_K of a head, O uniform (Haar) on the orthogonal group of the head's space R^h.

    W_Q = U_Q S_Q V_Qᵀ and W_K = U_K S_K V_Kᵀ keep their singular values; which directions of the queries meet which of
    the keys is left to chance: U_Qᵀ O U_K is Haar again, so that W_Qᵀ O W_K has the nonzero singular values of
    S_Q O S_K. O(h³) a draw.

    A rotation of the residual stream, W_Qᵀ W_K O with O in R^d, would leave every singular value of W_QK where it is:
    V_Qᵀ V_K does not enter them. It moves the principal angles between the row spaces of W_Q and W_K, whose law is that
    of ``random_subspaces``.

    Attributes:
        s_q, s_k: singular values of W_Q and of W_K, (d_head,).
        d_model: width of the residual stream.
        digest: what identifies the matrices.

    Source: F. Mezzadri, Notices AMS 54, 592 (2007), for the Haar measure by QR with signs.
    """

    s_q: Any
    s_k: Any
    d_model: Any
    digest: Any

    @property
    def name(self) -> str:
        """``haar_aligned_head {d_model}x{d_head} sha256:{digest of the matrices}``."""
        return head_name("haar_aligned_head", (self.rank, self.d_model), self.digest)

    @property
    def rank(self) -> int:
        """d_head."""
        return self.s_q.shape[0]

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a draw's ``matrix``."""
        return (self.rank, self.rank)

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        """d_model d_head, of W_Q and of W_K."""
        return (int(self.d_model) * self.rank,) * 2

    def sample(self, key: Key[Array, ""]) -> Draw:
        """One draw; ``matrix`` is S_Q O S_K, of shape (d_head, d_head). ``norm_squared`` is the given head's."""
        s_q, s_k = (jnp.asarray(s, dtype=float) for s in (self.s_q, self.s_k))
        rotation = orthonormal_columns(jax.random.normal(key, self.matrix_shape))
        return Draw(s_q[:, None] * rotation * s_k, jnp.stack([sum_of_squares(s_q), sum_of_squares(s_k)]))


def haar_aligned_head(w_q: ArrayLike, w_k: ArrayLike) -> HaarAlignedHead:
    """The alignment null of a head: W_Qᵀ O W_K with O a random rotation of the head's space.

    Singular values below their own rounding error are zeros: a draw has at most the rank of the head's matrices.

    Args:
        w_q: query matrix (d_head, d_model), in any floating-point dtype.
        w_k: key matrix of the same shape.

    Raises:
        ParameterError: not two floating-point matrices of one shape (d_head, d_model), d_head ≤ d_model, or a value in
            them is not finite.
    """
    head = given_head(w_q, w_k)
    return HaarAlignedHead(_singular_values(head.w_q), _singular_values(head.w_k), head.w_q.shape[1], head.digest)


def _singular_values(w: NDArray[np.floating]) -> NDArray[np.float64]:
    triangle = np.linalg.qr(np.asarray(w, dtype=np.float64).T, mode="r")
    values = np.linalg.svd(triangle, compute_uv=False)
    return np.where(values > values[0] * values.size * np.finfo(np.float64).eps, values, 0.0)
