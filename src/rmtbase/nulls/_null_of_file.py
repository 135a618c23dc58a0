"""Nulls made from files, kept by the process as long as the files stay the same."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import TypeVar

from rmtbase.nulls._head_null import SharedNull
from rmtbase.regular_files import open_regular

_ROOM = 2**25  # bytes of all files together; their nulls take about four times as many

Null = TypeVar("Null", bound=SharedNull)


_kept: OrderedDict[tuple[Path, tuple[int, ...]], tuple[tuple[int, bytes], SharedNull]] = OrderedDict()
_lock = Lock()


def null_of_file(path: Path, dims: tuple[int, ...], make: Callable[[], Null | None]) -> Null | None:
    """Return the null of a shape that ``make`` makes from a file, made only once while the file's contents stay.

    So a file is checked, and the moments and ranks of its draws are computed, only once in a process. Its contents are
    compared at every call. The most recently used nulls are kept, up to 32 MiB of files.
    """
    key, before = (path, dims), _contents(path)
    with _lock:
        if before is not None and key in _kept and _kept[key][0] == before:
            _kept.move_to_end(key)
            return _kept[key][1]  # type: ignore[return-value]  # the same call makes the same type of null
    null = make()
    if null is not None and before is not None and before == _contents(path):  # not replaced while it was read
        with _lock:
            _kept.pop(key, None)
            _kept[key] = before, null
            while sum(size for (size, _), _ in _kept.values()) > _ROOM:
                _kept.popitem(last=False)
    return null


def _contents(path: Path) -> tuple[int, bytes] | None:
    """Size and digest of a file; None if it is too large to keep or cannot be read, which opening it will report."""
    try:
        with open_regular(path) as file:
            content = file.read(_ROOM + 1)
    except OSError:
        return None
    return (len(content), hashlib.sha256(content).digest()) if len(content) <= _ROOM else None
