"""Everything that one shape (d_model, d_head) yields at σ_Q = σ_K = 1, from which every σ follows by exact scaling."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmtbase import laws
from rmtbase.ensembles import low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.montecarlo._runner import draw_spectra
from rmtbase.statistics import spectral_statistics

BINS = 120
_MARGIN = 8.0  # Tracy–Widom scales beyond the edges that the histogram still covers

Array = NDArray[np.float64]


def case_name(d_model: int, d_head: int) -> str:
    """The name under which a shape's draws are keyed."""
    return f"low_rank_product {d_model}x{d_head}"


@dataclass(frozen=True)
class ShapeSimulation:
    """Draws of one shape at σ = 1, raw product.

    Attributes:
        d_model, d_head: the shape.
        sample: every spectral statistic of every draw, (draw, statistic).
        eigenvalues: (draw, d_head), descending.
        sigma_q_estimate, sigma_k_estimate: √(‖W‖_F²/(d h)) of each draw, (draw,).
        bin_edge: histogram edges in λ, (bin + 1,).
        density, density_standard_error: of the nonzero eigenvalues, (bin,).
    """

    d_model: int
    d_head: int
    sample: Array
    eigenvalues: Array
    sigma_q_estimate: Array
    sigma_k_estimate: Array
    bin_edge: Array
    density: Array
    density_standard_error: Array

    @property
    def scale_estimate(self) -> Array:
        """Each draw's own σ̂_Q² σ̂_K², (draw,)."""
        return self.sigma_q_estimate**2 * self.sigma_k_estimate**2


def simulate_shape(
    d_model: int, d_head: int, draws: int, seed: int, progress: Callable[[int], None] | None = None
) -> ShapeSimulation:
    """Draw one shape. Memory grows as 8 · draws · d_head bytes for the ordered eigenvalues, beside one chunk."""
    ensemble = low_rank_product(d_model, d_head)
    edges = histogram_edges(d_model, d_head)
    try:
        eigenvalues = np.empty((draws, d_head))
    except (MemoryError, ValueError) as error:
        needed = 8 * draws * d_head / 2**30
        raise ParameterError("draws", draws, f"fewer: {needed:.3g} GiB of eigenvalues do not fit in memory") from error
    sample, norms = [], []
    counts, squares = np.zeros(BINS), np.zeros(BINS)
    for chunk in draw_spectra(ensemble, draws, seed, case_name(d_model, d_head), progress=progress):
        rows = slice(chunk.start, chunk.start + len(chunk.singular_values))
        eigenvalues[rows] = chunk.singular_values**2
        sample.append(spectral_statistics(chunk.singular_values))
        norms.append((chunk.norm_squared_q, chunk.norm_squared_k))
        per_draw = _histograms(eigenvalues[rows], edges)
        counts += per_draw.sum(axis=0)
        squares += (per_draw**2).sum(axis=0)
    norm_q, norm_k = np.concatenate(norms, axis=1)
    density, error = _density(counts, squares, draws, d_head, edges)
    return ShapeSimulation(
        d_model=d_model,
        d_head=d_head,
        sample=np.concatenate(sample),
        eigenvalues=eigenvalues,
        sigma_q_estimate=np.sqrt(norm_q / (d_model * d_head)),
        sigma_k_estimate=np.sqrt(norm_k / (d_model * d_head)),
        bin_edge=edges,
        density=density,
        density_standard_error=error,
    )


def histogram_edges(d_model: int, d_head: int) -> Array:
    """Equal bins over the law's support, widened at each soft edge by eight Tracy–Widom scales, 0 at least."""
    law = laws.low_rank_product(d_model, d_head, normalization="none")
    (lower, upper), (below, above) = law.support, law.edge_scale
    return np.linspace(max(0.0, lower - _MARGIN * (below or 0.0)), upper + _MARGIN * above, BINS + 1)


def _histograms(eigenvalues: Array, edges: Array) -> Array:
    """Counts of each draw by itself, (draw, bin); what lies outside the edges is left out."""
    draws = len(eigenvalues)
    place = ((eigenvalues - edges[0]) * (BINS / (edges[-1] - edges[0]))).astype(np.int64)
    inside = (eigenvalues >= edges[0]) & (eigenvalues < edges[-1])
    flat = (np.minimum(place, BINS - 1) + BINS * np.arange(draws)[:, None])[inside]
    return np.bincount(flat, minlength=draws * BINS).reshape(draws, BINS).astype(float)


def _density(counts: Array, squares: Array, draws: int, rank: int, edges: Array) -> tuple[Array, Array]:
    width = np.diff(edges)
    variance = np.maximum(squares - counts**2 / draws, 0.0) / max(draws - 1, 1)
    return counts / (draws * rank * width), np.sqrt(variance / draws) / (rank * width)
