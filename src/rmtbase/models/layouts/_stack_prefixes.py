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
    """Error: several stacks of layers are stored where the table has one."""

    def __init__(self, path: Path | str, message: str, tensors: tuple[str, ...]) -> None:
        self.tensors = tensors
        super().__init__(path, message)


def own_prefixes(
    prefixes: Collection[str], inside: Collection[str], other_words: Collection[str], unread: Collection[str]
) -> list[str]:
    """Select the prefixes that may belong to a stack: those that name its part, or else those that name no other."""
    if not inside:
        return list(prefixes)
    parts_by_prefix = {prefix: prefix.split(".") for prefix in prefixes}
    named = [prefix for prefix, parts in parts_by_prefix.items() if set(inside) <= set(parts)]
    stems = tuple(word for key in unread for word in _WORDS.get(key.split("_")[0], (key.split("_")[0],)))
    return named or [
        prefix
        for prefix, parts in parts_by_prefix.items()
        if not set(other_words) & set(parts) and not any(part.startswith(stems) for part in parts if stems)
    ]
