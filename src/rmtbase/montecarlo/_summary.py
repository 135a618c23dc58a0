"""What the draws of one case come to, at σ = 1 and raw, in memory that does not grow with the draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmtbase.montecarlo._source import DrawSource, gather, parts
from rmtbase.statistics import SPECTRAL_STATISTICS, SampleSummary, summarize

PROBABILITIES = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.16, 0.25, 0.5, 0.75, 0.84, 0.95, 0.975, 0.99, 0.995, 0.999,
)  # fmt: skip
"""The probabilities at which every quantile of a table is given."""

_BUDGET = 1 << 28  # bytes of rows held at a time, a few times over while they are sorted

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CaseSummary:
    """The draws of one case, summarised; every factor at σ = 1, raw matrices.

    Attributes:
        draws: how many.
        statistic: of each spectral statistic, arrays (statistic,).
        eigenvalue: of each ordered eigenvalue, arrays (rank,), descending.
        own_quantile: quantiles of the ordered eigenvalues, each draw divided by its own scale estimate, (rank,
            probability); None where the ensemble has no scale to estimate.
        bin_edge: histogram edges in λ, (bin + 1,).
        density, density_standard_error: of the nonzero eigenvalues, (bin,).
        sample: (statistic, draw), or None where it is not kept.
        sigma_estimate: √(norm_squared / size) of each factor and draw, (factor, draw), or None.
    """

    draws: int
    statistic: SampleSummary
    eigenvalue: SampleSummary
    own_quantile: Array | None
    bin_edge: Array
    density: Array
    density_standard_error: Array
    sample: Array | None
    sigma_estimate: Array | None


def summarize_case(source: DrawSource, case: int, bin_edge: Callable[[Array], Array]) -> CaseSummary:
    """Summarise one case.

    Exact quantiles without holding all draws: as many rows at a time as fit a fixed budget, at least one, whose draws
    take 8 bytes each. The result is the same however the draws were cut into chunks, but for edges that ``bin_edge``
    makes of the first of them.

    Args:
        source: the draws.
        case: which case.
        bin_edge: from the eigenvalues of the first chunk, (rank, draw), to the histogram's edges.
    """
    plan = source.plan
    draws, rank = plan.draws[case], plan.ensembles[case].rank
    sizes = np.array(plan.ensembles[case].factor_sizes, dtype=float)
    variances = gather(source, case, "norm_squared", slice(None)) / sizes[:, None]
    scale = np.prod(variances, axis=0) if sizes.size else None
    statistic, _ = _by_groups(source, case, "statistic", len(SPECTRAL_STATISTICS), None)
    eigenvalue, own = _by_groups(source, case, "eigenvalue", rank, scale)
    edges = bin_edge(next(array for _, array in parts(source, case, "eigenvalue")))
    density, error = _density(source, case, edges)
    keep = plan.keep_sample
    return CaseSummary(
        draws=draws,
        statistic=statistic,
        eigenvalue=eigenvalue,
        own_quantile=own,
        bin_edge=edges,
        density=density,
        density_standard_error=error,
        sample=gather(source, case, "statistic", slice(None)) if keep else None,
        sigma_estimate=np.sqrt(variances) if keep else None,
    )


def _by_groups(
    source: DrawSource, case: int, variable: str, rows: int, scale: Array | None
) -> tuple[SampleSummary, Array | None]:
    """The summary of each row, and the quantiles of each row over ``scale``."""
    size = max(1, _BUDGET // (8 * source.plan.draws[case]))
    summaries, own = [], []
    for first in range(0, rows, size):
        columns = gather(source, case, variable, slice(first, first + size)).T
        summaries.append(summarize(columns, PROBABILITIES))
        if scale is not None:
            own.append(np.moveaxis(np.quantile(columns / scale[:, None], PROBABILITIES, axis=0), 0, -1))
    joined = SampleSummary(*(np.concatenate(field) for field in zip(*summaries, strict=True)))
    return joined, np.concatenate(own) if own else None


def _density(source: DrawSource, case: int, edges: Array) -> tuple[Array, Array]:
    """Density of the eigenvalues and its standard error from the spread between draws."""
    bins = edges.size - 1
    counts, squares = np.zeros(bins), np.zeros(bins)
    for _, eigenvalues in parts(source, case, "eigenvalue"):
        per_draw = _histograms(eigenvalues.T, edges)
        counts += per_draw.sum(axis=0)
        squares += (per_draw**2).sum(axis=0)
    draws, rank, width = source.plan.draws[case], source.plan.ensembles[case].rank, np.diff(edges)
    variance = np.maximum(squares - counts**2 / draws, 0.0) / max(draws - 1, 1)
    return counts / (draws * rank * width), np.sqrt(variance / draws) / (rank * width)


def _histograms(eigenvalues: Array, edges: Array) -> Array:
    """Counts of each draw by itself, (draw, bin); what lies outside the edges is left out."""
    draws, bins = len(eigenvalues), edges.size - 1
    place = np.searchsorted(edges, eigenvalues, side="right") - 1
    inside = (place >= 0) & (place < bins)
    flat = (place + bins * np.arange(draws)[:, None])[inside]
    return np.bincount(flat, minlength=draws * bins).reshape(draws, bins).astype(float)
