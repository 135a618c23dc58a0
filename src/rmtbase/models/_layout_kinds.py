"""The few ways in which query, key and value weights share a tensor.

Each function takes the stored tensor in the orientation of ``torch.nn.Linear`` (rows are outputs) and gives
the rows of one part, head after head: part 0 is the queries, 1 the keys, 2 the values. ``rows`` holds the
number of rows of each part.

A wrong choice here often has the right shape and is silently wrong, so each architecture is proved against
the queries and keys that its own module computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray


def separate(stored: NDArray[Any], part: int, rows: tuple[int, ...], d_head: int) -> NDArray[Any]:
    """The tensor holds one part and nothing else."""
    return stored


def concatenated(stored: NDArray[Any], part: int, rows: tuple[int, ...], d_head: int) -> NDArray[Any]:
    """All queries, then all keys, then all values: GPT-2."""
    start = sum(rows[:part])
    return stored[start : start + rows[part]]


def interleaved(stored: NDArray[Any], part: int, rows: tuple[int, ...], d_head: int) -> NDArray[Any]:
    """Rows run over (head, part, d_head): the three parts of the first head come first. GPT-NeoX."""
    d_model = stored.shape[-1]
    return stored.reshape(-1, len(rows), d_head, d_model)[:, part].reshape(-1, d_model)


KINDS: Mapping[str, Callable[[NDArray[Any], int, tuple[int, ...], int], NDArray[Any]]] = MappingProxyType(
    {"separate": separate, "concatenated": concatenated, "interleaved": interleaved}
)
"""Layout kind by name."""
