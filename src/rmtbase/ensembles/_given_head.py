"""A head's own matrices, checked and identified."""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError

_DIGEST_BYTES = 8


class GivenHead(NamedTuple):
    """A head that is at hand.

    Attributes:
        w_q, w_k: its matrices (d_head, d_model), in their own dtype.
        digest: 8 bytes that identify their values, whatever the dtype they are stored in.
    """

    w_q: NDArray[np.floating]
    w_k: NDArray[np.floating]
    digest: NDArray[np.uint8]


def given_head(w_q: ArrayLike, w_k: ArrayLike) -> GivenHead:
    """The head with these matrices.

    Raises:
        ParameterError: not two floating-point matrices of one shape (d_head, d_model), d_head ≤ d_model, or a value in
            them is not finite.
    """
    q, k = _matrix("w_q", w_q), _matrix("w_k", w_k)
    if k.shape != q.shape:
        raise ParameterError("w_k", k.shape, f"the shape {q.shape} of w_q")
    content = hashlib.sha256(repr(q.shape).encode())
    for matrix in (q, k):
        content.update(np.ascontiguousarray(matrix, dtype="<f8").data)
    return GivenHead(q, k, np.frombuffer(content.digest()[:_DIGEST_BYTES], dtype=np.uint8))


def head_name(resampler: str, shape: tuple[int, int], digest: NDArray[np.uint8]) -> str:
    """``{resampler} {d_model}x{d_head} sha256:{digest}``."""
    d_head, d_model = shape
    return f"{resampler} {d_model}x{d_head} sha256:{np.asarray(digest).tobytes().hex()}"


def _matrix(name: str, value: ArrayLike) -> NDArray[np.floating]:
    try:
        matrix = np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # a ragged list, a tensor that is no NumPy array
        raise ParameterError(name, type(value).__name__, f"a NumPy array of real numbers ({error})") from error
    if not jnp.issubdtype(matrix.dtype, jnp.floating) or matrix.dtype.itemsize > 8:
        raise ParameterError(name, matrix.dtype, "floating-point numbers of at most 64 bits")
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise ParameterError(name, matrix.shape, "a matrix of shape (d_head, d_model)")
    if matrix.shape[0] > matrix.shape[1]:
        raise ParameterError(name, matrix.shape, "shape (d_head, d_model) with d_head ≤ d_model; transpose it")
    if not np.isfinite(matrix).all():
        raise ParameterError(name, "NaN or infinity", "finite weights")
    return matrix
