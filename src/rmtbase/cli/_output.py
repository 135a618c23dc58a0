"""Where results go: to files, none of which replaces one of another kind unasked, or to stdout, named ``-``."""

from __future__ import annotations

import sys
from pathlib import Path

from rmtbase.errors import OutputError

_STDOUT = Path("-")

KINDS = {
    "netCDF": b"\x89HDF",
    "CSV of heads": b"layer,head,",
    "CSV of matrices": b"layer,component,",
    "CSV of pairs": b"kind,earlier,later,",
    "CSV of signal": b"layer,what,",
    "HTML": b"<!DOCTYPE html>",
}
"""What a command writes beside pictures, and how each begins."""


def is_standard_output(path: Path | None) -> bool:
    """Whether an output's name stands for stdout."""
    return path == _STDOUT


def require_output(path: Path, kind: str) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if no such file can be put there: asked before long work."""
    from rmtbase.tables import require_writable

    if is_standard_output(path):
        raise OutputError("-", f"{kind} cannot be written to stdout; name a file")
    require_writable(path)


def require_replaceable(path: Path, kind: str, overwrite: bool) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if a file of another kind is there that may not be overwritten."""
    from rmtbase.tables import require_same_kind

    if not overwrite:
        require_same_kind(path, kind, KINDS[kind])


def write_to_standard_output(content: bytes) -> None:
    """Write what a file would hold to stdout.

    Raises:
        OutputError: it is no text, and stdout a terminal.
    """
    stream = sys.stdout
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        if stream.isatty():
            raise OutputError(
                "-", "stdout is a terminal, which shows no such file; name a file, or pipe it on"
            ) from error
        _write_as_it_is(content)
    else:
        if stream.isatty() or not hasattr(stream, "buffer"):
            stream.write(text)
        else:  # lest the system's encoding and ends of lines, those of Windows say, make another file of it
            _write_as_it_is(content)


def _write_as_it_is(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_output(content: bytes, path: Path) -> None:
    """Write a file, or what it would hold to stdout, as :func:`is_standard_output` says.

    Raises:
        OutputError: it cannot be written.
    """
    if is_standard_output(path):
        write_to_standard_output(content)
    else:
        from rmtbase.tables import write_bytes

        write_bytes(content, path)
