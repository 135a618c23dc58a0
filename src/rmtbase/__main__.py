"""Entry point of the command ``rmtbase`` and of ``python -m rmtbase``."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, then end the process."""
    try:
        from rmtbase.terminal.signals import catch_signals

        catch_signals()
        from rmtbase.cli._process import run

        run()
    except KeyboardInterrupt:  # in the few milliseconds before or after those in which run() reports it
        from signal import SIGINT

        from rmtbase.terminal.signals import received, words_of

        number = received() or SIGINT
        os.write(2, f"rmtbase: {words_of(number)}\n".encode())
        os._exit(128 + number)


if __name__ == "__main__":
    main()
