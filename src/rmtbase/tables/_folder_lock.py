"""Lock of a folder in which one run works at a time."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from rmtbase.errors import OutputError, StoreError

LOCK = "lock"
"""Name of the lock file."""


@contextmanager
def locked_folder(folder: Path, what: str, is_done: Callable[[], bool]) -> Iterator[None]:
    """Lock a folder for the duration of a ``with`` block; make the folder if it is missing.

    The operating system releases the lock when its process ends, in whatever way. At the end the folder is removed with
    the lock if it is empty otherwise and ``is_done`` returns True: nothing was begun, or all is finished.

    Args:
        folder: the folder to lock.
        what: contents of the folder, in words.
        is_done: called at the end.

    Raises:
        StoreError: another run holds the lock.
        OutputError: the folder cannot be made or locked.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = f"the folder of the {what} cannot be made: {error.strerror or error}"
        raise OutputError(folder, reason) from error
    lock = folder / LOCK
    guard = FileLock(lock, timeout=0)
    try:
        if os.path.lexists(lock) and not stat.S_ISREG(lock.lstat().st_mode):
            raise OSError(errno.EINVAL, f"{LOCK} is no regular file")
        guard.acquire()
    except Timeout as error:
        raise StoreError(folder, "another run at work on it", "one at a time; wait for it, or stop it") from error
    except (OSError, NotImplementedError) as error:
        raise OutputError(folder, f"it cannot be locked: {getattr(error, 'strerror', None) or error}") from error
    try:
        yield
    finally:
        done, held = is_done(), False
        if done:
            try:
                lock.unlink()
                folder.rmdir()
            except PermissionError:  # Windows does not remove an open file such as the lock
                held = True
            except OSError:  # the folder holds foreign files, which stay
                pass
        guard.release()
        if held:
            with suppress(OSError):
                lock.unlink(missing_ok=True)
                folder.rmdir()
