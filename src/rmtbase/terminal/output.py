"""Output of commands on stdout."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from rmtbase.errors import OutputError

if TYPE_CHECKING:
    from rich.console import Console

JSON = ContextVar("json", default=False)  #: True if the running command prints its result as JSON


def show(as_json: Callable[[], object], print_text: Callable[[Console], None]) -> None:
    """Print a result: as JSON with ``--json``, else as text."""
    from rmtbase.terminal.streams import out, print_json

    if JSON.get():
        print_json(as_json())
    else:
        print_text(out())


def is_standard_output(path: Path | None) -> bool:
    """Test whether the name of an output stands for stdout."""
    return path == Path("-")


def write_to_standard_output(content: bytes) -> None:
    """Write the content of a file to stdout."""
    stream, text = sys.stdout, None
    with suppress(UnicodeDecodeError):
        text = content.decode()
    if text is None and stream.isatty():
        raise OutputError("-", "stdout is a terminal, which shows no such file; name a file, or pipe it on")
    if text is not None and (stream.isatty() or not hasattr(stream, "buffer")):
        stream.write(text)
    else:  # the system's encoding and line ends, on Windows for example, would change the content
        stream.flush()
        stream.buffer.write(content)
        stream.buffer.flush()
