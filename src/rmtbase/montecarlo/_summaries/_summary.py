"""What the draws of one case come to, at σ = 1 and raw, in memory that does not grow with the draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmtbase.montecarlo._stores._source import DrawSource, blocks, gather
from rmtbase.nulls import PROBABILITIES
from rmtbase.statistics import SPECTRAL_STATISTICS, SampleSummary, quantiles_of_stream, summarize_stream

_ALL = slice(None)
_ROWS = 64  # that are summarised in the same readings

Array = NDArray[np.float64]


@dataclass(frozen=True)
class CaseSummary:
    """The draws of one case, summarised; every factor at σ = 1, raw matrices.

    Attributes:
        draws: how many.
        statistic: of each spectral statistic, arrays (statistic,).
        eigenvalue: of each ordered eigenvalue, arrays (rank,), descending.
        own_quantile: quantiles of the ordered eigenvalues, each draw divided by its own scale estimate, (rank,
            probability), or None where they are not wanted.
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


def summarize_case(
    source: DrawSource, case: int, bin_edge: Callable[[Array], Array], self_normalize: bool = False
) -> CaseSummary:
    """Summarise one case, reading it again and again: no draw is held, but for ``sample`` and ``sigma_estimate``.

    The result is the same however the draws were cut into chunks.

    Args:
        source: the draws.
        case: which case.
        bin_edge: from the eigenvalues of the first draws, (rank, draw), to the histogram's edges.
        self_normalize: whether ``own_quantile`` is wanted; the ensemble's factors then have a scale.
    """
    plan = source.plan
    rank = plan.ensembles[case].rank
    edges = bin_edge(next(blocks(source, case, "eigenvalue")))
    counts = summarize_stream(lambda: (_histograms(one.T, edges).T for one in blocks(source, case, "eigenvalue")), [])
    per_count = rank * np.diff(edges)
    keep = plan.keep_sample
    return CaseSummary(
        draws=plan.draws[case],
        statistic=_by_groups(source, case, "statistic", len(SPECTRAL_STATISTICS)),
        eigenvalue=_by_groups(source, case, "eigenvalue", rank),
        own_quantile=_own_quantile(source, case) if self_normalize else None,
        bin_edge=edges,
        density=counts.mean / per_count,
        density_standard_error=counts.standard_error / per_count,
        sample=gather(source, case, "statistic", _ALL) if keep else None,
        sigma_estimate=np.sqrt(_variances(source, case, gather(source, case, "norm_squared", _ALL))) if keep else None,
    )


def _by_groups(source: DrawSource, case: int, variable: str, rows: int) -> SampleSummary:
    """The summary of each row."""
    summaries = [
        summarize_stream(lambda group=group: blocks(source, case, variable, group), PROBABILITIES)
        for group in _groups(rows)
    ]
    return SampleSummary(*(np.concatenate(field) for field in zip(*summaries, strict=True)))


def _own_quantile(source: DrawSource, case: int) -> Array:
    """Quantiles of each eigenvalue over the draw's own scale."""

    def scaled(group: slice) -> Iterator[Array]:
        norms = blocks(source, case, "norm_squared")
        for eigenvalues, squares in zip(blocks(source, case, "eigenvalue", group), norms, strict=True):
            yield eigenvalues / np.prod(_variances(source, case, squares), axis=0)

    groups = _groups(source.plan.ensembles[case].rank)
    return np.concatenate([quantiles_of_stream(lambda group=group: scaled(group), PROBABILITIES) for group in groups])


def _variances(source: DrawSource, case: int, norm_squared: Array) -> Array:
    """Estimates of σ² of each factor and draw."""
    return norm_squared / np.array(source.plan.ensembles[case].factor_sizes, dtype=float)[:, None]


def _groups(rows: int) -> list[slice]:
    return [slice(first, first + _ROWS) for first in range(0, rows, _ROWS)]


def _histograms(eigenvalues: Array, edges: Array) -> Array:
    """Counts of each draw by itself, (draw, bin); what lies outside the edges is left out."""
    draws, bins = len(eigenvalues), edges.size - 1
    place = np.searchsorted(edges, eigenvalues, side="right") - 1
    inside = (place >= 0) & (place < bins)
    flat = (place + bins * np.arange(draws)[:, None])[inside]
    return np.bincount(flat, minlength=draws * bins).reshape(draws, bins).astype(float)
