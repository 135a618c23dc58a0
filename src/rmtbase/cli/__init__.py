"""The command line: one file per command, parsing and printing only.

This file imports nothing, so that the handlers of a Ctrl-C are in place from the first moments of the command.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one command in this process, and report any error in one line on stderr.

    Args:
        arguments: arguments of the command line; the arguments of the process if None.

    Raises:
        SystemExit: always, with the status. 0: done; 2: the input cannot be used; 70: a bug in rmtbase; 128 plus the
            signal's number: stopped by a signal.
    """
    import sys

    from rmtbase.cli._app import run

    raise SystemExit(run(list(sys.argv[1:] if arguments is None else arguments)))
