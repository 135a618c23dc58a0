"""Lock of a folder in which one run works at a time."""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path

from filelock import FileLock, Timeout

from rmtbase.errors import OutputError, StoreError
from rmtbase.systems import is_alive
from rmtbase.tables._writing import here, temporary_name

LOCK = "lock"  #: Name of the lock file

_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)
_PAUSE = 0.05  # seconds in which a process writes its mark


@contextmanager
def locked_folder(folder: Path, what: str, is_done: Callable[[], bool]) -> Iterator[None]:
    """Lock a folder, made if missing, for a ``with`` block; remove it if it is empty and ``is_done()``."""
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        reason = f"the folder of the {what} cannot be made: {error.strerror or error}"
        raise OutputError(folder, reason) from error
    lock = folder / LOCK
    has_locks = True
    try:
        if os.path.lexists(lock) and not stat.S_ISREG(lock.lstat().st_mode):
            raise OSError(errno.EINVAL, f"{LOCK} is no regular file")
        has_locks = has_file_locks(folder)
        release = FileLock(lock, timeout=0).acquire().lock.release if has_locks else _marked(lock)
    except Timeout as error:
        by_hand = "" if has_locks else f"; if there is none, on any machine, remove its file {LOCK}"
        expected = f"one at a time; wait for it, or stop it{by_hand}"
        raise StoreError(folder, "another run at work on it", expected) from error
    except (OSError, NotImplementedError) as error:
        raise OutputError(folder, f"it cannot be locked: {getattr(error, 'strerror', None) or error}") from error
    try:
        yield
    finally:
        done, is_open = is_done(), False
        if done:
            try:
                lock.unlink()
                folder.rmdir()
            except PermissionError:  # Windows does not remove an open file such as the lock
                is_open = True
            except OSError:  # the folder holds foreign files, which stay
                pass
        release()
        if is_open:
            with suppress(OSError):
                lock.unlink(missing_ok=True)
                folder.rmdir()


def has_file_locks(folder: Path) -> bool:
    """Return False on a file system without locks, such as some that are mounted from a network."""
    if sys.platform == "win32":
        return True
    fcntl, probe = import_module("fcntl"), temporary_name(folder, LOCK)
    try:
        with probe.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        probe.unlink()
    except OSError as error:  # another fault is that of the lock, too, and told there
        with suppress(OSError):
            probe.unlink()
        return error.errno not in _NO_LOCKS
    return True


def _marked(lock: Path) -> Callable[[], None]:
    """Take a lock that is a file with the number of its process, and return what removes it."""
    mark = f"{here()}{os.getpid()}"
    while True:
        try:
            with lock.open("x", encoding="utf-8") as file:
                file.write(mark)
        except FileExistsError:
            machine, _, process = _content(lock).rpartition("-")
            if machine and (f"{machine}-" != here() or is_alive(int(process))):
                raise Timeout(str(lock)) from None
            lock.unlink(missing_ok=True)  # left by a killed run, or by one on a file system that had locks
            time.sleep(_PAUSE)
        else:
            time.sleep(_PAUSE)
            if _content(lock) == mark:  # and no other process has taken the file for one that was left
                return partial(lock.unlink, missing_ok=True)


def _content(lock: Path) -> str:
    """Read the mark of a process; "" if there is none. An empty file is read again: its process may be writing it."""
    for _ in range(2):
        with suppress(FileNotFoundError):
            text = lock.read_text(encoding="utf-8", errors="replace")
            if re.fullmatch(r"[0-9a-f]{8}-\d+", text, re.ASCII):
                return text
        time.sleep(_PAUSE)
    return ""
