"""Number of cores of this process, and its limit on the threads of BLAS."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from threadpoolctl import LibController, ThreadpoolController


def available_cores() -> int:
    """Return the number of cores that this process may use (its CPU affinity where the system reports it)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Asked(NamedTuple):  # requests with equal values are told apart by identity
    thread: int
    threads: int


class _BlasLimit:
    """Limit of all threads on BLAS: the innermost of one thread counts, and between threads the smallest."""

    def __init__(self) -> None:
        # Reentrant, because a generator that is garbage-collected inside the lock lifts its limit there.
        self._lock = threading.RLock()
        self._asked: list[_Asked] = []  # in the order of asking
        self._before: dict[str, int] = {}  # file of a BLAS → its number of threads
        self._libraries: list[Any] = []
        self._modules = 0  # number of imported modules when the libraries were looked up

    @contextmanager
    def hold(self, threads: int) -> Iterator[None]:
        mine = _Asked(threading.get_ident(), threads)
        with self._lock:
            self._asked.append(mine)
            self._apply()
        try:
            yield
        finally:
            with self._lock:
                self._asked = [request for request in self._asked if request is not mine]
                self._apply()

    def after_fork(self) -> None:
        """Reset the lock in a child process: only the thread that forked is left, and another may have held it."""
        self._lock = threading.RLock()
        self._asked = [request for request in self._asked if request.thread == threading.get_ident()]

    def _apply(self) -> None:
        innermost = {request.thread: request.threads for request in self._asked}
        for blas in self._loaded():
            if innermost:
                self._before.setdefault(blas.filepath, blas.num_threads)
                _set_threads(blas, min(innermost.values()))
            elif blas.filepath in self._before:
                _set_threads(blas, self._before[blas.filepath])
        if not innermost:
            self._before.clear()

    def _loaded(self) -> list[Any]:
        # A look-up takes milliseconds, and a new library can only come with a new module.
        if self._modules != len(sys.modules):
            self._modules = len(sys.modules)
            self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
        return self._libraries


def _set_threads(blas: LibController, threads: int) -> None:
    # From threadpoolctl 3.8 on, only the thread that first set OpenBLAS's limit may set it; other calls have no effect.
    release = getattr(blas, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)
    blas.set_num_threads(threads)
    if release is not None:
        release(force=True)


_LIMIT = _BlasLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_LIMIT.after_fork)


def blas_threads(threads: int) -> AbstractContextManager[None]:
    return _LIMIT.hold(threads)


def single_threaded_blas() -> AbstractContextManager[None]:
    return blas_threads(1)
