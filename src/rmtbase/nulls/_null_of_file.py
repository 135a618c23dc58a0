"""Nulls made of files, kept by the process for as long as the files stay the same."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import NamedTuple, TypeVar

from rmtbase.nulls._head_null import SharedNull
from rmtbase.regular_files import open_regular

_ROOM = 2**25  # bytes of the files together; their nulls take some four times as many

Null = TypeVar("Null", bound=SharedNull)


class _Contents(NamedTuple):
    size: int
    sha256: bytes


_kept: OrderedDict[tuple[Path, tuple[int, ...]], tuple[_Contents, SharedNull]] = OrderedDict()
_lock = Lock()


def null_of_file(path: Path, dims: tuple[int, ...], make: Callable[[], Null | None]) -> Null | None:
    """The null of that shape that ``make`` makes of a file, made once while the file's contents are the same.

    So a file is checked, and the moments and ranks of its draws are worked out, once in a process. Its contents are
    compared at every call. The nulls used last are kept, of files of 32 MiB together.
    """
    key, before = (path, dims), _contents(path)
    with _lock:
        if before is not None and key in _kept and _kept[key][0] == before:
            _kept.move_to_end(key)
            return _kept[key][1]  # type: ignore[return-value]  # who asks for it again makes it as before
    null = make()
    if null is not None and before is not None and before == _contents(path):  # and not exchanged while it was read
        with _lock:
            _kept.pop(key, None)
            _kept[key] = before, null
            while sum(contents.size for contents, _ in _kept.values()) > _ROOM:
                _kept.popitem(last=False)
    return null


def _contents(path: Path) -> _Contents | None:
    """None of a file that is larger than what is kept, or cannot be read: whoever opens it says why."""
    try:
        with open_regular(path) as file:
            found = file.read(_ROOM + 1)
    except OSError:
        return None
    return _Contents(len(found), hashlib.sha256(found).digest()) if len(found) <= _ROOM else None
