"""Protection of existing files: by default only a file of the same kind is replaced, and an input never.

The content of a file shows that rmtbase wrote it: a table has the attribute ``kind`` and a digest, a figure or a page
names its program, and the first line of a text has the titles of its columns.
"""

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from rmtbase.errors import OutputError
from rmtbase.regular_files import identity, open_regular
from rmtbase.tables._digest import OF_ALL, OF_VARIABLES

_LOOKED_AT = 1 << 16  # bytes at the start (for PDF and MP4 also at the end) that identify a file


def require_replaceable(
    path: Path | str,
    form: str,
    overwrite: bool = False,
    inputs: Iterable[Path | str] = (),
    variants: Sequence[str] = (),
) -> None:
    """Raise unless a file may be replaced; ``variants``: kinds of table or Parquet file, first lines of a CSV."""
    path = Path(path)
    present = identity(path)
    if present is None:
        return
    if present in {identity(Path(source)) for source in inputs}:
        raise OutputError(path, "it is a file that is read; expected another name")
    folders = (Path(source).resolve() for source in inputs if Path(source).is_dir())
    within = any(path.resolve().is_relative_to(folder) for folder in folders)
    if overwrite and not within:
        return
    try:
        with open_regular(path) as stream:
            start = stream.read(_LOOKED_AT)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    if not start or _FORMS[form](path, start, variants):
        return
    if within:
        raise OutputError(path, "it is in a folder that is read, and no earlier output; expected another name")
    noun = _NOUNS[form].format(" or ".join(variants))
    raise OutputError(path, f"a file that is no {noun} is there; remove it, or name another")


def _is_table(path: Path, start: bytes, kinds: Sequence[str]) -> bool:
    import h5py

    if not start.startswith(b"\x89HDF"):
        return False
    try:
        with h5py.File(os.fsencode(path), "r", locking=False) as file:
            attributes = {name: file.attrs[name] for name in ("kind", OF_ALL, OF_VARIABLES)}
    except (OSError, KeyError, RuntimeError, ValueError, TypeError):
        return False
    kind, digest = (
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in list(attributes.values())[:2]
    )
    return kind in kinds and isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) is not None


def _is_parquet(path: Path, start: bytes, kinds: Sequence[str]) -> bool:
    if not start.startswith(b"PAR1"):
        return False
    try:
        import pyarrow.parquet as pq  # type: ignore[import-not-found]

        return (pq.read_schema(path).metadata or {}).get(b"rmtbase.kind", b"").decode() in kinds
    except Exception:  # pyarrow raises its own errors for other files
        return False


def _with_end(path: Path, start: bytes) -> bytes:
    with open_regular(path) as stream:
        stream.seek(max(path.stat().st_size - _LOOKED_AT, 0))
        return start + stream.read(_LOOKED_AT)


_FORMS: dict[str, Callable[[Path, bytes, Sequence[str]], bool]] = {
    "table": _is_table,
    "csv": lambda path, start, lines: any(start.startswith(f"{line}\n".encode()) for line in lines),
    "parquet": _is_parquet,
    "latex": lambda path, start, _: start.startswith(b"% rmtbase "),
    "html": lambda path, start, _: (
        start.startswith(b"<!DOCTYPE html>") and b'<meta name="generator" content="rmtbase ' in start
    ),
    "pdf": lambda path, start, _: start.startswith(b"%PDF-") and b"/Creator (rmtbase)" in _with_end(path, start),
    "svg": lambda path, start, _: start.startswith(b"<?xml") and b"<dc:title>rmtbase</dc:title>" in start,
    "png": lambda path, start, _: start.startswith(b"\x89PNG\r\n") and b"tEXtSoftware\0rmtbase" in start,
    "gif": lambda path, start, _: start.startswith(b"GIF8") and b"rmtbase" in start,
    "mp4": lambda path, start, _: start[4:8] == b"ftyp" and b"rmtbase" in _with_end(path, start),
}
_NOUNS = {
    "table": "{} file of rmtbase",
    "csv": "CSV of these columns",
    "parquet": "Parquet file of {} by rmtbase",
    "latex": "LaTeX table of rmtbase",
    "html": "HTML page of rmtbase",
    **{form: f"{form.upper()} of rmtbase" for form in ("pdf", "svg", "png", "gif", "mp4")},
}
