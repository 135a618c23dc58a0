"""Opening of foreign files only if they are regular, before and after: a pipe would wait, a device has no end."""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket"}
_KINDS |= dict.fromkeys((stat.S_IFCHR, stat.S_IFBLK), "a device")


def require_regular(path: Path) -> None:
    """Raise unless the path is a regular file, or a link to one, without opening it."""
    try:
        status = path.stat()
    except ValueError as error:  # a name with a null character
        raise OSError(errno.EINVAL, str(error), str(path)) from error
    _require_regular(path, status)


def open_regular(path: Path, *, buffered: bool = True) -> BinaryIO:
    """Open a regular file for reading; unbuffered for code that bypasses Python's buffer, as NumPy's does."""
    require_regular(path)
    # Should a pipe have taken its place, this does not wait for the pipe's writer.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    stream = os.fdopen(descriptor, "rb", -1 if buffered else 0)
    try:
        _require_regular(path, os.fstat(descriptor))
    except OSError:
        stream.close()
        raise
    return stream


def _require_regular(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}; expected a regular file", str(path))


def identity(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file, after following links, equal for all names of a file; None if it does not exist."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
