"""Output of the commands that make a table: the table, its page, and its report on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

import xarray as xr

from rmtbase.errors import OutputError
from rmtbase.models import WeightMatrices, opened_from, require_other_files
from rmtbase.report import Item, print_report
from rmtbase.results import KINDS
from rmtbase.tables import require_replaceable, require_writable, write_bytes, write_table
from rmtbase.terminal.output import show
from rmtbase.terminal.streams import say_written

_PAGES = (".html", ".htm")


class Outputs:
    """The table that a command writes, and its page: checked before long work, written after it.

    Args:
        paths: files to write. A name that ends in ``.html`` is the page, any other name the table.
        kind: kind of the table, or several kinds separated by commas, which may replace each other.
        default: path of the table if ``paths`` has none.

    Attributes:
        table: path of the table, or None.
        page: path of the page, or None.

    Raises:
        OutputError: a file cannot be written, is stdout, or there are two files for the same thing.
    """

    def __init__(self, paths: Path | Sequence[Path] | None, kind: str, default: Path | None = None) -> None:
        given = [paths] if isinstance(paths, Path) else list(paths or ())
        pages = [path for path in given if path.suffix.lower() in _PAGES]
        tables = [path for path in given if path not in pages] or ([] if default is None else [default])
        for path, *more in filter(None, (tables, pages)):
            if more:
                raise OutputError(more[0], f"{path} is named for the same output; expected one of them")
            if path == Path("-"):
                raise OutputError("-", "this file cannot be written to stdout; name a file")
            require_writable(path)
        self._kind = kind
        self.table, self.page = (next(iter(some), None) for some in (tables, pages))

    def require_replaceable(self, *read: WeightMatrices | Path) -> None:
        """Raise :class:`~rmtbase.errors.OutputError` if a file is there that must not be replaced, or that is read."""
        outputs = {f"table {self._kind}": self.table, "html": self.page}
        paths = {what: path for what, path in outputs.items() if path is not None}
        inputs = [one for one in read if isinstance(one, Path)]
        for model in (one for one in read if not isinstance(one, Path)):
            require_other_files(paths.values(), model)
            inputs += [one.path for one in opened_from(model)]
        for what, path in paths.items():
            require_replaceable(path, what, inputs=inputs)

    def finish(
        self,
        table: xr.Dataset | xr.DataTree,
        as_json: Callable[[], object],
        report: Callable[[], Iterable[Item]],
        page: Callable[[], str] | None = None,
        *,
        written: bool = False,
    ) -> None:
        """Write the files, name each on stderr, and print the result.

        Args:
            table: the result.
            as_json: returns what ``--json`` prints.
            report: returns the sentences and tables for the terminal, and for the page.
            page: returns the page; if None, the page has the report and the standard figures of the table.
            written: whether the table has been written already.
        """
        items = cache(lambda: list(report()))  # the page and the terminal show the same
        if self.table is not None and not written:
            say_written(write_table(table, self.table))
        if self.page is not None:
            content = _page_of(table, items()) if page is None else page()
            say_written(write_bytes(content.encode(), self.page))
        show(as_json, lambda console: print_report(items(), console))


def _page_of(table: xr.Dataset | xr.DataTree, items: Iterable[Item]) -> str:
    """Return the page of a table of any kind: its report, and its standard figures."""
    from rmtbase.report.page import render_page

    figures = import_module(f"rmtbase.results.{KINDS[str(table.attrs['kind'])]}.figures")
    return render_page(table, items, figures.figure_recipes)
