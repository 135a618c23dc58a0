"""Blocks that Ctrl-C and SIGTERM do not cut in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HELD = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block is left, for code that cannot be cut.

    Such code: importing torch, whose C++ ends the process when Python raises in it; and netCDF4, whose lock is never
    released when its holder is interrupted. Outside the main thread, to which signals do not come, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[signal.Signals] = []
    # The other threads of this process still take the signals, and hand them to these handlers.
    handlers = {
        number: signal.signal(number, lambda found, frame: came.append(signal.Signals(found))) for number in _HELD
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            handler = handlers[number]
            if callable(handler):  # which is not told to those who count signals as they come: they were told
                handler(number, None)
            else:
                signal.raise_signal(number)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back while threads and processes are started: half started they could not be found to be stopped.

    Threads that begin in the block, and the processes that they start, never see Ctrl-C, which a terminal sends to all:
    who entered the block stops them. Outside the main thread it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with interrupts_held():
        masked = hasattr(signal, "pthread_sigmask")  # as everywhere but on Windows
        if masked:
            from multiprocessing import resource_tracker

            # Whatever thread starts it lets the signals through again, so that it must not be one of the block's.
            resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else set()
        try:
            yield
        finally:
            if masked:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
