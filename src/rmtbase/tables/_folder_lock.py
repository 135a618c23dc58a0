"""A folder that one run at a time works in."""

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
"""The file by which it is held."""


@contextmanager
def locked_folder(
    folder: Path, what: str, is_done: Callable[[], bool], name: str = LOCK, patience: float = 0.0
) -> Iterator[None]:
    """Hold a folder for the length of a ``with`` block; made where there is none.

    The lock is the operating system's: it is gone when its process is, however that ended. At the end the folder goes
    with it, where nothing else is in it and ``is_done`` says that nothing was begun, or all of it is finished.

    Args:
        folder: to hold.
        what: is in it, in words.
        is_done: asked at the end.
        name: of the file by which it is held; runs that hold a folder by different names work beside each other.
        patience: seconds to wait for another run that holds it.

    Raises:
        StoreError: another run holds it.
        OutputError: it cannot be made or locked.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = f"the folder of the {what} cannot be made: {error.strerror or error}"
        raise OutputError(folder, reason) from error
    lock = folder / name
    guard = FileLock(lock, timeout=patience)
    try:
        if os.path.lexists(lock) and not stat.S_ISREG(lock.lstat().st_mode):
            raise OSError(errno.EINVAL, f"{name} is no regular file")
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
            except PermissionError:  # on Windows no file goes that is open, as the lock is
                held = True
            except OSError:  # what is not ours, which stays
                pass
        guard.release()
        if held:
            with suppress(OSError):
                lock.unlink(missing_ok=True)
                folder.rmdir()
