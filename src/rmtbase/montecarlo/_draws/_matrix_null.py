"""The null spectrum of a whole weight matrix: i.i.d. Gaussian, from its bidiagonal form, at O(rank) memory a draw."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from rmtbase.ensembles import BidiagonalDraw, BidiagonalGaussianMatrix, gaussian_matrix
from rmtbase.linalg import extreme_eigenvalues, reproducible_jax
from rmtbase.montecarlo._draws._devices import host_memory
from rmtbase.montecarlo._draws._keys import case_key, draw_keys
from rmtbase.montecarlo._draws._program import COMPILER_OPTIONS, tile_size
from rmtbase.montecarlo._draws._room import require_bytes, require_results_fit
from rmtbase.parameters import require_positive_integer

_NUMBERS = 8  # of a draw, for each of the rank: its two diagonals as drawn, squared, multiplied and bisected


class GaussianMatrixSample(NamedTuple):
    """Draws of the spectrum of X Xᵀ, X an m × n standard normal matrix, r = min(m, n); each of shape (draw,).

    Attributes:
        largest_eigenvalue, smallest_eigenvalue: λ_1 and λ_r.
        trace, trace_of_square: Σλ and Σλ².
        log_determinant: Σ ln λ.
    """

    largest_eigenvalue: NDArray[np.float64]
    smallest_eigenvalue: NDArray[np.float64]
    trace: NDArray[np.float64]
    trace_of_square: NDArray[np.float64]
    log_determinant: NDArray[np.float64]


@partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def _sample_many(ensemble: BidiagonalGaussianMatrix, key: jax.Array, indices: jax.Array) -> BidiagonalDraw:
    return jax.vmap(ensemble.bidiagonal)(draw_keys(key, indices))


def simulate_gaussian_matrix(n_rows: int, n_columns: int, draws: int, seed: int = 0) -> GaussianMatrixSample:
    """Spectral statistics of n_rows × n_columns standard normal matrices, exact in law.

    The matrix's bidiagonal form B has independent χ entries; the traces and the log-determinant of B Bᵀ are sums over
    them, and its extreme eigenvalues come from the tridiagonal B Bᵀ by bisection. No matrix is formed, at any size.

    Args:
        n_rows: rows of the matrix.
        n_columns: columns of the matrix.
        draws: how many.
        seed: the draws are a function of (seed, shape, index) alone.

    Returns:
        The draws, in memory: 80 bytes each while they are joined.

    Raises:
        ParameterError: a dimension or ``draws`` is not a positive integer, there are more draws than memory holds, or
            the seed is out of range.
        AllocationError: the numbers of one draw, some ten times the rank, do not fit in memory.
    """
    ensemble = gaussian_matrix(n_rows, n_columns)
    draws = require_positive_integer("draws", draws)
    require_bytes(ensemble.name, (n_rows, n_columns), _NUMBERS * 8 * ensemble.rank, host_memory())
    require_results_fit(draws, 16 * len(GaussianMatrixSample._fields), "ask for fewer")
    with reproducible_jax():
        key = case_key(seed, ensemble.name)
    size = tile_size((2, ensemble.rank))
    indices = np.arange(size, dtype=np.uint32)  # always a whole tile, so that the draws do not depend on how many
    chunks = []
    for start in range(0, draws, size):
        with reproducible_jax():
            draw = _sample_many(ensemble, key, indices + np.uint32(start))
        count = min(size, draws - start)
        chunks.append(_statistics(np.asarray(draw.diagonal)[:count], np.asarray(draw.below)[:count]))
    return GaussianMatrixSample(*(np.concatenate(part) for part in zip(*chunks, strict=True)))


def _statistics(diagonal: NDArray[np.float64], below: NDArray[np.float64]) -> GaussianMatrixSample:
    # B Bᵀ of a lower bidiagonal B is tridiagonal.
    main = diagonal**2
    main[:, 1:] += below**2
    off = diagonal[:, :-1] * below
    largest, smallest = extreme_eigenvalues(main, off)
    return GaussianMatrixSample(
        largest_eigenvalue=largest,
        smallest_eigenvalue=smallest,
        trace=main.sum(axis=1),
        trace_of_square=(main**2).sum(axis=1) + 2.0 * (off**2).sum(axis=1),
        log_determinant=2.0 * np.log(diagonal).sum(axis=1),
    )
