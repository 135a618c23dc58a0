"""Selection of the stack in a checkpoint that belongs to an entry of the table, by the prefix of its layers' names."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from rmtbase.errors import CheckpointError

_WORDS: Mapping[str, tuple[str, ...]] = {
    "vision": ("vision", "visual", "vit", "image", "img"),
    "image": ("vision", "visual", "vit", "image", "img"),
    "audio": ("audio", "speech", "sound"),
    "text": ("text", "language"),
}
"""Possible beginnings of names of a part's tensors, by the first word of its key in the configuration."""


class SeveralStacks(CheckpointError):  # noqa: N818
    """Error: several stacks of layers are stored where the table has one.

    Attributes:
        tensors: for each stack, the name of the query tensor in one layer.
    """

    def __init__(self, path: Path | str, what: str, tensors: tuple[str, ...]) -> None:
        self.tensors = tensors
        super().__init__(path, what)


def own_prefixes(
    found: Collection[str], inside: Collection[str], others: Collection[str], unread: Collection[str]
) -> list[str]:
    """Select the prefixes that may belong to a stack: those that name its part, or else those that name no other."""
    if not inside:
        return list(found)
    each = {prefix: prefix.split(".") for prefix in found}
    named = [prefix for prefix, parts in each.items() if set(inside) <= set(parts)]
    stems = tuple(word for key in unread for word in _WORDS.get(key.split("_")[0], (key.split("_")[0],)))
    return named or [
        prefix
        for prefix, parts in each.items()
        if not set(others) & set(parts) and not any(part.startswith(stems) for part in parts if stems)
    ]
