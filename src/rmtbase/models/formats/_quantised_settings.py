"""Settings of a quantisation in a configuration or in the description of one matrix, checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.shown import quoted

_LARGEST = 2**48  # sizes are smaller


@dataclass(frozen=True)
class Settings:
    """Keys and values of the settings."""

    path: Path  # the file that holds them
    key: str  # the name under which they are in the file
    words: Mapping[str, Any]  # the settings by key

    def get(self, word: str, default: Any = None) -> Any:
        """Return a value unchecked, or the default if it is absent or null."""
        value = self.words.get(word)
        return default if value is None else value

    def refused(self, word: str, found: Any, expected: str) -> CheckpointError:
        """Return the error for a value that is not supported."""
        return CheckpointError(self.path, f"{self.key}: {word} = {quoted(found)}; expected {expected}")

    def one_of(self, word: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        """Return a value, which must be one of those allowed."""
        return self.one_value(word, self.get(word, default), allowed)

    def one_value(self, word: str, value: Any, allowed: tuple[Any, ...]) -> Any:
        """Check that a given value of a key is one of those allowed, and return it."""
        for one in allowed:
            if value == one and isinstance(value, type(one)) and isinstance(value, bool) == isinstance(one, bool):
                return one
        raise self.refused(word, value, " or ".join(map(repr, allowed)))

    def require_none(self, *words: str) -> None:
        """Raise CheckpointError if one of these keys is set, because they change how the weights are stored."""
        for word in words:
            if self.get(word):
                raise self.refused(word, self.get(word), "none: weights that are stored in this way are not supported")

    def positive(self, word: str) -> int:
        """Return a size."""
        value = self.get(word)
        if type(value) is not int or not 0 < value < _LARGEST:
            raise self.refused(word, value, "a positive integer")
        return value

    def sizes(self, word: str) -> list[int]:
        """Return a shape."""
        value = self.get(word)
        if not isinstance(value, list) or not 0 < len(value) <= 4 or not all(_is_size(one) for one in value):
            raise self.refused(word, value, "a list of one to four positive integers")
        return value

    def number(self, word: str) -> float:
        """Return a finite number."""
        value = self.get(word)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            raise self.refused(word, value, "a finite number")
        return float(value)

    def group_size(self, word: str, default: Any = None) -> int:
        """Return how many inputs share a scale; −1 means all."""
        value = self.get(word, default)
        if type(value) is not int or not (value == -1 or 0 < value < _LARGEST):
            raise self.refused(word, value, "a positive number of inputs that share a scale, or -1 for all")
        return value

    def block(self, word: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """Return the (outputs, inputs) that share a scale, or None if the setting is null, so that all share one."""
        value = self.words.get(word, default)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(_is_size(one) for one in value):
            raise self.refused(word, value, "two positive integers, or null for one scale of a whole matrix")
        return value[0], value[1]


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < _LARGEST
