"""What a configuration, or the description of one matrix, says of a quantisation; checked as it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.shown import quoted

_LARGEST = 2**48  # of a size


@dataclass(frozen=True)
class Settings:
    """Words and their values.

    Attributes:
        path: where they stand.
        key: under what name.
        words: the words.
    """

    path: Path
    key: str
    words: Mapping[str, Any]

    def get(self, word: str, default: Any = None) -> Any:
        """Its value as it stands; the default where it is absent or null."""
        value = self.words.get(word)
        return default if value is None else value

    def refused(self, word: str, found: Any, expected: str) -> CheckpointError:
        """The error that it says something else than what can be read."""
        return CheckpointError(self.path, f"{self.key}: {word} = {quoted(found)}; expected {expected}")

    def one_of(self, word: str, allowed: tuple[Any, ...], default: Any = None) -> Any:
        """Its value, one of those allowed.

        Raises:
            CheckpointError: it is another, or absent without a default. So of the other methods.
        """
        return self.one_value(word, self.get(word, default), allowed)

    def one_value(self, word: str, value: Any, allowed: tuple[Any, ...]) -> Any:
        """A value that the word has been found to have, one of those allowed."""
        for one in allowed:
            if value == one and isinstance(value, type(one)) and isinstance(value, bool) == isinstance(one, bool):
                return one
        raise self.refused(word, value, " or ".join(map(repr, allowed)))

    def require_none(self, *words: str) -> None:
        """Raise CheckpointError if one of these says anything: it changes how the weights are stored."""
        for word in words:
            if self.get(word):
                raise self.refused(word, self.get(word), "none: weights that are stored so are not read")

    def positive(self, word: str) -> int:
        """A size."""
        value = self.get(word)
        if type(value) is not int or not 0 < value < _LARGEST:
            raise self.refused(word, value, "a positive integer")
        return value

    def sizes(self, word: str) -> list[int]:
        """A shape."""
        value = self.get(word)
        if not isinstance(value, list) or not 0 < len(value) <= 4 or not all(_is_size(one) for one in value):
            raise self.refused(word, value, "a list of one to four positive integers")
        return value

    def number(self, word: str) -> float:
        """A finite number."""
        value = self.get(word)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < float("inf"):
            raise self.refused(word, value, "a finite number")
        return float(value)

    def group_size(self, word: str, default: Any = None) -> int:
        """How many inputs share a scale; −1 where all do."""
        value = self.get(word, default)
        if type(value) is not int or not (value == -1 or 0 < value < _LARGEST):
            raise self.refused(word, value, "a positive number of inputs that share a scale, or -1 for all")
        return value

    def block(self, word: str, default: tuple[int, int] | None) -> tuple[int, int] | None:
        """(outputs, inputs) that share a scale; None where it is null and all do."""
        value = self.words.get(word, default)
        if value is None:
            return None
        if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(_is_size(one) for one in value):
            raise self.refused(word, value, "two positive integers, or null for one scale of a whole matrix")
        return value[0], value[1]


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < _LARGEST
