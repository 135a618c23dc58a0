"""Blocks that Ctrl-C and SIGTERM do not interrupt."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_HELD = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C and SIGTERM until the block is left, for code that must not be interrupted.

    Examples are the import of torch, whose C++ code ends the process if Python raises in it, and netCDF4, whose lock is
    never released if its holder is interrupted. Other threads than the main one receive no signals; there it does
    nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[signal.Signals] = []
    # Other threads of this process may still receive the signals, and pass them to these handlers.
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
            if callable(handler):  # called directly: raised again, the signal would be counted twice
                handler(number, None)
            else:
                signal.raise_signal(number)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back signals while threads and processes are started, because half-started ones could not be stopped.

    A terminal sends Ctrl-C to all processes. Threads started in the block, and their processes, never see it; the code
    that entered the block must stop them. Outside the main thread it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with interrupts_held():
        masked = hasattr(signal, "pthread_sigmask")  # as everywhere but on Windows
        if masked:
            from multiprocessing import resource_tracker

            # The thread that starts the tracker unblocks the signals again, so it must be started before the block.
            resource_tracker.ensure_running()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else set()
        try:
            yield
        finally:
            if masked:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
