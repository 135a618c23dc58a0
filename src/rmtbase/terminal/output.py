"""Output of results to files, which never replace a file of another kind unasked, or to stdout, named ``-``."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from rmtbase.errors import OutputError

_STDOUT = Path("-")

_KINDS = {
    "CSV of heads": "titles layer,head,outliers_above,omnibus_p_value,farthest_statistic",
    "CSV of matrices": "titles layer,component,n_rows,n_columns,reason",
    "CSV of pairs": "titles kind,earlier,later,score,p_value",
    "CSV of signal": "titles layer,what,head,squared_norm,strongest_p_value",
    "CSV of a comparison": "titles model,component,family,revision",
    "HTML": "html",
}
"""Kinds of output other than figures and netCDF, as :func:`rmtbase.tables.require_replaceable` recognizes them."""


def is_standard_output(path: Path | None) -> bool:
    """Test whether an output's name stands for stdout."""
    return path == _STDOUT


def require_output(path: Path, kind: str) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if no such file can be written there; call this before long work."""
    from rmtbase.tables import require_writable

    if is_standard_output(path):
        raise OutputError("-", f"{kind} cannot be written to stdout; name a file")
    require_writable(path)


def require_replaceable(path: Path, kind: str, overwrite: bool, table: str = "", inputs: Iterable[Path] = ()) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if an existing file must not be replaced.

    A netCDF file may be replaced if it is a table of the kind ``table``, or of one of several kinds parted by commas.
    """
    from rmtbase.tables import require_replaceable as require

    require(path, f"table {table}" if kind == "netCDF" else _KINDS[kind], overwrite, inputs)


def write_to_standard_output(content: bytes) -> None:
    """Write the content of a file to stdout.

    Raises:
        OutputError: the content is no text, and stdout is a terminal.
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
        else:  # the system's encoding and line ends, on Windows for example, would change the content
            _write_as_it_is(content)


def _write_as_it_is(content: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def write_output(content: bytes, path: Path) -> None:
    """Write content to a file, or to stdout if :func:`is_standard_output` is true of the path.

    Raises:
        OutputError: the content cannot be written.
    """
    if is_standard_output(path):
        write_to_standard_output(content)
    else:
        from rmtbase.tables import write_bytes

        write_bytes(content, path)
