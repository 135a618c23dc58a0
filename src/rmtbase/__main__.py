"""Entry point of the command ``rmtbase`` and of ``python -m rmtbase``."""

from __future__ import annotations

import os
import sys

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
        signals = sys.modules.get("rmtbase.terminal.signals")  # without it, only Ctrl-C raises
        number = signals.received() if signals else None
        os.write(2, f"rmtbase: {signals.words_of(number) if signals and number else 'interrupted'}\n".encode())
        os._exit(128 + (number or 2))


if __name__ == "__main__":
    main()
