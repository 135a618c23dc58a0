"""The cores of this process, and the one limit that it puts on the threads of BLAS."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from threadpoolctl import LibController, ThreadpoolController


def available_cores() -> int:
    """Cores that this process may use (its CPU affinity where the system tells it)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Asked(NamedTuple):
    """A limit, told from its equals by being another object."""

    thread: int
    threads: int


class _BlasLimit:
    """What all threads of the process together ask of BLAS, whose number of threads is the process's and not theirs.

    The first to ask notes the numbers there were, the last to leave restores them. Limits that one thread nests replace
    each other, the innermost counts; between threads the smallest does, because whoever asked for one thread would get
    other bits from two.
    """

    def __init__(self) -> None:
        # Reentrant: a generator that is collected inside the lock gives its limit back there.
        self._lock = threading.RLock()
        self._asked: list[_Asked] = []  # in the order of asking
        self._before: dict[str, int] = {}  # file of a BLAS → its number of threads
        self._libraries: list[Any] = []
        self._modules = 0  # there were when the libraries were looked up

    def ask(self, threads: int) -> _Asked:
        """Put a limit; what is returned lifts it."""
        with self._lock:
            asked = _Asked(threading.get_ident(), threads)
            self._asked.append(asked)
            self._apply()
            return asked

    def lift(self, asked: _Asked) -> None:
        """Lift a limit, from whatever thread."""
        with self._lock:
            self._asked = [one for one in self._asked if one is not asked]
            self._apply()

    def after_fork(self) -> None:
        """In a child only the thread that forked is left, and the lock may be that of another."""
        self._lock = threading.RLock()
        self._asked = [one for one in self._asked if one.thread == threading.get_ident()]

    def _apply(self) -> None:
        innermost = {one.thread: one.threads for one in self._asked}
        for blas in self._loaded():
            if innermost:
                self._before.setdefault(blas.filepath, blas.num_threads)
                _set_threads(blas, min(innermost.values()))
            elif blas.filepath in self._before:
                _set_threads(blas, self._before[blas.filepath])
        if not innermost:
            self._before.clear()

    def _loaded(self) -> list[Any]:
        # To look takes milliseconds, and a library comes with a module that needs it.
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries


def _set_threads(blas: LibController, threads: int) -> None:
    # From threadpoolctl 3.8 on only the thread that was first to set an OpenBLAS may set it, others do so in vain.
    release = getattr(blas, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    blas.set_num_threads(threads)
    if release is not None:
        release(force=True)


_LIMIT = _BlasLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMIT.after_fork)


@contextmanager
def blas_threads(threads: int) -> Iterator[None]:
    """A context in which BLAS uses that many threads per call, or fewer where another thread of the process asks so.

    From any number of threads at once: when the last has left, BLAS has the threads that it had before the first came.
    """
    asked = _LIMIT.ask(threads)
    try:
        yield
    finally:
        _LIMIT.lift(asked)


def single_threaded_blas() -> AbstractContextManager[None]:
    """A context in which BLAS uses one thread per call, for code that spreads its calls over the cores itself."""
    return blas_threads(1)
