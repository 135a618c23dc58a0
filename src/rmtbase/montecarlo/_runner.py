"""Draw many matrices of an ensemble and solve their spectra, chunk by chunk in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from rmtbase.ensembles import LowRankProduct, ProductDraw
from rmtbase.errors import ParameterError
from rmtbase.linalg import SpectrumSolver, reproducible_jax
from rmtbase.montecarlo._keys import case_key, draw_keys
from rmtbase.parameters import require_positive_integer

_CHUNK_BYTES = 1 << 24  # of matrices: large enough to hide the dispatch, small enough for the last-level cache
_MAX_CHUNK = 1024
_MAX_DRAWS = 2**32 - _MAX_CHUNK  # a draw's index is folded into its key as 32 bits


class SpectrumChunk(NamedTuple):
    """Consecutive draws.

    Attributes:
        start: index of the first.
        singular_values: (draw, rank), descending, of the product at σ_Q = σ_K = 1.
        norm_squared_q: ‖W_Q‖_F², (draw,).
        norm_squared_k: ‖W_K‖_F², (draw,).
    """

    start: int
    singular_values: NDArray[np.float64]
    norm_squared_q: NDArray[np.float64]
    norm_squared_k: NDArray[np.float64]


def chunk_size(matrix_shape: tuple[int, int]) -> int:
    """Draws per chunk: as many as fit 16 MiB of matrices, at most 1024, at least one."""
    rows, columns = matrix_shape
    return int(np.clip(_CHUNK_BYTES // (8 * rows * columns), 1, _MAX_CHUNK))


@jax.jit
def _sample_many(ensemble: LowRankProduct, key: jax.Array, indices: jax.Array) -> ProductDraw:
    return jax.vmap(ensemble.sample)(draw_keys(key, indices))


def draw_spectra(
    ensemble: LowRankProduct,
    draws: int,
    seed: int,
    case: str,
    chunk: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Iterator[SpectrumChunk]:
    """Spectra of draws 0, …, draws - 1, chunk by chunk.

    While the host solves the spectra of one chunk, JAX already draws the next. The draws do not depend on ``chunk``,
    and the first n of a longer run are those of a run of n.

    Args:
        ensemble: what to draw.
        draws: how many.
        seed: of the whole run.
        case: name of the case; together with the seed and the draw's index it fixes the draw.
        chunk: draws per chunk; chosen by memory if None.
        progress: called with the number of draws finished, after each chunk.

    Raises:
        ParameterError: draws or chunk is not a positive integer, or the seed is out of range.
    """
    draws = require_positive_integer("draws", draws)
    if draws > _MAX_DRAWS:
        raise ParameterError("draws", draws, f"at most {_MAX_DRAWS}")
    size = chunk_size(ensemble.matrix_shape) if chunk is None else require_positive_integer("chunk", chunk)
    with reproducible_jax():
        key = case_key(seed, case)
    return _chunks(ensemble, key, draws, size, progress)


def _chunks(
    ensemble: LowRankProduct,
    key: jax.Array,
    draws: int,
    size: int,
    progress: Callable[[int], None] | None,
) -> Iterator[SpectrumChunk]:
    indices = np.arange(size, dtype=np.uint32)

    def dispatch(start: int) -> ProductDraw:
        # Always a whole chunk, so that there is one compilation; what lies beyond the last draw is dropped.
        with reproducible_jax():
            return _sample_many(ensemble, key, indices + np.uint32(start))

    with SpectrumSolver() as solver:
        ahead = dispatch(0)
        for start in range(0, draws, size):
            current = ahead
            count = min(size, draws - start)
            matrices, norm_q, norm_k = (np.asarray(part)[:count] for part in current)
            if start + size < draws:
                ahead = dispatch(start + size)
            values = solver.singular_values(matrices)[:, : ensemble.rank]
            yield SpectrumChunk(start, values, norm_q, norm_k)
            if progress is not None:
                progress(count)
