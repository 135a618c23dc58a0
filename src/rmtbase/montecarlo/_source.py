"""Where the draws of a finished run are read from: memory, or a store, a few rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rmtbase.montecarlo._compute import Arrays
from rmtbase.montecarlo._plan import Chunk, Plan
from rmtbase.montecarlo._store import Store


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
    # In one memory order always: NumPy's sums are taken along it, and their rounding shows which it was.
    return np.ascontiguousarray(np.concatenate([part for _, part in parts(source, case, variable, rows)], axis=1))


def parts(
    source: DrawSource, case: int, variable: str, rows: slice = slice(None)
) -> Iterator[tuple[Chunk, NDArray[Any]]]:
    """The same chunk by chunk, in order of the draws."""
    for chunk in source.plan.chunks:
        if chunk.case == case:
            yield chunk, source.part(chunk, variable, rows)


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
