"""Matrices brought to rows and columns of one mean square: what no gain of a row or a column can change."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError
from rmtbase.parameters import BALANCED, MOST_ROUNDS, require_finite_numbers, require_real_array


def balanced(matrices: ArrayLike) -> Float[NDArray[np.float64], "... m n"]:
    """D X D′ of each X (..., m, n), D and D′ diagonal and positive, whose rows and columns all have X's mean square.

    Where no element is zero there is one such matrix, the same for G X G′ but for its size, whatever the gains G and G′
    (Sinkhorn's theorem). Of matrices with zeros there may be none, of a row or column of zeros there is none: zeros.

    Raises:
        ParameterError: what is no array of finite real matrices.

    Source: R. Sinkhorn and P. Knopp, Pacific J. Math. 21, 343 (1967).
    """
    stack = require_real_array("matrices", matrices)
    if stack.ndim < 2:
        raise ParameterError("matrices", f"shape {stack.shape}", "matrices (..., m, n)")
    found = np.empty(stack.shape)
    for place in np.ndindex(*stack.shape[:-2]):
        found[place] = _balanced(require_finite_numbers("matrices", stack[place]))
    return found


def _balanced(x: Float[NDArray[np.float64], "m n"]) -> Float[NDArray[np.float64], "m n"]:
    size = np.abs(x).max(initial=0.0)
    if not size > 0.0:
        return np.zeros(x.shape)
    squares = (x / size) ** 2
    total = squares.mean()
    (m, n), rows = x.shape, np.ones(len(x))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for _ in range(MOST_ROUNDS):
            columns = m / (rows @ squares)
            sums = squares @ columns / n
            if np.abs(rows * sums - 1.0).max() <= BALANCED:
                return np.sqrt(rows * total)[:, None] * x * np.sqrt(columns)
            rows = 1.0 / sums
    return np.zeros(x.shape)
