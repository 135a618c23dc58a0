"""Entry point of the command ``rmtbase`` and of ``python -m rmtbase``."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process, then end the process."""
    try:
        from rmtbase.cli._process import run

        run()
    except KeyboardInterrupt:  # in the few milliseconds before the handlers are installed
        os.write(2, b"rmtbase: interrupted\n")
        os._exit(130)


if __name__ == "__main__":
    main()
