"""The ensemble of rectangular matrices with i.i.d. standard normal elements."""

from __future__ import annotations

from rmtbase.ensembles._bidiagonal_gaussian_matrix import BidiagonalGaussianMatrix
from rmtbase.parameters import require_positive_integer


def gaussian_matrix(n_rows: int, n_columns: int) -> BidiagonalGaussianMatrix:
    """The ensemble of n_rows × n_columns standard normal matrices, drawn in bidiagonal form.

    Raises:
        ParameterError: a dimension is not a positive integer.
    """
    n_rows = require_positive_integer("n_rows", n_rows)
    n_columns = require_positive_integer("n_columns", n_columns)
    return BidiagonalGaussianMatrix(long=max(n_rows, n_columns), rank=min(n_rows, n_columns))
