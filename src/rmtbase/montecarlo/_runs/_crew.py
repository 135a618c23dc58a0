"""Who draws the chunks of a plan: this process, Dask workers, or several hosts, all through one interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rmtbase.montecarlo._plans._chunks import Chunk, Chunks
from rmtbase.montecarlo._plans._compute import Arrays, compute_chunk
from rmtbase.montecarlo._plans._plan import Plan
from rmtbase.montecarlo._plans._settings import choose_solvers, machine_settings

Bar = Callable[[str, int], Callable[[int], None]]
"""Called with a label and the number of draws to come; gives what to call as draws are finished."""


class Crew(Protocol):
    """Whoever draws."""

    @property
    def machine(self) -> dict[str, Any]:
        """Versions and platform of those who draw, of all of them alike."""
        ...

    def choose_solvers(self) -> list[str]:
        """The solver of each case, where none is settled yet."""
        ...

    def draw(self, chunks: Chunks, solvers: Sequence[str], bar: Bar) -> Iterator[tuple[Chunk, Arrays]]:
        """The chunks in whatever order they are finished, for the caller to write."""
        ...


@dataclass(frozen=True)
class Alone:
    """This process, with all the cores and devices that it may use."""

    plan: Plan

    @property
    def machine(self) -> dict[str, Any]:
        """Of this process."""
        return machine_settings()

    def choose_solvers(self) -> list[str]:
        """Chosen here."""
        return choose_solvers(self.plan)

    def draw(self, chunks: Chunks, solvers: Sequence[str], bar: Bar) -> Iterator[tuple[Chunk, Arrays]]:
        """One chunk after the other."""
        progress = bar("drawing", chunks.total_draws)
        for chunk in chunks:
            yield chunk, compute_chunk(self.plan, chunk, solvers[chunk.case], progress=progress)
