"""The ensemble of products of rectangular matrices with i.i.d. standard normal elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rmtbase.ensembles._bidiagonal_gaussian_matrix import BidiagonalGaussianMatrix
from rmtbase.ensembles._dense_gaussian_chain import DenseGaussianChain
from rmtbase.ensembles._thin_gaussian_chain import ThinGaussianChain
from rmtbase.errors import ParameterError
from rmtbase.parameters import require_dims

_MOST_FACTORS = 16
_WIDEST = 10**12
_LARGEST_PRODUCT = 10**140  # Σλ² is of the order of its square: far from the end of the doubles


def gaussian_chain(
    dims: Sequence[int], method: Literal["thin", "dense"] = "thin"
) -> ThinGaussianChain | BidiagonalGaussianMatrix | DenseGaussianChain:
    """The ensemble W = X_1 X_2 … X_L, X_l of shape (n_{l-1}, n_l) with i.i.d. standard normal elements.

    Any other scale is exact rescaling: the singular values at (σ_1, …, σ_L) are Π σ_l times these. (d, h, d) is W_QK,
    (m, n) a weight block, (d_out, r, d_in) a LoRA update.

    Args:
        dims: (n_0, …, n_L), 1 ≤ L ≤ 16.
        method: ``"thin"`` draws an r × r core with the same singular values, r = min n_l; ``"dense"`` draws the matrix.

    Raises:
        ParameterError: a dimension is not a positive integer up to 10^12, there are fewer than two or more than 17,
            their product exceeds 10^140, or the method is unknown.
    """
    dims = require_dims(dims)
    if len(dims) > _MOST_FACTORS + 1:
        raise ParameterError("dims", dims, f"at most {_MOST_FACTORS + 1} dimensions")
    for index, n in enumerate(dims):
        if n > _WIDEST:
            raise ParameterError(f"dims[{index}]", n, f"at most {_WIDEST}")
    if math.prod(dims) > _LARGEST_PRODUCT:
        raise ParameterError("dims", dims, "a product of at most 1e140: beyond it eigenvalues squared are no doubles")
    if method == "dense":
        return DenseGaussianChain(dims)
    if method != "thin":
        raise ParameterError("method", method, "'thin' or 'dense'")
    rank = min(dims)
    if len(dims) == 2:
        return BidiagonalGaussianMatrix(long=max(dims), rank=rank)
    bottleneck = dims.index(rank, 1) if rank in dims[1:] else 0
    return ThinGaussianChain(dims, rank, bottleneck)
