"""Ensembles made from a given head: random signs of its elements, or a random signed permutation of its head axes."""

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
from jaxtyping import Bool, Float, Key
from numpy.typing import ArrayLike, NDArray

from rmtbase.ensembles._ensemble import Draw, DrawnByItsCore, as_pytree, sum_of_squares
from rmtbase.errors import ParameterError
from rmtbase.shown import in_one_line

Matrix = NDArray[np.floating]  # (d_head, d_model)

_DIGEST_BYTES = 8
_INDEPENDENT = 1e-5  # smallest share of a row that is independent of those before it; error: squared rounding over it
_WORD = 32  # random bits of a word; each gives the sign of one element


class _ResampledHead(DrawnByItsCore, ABC):
    digest: Any
    _factory: ClassVar[str]

    @property
    @abstractmethod
    def dims(self) -> tuple[int, ...]: ...

    @property
    def name(self) -> str:
        dims = self.dims[:2] if self.dims[0] == self.dims[-1] else self.dims  # those of W_QK are {d_model}x{d_head}
        shape = "x".join(map(str, dims))
        return f"{self._factory} {shape} sha256:{np.asarray(self.digest).tobytes().hex()}"


@in_one_line
@as_pytree
@dataclass(frozen=True)
class SignFlippedHead(_ResampledHead):
    """Head (W_Q ∘ R)ᵀ(W_K ∘ R′), R and R′ matrices of independent random signs.

    If the elements of W_Q and W_K are independent and symmetric about 0, each with any law, the flipped head has the
    law of the head: an exact null for any tails, sparsity, and gains of rows and columns. Flipping destroys a direction
    spread over many elements; a single giant element is kept.

    With W Wᵀ = L Lᵀ, the core L_Qᵀ L_K of the flipped matrices has the nonzero singular values of the product;
    triangles of QR factorisations take the place of L if a matrix lacks full rank. A draw costs O(d h²).

    Source: D. Hong, Y. Sheng and E. Dobriban, arXiv:2012.02985.
    """

    _factory = "sign_flipped_head"

    w_q: Any  #: (d_head, d_query), in any floating-point dtype
    w_k: Any  #: (d_head, d_key), likewise
    digest: Any  #: identifies the matrices

    @property
    def dims(self) -> tuple[int, int, int]:
        return self.w_q.shape[1], self.w_q.shape[0], self.w_k.shape[1]

    def flipped(self, key: Key[Array, ""]) -> tuple[Array, Array]:
        """W_Q ∘ R and W_K ∘ R′ of one draw, in the dtype of the given matrices."""
        key_q, key_k = jax.random.split(key)
        return flipped(key_q, jnp.asarray(self.w_q)), flipped(key_k, jnp.asarray(self.w_k))

    def sample(self, key: Key[Array, ""]) -> Draw:
        norms = [sum_of_squares(jnp.asarray(w, dtype=float)) for w in (self.w_q, self.w_k)]
        return Draw(_flipped_core(key, self), jnp.stack(norms))


def sign_flipped_head(w_q: ArrayLike, w_k: ArrayLike) -> SignFlippedHead:
    """Null of random signs for a head: W_QK of factors in which the sign of every element is random.

    Matrices of zeros are allowed; then all draws are zero.

    Args:
        w_q: query matrix (d_head, d_query), in any floating-point dtype.
        w_k: key matrix (d_head, d_key), likewise.

    Raises:
        ParameterError: the factors are not floating-point matrices with the same number of rows, have more rows than
            columns, or contain a value that is not finite.
    """
    return SignFlippedHead(*_given_head(w_q, w_k))


@in_one_line
@as_pytree
@dataclass(frozen=True)
class SignFlippedMatrix(_ResampledHead):
    _factory = "sign_flipped_matrix"

    w: Any  # (short side, long side), in any floating-point dtype
    digest: Any  # identifies the matrix

    @property
    def dims(self) -> tuple[int, int]:
        return self.w.shape

    def sample(self, key: Key[Array, ""]) -> Draw:
        return Draw(_flipped_triangle(key, self), sum_of_squares(jnp.asarray(self.w, dtype=float))[None])


def sign_flipped_matrix(w: ArrayLike) -> SignFlippedMatrix:
    matrix = _matrix("w", w)
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    return SignFlippedMatrix(matrix, _digest(matrix))


def flipped(key: Key[Array, ""], matrix: Array) -> Array:
    """Give the elements independent random signs, one bit of a random word for each element."""
    n = matrix.size
    words = jax.random.bits(key, (-(-n // _WORD),), dtype=jnp.uint32)
    bits = (words[:, None] >> jnp.arange(_WORD, dtype=jnp.uint32)) & 1
    return jnp.where(bits.ravel()[:n].reshape(matrix.shape) == 1, matrix, -matrix)


@sequential_vmap  # one draw after the other: a chunk holds the matrices of one draw, and cond is a branch, not a select
def _flipped_core(key: Key[Array, ""], head: SignFlippedHead) -> Float[Array, "d_head d_head"]:
    w_q, w_k = (w.astype(float) for w in head.flipped(key))
    (l_q, good_q), (l_k, good_k) = _cholesky(w_q), _cholesky(w_k)
    return jax.lax.cond(good_q & good_k, lambda: l_q.T @ l_k, lambda: _triangle(w_q) @ _triangle(w_k).T)


@sequential_vmap  # as above
def _flipped_triangle(key: Key[Array, ""], matrix: SignFlippedMatrix) -> Float[Array, "rank rank"]:
    w = flipped(key, jnp.asarray(matrix.w)).astype(float)
    core, has_digits = _cholesky(w)
    return jax.lax.cond(has_digits, lambda: core, lambda: _triangle(w))


def _cholesky(w: Float[Array, "h d"]) -> tuple[Float[Array, "h h"], Bool[Array, ""]]:
    """L of W Wᵀ = L Lᵀ, and whether it keeps its digits: no row is nearly a combination of the rows before it."""
    gram = w @ w.T
    lower = jnp.linalg.cholesky(gram)
    return lower, jnp.all(jnp.diagonal(lower) > _INDEPENDENT * jnp.sqrt(jnp.diagonal(gram)))  # False where NaN


def _triangle(w: Float[Array, "d_head d_model"]) -> Float[Array, "d_head d_head"]:
    return jnp.linalg.qr(w.T, mode="r")


@in_one_line
@as_pytree
@dataclass(frozen=True)
class AxisPermutedHead(_ResampledHead):
    """Head W_Qᵀ P W_K, P a uniformly random signed permutation of its d_head axes; a draw costs O(h³).

    Only the pairing of query axes with key axes is random. If the rows of W_Q, or those of W_K, are exchangeable and
    symmetric about 0, and the two matrices are independent, the permuted head has the law of the head, whatever the
    gains of the rows. Random rotations would be no null then, because gains put the left singular vectors of both
    matrices on the same axes; permutations of the residual stream, W_Qᵀ W_K P, would change no singular value.
    """

    _factory = "axis_permuted_head"

    r_q: Any  #: triangle R of the QR decomposition of W_Qᵀ, (d_head, d_head)
    r_k: Any  #: that of W_Kᵀ
    widths: Any  #: (d_query, d_key)
    digest: Any  #: identifies the matrices

    @property
    def dims(self) -> tuple[int, int, int]:
        d_query, d_key = self.widths
        return d_query, self.rank, d_key

    @property
    def rank(self) -> int:
        return self.r_q.shape[-1]

    def sample(self, key: Key[Array, ""]) -> Draw:
        r_q, r_k = (jnp.asarray(r, dtype=float) for r in (self.r_q, self.r_k))
        order, signs = signed_permutation(key, self.rank)
        core = r_q @ (signs[:, None] * r_k.T[order])
        return Draw(core, jnp.stack([sum_of_squares(r_q), sum_of_squares(r_k)]))


def axis_permuted_head(w_q: ArrayLike, w_k: ArrayLike) -> AxisPermutedHead:
    """Null of signed permutations for a head: W_Qᵀ P W_K, with P acting on its d_head axes.

    Arguments and errors are those of :func:`sign_flipped_head`.
    """
    q, k, digest = _given_head(w_q, w_k)
    r_q, r_k = (np.linalg.qr(np.asarray(w, dtype=np.float64).T, mode="r") for w in (q, k))
    return AxisPermutedHead(r_q, r_k, (q.shape[1], k.shape[1]), digest)


def signed_permutation(key: Key[Array, ""], n: int) -> tuple[Array, Array]:
    """Order and signs of a uniformly random signed permutation of n axes: (P x)_i = signs_i x_order(i)."""
    key_order, key_signs = jax.random.split(key)
    return jax.random.permutation(key_order, n), flipped(key_signs, jnp.ones(n))


def _given_head(w_q: ArrayLike, w_k: ArrayLike) -> tuple[Matrix, Matrix, NDArray[np.uint8]]:
    """Check the two matrices; return them with a digest of their values, which does not depend on the dtype."""
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
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, or a tensor that NumPy cannot convert
        raise ParameterError(name, type(value).__name__, f"a NumPy array of real numbers ({error})") from error
    if not jnp.issubdtype(matrix.dtype, jnp.floating) or matrix.dtype.itemsize > 8:
        raise ParameterError(name, matrix.dtype, "floating-point numbers of at most 64 bits")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ParameterError(name, matrix.shape, "a matrix of shape (d_head, d_model)")
    if not np.isfinite(matrix).all():
        raise ParameterError(name, "NaN or infinity", "finite weights")
    return matrix
