"""Products of rectangular matrices with i.i.d. standard normal elements: any chain, a single matrix, W_QK."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rmtbase.ensembles._ensemble import Ensemble
from rmtbase.ensembles._full_matrix import DenseGaussianChain
from rmtbase.ensembles._thin_gaussian_chain import BidiagonalGaussianMatrix, ThinGaussianChain
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_dims, require_head_shape, require_positive_integer

_MOST_FACTORS = 16
_WIDEST = 10**12
_LARGEST_PRODUCT = 10**140  # Σλ² is of the order of its square, which must be far from overflow in float64


def gaussian_chain(
    dims: Sequence[int], method: Literal["thin", "dense"] = "thin"
) -> ThinGaussianChain | BidiagonalGaussianMatrix | DenseGaussianChain:
    """Ensemble W = X_1 X_2 … X_L, X_l of shape (n_{l-1}, n_l) with i.i.d. standard normal elements.

    Other scales follow exactly: the singular values at (σ_1, …, σ_L) are Π σ_l times these. (d, h, d) is W_QK,
    (m, n) a weight block, (d_out, r, d_in) a LoRA update.

    Args:
        dims: (n_0, …, n_L), 1 ≤ L ≤ 16.
        method: ``"thin"`` draws an r × r core with the same singular values, r = min n_l; ``"dense"`` draws the matrix.

    Raises:
        ParameterError: a dimension is not a positive integer up to 10^12, there are fewer than two or more than 17
            dimensions, their product exceeds 10^140, or the method is unknown.
    """
    dims = require_dims(dims)
    if len(dims) > _MOST_FACTORS + 1:
        raise ParameterError("dims", dims, f"at most {_MOST_FACTORS + 1} dimensions")
    for index, n in enumerate(dims):
        if n > _WIDEST:
            raise ParameterError(f"dims[{index}]", n, f"at most {_WIDEST}")
    if math.prod(dims) > _LARGEST_PRODUCT:
        raise ParameterError("dims", dims, "a product of at most 1e140: beyond it squared eigenvalues overflow")
    if method == "dense":
        return DenseGaussianChain(dims)
    if method != "thin":
        raise ParameterError("method", method, "'thin' or 'dense'")
    rank = min(dims)
    if len(dims) == 2:
        return BidiagonalGaussianMatrix(long=max(dims), rank=rank)
    bottleneck = dims.index(rank, 1) if rank in dims[1:] else 0
    return ThinGaussianChain(dims, rank, bottleneck)


def gaussian_matrix(
    n_rows: int, n_columns: int, method: Literal["thin", "dense"] = "thin"
) -> BidiagonalGaussianMatrix | DenseGaussianChain:
    """Ensemble of n_rows × n_columns standard normal matrices.

    The method ``"thin"`` draws a bidiagonal r × r matrix with the same singular values, r = min(n_rows, n_columns), and
    ``"dense"`` the matrix itself. Errors are those of :func:`gaussian_chain`.
    """
    n_rows = require_positive_integer("n_rows", n_rows)
    n_columns = require_positive_integer("n_columns", n_columns)
    return gaussian_chain((n_rows, n_columns), method)  # type: ignore[return-value]


def low_rank_product(d_model: int, d_head: int, method: Literal["thin", "dense"] = "thin") -> Ensemble:
    """Ensemble W_QK = W_Qᵀ W_K with i.i.d. standard normal factors of shape (d_head, d_model).

    Other scales follow exactly: the singular values at (σ_Q, σ_K) are σ_Q σ_K times these. ``norm_squared`` of a draw
    is (‖W_Q‖_F², ‖W_K‖_F²).

    Args:
        d_model: width of the residual stream.
        d_head: head dimension, at most d_model.
        method: ``"thin"`` draws an h × h core with the same singular values; ``"dense"`` draws the matrix itself.

    Raises:
        ParameterError: a dimension is not a positive integer, d_head > d_model, or the method is unknown.
    """
    d_model, d_head = require_head_shape(d_model, d_head)
    return gaussian_chain((d_model, d_head, d_model), method)
