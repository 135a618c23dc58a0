"""Ctrl-C, SIGTERM and SIGHUP: an interrupt of the running command, and the end of the process in bounded time.

Python raises KeyboardInterrupt at any place of the main thread. A library that catches all errors, a finalizer or a
callback from C can swallow it: a timer, or else the next step of a progress bar, then raises it again. A second signal
changes nothing, so that the clean-up after the first is completed. While the main thread is in native code, the C
handler tells a thread of each signal, and this ends the process at the third signal, or ``_PATIENCE`` seconds after the
first. Files are replaced whole, and the next run removes temporary ones that were left.
"""

from __future__ import annotations

import os
import signal
import sys

from rmtbase.interrupts import INTERRUPTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from socket import socket
    from types import FrameType

_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}
_IMPATIENT = 3
_AGAIN = 0.05  # seconds after which an interrupt that has been swallowed is raised again
_PATIENCE = 30.0  # seconds from the first signal to the end

_received: list[int] = []
_ended: list[int] = []  # not empty once the command has ended: from then on nothing is raised


def catch_signals() -> None:
    """Handle every interrupt, except a signal that the process was started to ignore, as by nohup."""
    for number in INTERRUPTS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    if hasattr(signal, "setitimer"):  # everywhere except on Windows
        signal.signal(signal.SIGALRM, _on_alarm)
        sys.unraisablehook = _on_unraisable
    import _thread
    import socket

    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.detach(), warn_on_full_buffer=False)
    _thread.start_new_thread(_end_in_time, (receiver,))


def words_of(number: int) -> str:
    """Return the word for a command that a signal ended."""
    return _WORDS[signal.Signals(number).name]


def received() -> int | None:
    """Return the first signal that came, or None."""
    return _received[0] if _received else None


def raise_received() -> None:
    """Raise an earlier interrupt again, which something must have swallowed."""
    if _received:
        raise KeyboardInterrupt


def raise_no_more() -> None:
    """Mark the end of the command: from now on signals are counted and raise nothing."""
    _ended.append(1)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) == 1 and not _ended:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_REAL, _AGAIN, _AGAIN)
        raise KeyboardInterrupt


def _end_in_time(receiver: socket) -> None:
    """End the process at the third signal, or some seconds after the first, whatever the main thread does."""
    import time

    came: list[int] = []
    end = 0.0
    while len(came) < _IMPATIENT:
        try:
            came += [number for number in receiver.recv(64) if number in INTERRUPTS]
        except TimeoutError:
            break
        if came:
            end = end or time.monotonic() + _PATIENCE
            receiver.settimeout(max(end - time.monotonic(), 1e-3))
    why = "" if len(came) >= _IMPATIENT else f"; what it was doing did not stop within {_PATIENCE:g} s"
    os.write(2, f"rmtbase: {words_of(came[0])}{why}\n".encode())
    if "--debug" in sys.argv:
        import faulthandler

        faulthandler.dump_traceback()
    os._exit(128 + came[0])


def _on_alarm(number: int, frame: FrameType | None) -> None:
    error = sys.exc_info()[1]  # the interrupt, or an error that was raised from it, while the main thread handles it
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    if not _ended and error is None:
        raise KeyboardInterrupt


def _on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if not _received:  # errors of finalizers while a command is being stopped are not reported
        sys.__unraisablehook__(unraisable)
