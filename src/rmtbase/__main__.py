"""Session of the command ``rmtbase`` and of ``python -m rmtbase``: its signals, its streams, and its end.

Handlers of signals are in place before anything else is imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, then end the process with its status."""
    try:
        from rmtbase.terminal.signals import catch_signals, raise_no_more

        catch_signals()
        try:
            _prepare_streams()
            from rmtbase.cli._app import run

            status = run(sys.argv[1:])
        except BaseException as error:  # raised while the command line itself was being imported
            from rmtbase.terminal.endings import ended_by

            status = ended_by(error, "--debug" in sys.argv, "--json" in sys.argv)
        raise_no_more()
        _leave(status)
    except KeyboardInterrupt:  # in the few milliseconds before or after those in which it is reported
        signals = sys.modules.get("rmtbase.terminal.signals")  # without it, only Ctrl-C raises
        number = signals.received() if signals else None
        os.write(2, f"rmtbase: {signals.words_of(number) if signals and number else 'interrupted'}\n".encode())
        os._exit(128 + (number or 2))


def _prepare_streams() -> None:
    """Make sure that stdout and stderr exist, and can show any text, with escapes for what their encoding lacks."""
    import warnings

    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the parent process; without a replacement the next opened file took its place
            # A result written to a closed stdout is lost. That must be an error, which a read-only file raises.
            mode = os.O_RDONLY if name == "stdout" else os.O_WRONLY
            setattr(sys, name, os.fdopen(os.open(os.devnull, mode), "w", encoding="utf-8"))
        else:
            stream.reconfigure(errors="backslashreplace")

    def show_warning(message: Warning | str, *place: object, **options: object) -> None:
        from rmtbase.terminal.endings import note

        note(f"warning: {message}")  # in one line, without its place in the code

    warnings.showwarning = show_warning


def _leave(status: int) -> NoReturn:
    """End the process without finalizing the interpreter, as threads of JAX and its compiler may still run.

    A stopped command does not wait for these threads; at any other end the exit functions let them finish first.
    """
    import atexit
    from contextlib import suppress

    from rmtbase.terminal.signals import received

    if received() is None:
        atexit._run_exitfuncs()
    if received() is not None and status == 0:
        from rmtbase.terminal.endings import finished_all_the_same

        status = finished_all_the_same()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # nobody reads: the command has reported it, or it does not matter
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
