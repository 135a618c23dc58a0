"""A given head with one thing about it left to chance: the order of its elements, or how queries meet keys."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_batching import sequential_vmap
from jaxtyping import Float, Key
from numpy.typing import ArrayLike, NDArray

from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, as_pytree
from rmtbase.ensembles._orthogonal_matrix import orthonormal_columns
from rmtbase.ensembles._sum_of_squares import sum_of_squares
from rmtbase.errors import ParameterError
from rmtbase.shown import in_one_line

Matrix = NDArray[np.floating]  # (d_head, d_model)

_DIGEST_BYTES = 8


class _ResampledHead(DrawnByItsCore, ABC):
    """What the ensembles share that are made of a given head."""

    digest: Any
    _factory: ClassVar[str]

    @property
    @abstractmethod
    def dims(self) -> tuple[int, ...]:
        """(n_0, …, n_L) of the product: (d_model, d_head, d_model) of W_QK."""

    @property
    def name(self) -> str:
        """``{factory} {dims} sha256:{digest of the matrices}``, of W_QK with {d_model}x{d_head} for the dims."""
        dims = self.dims[:2] if self.dims[0] == self.dims[-1] else self.dims
        shape = "x".join(map(str, dims))
        return f"{self._factory} {shape} sha256:{np.asarray(self.digest).tobytes().hex()}"


@in_one_line
@as_pytree
@dataclass(frozen=True)
class PermutedHead(_ResampledHead):
    """W_QK of a head whose W_Q and W_K keep their elements, each set in uniformly random order.

    The distribution of the elements stays what it is, heavy tails and all; whatever structure they formed is gone. With
    W Wᵀ = L Lᵀ the core L_Qᵀ L_K of the shuffled matrices has the nonzero singular values of W_QK; where a shuffled
    matrix has lost its full rank, orthogonal triangles take the place of L. O(d h log(d h) + d h²) a draw.

    Attributes:
        w_q, w_k: (d_head, d_query) and (d_head, d_key), in any floating-point dtype.
        digest: what identifies them.
    """

    _factory = "permuted_head"

    w_q: Any
    w_k: Any
    digest: Any

    @property
    def dims(self) -> tuple[int, int, int]:
        """(d_query, d_head, d_key)."""
        return self.w_q.shape[1], self.w_q.shape[0], self.w_k.shape[1]

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
        w_q: query matrix (d_head, d_query), in any floating-point dtype.
        w_k: key matrix (d_head, d_key), likewise.

    Raises:
        ParameterError: not two floating-point matrices of as many rows, no more than either has columns, or a value in
            them is not finite.
    """
    return PermutedHead(*_given_head(w_q, w_k))


@in_one_line
@as_pytree
@dataclass(frozen=True)
class PermutedMatrix(_ResampledHead):
    """A matrix that keeps its elements, in uniformly random order: one factor of a head by itself.

    The core is that of a :class:`PermutedHead` with this factor alone. O(d h log(d h) + d h²) a draw.

    Attributes:
        w: (short side, long side), in any floating-point dtype.
        digest: what identifies it.
    """

    _factory = "permuted_matrix"

    w: Any
    digest: Any

    @property
    def dims(self) -> tuple[int, int]:
        """(short side, long side)."""
        return self.w.shape

    def sample(self, key: Key[Array, ""]) -> Draw:
        """One draw; ``matrix`` is the core, of shape (rank, rank). ``norm_squared`` is the given matrix's."""
        return Draw(_permuted_triangle(key, self), sum_of_squares(jnp.asarray(self.w, dtype=float))[None])


def permuted_matrix(w: ArrayLike) -> PermutedMatrix:
    """The permutation null of one matrix: its elements in random order.

    Args:
        w: in any floating-point dtype, of any two sizes.

    Raises:
        ParameterError: not a floating-point matrix, or a value in it is not finite.
    """
    matrix = _matrix("w", w)
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return PermutedMatrix(matrix, _digest(matrix))


@sequential_vmap  # as below
def _permuted_triangle(key: Key[Array, ""], of: PermutedMatrix) -> Float[Array, "rank rank"]:
    w = _shuffled(key, jnp.asarray(of.w)).astype(float)
    core = jnp.linalg.cholesky(w @ w.T)
    return jax.lax.cond(jnp.isfinite(core).all(), lambda: core, lambda: _triangle(w))


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


@in_one_line
@as_pytree
@dataclass(frozen=True)
class HaarAlignedHead(_ResampledHead):
    """W_Qᵀ O W_K of a head, O uniform (Haar) on the orthogonal group of the head's space R^h.

    W_Q = U_Q S_Q V_Qᵀ and W_K = U_K S_K V_Kᵀ keep their singular values; which directions of the queries meet which of
    the keys is left to chance: U_Qᵀ O U_K is Haar again, so that W_Qᵀ O W_K has the nonzero singular values of
    S_Q O S_K. O(h³) a draw.

    A rotation of the residual stream, W_Qᵀ W_K O with O in R^d, would leave every singular value of W_QK where it is:
    V_Qᵀ V_K does not enter them. It moves the principal angles between the row spaces of W_Q and W_K, whose law is that
    of ``random_subspaces``.

    Attributes:
        s_q, s_k: singular values of W_Q and of W_K, (d_head,).
        widths: (d_query, d_key).
        digest: what identifies the matrices.

    Source: F. Mezzadri, Notices AMS 54, 592 (2007), for the Haar measure by QR with signs.
    """

    _factory = "haar_aligned_head"

    s_q: Any
    s_k: Any
    widths: Any
    digest: Any

    @property
    def dims(self) -> tuple[int, int, int]:
        """(d_query, d_head, d_key)."""
        d_query, d_key = self.widths
        return d_query, self.rank, d_key

    @property
    def rank(self) -> int:
        """d_head."""
        return self.s_q.shape[0]

    def sample(self, key: Key[Array, ""]) -> Draw:
        """One draw; ``matrix`` is S_Q O S_K, of shape (d_head, d_head). ``norm_squared`` is the given head's."""
        s_q, s_k = (jnp.asarray(s, dtype=float) for s in (self.s_q, self.s_k))
        rotation = orthonormal_columns(jax.random.normal(key, self.matrix_shape))
        return Draw(s_q[:, None] * rotation * s_k, jnp.stack([sum_of_squares(s_q), sum_of_squares(s_k)]))


def haar_aligned_head(w_q: ArrayLike, w_k: ArrayLike) -> HaarAlignedHead:
    """The alignment null of a head: W_Qᵀ O W_K with O a random rotation of the head's space.

    Singular values below their own rounding error are zeros: a draw has at most the rank of the head's matrices.

    Args:
        w_q: query matrix (d_head, d_query), in any floating-point dtype.
        w_k: key matrix (d_head, d_key), likewise.

    Raises:
        ParameterError: not two floating-point matrices of as many rows, no more than either has columns, or a value in
            them is not finite.
    """
    q, k, digest = _given_head(w_q, w_k)
    return HaarAlignedHead(_singular_values(q), _singular_values(k), (q.shape[1], k.shape[1]), digest)


def _singular_values(w: Matrix) -> NDArray[np.float64]:
    triangle = np.linalg.qr(np.asarray(w, dtype=np.float64).T, mode="r")
    values = np.linalg.svd(triangle, compute_uv=False)
    return np.where(values > values[0] * values.size * np.finfo(np.float64).eps, values, 0.0)


def _given_head(w_q: ArrayLike, w_k: ArrayLike) -> tuple[Matrix, Matrix, NDArray[np.uint8]]:
    """The two matrices, checked, and what identifies their values, whatever the dtype they are stored in."""
    q, k = _factor("w_q", w_q), _factor("w_k", w_k)
    if len(k) != len(q):
        raise ParameterError("w_k", k.shape, f"as many rows as w_q of shape {q.shape}")
    return q, k, _digest(q, k)


def _digest(*matrices: Matrix) -> NDArray[np.uint8]:
    content = hashlib.sha256(repr(matrices[0].shape).encode())
    for matrix in matrices:
        content.update(np.ascontiguousarray(matrix, dtype="<f8").data)
    return np.frombuffer(content.digest()[:_DIGEST_BYTES], dtype=np.uint8)


def _factor(name: str, value: ArrayLike) -> Matrix:
    matrix = _matrix(name, value)
    if matrix.shape[0] > matrix.shape[1]:
        raise ParameterError(name, matrix.shape, "shape (d_head, d_model) with d_head ≤ d_model; transpose it")
    return matrix


def _matrix(name: str, value: ArrayLike) -> Matrix:
    try:
        matrix = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, a tensor that is no NumPy array
        raise ParameterError(name, type(value).__name__, f"a NumPy array of real numbers ({error})") from error
    if not jnp.issubdtype(matrix.dtype, jnp.floating) or matrix.dtype.itemsize > 8:
        raise ParameterError(name, matrix.dtype, "floating-point numbers of at most 64 bits")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ParameterError(name, matrix.shape, "a matrix of shape (d_head, d_model)")
    if not np.isfinite(matrix).all():
        raise ParameterError(name, "NaN or infinity", "finite weights")
    return matrix
