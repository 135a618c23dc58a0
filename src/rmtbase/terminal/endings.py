"""Exit codes and messages of failed commands: one line on stderr, and a status."""

import errno
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from rmtbase.errors import RmtbaseError
from rmtbase.shown import one_line, shown
from rmtbase.systems import address_space_left, is_broken_pipe
from rmtbase.terminal.signals import raise_no_more, received, words_of

REFUSED = 2
INTERNAL = 70  # EX_SOFTWARE of sysexits.h
UNREAD = 141  # 128 + SIGPIPE, which not every system defines
_LONGEST = 1000  # characters of another library's message
_LONGEST_LINE = 1900  # characters of a message, of which stderr and JSON then show the same

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Verbosity(IntEnum):
    """Amount of text that a command prints on stderr in addition to its result."""

    QUIET = -1
    NORMAL = 0
    VERBOSE = 1


VERBOSITY = ContextVar("verbosity", default=Verbosity.NORMAL)  #: Verbosity of the running command


class Ending(NamedTuple):
    """End of a command that failed."""

    status: int  # the exit status
    kind: str  # name of the exception's class
    message: str  # what happened, in one line; empty if it has been printed already
    facts: Mapping[str, object] = MappingProxyType({})  # the values that explain it, by name


def ended_by(error: BaseException, debug: bool = False, as_json: bool = False) -> int:
    """Print in one line what ended a command, and return the exit status."""
    raise_no_more()
    if debug:
        traceback.print_exception(error)
    # A library may have turned an interrupt into another error: it is still an interrupt.
    if received() is not None or isinstance(error, KeyboardInterrupt):
        ending = _stopped("".join(f"; {note}" for note in _notes(error)))
    elif is_broken_pipe(error):
        # Nobody reads the output any more, as in ``rmtbase law ... | head -1``: that is no error.
        with suppress(OSError, ValueError):  # a stream without a descriptor
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    elif isinstance(error, Exception):
        ending = _explained(error)
        if ending.message:
            say(f"{'internal ' * (ending.status == INTERNAL)}error: {ending.message}")
    else:
        raise error
    if as_json and ending.message:
        from rmtbase.terminal.streams import PRINTED, print_json

        facts = {
            name: value if value is None or isinstance(value, bool | int | float) else shown(value, _LONGEST)
            for name, value in ending.facts.items()
        }
        with suppress(OSError, ValueError):  # stdout is closed or full, which stderr tells
            if not PRINTED.get():  # stdout holds one object
                print_json({"error": {**ending._asdict(), "facts": facts}})
                sys.stdout.flush()
    return ending.status


def finished_all_the_same() -> int:
    """Say that an interrupt came after the work was done, and return the exit status."""
    return _stopped("; too late to stop anything: the command had done its work").status


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


def _stopped(what_else: str) -> Ending:
    number = received() or signal.SIGINT
    message = f"{words_of(number)}{what_else}"
    say(message)
    return Ending(128 + number, "KeyboardInterrupt", message)


def _notes(error: BaseException | None) -> list[str]:
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and getattr(error, "__notes__", None):
            return error.__notes__
        error = error.__cause__ or error.__context__
    return []


def _explained(error: Exception) -> Ending:
    kind, words = type(error).__name__, shown(str(error), _LONGEST)
    if isinstance(error, RmtbaseError):
        return Ending(REFUSED, kind, one_line(str(error), _LONGEST_LINE), vars(error))
    # A wrong command line: click's UsageError, which typer ships as its own copy in some versions.
    usage = getattr(error, "format_message", None)
    if usage is not None:
        words, where = shown(usage(), _LONGEST), getattr(getattr(error, "ctx", None), "command_path", "rmtbase")
        # Without any arguments there is no message: the help is printed.
        return Ending(REFUSED, kind, f"{words.rstrip('.')} (try '{where} --help')" if words else "")
    if isinstance(error, MemoryError):
        message = f"out of memory ({words or 'no more is said'}): ask for less, or use a larger machine"
        return Ending(REFUSED, kind, message)
    if isinstance(error, UnicodeEncodeError):  # of a file name, or of the output stream
        message = f"text that is not {error.encoding} cannot be used here ({words}): use other names"
        return Ending(REFUSED, kind, message)
    if isinstance(error, OSError):
        return Ending(REFUSED, kind, _of_the_system(error))
    if isinstance(error, ImportError) and (left := address_space_left()) is not None:
        expected = f"libraries and what they need fit in {left >> 20:,} MiB that ulimit -v leaves: raise the limit"
        return Ending(REFUSED, kind, f"a library cannot be loaded ({words}): expected that {expected}")
    from rmtbase.terminal.environment import settings_to_blame

    if blamed := settings_to_blame(error):
        return Ending(REFUSED, kind, blamed)
    return Ending(INTERNAL, kind, f"{kind}: {words} (rmtbase --debug shows where; please report it)")


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
