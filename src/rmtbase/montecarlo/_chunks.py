"""Chunks of a plan, by number: made on demand, because there may be more of them than fit in memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, overload

Run = tuple[int, int]
"""Consecutive chunks: the number of the first, and one past the number of the last."""


class Chunk(NamedTuple):
    """Consecutive draws of one case, which are computed, written and, if the run is killed, lost as a whole."""

    case: int
    start: int
    count: int  # type: ignore[assignment]  # hides the tuple's method, which nobody calls

    def __str__(self) -> str:
        return f"draws {self.start} to {self.start + self.count - 1} of case {self.case}"


@dataclass(frozen=True)
class Chunks(Sequence[Chunk]):
    """All chunks of a plan, or some of them, in order. A chunk's number is its place among all chunks of the plan."""

    draws: tuple[int, ...]  #: number of draws of each case
    sizes: tuple[int, ...]  #: draws per chunk of each case
    runs: tuple[Run, ...]  #: numbers of the chunks in this collection, as disjoint ascending runs

    @classmethod
    def all(cls, draws: Sequence[int], sizes: Sequence[int]) -> Chunks:
        """Make the collection of all chunks."""
        total = sum(-(-number // size) for number, size in zip(draws, sizes, strict=True))
        return cls(tuple(draws), tuple(sizes), ((0, total),) if total else ())

    def only(self, runs: Iterable[Run]) -> Chunks:
        """Select chunks of the same plan by their numbers."""
        return replace(self, runs=tuple((first, stop) for first, stop in runs if first < stop))

    def without(self, numbers: Iterable[int]) -> Chunks:
        """All chunks of the plan without those of these numbers, which ascend."""
        left, first = [], 0
        for number in numbers:
            left.append((first, number))
            first = number + 1
        return self.only([*left, (first, self._firsts[-1])])

    def between(self, first: int, stop: int) -> Chunks:
        """Chunks whose numbers are first, …, stop - 1."""
        return self.only((max(first, run[0]), min(stop, run[1])) for run in self.runs)

    def of_case(self, case: int) -> Chunks:
        """Chunks of one case."""
        return self.between(*self._firsts[case : case + 2])

    def number(self, case: int, start: int) -> int | None:
        """Return the number of the chunk that begins at this draw of the case; None if none does."""
        if not 0 <= case < len(self.draws) or not 0 <= start < self.draws[case] or start % self.sizes[case]:
            return None
        return self._firsts[case] + start // self.sizes[case]

    def numbered(self, number: int) -> Chunk:
        """Return the chunk of that number, whether or not it belongs to this collection."""
        case = bisect_right(self._firsts, number) - 1
        start = (number - self._firsts[case]) * self.sizes[case]
        return Chunk(case, start, min(self.sizes[case], self.draws[case] - start))

    @property
    def total_draws(self) -> int:
        """Number of draws of all these chunks together."""
        return sum(self._draws_before(stop) - self._draws_before(first) for first, stop in self.runs)

    @property
    def size(self) -> int:
        """Number of chunks, also if it exceeds the limit of ``len``."""
        return self._ends[-1] if self._ends else 0

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, place: int) -> Chunk: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Chunk]: ...

    def __getitem__(self, place: int | slice) -> Chunk | Sequence[Chunk]:
        if isinstance(place, slice):
            return [self[one] for one in range(*place.indices(self.size))]
        if not -self.size <= place < self.size:
            raise IndexError(place)
        place %= self.size
        run = bisect_right(self._ends, place)
        before = self._ends[run - 1] if run else 0
        return self.numbered(self.runs[run][0] + place - before)

    def __iter__(self) -> Iterator[Chunk]:
        return (self.numbered(number) for first, stop in self.runs for number in range(first, stop))

    @cached_property
    def _firsts(self) -> list[int]:
        """Number of the first chunk of each case, followed by the number of chunks of the plan."""
        counts = (-(-draws // size) for draws, size in zip(self.draws, self.sizes, strict=True))
        return [0, *accumulate(counts)]

    @cached_property
    def _ends(self) -> list[int]:
        """Number of chunks up to the end of each run."""
        return list(accumulate(stop - first for first, stop in self.runs))

    def _draws_before(self, number: int) -> int:
        """Count the draws of all chunks with smaller numbers."""
        case = bisect_right(self._firsts, number) - 1
        if case == len(self.draws):
            return sum(self.draws)
        return sum(self.draws[:case]) + (number - self._firsts[case]) * self.sizes[case]
