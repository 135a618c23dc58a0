"""Names that netCDF takes: it wants UTF-8, and a folder's name may be any bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_OPEN_FOLDERS = Path("/proc/self/fd")


@contextmanager
def utf8_name(path: Path) -> Iterator[Path]:
    """The path itself, or where its folder's name is not UTF-8 another name of the same file, for as long as the block.

    Raises:
        OSError: the folder cannot be opened.
        UnicodeEncodeError: the file's own name is not UTF-8.
    """
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        path.name.encode()
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield _OPEN_FOLDERS / str(folder) / path.name
        finally:
            os.close(folder)
    else:
        yield path
