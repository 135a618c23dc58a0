"""Exit codes and messages of failed commands: one line on stderr, and a status."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path

from rmtbase.errors import RmtbaseError
from rmtbase.shown import one_line, shown
from rmtbase.systems import address_space_left, is_broken_pipe
from rmtbase.terminal.signals import raise_no_more, received, words_of

REFUSED = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
UNREAD = 141  # 128 + SIGPIPE, which not every system defines
_LONGEST = 1000  # characters of another library's message

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Verbosity(IntEnum):
    """Amount of text that a command prints on stderr in addition to its result."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


VERBOSITY = ContextVar("verbosity", default=Verbosity.NORMAL)
"""Verbosity of the running command."""


def ended_by(error: BaseException, debug: bool = False) -> int:
    """Print in one line what ended a command, and return the exit status.

    Args:
        error: the exception that the command raised.
        debug: whether to also show its traceback.

    Raises:
        BaseException: an exception that is neither an error nor an interrupt is raised again.
    """
    raise_no_more()
    if debug:
        traceback.print_exception(error)
    # A library may have turned an interrupt into another error: it is still an interrupt.
    if received() is not None or isinstance(error, KeyboardInterrupt):
        return _stopped("".join(f"; {note}" for note in _notes(error)))
    if is_broken_pipe(error):
        return _unread()
    if not isinstance(error, Exception):
        raise error
    status, line = _explained(error)
    if line:
        say(line)
    if isinstance(error, RmtbaseError):
        _show_code(getattr(error, "__notes__", ()))
    return status


def finished_all_the_same() -> int:
    """Say that an interrupt came after the work was done, and return the exit status."""
    return _stopped("; too late to stop anything: the command had done its work")


def note(line: str) -> None:
    """Print a line on stderr, except with ``--quiet``."""
    if VERBOSITY.get() >= Verbosity.NORMAL:
        say(line)


def detail(line: str) -> None:
    """Print a line on stderr only with ``--verbose``."""
    if VERBOSITY.get() >= Verbosity.VERBOSE:
        say(line)


def say(line: str) -> None:
    """Print a line on stderr; its reader may be gone, which is no error."""
    with suppress(OSError):
        print(f"rmtbase: {one_line(line)}", file=sys.stderr)


def _show_code(notes: Iterable[str]) -> None:
    """Print the lines of Python in an error's notes, so that they can be copied."""
    with suppress(OSError):
        for line in "\n".join(notes).splitlines():
            print(f"    {shown(line, _LONGEST)}".rstrip(), file=sys.stderr)


def _stopped(what_else: str) -> int:
    number = received() or signal.SIGINT
    say(f"{words_of(number)}{what_else}")
    return 128 + number


def _notes(error: BaseException | None) -> list[str]:
    """Return the notes that were added to the interrupt, which another error may hide."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and getattr(error, "__notes__", None):
            return error.__notes__
        error = error.__cause__ or error.__context__
    return []


def _unread() -> int:
    """End silently when nobody reads the output any more, as in ``rmtbase law ... | head -1``: that is no error."""
    with suppress(OSError, ValueError):  # a stream without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNREAD


def _explained(error: Exception) -> tuple[int, str]:
    """Return the status and the line of an error; the line is empty if the message has been printed already."""
    if isinstance(error, RmtbaseError):
        return REFUSED, f"error: {error}"
    # A wrong command line: click's UsageError, which typer ships as its own copy in some versions.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        said = shown(usage(), _LONGEST)
        where = getattr(getattr(error, "ctx", None), "command_path", "rmtbase")
        # Without any arguments there is no message: the help is printed.
        return REFUSED, f"error: {said.rstrip('.')} (try '{where} --help')" if said else ""
    said = shown(str(error), _LONGEST)
    if isinstance(error, MemoryError):
        return REFUSED, f"error: out of memory ({said or 'no more is said'}): ask for less, or use a larger machine"
    if isinstance(error, UnicodeEncodeError):  # of a file name, or of the output stream
        return REFUSED, f"error: text that is not {error.encoding} cannot be used here ({said}): use other names"
    if isinstance(error, OSError):
        return REFUSED, f"error: {_of_the_system(error)}"
    if isinstance(error, ImportError) and (left := address_space_left()) is not None:
        expected = f"libraries and what they need fit in {left >> 20:,} MiB that ulimit -v leaves: raise the limit"
        return REFUSED, f"error: a library cannot be loaded ({said}): expected that {expected}"
    from rmtbase.terminal.environment import settings_to_blame

    blamed = settings_to_blame(error)
    if blamed:
        return REFUSED, f"error: {blamed}"
    kind = type(error).__name__
    return INTERNAL, f"internal error: {kind}: {said} (rmtbase --debug shows where; please report it)"


def _of_the_system(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        return f"{shown(os.fsdecode(error.filename))}: {reason}"
    try:
        Path.cwd()
    except OSError:
        return f"the working directory cannot be used ({reason}): change to one that is there"
    if error.errno == errno.EBADF:
        return "stdout is closed: what was to be written there is lost"
    if error.errno in _FULL:
        return f"the output cannot be written: {reason}"
    return shown(reason, _LONGEST)
