"""The ensemble of rectangular matrices with i.i.d. standard normal elements: the Gaussian chain of one factor."""

from __future__ import annotations

from typing import Literal, overload

from rmtbase.ensembles._bidiagonal_gaussian_matrix import BidiagonalGaussianMatrix
from rmtbase.ensembles._dense_gaussian_chain import DenseGaussianChain
from rmtbase.ensembles._gaussian_chain import gaussian_chain
from rmtbase.parameters import require_positive_integer


@overload
def gaussian_matrix(n_rows: int, n_columns: int, method: Literal["thin"] = "thin") -> BidiagonalGaussianMatrix: ...
@overload
def gaussian_matrix(n_rows: int, n_columns: int, method: Literal["dense"]) -> DenseGaussianChain: ...
def gaussian_matrix(
    n_rows: int, n_columns: int, method: Literal["thin", "dense"] = "thin"
) -> BidiagonalGaussianMatrix | DenseGaussianChain:
    """The ensemble of n_rows × n_columns standard normal matrices.

    Args:
        n_rows: m.
        n_columns: n.
        method: ``"thin"`` draws a bidiagonal r × r matrix with the same singular values, r = min(m, n), ``"dense"`` the
            matrix itself.

    Raises:
        ParameterError: a dimension is not a positive integer up to 10^12, or the method is unknown.
    """
    n_rows = require_positive_integer("n_rows", n_rows)
    n_columns = require_positive_integer("n_columns", n_columns)
    return gaussian_chain((n_rows, n_columns), method)  # type: ignore[return-value]
