"""What the draws of one case come to, at σ = 1 and raw, in memory that does not grow with the draws.

They are read from memory or from a store, a few rows at a time, in blocks that do not depend on how they were drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import xarray as xr
from jaxtyping import Float64, Shaped
from numpy.typing import NDArray

from rmtbase.montecarlo._chunks import Chunk
from rmtbase.montecarlo._compute import Arrays
from rmtbase.montecarlo._plan import Plan
from rmtbase.montecarlo._store import Store
from rmtbase.nulls import PROBABILITIES
from rmtbase.statistics import SPECTRAL_STATISTICS, SampleSummary, quantiles_of_stream, summarize_stream
from rmtbase.tables import SCHEMA_VERSION, Variable, describe, software_version

BLOCK = 1 << 14
"""Draws that a summary takes at a time. Means are rounded block by block, so that it shows in their last digits."""

Block = Shaped[np.ndarray, "row draw"]
Edges = Float64[np.ndarray, " edge"]


class DrawSource(Protocol):
    """The arrays of a plan's chunks, each (row, draw)."""

    @property
    def plan(self) -> Plan:
        """What was drawn."""
        ...

    def part(self, chunk: Chunk, variable: str, rows: slice) -> Block:
        """Some rows of a variable of one chunk."""
        ...


def gather(source: DrawSource, case: int, variable: str) -> Block:
    """A variable, (row, draw), over all draws of a case."""
    return np.concatenate(list(_parts(source, case, variable)), axis=1)


def blocks(source: DrawSource, case: int, variable: str, rows: slice = slice(None)) -> Iterator[Block]:
    """Some rows of it in blocks of ``BLOCK`` draws, however they were cut into chunks."""
    return in_blocks(_parts(source, case, variable, rows))


def _parts(source: DrawSource, case: int, variable: str, rows: slice = slice(None)) -> Iterator[Block]:
    return (source.part(chunk, variable, rows) for chunk in source.plan.chunks.of_case(case))


def in_blocks(arrays: Iterable[Block]) -> Iterator[Block]:
    """Arrays (row, draw) of any numbers of draws as others of ``BLOCK`` draws, the last one shorter."""
    waiting: list[Block] = []
    draws = 0
    for array in arrays:
        waiting.append(array)
        draws += array.shape[1]
        if draws >= BLOCK:
            joined = np.concatenate(waiting, axis=1)
            draws %= BLOCK
            whole = joined.shape[1] - draws
            for first in range(0, whole, BLOCK):
                # In one memory order always: NumPy's sums are taken along it, and their rounding shows which it was.
                yield np.ascontiguousarray(joined[:, first : first + BLOCK])
            waiting = [joined[:, whole:]]
    if draws:
        yield np.ascontiguousarray(np.concatenate(waiting, axis=1))


@dataclass(frozen=True)
class MemorySource:
    """Chunks held in memory."""

    plan: Plan
    chunks: dict[Chunk, Arrays] = field(default_factory=dict)

    def part(self, chunk: Chunk, variable: str, rows: slice) -> Block:
        """Some rows of a variable of one chunk."""
        return self.chunks[chunk][variable][rows]


@dataclass(frozen=True)
class StoreSource:
    """Chunks of a store that are known to be sound: what is not asked for is not read."""

    store: Store

    @property
    def plan(self) -> Plan:
        """What was drawn."""
        return self.store.plan

    def part(self, chunk: Chunk, variable: str, rows: slice) -> Block:
        """Some rows of a variable of one chunk."""
        return self.store.read(chunk, variable, rows)


_ROWS = 64  # that are summarised in the same readings


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
    own_quantile: Float64[np.ndarray, "rank probability"] | None
    bin_edge: Float64[np.ndarray, " edge"]
    density: Float64[np.ndarray, " bin"]
    density_standard_error: Float64[np.ndarray, " bin"]
    sample: Float64[np.ndarray, "statistic draw"] | None
    sigma_estimate: Float64[np.ndarray, "factor draw"] | None


def summarize_case(
    source: DrawSource, case: int, bin_edge: Callable[[Block], Edges], self_normalize: bool = False
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
        sample=gather(source, case, "statistic") if keep else None,
        sigma_estimate=np.sqrt(_variances(source, case, gather(source, case, "norm_squared"))) if keep else None,
    )


def _by_groups(source: DrawSource, case: int, variable: str, rows: int) -> SampleSummary:
    """The summary of each row."""
    summaries = [
        summarize_stream(lambda group=group: blocks(source, case, variable, group), PROBABILITIES)
        for group in _groups(rows)
    ]
    return SampleSummary(*(np.concatenate(field) for field in zip(*summaries, strict=True)))


def _own_quantile(source: DrawSource, case: int) -> Float64[np.ndarray, "rank probability"]:
    """Quantiles of each eigenvalue over the draw's own scale."""

    def scaled(group: slice) -> Iterator[Block]:
        norms = blocks(source, case, "norm_squared")
        for eigenvalues, squares in zip(blocks(source, case, "eigenvalue", group), norms, strict=True):
            yield eigenvalues / np.prod(_variances(source, case, squares), axis=0)

    groups = _groups(source.plan.ensembles[case].rank)
    return np.concatenate([quantiles_of_stream(lambda group=group: scaled(group), PROBABILITIES) for group in groups])


def _variances(source: DrawSource, case: int, norm_squared: Block) -> Block:
    """Estimates of σ² of each factor and draw."""
    return norm_squared / np.array(source.plan.ensembles[case].factor_sizes, dtype=float)[:, None]


def _groups(rows: int) -> list[slice]:
    return [slice(first, first + _ROWS) for first in range(0, rows, _ROWS)]


def _histograms(eigenvalues: Float64[np.ndarray, "draw rank"], edges: Edges) -> Float64[np.ndarray, "draw bin"]:
    """Counts of each draw by itself, (draw, bin); what lies outside the edges is left out."""
    draws, bins = len(eigenvalues), edges.size - 1
    place = np.searchsorted(edges, eigenvalues, side="right") - 1
    inside = (place >= 0) & (place < bins)
    flat = (place + bins * np.arange(draws)[:, None])[inside]
    return np.bincount(flat, minlength=draws * bins).reshape(draws, bins).astype(float)


def make_row(
    variables: Mapping[str, Any], coordinates: Mapping[str, Any], schema: Mapping[str, Variable]
) -> xr.Dataset:
    """One case: the schema names each variable's dims, case first; a row is the table without that dim."""
    row = xr.Dataset({name: (schema[name].dims[1:], value) for name, value in variables.items()}, coords=coordinates)
    return row.assign_coords(draw=np.arange(row.sizes["draw"])) if "draw" in row.sizes else row


def join_rows(
    rows: Sequence[xr.Dataset],
    coordinates: Mapping[str, NDArray[Any]],
    schema: Mapping[str, Variable],
    own: Mapping[str, Any],
    shared: Mapping[str, Any],
) -> xr.Dataset:
    """The table of several cases, with coordinates of each, and attributes of its own kind and of any."""
    table = xr.concat(rows, dim="case", data_vars="all", coords="minimal", compat="override", join="exact")
    table = table.assign_coords({name: ("case", column) for name, column in coordinates.items()})
    table.attrs = {"schema_version": SCHEMA_VERSION, **own, "rmtbase_version": software_version(), **shared}
    return describe(table, schema)
