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

Floats = NDArray[np.float64]

_GRAM_LIMIT = 500.0  # ‖H⁻¹‖_F up to which a triangle is taken from the Gram matrix; 12 for Gaussian (128, 4096)
_PADDING = 8  # numbers between rows, a cache line: otherwise rows of 2ⁿ numbers all fall on the same cache lines
_ROW_NORMS = 1e-140, 1e140  # between these, no square of a norm and no product that matters leaves float64


def core_of_triangles(r_q: NDArray[np.float64], r_k: NDArray[np.float64]) -> NDArray[np.float64]:
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            core = r_q @ np.swapaxes(r_k, -1, -2)
    except ValueError:
        raise ParameterError("w_q, w_k", f"triangles {r_q.shape} and {r_k.shape}", "one d_head in both") from None
    if not np.isfinite(core).all():
        largest = [float(np.abs(triangle).max()) for triangle in (r_q, r_k)]
        norms = "norms near {:.3g} and {:.3g}".format(*largest)
        raise ParameterError("w_q, w_k", norms, "a product in float64: rescale the weights")
    return core


def product_singular_values(w_q: ArrayLike, w_k: ArrayLike) -> NDArray[np.float64]:
    """Return the ``d_head`` structurally nonzero singular values of W_Qᵀ W_K, descending.

    With the thin factorisations W_Qᵀ = O_Q R_Q and W_Kᵀ = O_K R_K (orthonormal columns), they are exactly the singular
    values of the core R_Q R_Kᵀ. The structural zeros of the full matrix are never computed.

    Args:
        w_q: query factors of shape ``(..., d_head, d_model)``, so that q = W_Q x.
        w_k: key factors of the same shape; leading axes broadcast.

    Returns:
        Array of shape ``(..., min(d_head, d_model))``.

    Raises:
        ParameterError: the factors are not finite real matrices or differ in d_head, or their product overflows
            float64.
    """
    return core_singular_values(core_of_triangles(triangle(w_q, "w_q"), triangle(w_k, "w_k")))


def product_svd(w_q: Floats, w_k: Floats) -> tuple[Floats, Floats, Floats]:
    """Thin SVD of W_Qᵀ W_K = U diag(s) V for factors (d_head, d_query) and (d_head, d_key), by their core."""
    (o_q, r_q), (o_k, r_k) = (np.linalg.qr(factor.T) for factor in (w_q, w_k))
    left, values, right = np.linalg.svd(core_of_triangles(r_q, r_k), full_matrices=False)
    return o_q @ left, values, right @ o_k.T


def core_singular_values(core: NDArray[np.float64]) -> NDArray[np.float64]:
    return without_noise(singular_values(core))


def without_noise(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Set singular values (..., h) of h × h matrices, descending, to zero up to h ε s_1, ε = 2⁻⁵²; NaN stays NaN."""
    values = require_real_numbers("values", values)
    if values.ndim == 0 or np.isinf(values).any():
        raise ParameterError("values", f"{np.isinf(values).sum()} infinite", "finite singular values (..., h)")
    noise = values[..., :1] * (values.shape[-1] * np.finfo(np.float64).eps)
    return np.where(values <= noise, 0.0, values)


def triangle(factor: ArrayLike, name: str = "factors") -> NDArray[np.float64]:
    return triangles(factor, name).r


def equal_rows(factor: NDArray[np.float64]) -> NDArray[np.float64]:
    largest = np.abs(factor).max(axis=-1, keepdims=True)
    unit = np.divide(factor, largest, out=np.zeros_like(factor), where=largest > 0.0)
    norm = np.sqrt(np.sum(unit * unit, axis=-1, keepdims=True))
    return np.divide(unit, norm, out=unit, where=norm > 0.0)


class Triangles(NamedTuple):
    r: Float64[np.ndarray, "... rank d_head"]  # the triangles
    orthogonal: Bool[np.ndarray, "..."]  # True where R comes from orthogonal transformations


def triangles(factors: ArrayLike, name: str = "factors") -> Triangles:
    """R of the thin factorisations Wᵀ = O R of a stack of W, (..., d_head, d_model): RᵀR = W Wᵀ, in float64.

    R is the Cholesky factor of G = W Wᵀ wherever orthogonal transformations, several times slower, would give no more
    digits. With H = D⁻¹ G D⁻¹ the Gram matrix of rows of unit norm and D E D the rounding error, R is off by a factor I
    + F, ‖F‖ ≤ ½ ‖H⁻¹‖ ‖E‖, and each singular value of R_Q R_Kᵀ by a relative ‖F_Q‖ + ‖F_K‖ at most. So H⁻¹ decides: as
    measured (graded, clustered and nearly parallel rows, up to 256 × 4096), all keep 5e-13 up to ‖H⁻¹‖_F = 500.

    Source: J. Demmel and K. Veselić, SIAM J. Matrix Anal. Appl. 13, 1204 (1992), for Cholesky factors up to scaling;
        S. C. Eisenstat and I. C. F. Ipsen, SIAM J. Numer. Anal. 32, 1972 (1995), for multiplicative errors.
    """
    stack = require_real_array(name, factors)
    if stack.ndim < 2:
        raise ParameterError(name, f"shape {stack.shape}", "matrices (..., d_head, d_model)")
    *leading, rows, columns = stack.shape
    r = np.empty((*leading, min(rows, columns), rows))
    orthogonal = np.zeros(tuple(leading), dtype=bool)
    wide = np.empty((rows, columns + _PADDING))[:, :columns]  # holds one W at a time, never the whole stack
    for place in np.ndindex(*leading):
        wide[...] = stack[place]
        if not _factorise_gram(wide, r[place]):
            orthogonal[place] = True
            require_finite_numbers(name, wide)  # the Gram matrix also fails for NaN and infinities
            r[place] = np.linalg.qr(wide.T, mode="r")
    return Triangles(r, orthogonal)


def _factorise_gram(w: NDArray[np.float64], r: NDArray[np.float64]) -> bool:
    """Write the Cholesky factor R of W Wᵀ to ``r``; return whether it has kept its digits."""
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
    # ‖H⁻¹‖_F ≤ e √(Σ_k det H^(-2/k)): the eigenvalues λ_1 ≤ … ≤ λ_n of H add up to n. So the product of the n - k
    # largest is at most (n/(n-k))^(n-k), less than e^k, and that of the others at least det H / e^k:
    # λ_k ≥ det H^(1/k) / e.
    unit = r / norms
    with np.errstate(over="ignore"):
        powers = np.exp(-4.0 * np.log(np.diagonal(unit)).sum() / np.arange(1, len(unit) + 1))
    if math.e * math.sqrt(powers.sum()) <= _GRAM_LIMIT:
        return True
    lower, singular = dpotri(unit.T, lower=True)  # the lower triangle of H⁻¹; zeros above
    squares = lower**2
    return not singular and math.sqrt(2.0 * squares.sum() - np.diagonal(squares).sum()) <= _GRAM_LIMIT
