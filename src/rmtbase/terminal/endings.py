"""How a command ends that does not end well: one line on stderr, and a status."""

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
from rmtbase.systems import is_broken_pipe
from rmtbase.terminal.signals import raise_no_more, received, words_of

REFUSED = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
UNREAD = 141  # 128 + SIGPIPE, of which not every system knows
_LONGEST = 1000  # characters of what another library says

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Verbosity(IntEnum):
    """How much a command tells on stderr beside its result."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


VERBOSITY = ContextVar("verbosity", default=Verbosity.NORMAL)
"""That of the command that runs."""


def ended_by(error: BaseException, debug: bool = False) -> int:
    """Say in one line what ended a command; the status to leave with.

    Args:
        error: what the command raised.
        debug: whether its traceback is shown, too.

    Raises:
        BaseException: it is none of those that end commands.
    """
    raise_no_more()
    if debug:
        traceback.print_exception(error)
    # Whatever a library has made of an interrupt, an interrupt it was.
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
    """Say that an interrupt came when the work was done; the status to leave with."""
    return _stopped("; too late to stop anything: the command had done its work")


def note(line: str) -> None:
    """One line beside the result; not with ``--quiet``."""
    if VERBOSITY.get() >= Verbosity.NORMAL:
        say(line)


def detail(line: str) -> None:
    """One line more, with ``--verbose`` alone."""
    if VERBOSITY.get() >= Verbosity.VERBOSE:
        say(line)


def say(line: str) -> None:
    """One line of the command on stderr, where somebody may have stopped reading."""
    with suppress(OSError):
        print(f"rmtbase: {one_line(line)}", file=sys.stderr)


def _show_code(notes: Iterable[str]) -> None:
    """The lines of Python that an error has as its notes, as they are to be copied."""
    with suppress(OSError):
        for line in "\n".join(notes).splitlines():
            print(f"    {shown(line, _LONGEST)}".rstrip(), file=sys.stderr)


def _stopped(what_else: str) -> int:
    number = received() or signal.SIGINT
    say(f"{words_of(number)}{what_else}")
    return 128 + number


def _notes(error: BaseException | None) -> list[str]:
    """What was noted on the interrupt on its way up, which another error may have covered."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and getattr(error, "__notes__", None):
            return error.__notes__
        error = error.__cause__ or error.__context__
    return []


def _unread() -> int:
    """Nobody reads the output any more, as in ``rmtbase law ... | head -1``: that is no error, and nothing is said."""
    with suppress(OSError, ValueError):  # a stream without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return UNREAD


def _explained(error: Exception) -> tuple[int, str]:
    """The status and the line of an error; an empty line where what is to be said has been said."""
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
    if isinstance(error, UnicodeEncodeError):  # of a name, or of the stream that is written to
        return REFUSED, f"error: text that is not {error.encoding} cannot be used here ({said}): use other names"
    if isinstance(error, OSError):
        return REFUSED, f"error: {_of_the_system(error)}"
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
