"""A given head with the elements of each of its matrices shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.custom_batching import sequential_vmap
from jaxtyping import Float, Key
from numpy.typing import ArrayLike

from rmtbase.ensembles._ensemble import Draw
from rmtbase.ensembles._given_head import given_head, head_name
from rmtbase.ensembles._sum_of_squares import sum_of_squares


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class PermutedHead:
    """W_QK of a head whose W_Q and W_K keep their elements, each set in uniformly random order.

    The distribution of the elements stays what it is, heavy tails and all; whatever structure they formed is gone. With
    W Wᵀ = L Lᵀ the core L_Qᵀ L_K of the shuffled matrices has the nonzero singular values of W_QK; where a shuffled
    matrix has lost its full rank, orthogonal triangles take the place of L. O(d h log(d h) + d h²) a draw.

    Attributes:
        w_q, w_k: (d_head, d_model), in any floating-point dtype.
        digest: what identifies them.
    """

    w_q: Any
    w_k: Any
    digest: Any

    @property
    def name(self) -> str:
        """``permuted_head {d_model}x{d_head} sha256:{digest of the matrices}``."""
        return head_name("permuted_head", self.w_q.shape, self.digest)

    @property
    def rank(self) -> int:
        """d_head."""
        return self.w_q.shape[0]

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Shape of a draw's ``matrix``."""
        return (self.rank, self.rank)

    @property
    def factor_sizes(self) -> tuple[int, ...]:
        """d_model d_head, of W_Q and of W_K."""
        return (self.w_q.size, self.w_k.size)

    def permuted(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        """The shuffled W_Q and W_K of one draw, in the dtype of the given ones."""
        key_q, key_k = jax.random.split(key)
        return _shuffled(key_q, jnp.asarray(self.w_q)), _shuffled(key_k, jnp.asarray(self.w_k))

    def sample(self, key: Key[Array, ""]) -> Draw:
        """One draw; ``matrix`` is the core, of shape (d_head, d_head). ``norm_squared`` is the given head's."""
        norms = [sum_of_squares(jnp.asarray(w, dtype=float)) for w in (self.w_q, self.w_k)]
        return Draw(_permuted_core(key, self), jnp.stack(norms))


def permuted_head(w_q: ArrayLike, w_k: ArrayLike) -> PermutedHead:
    """The permutation null of a head: its W_QK with the elements of W_Q, and those of W_K, in random order.

    Matrices of zeros are allowed: so are all their draws.

    Args:
        w_q: query matrix (d_head, d_model), in any floating-point dtype.
        w_k: key matrix of the same shape.

    Raises:
        ParameterError: not two floating-point matrices of one shape (d_head, d_model), d_head ≤ d_model, or a value in
            them is not finite.
    """
    return PermutedHead(*given_head(w_q, w_k))


@sequential_vmap  # draw after draw: a chunk of draws holds the matrices of one, and cond is a branch and not a select
def _permuted_core(key: Key[Array, ""], head: PermutedHead) -> Float[Array, "d_head d_head"]:
    w_q, w_k = (w.astype(float) for w in head.permuted(key))
    # Cholesky's error is that of W with rows of one length: elements of any tail keep their digits. NaN: no full rank.
    l_q, l_k = (jnp.linalg.cholesky(w @ w.T) for w in (w_q, w_k))
    core = l_q.T @ l_k
    return jax.lax.cond(jnp.isfinite(core).all(), lambda: core, lambda: _triangle(w_q) @ _triangle(w_k).T)


def _triangle(w: Float[Array, "d_head d_model"]) -> Float[Array, "d_head d_head"]:
    return jnp.linalg.qr(w.T, mode="r")


def _shuffled(key: Key[Array, ""], matrix: Array) -> Array:
    """The elements in uniformly random order: sorted by random numbers of 64 - b bits, with b < log2(n) + 1.

    Each number carries its element's place in its low b bits, so that one array is sorted and not two, which is three
    times faster. The places are flipped by a random mask: two elements with the same number come in either order with
    probability 1/2. What is left of the ties, three or more elements in two of them, has a probability under
    n⁴ / 2^(2 (65 - b)): 1e-5 at n = 2^19.
    """
    n = matrix.size
    b = max(1, (n - 1).bit_length())
    key_numbers, key_mask = jax.random.split(key)
    mask = jax.random.bits(key_mask, (), dtype=jnp.uint64) >> (64 - b)
    numbers = jax.random.bits(key_numbers, (n,), dtype=jnp.uint64) >> b << b
    ordered = jnp.sort(numbers | (jnp.arange(n, dtype=jnp.uint64) ^ mask), stable=False)
    place = (ordered & ((1 << b) - 1)) ^ mask
    return matrix.ravel()[place.astype(jnp.int32)].reshape(matrix.shape)
