"""One command as a process of its own: its signals, its streams, and how it ends.

Ctrl-C and SIGTERM are raised once, where the command stands, and remembered for good.

Python raises KeyboardInterrupt at any place of the main thread. Where a library swallows it, it is raised again: at the
next step of a progress bar, or at once where the interpreter itself has nobody to hand it to (a finaliser, a callback
from C). A second signal changes nothing, so that what the first one undoes (temporary files, worker processes) is
undone to its end; the third ends the process on the spot.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPATIENT = 3
_AGAIN = 0.02  # seconds until an interrupt that nobody could be handed is raised again

_received: list[int] = []
_ended: list[int] = []  # not empty once the command has come to its end: from then on nothing is raised


def run() -> NoReturn:
    """Run the command line of this process, and end the process with its status."""
    catch_signals()
    try:
        _prepare_streams()
        warnings.showwarning = _show_warning
        from rmtbase.cli._app import run as run_command

        status = run_command(sys.argv[1:])
    except BaseException as error:  # while the command line itself was being imported
        from rmtbase.cli._endings import ended_by

        status = ended_by(error, "--debug" in sys.argv)
    raise_no_more()
    _leave(status)


def catch_signals() -> None:
    """Take SIGINT and SIGTERM for this process, but for one that it was started to ignore, as by nohup."""
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _on_signal)
    if hasattr(signal, "setitimer"):  # as everywhere but on Windows
        signal.signal(signal.SIGALRM, _on_alarm)
        sys.unraisablehook = _on_unraisable


def received() -> int | None:
    """The first signal that came, or None."""
    return _received[0] if _received else None


def raise_received() -> None:
    """Raise the interrupt again that came before, and that something must have swallowed.

    Raises:
        KeyboardInterrupt: one has come.
    """
    if _received:
        raise KeyboardInterrupt


def raise_no_more() -> None:
    """From now on signals are counted and raise nothing: the command has come to its end."""
    _ended.append(1)


def _on_signal(number: int, frame: FrameType | None) -> None:
    _received.append(number)
    if len(_received) >= _IMPATIENT:
        os.write(2, b"rmtbase: interrupted\n")
        os._exit(128 + _received[0])
    if len(_received) == 1 and not _ended:
        raise KeyboardInterrupt


def _on_alarm(number: int, frame: FrameType | None) -> None:
    if not _ended:
        raise KeyboardInterrupt


def _on_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    if not _received:
        sys.__unraisablehook__(unraisable)
    elif isinstance(unraisable.exc_value, KeyboardInterrupt) and not _ended:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)


def _prepare_streams() -> None:
    """Streams that can show any text: what their encoding lacks as its escape; and that are there."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by who started the process; else the next file opened took its place
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        else:
            stream.reconfigure(errors="backslashreplace")


def _show_warning(message: Warning | str, *where: object, **more: object) -> None:
    """A warning of a library as one line, without its place in the code."""
    from rmtbase.cli._endings import say

    say(f"warning: {message}")


def _leave(status: int) -> NoReturn:
    """End the process without taking the interpreter apart, under which threads of JAX and its compiler may still run.

    A command that was stopped leaves them where they are; at any other end they are asked to finish first.
    """
    if received() is None:
        atexit._run_exitfuncs()
    if received() is not None and status == 0:
        from rmtbase.cli._endings import finished_all_the_same

        status = finished_all_the_same()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads: the command has said so, or has nothing to say
            stream.flush()
    os._exit(status)
