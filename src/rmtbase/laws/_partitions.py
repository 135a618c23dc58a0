"""Integer partitions, written as tuples of parts in descending order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

Partition = tuple[int, ...]


@cache
def partitions(k: int) -> tuple[Partition, ...]:
    """Return the partitions of k, largest first in lexicographic order (which refines dominance)."""
    return tuple(_partitions(k, k))


def _partitions(k: int, largest: int) -> Iterator[Partition]:
    if k == 0:
        yield ()
    for part in range(min(k, largest), 0, -1):
        for rest in _partitions(k - part, part):
            yield (part, *rest)


def sorted_partition(parts: list[int]) -> Partition:
    """Return the partition with these parts, zeros dropped."""
    return tuple(sorted((part for part in parts if part > 0), reverse=True))
