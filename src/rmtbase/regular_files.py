"""Files that somebody else made, opened only where they are files.

A pipe would wait for its writer, a device has no end, a socket answers. What such a thing is, is asked before it is
opened, and asked again of what was opened, lest it was exchanged in between.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def require_regular(path: Path) -> None:
    """Raise unless a regular file, or a link to one, stands there. It is not opened.

    Raises:
        FileNotFoundError: nothing is there.
        OSError: something else is, or it cannot be looked up; ``strerror`` says so.
    """
    try:
        found = path.stat()
    except ValueError as error:  # a name with a null character
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    _require_regular(path, found)


def open_regular(path: Path, *, buffered: bool = True) -> BinaryIO:
    """A regular file, opened for reading; unbuffered for who reads it past Python, as ``numpy.fromfile`` does.

    Raises:
        FileNotFoundError: nothing is there.
        OSError: it is no regular file, or cannot be opened; ``strerror`` says so.
    """
    require_regular(path)
    # A pipe put there since is opened without waiting for its writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    stream = os.fdopen(descriptor, "rb", -1 if buffered else 0)
    try:
        _require_regular(path, os.fstat(descriptor))
    except OSError:
        stream.close()
        raise
    return stream


def _require_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(found.st_mode)), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}; expected a regular file", str(path))


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, links followed: the same for all names of one file; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
