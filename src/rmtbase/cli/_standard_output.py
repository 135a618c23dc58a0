"""What goes to stdout where an output is named ``-``."""

from __future__ import annotations

import sys
from pathlib import Path

from rmtbase.errors import OutputError

_NAME = Path("-")


def is_standard_output(path: Path | None) -> bool:
    """Whether an output's name stands for stdout."""
    return path == _NAME


def refuse_netcdf_on_standard_output(path: Path | None) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if the name of a netCDF file stands for stdout."""
    if is_standard_output(path):
        raise OutputError("-", "netCDF cannot be written to stdout; name a file")


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
        stream.flush()
        stream.buffer.write(content)
        stream.buffer.flush()
    else:
        stream.write(text)


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
