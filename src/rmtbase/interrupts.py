"""Blocks that Ctrl-C, SIGTERM and SIGHUP do not interrupt."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTS = tuple(number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP"))
"""Signals that interrupt a command; Windows has no SIGHUP."""

# The alarm raises an interrupt again that a library has swallowed.
_HELD = tuple(number for number in signal.Signals if number in INTERRUPTS or number.name == "SIGALRM")


@contextmanager
def interrupts_held() -> Iterator[None]:
    """Hold back signals in the main thread, for code that must not be interrupted, as netCDF4 or the import of JAX."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {int(number): signal.getsignal(number) or signal.SIG_DFL for number in _HELD}
    came: list[int] = []
    holding = True

    def pass_on(number: int, frame: FrameType | None) -> None:
        handler = handlers[number]
        if callable(handler):  # called directly: raised again, the signal would be counted twice
            handler(number, frame)
        else:
            signal.signal(number, handler)
            signal.raise_signal(number)

    def hold(number: int, frame: FrameType | None) -> None:
        if holding:
            came.append(number)
        else:  # it comes while handlers are put back: what it raises leaves this one in place of the rest
            pass_on(number, frame)

    try:
        # Other threads of this process may still receive the signals, and pass them to this handler.
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        holding = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in came:
            pass_on(number, None)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold back signals while threads and processes are started, which never see Ctrl-C: the caller must stop them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with interrupts_held():
        masked = hasattr(signal, "pthread_sigmask")  # as everywhere but on Windows
        if masked:
            from multiprocessing import resource_tracker

            # The thread that starts the tracker unblocks the signals again, so it must be started before the block. It
            # inherits the mask: a terminal that hangs up must not end it before the processes that it tracks.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            resource_tracker.ensure_running()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if masked else set()
        try:
            yield
        finally:
            if masked:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
