"""Output of commands: files, which never replace a file of another kind, and results on stdout, as text or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from rmtbase.errors import OutputError

if TYPE_CHECKING:
    import xarray as xr
    from rich.console import Console

    from rmtbase.models import WeightMatrices

JSON = ContextVar("json", default=False)
"""True if the running command prints its result as JSON."""

_PAGES = (".html", ".htm")


class Outputs:
    """The table that a command writes, and its page: checked before long work, written after it.

    Args:
        paths: files to write. A name that ends in ``.html`` is the page, any other name the table.
        kind: kind of the table, or several kinds separated by commas, which may replace each other.
        has_page: whether there is a page of this kind of table.

    Raises:
        OutputError: a file cannot be written, is stdout, or there are two files for the same thing.
    """

    def __init__(self, paths: Path | Sequence[Path] | None, kind: str, *, has_page: bool = False) -> None:
        given = [paths] if isinstance(paths, Path) else list(paths or ())
        self.paths: dict[str, Path] = {}
        for path in given:
            is_page = path.suffix.lower() in _PAGES
            if is_page and not has_page:
                raise OutputError(path, "there is no page of this result; expected a name that ends in .nc")
            what = "html" if is_page else f"table {kind}"
            if what in self.paths:
                raise OutputError(path, f"{self.paths[what]} is named for the same output; expected one of them")
            require_output(path)
            self.paths[what] = path

    def require_replaceable(self, *read: WeightMatrices | Path) -> None:
        """Raise :class:`~rmtbase.errors.OutputError` if a file is there that must not be replaced, or that is read."""
        from rmtbase.tables import require_replaceable

        inputs = [one for one in read if isinstance(one, Path)]
        models = [one for one in read if not isinstance(one, Path)]
        if models and self.paths:
            from rmtbase.models import opened_from, require_other_files

            for model in models:
                require_other_files(self.paths.values(), model)
                inputs += [one.path for one in opened_from(model)]
        for what, path in self.paths.items():
            require_replaceable(path, what, inputs=inputs)

    def finish(
        self,
        table: xr.Dataset | xr.DataTree,
        as_json: Callable[[], object],
        print_text: Callable[[Console], None],
        page: Callable[[], str] | None = None,
    ) -> None:
        """Write the files, print the result, and name the files on stderr."""
        from rmtbase.tables import write_bytes, write_table
        from rmtbase.terminal.streams import say_written

        for what, path in self.paths.items():
            if what == "html" and page is not None:
                write_bytes(page().encode(), path)
            else:
                write_table(table, path)
        show(as_json, print_text)
        for path in self.paths.values():
            say_written(path)


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


def require_output(path: Path) -> None:
    """Raise :class:`~rmtbase.errors.OutputError` if no file can be written there; call this before long work."""
    from rmtbase.tables import require_writable

    if is_standard_output(path):
        raise OutputError("-", "this file cannot be written to stdout; name a file")
    require_writable(path)


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
