"""Differences between Linux, macOS and Windows in files, processes and memory, one function for each.

A feature is detected by whether Python has it. Signals are handled in ``terminal/signals.py``, forks in ``forks.py``.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_LIMITS, _STATM = Path("/proc/self/limits"), Path("/proc/self/statm")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_OPEN_FOLDERS = Path("/proc/self/fd")
_VM_STAT = Path("/usr/bin/vm_stat")
_SPARE = ("free", "inactive", "speculative", "purgeable")  # pages that macOS can give to any process
_IN_USE_FOR = 1.0  # longest wait in seconds for a file that another process holds open on Windows
#: Errors of file systems that do not support an operation, such as syncing a folder or setting a file's mode
_CANNOT = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM, errno.EACCES)


@contextmanager
def if_supported() -> Iterator[None]:
    """Ignore errors of a file system that does not support an operation."""
    try:
        yield
    except OSError as error:
        if error.errno not in _CANNOT:
            raise


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk; Windows, which cannot open folders as files, does so by itself."""
    with if_supported():
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_file(new: Path, target: Path) -> None:
    """Replace a file atomically; on Windows for a second again and again while a process has the old one open."""
    until = time.monotonic() + (_IN_USE_FOR if sys.platform == "win32" else 0.0)
    while True:
        try:
            new.replace(target)
        except PermissionError as error:
            if sys.platform != "win32":
                raise
            if time.monotonic() > until:
                raise PermissionError(error.errno, "it is open in a program; close it there", str(target)) from error
            time.sleep(0.02)
        else:
            return


@contextmanager
def utf8_path(path: Path) -> Iterator[Path]:
    """Yield the path, or, on Linux, another name of the file if the name of its folder is not UTF-8."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        path.name.encode()
        if not _OPEN_FOLDERS.is_dir():
            raise OSError(errno.EINVAL, "the name of its folder is not Unicode: use another", str(path)) from None
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield _OPEN_FOLDERS / str(folder) / path.name
        finally:
            os.close(folder)
    else:
        yield path


def cache_folder() -> Path:
    """``$RMTBASE_CACHE``, or ``rmtbase`` in the user's cache folder, on Linux ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("RMTBASE_CACHE") or user_cache_dir("rmtbase", appauthor=False))


def software_version() -> str:
    """Return the installed version of rmtbase; ``"0+unknown"`` for a source tree that is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("rmtbase")
    except PackageNotFoundError:
        return "0+unknown"


def process_namespace() -> str:
    """Identify the namespace that distinguishes processes with the same number; empty except on Linux."""
    with suppress(OSError):
        return str(_PID_NAMESPACE.readlink())
    return ""


def is_alive(process: int) -> bool:
    """Return True if there is a process of that number; always on Windows, where no harmless signal can test it."""
    if sys.platform == "win32":
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def is_broken_pipe(error: BaseException) -> bool:
    """Return True if the reader of a pipe is gone; Windows reports it as an invalid argument without a file name."""
    if isinstance(error, BrokenPipeError):
        return True
    unnamed = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    return sys.platform == "win32" and unnamed


def available_memory() -> int | None:
    """Return the bytes of memory that the system can give; None if it does not report them."""
    for ask in (_meminfo, _memory_status, _vm_stat, lambda: os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")):
        with suppress(OSError, KeyError, ValueError, AttributeError):
            free, left = ask(), address_space_left()
            return free if left is None else min(free, left)
    return None


def address_space_left() -> int | None:
    """Return the bytes that a limit (``ulimit -v``) lets this process map; None without one, as off Linux."""
    with suppress(OSError, StopIteration):
        lines = _LIMITS.read_text(encoding="utf-8").splitlines()
        limit = next(line.split()[3] for line in lines if line.startswith("Max address space"))
        if limit.isdecimal():  # else unlimited
            pages = int(_STATM.read_text(encoding="utf-8").split()[0])
            return max(int(limit) - pages * os.sysconf("SC_PAGE_SIZE"), 0)
    return None


def _meminfo() -> int:
    lines = dict(line.split(":", 1) for line in _MEMINFO.read_text(encoding="utf-8").splitlines())
    return 1024 * int(lines["MemAvailable"].split()[0])


def _memory_status() -> int:
    """Read the available memory on Windows from MEMORYSTATUSEX: two numbers of four bytes and seven of eight."""
    import ctypes

    status = ctypes.create_string_buffer(struct.pack("<II7Q", 64, *[0] * 8), 64)
    windows = getattr(ctypes, "windll")  # noqa: B009  # which other systems' ctypes lacks
    if not windows.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
        raise OSError(errno.EINVAL, "GlobalMemoryStatusEx failed")
    return struct.unpack("<II7Q", status.raw)[3]


def _vm_stat() -> int:
    """Read the available memory on macOS, whose ``vm_stat`` reports pages."""
    import subprocess

    output = subprocess.run([os.fspath(_VM_STAT)], capture_output=True, encoding="utf-8", check=False).stdout
    size = re.search(r"page size of (\d+) bytes", output)
    pages = dict(re.findall(r"^Pages (\w+): +(\d+)\.$", output, flags=re.MULTILINE))
    if size is None:
        raise ValueError(output)
    return int(size[1]) * (int(pages["free"]) + sum(int(pages.get(name, 0)) for name in _SPARE[1:]))
