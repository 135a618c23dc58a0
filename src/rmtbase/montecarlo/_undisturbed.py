"""A block that no signal disturbs: what is half begun in it could not be found to be stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

_PUT_OFF = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait until the block is left: processes half started could not be found to be stopped.

    Threads that begin in the block, and the processes that they start, never see Ctrl-C, which a terminal sends to all:
    who entered the block stops them. Outside the main thread, to which signals do not come, it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    # The other threads of this process still take the signals, and hand them to these handlers.
    handlers = {number: signal.signal(number, lambda found, frame: came.append(found)) for number in _PUT_OFF}
    masked = hasattr(signal, "pthread_sigmask")  # as everywhere but on Windows
    if masked:
        # Whatever thread starts it lets the signals through again, so that it must not be one of the block's.
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else set()
    try:
        yield
    finally:
        if masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        for number in came:
            signal.raise_signal(number)
