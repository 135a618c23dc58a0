"""The spectral statistics of latent attention's heads at many ratios of the two parts of their keys, jointly."""

from __future__ import annotations

from collections.abc import Sequence
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
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import in_one_line
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

_SPECTRA = 10_000  # draws whose eigenvalues are kept


@in_one_line
@dataclass(frozen=True)
class LatentAttentionSample:
    """Draws of a head, each at all of the ratios, and over its own estimates of σ, as heads are scored.

    Attributes:
        rope_ratios: ascending.
        sample: (ratio, draw, statistic), in the registry's order.
        eigenvalues: (ratio, draw, rank), descending, of the first 10 000 draws.
    """

    rope_ratios: tuple[float, ...]
    sample: Float64[np.ndarray, "ratio draw statistic"] = field(repr=False)
    eigenvalues: Float64[np.ndarray, "ratio shown_draw rank"] = field(repr=False)


def simulate_latent_attention(
    ensemble: LatentAttention, rope_ratios: Sequence[float], draws: int, seed: int = 0, progress: Progress = SILENT
) -> LatentAttentionSample:
    """The same draws of latent attention at each of several ratios, exact in law.

    Args:
        ensemble: the shape; its own ``rope_ratio`` does not count.
        rope_ratios: ascending.
        draws: how many.
        seed: the draws are a function of (seed, shape, index) alone.
        progress: told of the draws finished.

    Raises:
        ParameterError: draws is not an integer of at least 2 or more than memory holds, or the seed is out of range.
        AllocationError: one draw does not fit in memory.
    """
    at_one = replace(ensemble, rope_ratio=1.0)
    draws, seed = require_draws(draws), require_seed(seed)
    require_draw_fits(at_one)
    require_results_fit(draws, 16 * len(rope_ratios) * (len(SPECTRAL_STATISTICS) + at_one.rank), "ask for fewer")
    sample, eigenvalues, advance = [], [], progress.bar("drawing the null", draws)
    sizes, drawn = np.array(at_one.factor_sizes, dtype=float), 0
    with single_threaded_blas(), ThreadPoolExecutor(available_cores()) as pool:
        for latent, rotated, norm_squared in draw_tiles(
            at_one, LatentAttention.parts, draws, seed, tile_size(at_one.matrix_shape)
        ):
            unit = np.sqrt(np.prod(norm_squared / sizes, axis=1))[:, None, None]
            cores = [(latent + ratio * rotated) / unit for ratio in rope_ratios]
            values = np.stack(list(pool.map(gram_singular_values, cores)))
            sample.append(spectral_statistics(values))
            eigenvalues.append(values[:, : max(0, _SPECTRA - drawn)] ** 2)
            drawn += len(latent)
            advance(len(latent))
    return LatentAttentionSample(
        tuple(rope_ratios), np.concatenate(sample, axis=1), np.concatenate(eigenvalues, axis=1)
    )
