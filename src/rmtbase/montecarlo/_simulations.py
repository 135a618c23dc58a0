"""Samples of spectral statistics in memory: Gaussian matrices, heads that share keys, heads of latent attention."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float64, Key, UInt32

from rmtbase import ensembles, linalg
from rmtbase.montecarlo._compiled_sampler import COMPILER_OPTIONS, tile_size
from rmtbase.montecarlo._keys import case_key, draw_keys
from rmtbase.montecarlo._machine import host_memory, require_bytes, require_draw_fits, require_results_fit
from rmtbase.parameters import require_draws, require_positive_integer
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

Advance = Callable[[int], None]

_NUMBERS = 8  # of a draw per unit of rank: its two diagonals as drawn, squared, multiplied and bisected
_SPECTRA = 10_000  # draws of latent attention whose eigenvalues are kept


@in_one_line
class GaussianMatrixSample(NamedTuple):
    """Draws of the spectrum of X Xᵀ, X an m × n standard normal matrix, r = min(m, n); arrays of shape (draw,)."""

    largest_eigenvalue: Float64[np.ndarray, " draw"]
    smallest_eigenvalue: Float64[np.ndarray, " draw"]
    trace: Float64[np.ndarray, " draw"]
    trace_of_square: Float64[np.ndarray, " draw"]
    log_determinant: Float64[np.ndarray, " draw"]  # Σ ln λ


def simulate_gaussian_matrix(n_rows: int, n_columns: int, draws: int, seed: int = 0) -> GaussianMatrixSample:
    """Spectral statistics of n_rows × n_columns standard normal matrices by their bidiagonal form B, exact in law."""
    ensemble = ensembles.gaussian_matrix(n_rows, n_columns)
    assert isinstance(ensemble, ensembles.BidiagonalGaussianMatrix)  # the thin method
    draws = require_positive_integer("draws", draws)
    require_bytes(ensemble.name, (n_rows, n_columns), _NUMBERS * 8 * ensemble.rank, host_memory())
    require_results_fit(draws, 16 * len(GaussianMatrixSample._fields), "ask for fewer")
    parts, tile = [], tile_size((2, ensemble.rank))
    for diagonal, below in draw_tiles(ensemble, type(ensemble).bidiagonal, draws, seed, tile):
        # B Bᵀ of a lower bidiagonal B is tridiagonal.
        main = diagonal**2
        main[:, 1:] += below**2
        off = diagonal[:, :-1] * below
        traces = main.sum(axis=1), (main**2).sum(axis=1) + 2.0 * (off**2).sum(axis=1)
        parts.append((*linalg.extreme_eigenvalues(main, off), *traces, 2.0 * np.log(diagonal).sum(axis=1)))
    return GaussianMatrixSample(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@in_one_line
class HeadSample(NamedTuple):  # statistics, each at its own σ̂
    product: Float64[np.ndarray, "draw group statistic"]  # of W_Q,1ᵀ W_K, …, W_Q,gᵀ W_K
    query: Float64[np.ndarray, "draw group statistic"]  # of W_Q,1, …, W_Q,g
    key: Float64[np.ndarray, "draw statistic"]  # of W_K


def simulate_heads_with_factors(
    d_model: int, d_head: int, group: int, draws: int, seed: int = 0, progress: Progress = SILENT
) -> HeadSample:
    """Joint spectral statistics, exact in law, of products W_QᵀW_K of ``group`` query heads with one key head."""
    ensemble = ensembles.grouped_query_product(d_model, d_head, group)
    draws = require_draws(draws)
    require_draw_fits(ensemble)
    require_results_fit(draws, 16 * (2 * ensemble.group + 1) * len(SPECTRAL_STATISTICS), "ask for fewer")
    h, size = ensemble.d_head, ensemble.factor_sizes[0]
    tile = tile_size((ensemble.group * ensemble.rank, ensemble.rank))
    parts, advance = [], progress.bar("drawing heads and factors", draws)
    cores = linalg.available_cores()

    # One single-threaded LAPACK call per matrix; more parts than cores, so that the last of an uneven split is short.
    def solved(matrices: Float64[np.ndarray, "... h h"]) -> Float64[np.ndarray, "... h"]:
        stack = matrices.reshape(-1, h, h)
        solving = pool.map(linalg.singular_values, np.array_split(stack, min(len(stack), 4 * cores)))
        return np.concatenate(list(solving)).reshape(matrices.shape[:-1])

    with linalg.single_threaded_blas(), ThreadPoolExecutor(cores) as pool:
        for drawn in draw_tiles(ensemble, ensembles.GroupedQueryProduct.sample_with_factors, draws, seed, tile):
            product, query, key = map(solved, drawn)
            sigma_q, sigma_k = (np.sqrt(np.sum(s**2, axis=-1, keepdims=True) / size) for s in (query, key[:, None]))
            scaled = product / (sigma_q * sigma_k), query / sigma_q, (key[:, None] / sigma_k)[:, 0]
            parts.append([spectral_statistics(values) for values in scaled])
            advance(len(key))
    return HeadSample(*(np.concatenate(part) for part in zip(*parts, strict=True)))


@in_one_line
class LatentAttentionSample(NamedTuple):  # at all ratios, each draw divided by its own estimates of σ
    sample: Float64[np.ndarray, "ratio draw statistic"]  # in the registry's order
    eigenvalues: Float64[np.ndarray, "ratio shown_draw rank"]  # descending, of the first 10 000 draws


def spectra_among(draws: range) -> int:
    return len(range(draws.start, min(draws.stop, _SPECTRA)))


def draw_latent_attention(
    ensemble: ensembles.LatentAttention, rope_ratios: Sequence[float], draws: range, seed: int, advance: Advance
) -> LatentAttentionSample:
    """Make the draws of these indices, equal to the bit to those of a longer run if the first begins a tile."""
    tile, shown = tile_size(ensemble.matrix_shape), spectra_among(draws)
    sizes = np.array(ensemble.factor_sizes, dtype=float)
    sample, eigenvalues = [], []
    tiles = draw_tiles(ensemble, ensembles.LatentAttention.parts, len(draws), seed, tile, draws.start)
    with linalg.single_threaded_blas(), ThreadPoolExecutor(linalg.available_cores()) as pool:
        for latent, rotated, norm_squared in tiles:
            unit = np.sqrt(np.prod(norm_squared / sizes, axis=1))[:, None, None]
            cores = [(latent + ratio * rotated) / unit for ratio in rope_ratios]
            values = np.stack(list(pool.map(linalg.gram_singular_values, cores)))
            sample.append(spectral_statistics(values))
            eigenvalues.append(values[:, :shown] ** 2)
            shown -= min(shown, len(latent))
            advance(len(latent))
    return LatentAttentionSample(np.concatenate(sample, axis=1), np.concatenate(eigenvalues, axis=1))


def draw_tiles(
    ensemble: ensembles.BidiagonalGaussianMatrix | ensembles.GroupedQueryProduct | ensembles.LatentAttention,
    sample: Callable[[Any, Key[Array, ""]], tuple[Array, ...]],
    draws: int,
    seed: int,
    tile: int,
    start: int = 0,
) -> Iterator[tuple[Float64[np.ndarray, "draw ..."], ...]]:
    """Yield the draws ``start``, a multiple of the tile, …, start + draws - 1 that ``sample`` makes, tile by tile."""
    key = case_key(seed, ensemble.name)
    indices = np.arange(tile, dtype=np.uint32)
    for first in range(start, start + draws, tile):
        with linalg.reproducible_jax():
            drawn = _draw_tile(ensemble, key, indices + np.uint32(first), sample=sample)
        yield tuple(np.asarray(array)[: start + draws - first] for array in drawn)


@partial(jax.jit, static_argnames="sample", compiler_options=COMPILER_OPTIONS)
def _draw_tile(
    ensemble: Any, key: Key[Array, ""], indices: UInt32[Array, " draw"], *, sample: Callable[..., tuple[Array, ...]]
) -> tuple[Array, ...]:
    return jax.vmap(partial(sample, ensemble))(draw_keys(key, indices))
