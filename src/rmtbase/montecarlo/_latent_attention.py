"""Spectral statistics of heads of latent attention, jointly at many ratios of the two parts of their keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float64

from rmtbase.ensembles import LatentAttention
from rmtbase.linalg import available_cores, gram_singular_values, single_threaded_blas
from rmtbase.montecarlo._compiled_sampler import tile_size
from rmtbase.montecarlo._memory import require_draw_fits, require_results_fit
from rmtbase.montecarlo._simulations import draw_tiles
from rmtbase.parameters import require_draws, require_seed
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

_SPECTRA = 10_000  # draws whose eigenvalues are kept


@in_one_line
@dataclass(frozen=True)
class LatentAttentionSample:
    """Draws of a head, each at all ratios and divided by its own estimates of σ, as heads are scored."""

    rope_ratios: tuple[float, ...]  # the ratios, ascending
    # (ratio, draw, statistic), in the registry's order
    sample: Float64[np.ndarray, "ratio draw statistic"] = field(repr=False)
    # (ratio, draw, rank), descending, of the first 10 000 draws
    eigenvalues: Float64[np.ndarray, "ratio shown_draw rank"] = field(repr=False)


def require_latent_sample(ensemble: LatentAttention, ratios: int, draws: int, seed: int) -> tuple[LatentAttention, int]:
    """Check the arguments; return the ensemble at ratio 1, whose name enters the keys, and the number of draws."""
    ensemble, draws = replace(ensemble, rope_ratio=1.0), require_draws(draws)
    require_seed(seed)
    require_draw_fits(ensemble)
    eigenvalues = ensemble.rank * spectra_among(range(draws)) / draws
    require_results_fit(draws, math.ceil(16 * ratios * (len(SPECTRAL_STATISTICS) + eigenvalues)), "ask for fewer")
    return ensemble, draws


def spectra_among(draws: range) -> int:
    """Count the draws whose eigenvalues are kept: those with an index below 10 000."""
    return len(range(draws.start, min(draws.stop, _SPECTRA)))


def draw_latent_attention(
    ensemble: LatentAttention, rope_ratios: Sequence[float], draws: range, seed: int, advance: Callable[[int], None]
) -> LatentAttentionSample:
    """Make the draws of these indices, equal to the bit to those of a longer run if the first begins a tile.

    See :func:`tile_size`; the arguments must have passed :func:`require_latent_sample`.
    """
    tile, shown = tile_size(ensemble.matrix_shape), spectra_among(draws)
    sizes = np.array(ensemble.factor_sizes, dtype=float)
    sample, eigenvalues = [], []
    tiles = draw_tiles(ensemble, LatentAttention.parts, len(draws), seed, tile, draws.start)
    with single_threaded_blas(), ThreadPoolExecutor(available_cores()) as pool:
        for latent, rotated, norm_squared in tiles:
            unit = np.sqrt(np.prod(norm_squared / sizes, axis=1))[:, None, None]
            cores = [(latent + ratio * rotated) / unit for ratio in rope_ratios]
            values = np.stack(list(pool.map(gram_singular_values, cores)))
            sample.append(spectral_statistics(values))
            eigenvalues.append(values[:, :shown] ** 2)
            shown -= min(shown, len(latent))
            advance(len(latent))
    return LatentAttentionSample(
        tuple(rope_ratios), np.concatenate(sample, axis=1), np.concatenate(eigenvalues, axis=1)
    )
