"""Reading of files from elsewhere, and of the JSON in them, whose size is checked before it is parsed."""

import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rmtbase.errors import CheckpointError, CorruptFileError, MissingCheckpointFileError
from rmtbase.regular_files import open_regular
from rmtbase.shown import quoted

LFS_POINTER = b"version https://git-lfs"
"""Beginning of the placeholder for a file that Git LFS has not fetched."""
LFS_WORDS = ("a Git LFS pointer", "the file it points to: run git lfs pull, or download it")
"""The found and the expected part of the message about a placeholder."""
_LARGEST = 4 << 20  # bytes of a configuration; those with the names of 20 000 classes take one million
_MOST_VALUES = 1 << 21  # a million tensors in an index; files that may be larger may hold more
_LONGEST_NUMBER = 100  # characters
_DEEPEST = 64  # levels of lists and objects
_HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")  # the escape of half of a surrogate pair, with its other half or without


@contextmanager
def reading(path: Path, needed_by: str | None = None, *, buffered: bool = True) -> Iterator[BinaryIO]:
    try:
        with open_regular(path, buffered=buffered) as stream:
            yield stream
    except FileNotFoundError as error:
        raise MissingCheckpointFileError(path, needed_by) from error
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror or error}") from error


def read_json_object(path: Path, largest: int = _LARGEST) -> dict[str, Any]:
    with reading(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        text = b"" if size > largest else stream.read(largest + 1)
    size = max(size, len(text))
    if size > largest:
        raise CheckpointError(path, f"{size:,} bytes; expected at most {largest:,} of a file of this kind")
    if not text.strip():
        raise CorruptFileError(path, "an empty file", "a JSON object")
    if text.startswith(LFS_POINTER):
        raise CorruptFileError(path, *LFS_WORDS)
    return parse_json_object(path, text, "text", "a JSON object", max(_MOST_VALUES, largest >> 5))


def parse_json_object(
    path: Path, text: bytes, noun: str, expected: str, most_values: int = _MOST_VALUES
) -> dict[str, Any]:
    values = sum(map(text.count, (b",", b":", b"[", b"{")))
    if values > most_values:
        described = f"{noun} with {values:,} commas, colons and brackets"
        raise CorruptFileError(path, described, f"{expected} with at most {most_values:,}")
    try:
        parsed = json.loads(
            text.decode("utf-8-sig"), object_pairs_hook=_members, parse_int=_bounded(int), parse_float=_bounded(float)
        )
        if _HALF_PAIR.search(text):
            json.dumps(parsed, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        reason = error if isinstance(error, ValueError) else f"more than {_DEEPEST} levels"
        if isinstance(error, UnicodeEncodeError):
            reason = f"half of a surrogate pair in {quoted(error.object[max(error.start - 20, 0) : error.end + 20])}"
        raise CorruptFileError(path, f"{noun} that is not JSON ({reason})", expected) from error
    if not isinstance(parsed, dict):
        # "text" means the whole file, which the message does not name again.
        described = f"a JSON {type(parsed).__name__}" if noun == "text" else f"{noun} that is not a JSON object"
        raise CorruptFileError(path, described, expected)
    level: list[Any] = [parsed]
    for _ in range(_DEEPEST):
        inner = [child for part in level for child in (part.values() if isinstance(part, dict) else part)]
        level = [child for child in inner if isinstance(child, (dict, list))]
    if level:
        raise CorruptFileError(path, f"{noun} of more than {_DEEPEST} levels", expected)
    return parsed


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"the name {quoted(twice)} twice in one object")
    return members


def _bounded(number: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(digits: str) -> Any:
        if len(digits) > _LONGEST_NUMBER:
            raise ValueError(f"a number of {len(digits):,} characters, more than {_LONGEST_NUMBER}")
        return number(digits)

    return read
