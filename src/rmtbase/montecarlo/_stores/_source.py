"""Where the draws of a finished run are read from: memory, or a store, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rmtbase.montecarlo._plans._chunks import Chunk
from rmtbase.montecarlo._plans._compute import Arrays
from rmtbase.montecarlo._plans._plan import Plan
from rmtbase.montecarlo._stores._store import Store

BLOCK = 1 << 14
"""Draws that a summary takes at a time. Means are rounded block by block, so that it shows in their last digits."""


class DrawSource(Protocol):
    """The arrays of a plan's chunks, each (row, draw)."""

    @property
    def plan(self) -> Plan:
        """What was drawn."""
        ...

    def part(self, chunk: Chunk, variable: str, rows: slice) -> NDArray[Any]:
        """Some rows of a variable of one chunk."""
        ...


def gather(source: DrawSource, case: int, variable: str, rows: slice) -> NDArray[Any]:
    """Some rows of a variable, (row, draw), over all draws of a case."""
    return np.concatenate([part for _, part in parts(source, case, variable, rows)], axis=1)


def parts(
    source: DrawSource, case: int, variable: str, rows: slice = slice(None)
) -> Iterator[tuple[Chunk, NDArray[Any]]]:
    """The same chunk by chunk, in order of the draws."""
    for chunk in source.plan.chunks.of_case(case):
        yield chunk, source.part(chunk, variable, rows)


def blocks(source: DrawSource, case: int, variable: str, rows: slice = slice(None)) -> Iterator[NDArray[Any]]:
    """The same in blocks of ``BLOCK`` draws, however they were cut into chunks."""
    return in_blocks(part for _, part in parts(source, case, variable, rows))


def in_blocks(arrays: Iterable[NDArray[Any]]) -> Iterator[NDArray[Any]]:
    """Arrays (row, draw) of any numbers of draws as others of ``BLOCK`` draws, the last one shorter."""
    waiting: list[NDArray[Any]] = []
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

    def part(self, chunk: Chunk, variable: str, rows: slice) -> NDArray[Any]:
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

    def part(self, chunk: Chunk, variable: str, rows: slice) -> NDArray[Any]:
        """Some rows of a variable of one chunk."""
        return self.store.read(chunk, variable, rows)
