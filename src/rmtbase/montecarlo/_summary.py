"""Summaries of the draws of a case, at σ = 1 and raw, in memory that does not grow with the draws."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float64, Shaped

from rmtbase.laws import PROBABILITIES
from rmtbase.montecarlo._elements import element_edges, require_element_ensemble
from rmtbase.montecarlo._plan import Chunk, Plan
from rmtbase.statistics import SPECTRAL_STATISTICS, SampleSummary, summarize_stream

BLOCK = 1 << 14
"""Draws that a summary takes at a time. It affects the last digits of means, which are rounded block by block."""

Block = Shaped[np.ndarray, "row draw"]
Edges = Float64[np.ndarray, " edge"]


@dataclass(frozen=True)
class DrawSource:
    plan: Plan  # the plan that was drawn
    read: Callable[[Chunk, str, slice], Block]  # function that reads rows of one array of a chunk, (row, draw)

    def whole(self, case: int, variable: str) -> Block:
        return np.concatenate([self.read(chunk, variable, slice(None)) for chunk in self.plan.chunks_of(case)], axis=1)

    def blocks(self, case: int, variable: str, rows: slice = slice(None)) -> Iterator[Block]:
        """Yield rows of a variable in blocks of ``BLOCK`` draws, the last one shorter, whatever the chunks."""
        waiting: list[Block] = []
        draws = 0
        for chunk in self.plan.chunks_of(case):
            array = self.read(chunk, variable, rows)
            waiting.append(array)
            draws += array.shape[1]
            if draws >= BLOCK:
                joined = np.concatenate(waiting, axis=1)
                draws %= BLOCK
                stop = joined.shape[1] - draws
                for first in range(0, stop, BLOCK):
                    # Always in the same memory order, because NumPy's order of summation, and rounding, depend on it.
                    yield np.ascontiguousarray(joined[:, first : first + BLOCK])
                waiting = [joined[:, stop:]]
        if draws:
            yield np.ascontiguousarray(np.concatenate(waiting, axis=1))


_ROWS = 64  # rows that are summarised in the same readings


@dataclass(frozen=True, kw_only=True)
class CaseSummary:
    draws: int
    statistic: SampleSummary  # arrays (statistic,)
    bin_edge: Edges
    density: Float64[np.ndarray, " bin"]  # of the numbers that the histogram counts
    density_standard_error: Float64[np.ndarray, " bin"]
    sample: Float64[np.ndarray, "statistic draw"] | None  # None if it is not kept


@dataclass(frozen=True, kw_only=True)
class SpectrumSummary(CaseSummary):
    eigenvalue: SampleSummary  # of each ordered eigenvalue, arrays (rank,), descending
    own_scaled: SampleSummary | None  # the same, each draw divided by its own scale estimate; None if not asked for
    sigma_estimate: Float64[np.ndarray, "factor draw"] | None  # √(norm_squared / size); None if it is not kept


def summarize_spectra(
    source: DrawSource, case: int, bin_edge: Callable[[Block], Edges], self_normalize: bool = False
) -> SpectrumSummary:
    ensemble = source.plan.cases[case].ensemble
    rank, sizes = ensemble.rank, np.array(ensemble.factor_sizes, dtype=float)[:, None]
    edges = bin_edge(next(source.blocks(case, "eigenvalue")))

    def own_scaled(group: slice) -> Iterator[Block]:
        norms = source.blocks(case, "norm_squared")
        for eigenvalues, squares in zip(source.blocks(case, "eigenvalue", group), norms, strict=True):
            yield eigenvalues / np.prod(squares / sizes, axis=0)

    def counts() -> Iterator[Block]:
        return (_histograms(block.T, edges).T for block in source.blocks(case, "eigenvalue"))

    return SpectrumSummary(
        **_of_any(source, case, edges, counts, rank),
        statistic=_by_groups(partial(source.blocks, case, "statistic"), len(SPECTRAL_STATISTICS)),
        eigenvalue=_by_groups(partial(source.blocks, case, "eigenvalue"), rank),
        own_scaled=_by_groups(own_scaled, rank) if self_normalize else None,
        sigma_estimate=np.sqrt(source.whole(case, "norm_squared") / sizes) if source.plan.keep_sample else None,
    )


def summarize_elements(source: DrawSource, case: int) -> tuple[CaseSummary, dict[str, np.float64]]:
    """Summarise the elements of a case, and their share beyond the edges of the histogram."""
    plan = source.plan
    ensemble = require_element_ensemble(plan.cases[case].ensemble)
    edges, elements = element_edges(ensemble, plan.bins, plan.range), float(np.prod(ensemble.element_shape))

    def counts() -> Iterator[Block]:
        return (block.astype(float) for block in source.blocks(case, "histogram"))

    statistic = summarize_stream(lambda: source.blocks(case, "statistic"), PROBABILITIES)
    outside = summarize_stream(
        lambda: (elements - block.sum(axis=0, keepdims=True) for block in source.blocks(case, "histogram")), []
    )
    share = {
        "share_outside": outside.mean[0] / elements,
        "share_outside_standard_error": outside.standard_error[0] / elements,
    }
    return CaseSummary(**_of_any(source, case, edges, counts, elements), statistic=statistic), share


def _of_any(
    source: DrawSource, case: int, edges: Edges, counts: Callable[[], Iterable[Block]], numbers: float
) -> dict[str, Any]:
    count, per_count = summarize_stream(counts, []), numbers * np.diff(edges)
    return {
        "draws": source.plan.cases[case].draws,
        "bin_edge": edges,
        "density": count.mean / per_count,
        "density_standard_error": count.standard_error / per_count,
        "sample": source.whole(case, "statistic") if source.plan.keep_sample else None,
    }


def _by_groups(blocks: Callable[[slice], Iterable[Block]], rows: int) -> SampleSummary:
    groups = [slice(first, first + _ROWS) for first in range(0, rows, _ROWS)]
    summaries = [summarize_stream(partial(blocks, group), PROBABILITIES) for group in groups]
    return SampleSummary(*(np.concatenate(field) for field in zip(*summaries, strict=True)))


def _histograms(eigenvalues: Float64[np.ndarray, "draw rank"], edges: Edges) -> Float64[np.ndarray, "draw bin"]:
    draws, bins = len(eigenvalues), edges.size - 1
    place = np.searchsorted(edges, eigenvalues, side="right") - 1
    inside = (place >= 0) & (place < bins)
    flat = (place + bins * np.arange(draws)[:, None])[inside]
    return np.bincount(flat, minlength=draws * bins).reshape(draws, bins).astype(float)
