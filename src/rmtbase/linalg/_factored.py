"""W_QK = W_Qᵀ W_K through its small core: the d × d matrix is never formed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64
from numpy.typing import ArrayLike, NDArray
from scipy.linalg.lapack import dpotrf, dpotri  # type: ignore[attr-defined]  # made at import

from rmtbase.errors import ParameterError
from rmtbase.linalg._solver import singular_values
from rmtbase.parameters import require_finite_numbers, require_real_array, require_real_numbers

_GRAM_LIMIT = 500.0  # ‖H⁻¹‖_F up to which a triangle is taken from the Gram matrix; 12 for Gaussian (128, 4096)
_PADDING = 8  # numbers between rows: a cache line, lest rows of 2ⁿ numbers all fall on the same lines of the cache
_ROW_NORMS = 1e-140, 1e140  # of which no square, nor any product that counts beside it, leaves float64


def product_core(w_q: ArrayLike, w_k: ArrayLike) -> NDArray[np.float64]:
    """The core ``(..., d_head, d_head)`` of W_Qᵀ W_K for factors of shape ``(..., d_head, d_model)``.

    With the thin factorisations W_Qᵀ = O_Q R_Q and W_Kᵀ = O_K R_K (orthonormal columns),
    W_Qᵀ W_K = O_Q (R_Q R_Kᵀ) O_Kᵀ: the core R_Q R_Kᵀ has exactly the structurally nonzero singular values of the
    product, and :func:`triangles` keeps the digits of the smallest.

    Raises:
        ParameterError: as :func:`product_singular_values`.
    """
    return core_of_triangles(triangle(w_q), triangle(w_k))


def core_of_triangles(r_q: NDArray[np.float64], r_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """The core R_Q R_Kᵀ from the two triangles.

    Raises:
        ParameterError: triangles of several ranks, or that are not finite; a product that is beyond float64.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            core = r_q @ np.swapaxes(r_k, -1, -2)
    except ValueError:
        raise ParameterError("w_q, w_k", f"triangles {r_q.shape} and {r_k.shape}", "one d_head in both") from None
    if not np.isfinite(core).all():
        largest = [float(np.abs(one).max()) for one in (r_q, r_k)]
        raise ParameterError(
            "w_q, w_k", "norms near {:.3g} and {:.3g}".format(*largest), "a product in float64: rescale the weights"
        )
    return core


def product_singular_values(w_q: ArrayLike, w_k: ArrayLike) -> NDArray[np.float64]:
    """The ``d_head`` structurally nonzero singular values of W_Qᵀ W_K, descending.

    Args:
        w_q: query factors of shape ``(..., d_head, d_model)``, so that q = W_Q x.
        w_k: key factors of the same shape; leading axes broadcast.

    Returns:
        Array of shape ``(..., min(d_head, d_model))``. The d_model - d_head structural zeros of the full matrix are
        never computed, so that no rounding noise stands in for them.

    Raises:
        ParameterError: factors that are no finite real matrices, or of several d_head; a product beyond float64.
    """
    return core_singular_values(product_core(w_q, w_k))


def core_singular_values(core: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values (..., h) of cores (..., h, h), descending, with those below their own rounding error set to zero.

    A value under h ε s_1 (ε of float64) is the noise of the factorisation: it stands for an exact zero.

    Raises:
        ParameterError: as :func:`singular_values`.
    """
    return without_noise(singular_values(core))


def without_noise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values (..., h) of h × h matrices, descending; those up to h ε s_1 are zero; ε = 2⁻⁵² of float64.

    NaN, of what is not known, stays NaN.

    Raises:
        ParameterError: what is no array (..., h) of real numbers, or infinities among them.
    """
    values = require_real_numbers("values", values)
    if values.ndim == 0 or np.isinf(values).any():
        raise ParameterError("values", f"{np.isinf(values).sum()} infinite", "finite singular values (..., h)")
    noise = values[..., :1] * (values.shape[-1] * np.finfo(np.float64).eps)
    return np.where(values <= noise, 0.0, values)


def triangle(factor: ArrayLike) -> NDArray[np.float64]:
    """R (..., d_head, d_head) of the thin factorisation Wᵀ = O R, for W of shape (..., d_head, d_model), in float64.

    What a key head that several query heads read need give only once. See :func:`triangles`, also for errors.
    """
    return triangles(factor).r


class Triangles(NamedTuple):
    """R of thin factorisations, and which were had by orthogonal transformations, not from the Gram matrix."""

    r: Float64[np.ndarray, "... rank d_head"]
    orthogonal: Bool[np.ndarray, "..."]


def triangles(factors: ArrayLike) -> Triangles:
    """R of the thin factorisations Wᵀ = O R of a stack of W, (..., d_head, d_model): RᵀR = W Wᵀ, in float64.

    The Cholesky factor of the Gram matrix G = W Wᵀ, several times faster than orthogonal transformations, where these
    would tell no more digits. Let H = D⁻¹ G D⁻¹ be the Gram matrix of rows of unit norm, and D E D the rounding error
    of G and of its factor. Then R is off by a factor I + F, ‖F‖ ≤ ½ ‖H⁻¹‖ ‖E‖, and each singular value of a product
    R_Q R_Kᵀ, however small, by a relative ‖F_Q‖ + ‖F_K‖ at most. So H⁻¹, which the Cholesky factor gives, decides:
    with ‖F‖ ≤ 2.2 ε ‖H⁻¹‖_F as measured (graded, clustered and nearly parallel rows, up to 256 × 4096), all singular
    values keep a relative 5e-13 up to the limit ‖H⁻¹‖_F = 500. Beyond, and for rows without a norm, Householder's
    transformations take over. Each W is factorised alone: R does not depend on the stack it came in.

    Raises:
        ParameterError: factors that are no finite real matrices.

    Source: J. Demmel and K. Veselić, SIAM J. Matrix Anal. Appl. 13, 1204 (1992), for Cholesky factors up to scaling;
        S. C. Eisenstat and I. C. F. Ipsen, SIAM J. Numer. Anal. 32, 1972 (1995), for multiplicative errors.
    """
    stack = require_real_array("factors", factors)
    if stack.ndim < 2:
        raise ParameterError("factors", f"shape {stack.shape}", "matrices (..., d_head, d_model)")
    *leading, rows, columns = stack.shape
    r = np.empty((*leading, min(rows, columns), rows))
    orthogonal = np.zeros(tuple(leading), dtype=bool)
    wide = np.empty((rows, columns + _PADDING))[:, :columns]  # of one W after the other: never the whole stack
    for place in np.ndindex(*leading):
        wide[...] = stack[place]
        if not _factorise_gram(wide, r[place]):
            orthogonal[place] = True
            require_finite_numbers("factors", wide)  # NaN and infinities are among what the Gram matrix is no good for
            r[place] = np.linalg.qr(wide.T, mode="r")
    return Triangles(r, orthogonal)


def _factorise_gram(w: NDArray[np.float64], r: NDArray[np.float64]) -> bool:
    """Whether the Cholesky factor R of W Wᵀ, which is left in ``r``, has lost no digits."""
    if len(w) > w.shape[1]:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        np.matmul(w, w.T, out=r)
        norms = np.sqrt(np.diagonal(r))
    if not ((norms > _ROW_NORMS[0]) & (norms < _ROW_NORMS[1])).all():
        return False
    _, indefinite = dpotrf(r.T, lower=True, overwrite_a=True)  # in place: LAPACK's columns are the rows of r
    if indefinite:
        return False
    return _bound_of_inverse(np.diagonal(r) / norms) <= _GRAM_LIMIT or _norm_of_inverse(r / norms) <= _GRAM_LIMIT


def _bound_of_inverse(diagonal: NDArray[np.float64]) -> float:
    """‖H⁻¹‖_F ≤ e √(Σ_k det H^(-2/k)), for H of unit diagonal, from the diagonal of its Cholesky factor alone.

    The eigenvalues λ_1 ≤ … ≤ λ_n of H have the sum n. So the n - k largest have a product of at most (n/(n-k))^(n-k),
    which is less than e^k, and the others one of at least det H / e^k: λ_k ≥ det H^(1/k) / e.
    """
    with np.errstate(over="ignore"):
        powers = np.exp(-4.0 * np.log(diagonal).sum() / np.arange(1, len(diagonal) + 1))
        return math.e * math.sqrt(powers.sum())


def _norm_of_inverse(r: NDArray[np.float64]) -> float:
    """‖H⁻¹‖_F of H = RᵀR; infinite where R is singular."""
    lower, singular = dpotri(r.T, lower=True)  # of H⁻¹ the lower triangle, beside zeros
    squares = lower**2
    return math.inf if singular else math.sqrt(2.0 * squares.sum() - np.diagonal(squares).sum())
