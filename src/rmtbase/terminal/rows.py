"""A table that can be read at any width: where a terminal is too narrow, each row's numbers stand below its name."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmtbase.terminal.streams import cell

UNTESTED = "?"
"""A cell whose number is not known, as there is no test: never 0, and not empty."""

_ANY_WIDTH = 10_000


class Column(NamedTuple):
    """The heading of a column, and the side that its cells are set to."""

    name: str
    side: Literal["left", "right"] = "right"


def print_rows(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, named: int = 1, title: str = ""
) -> None:
    """Print texts of any origin as a table, whose first ``named`` columns say what a row is of."""
    safe = [[cell(text).plain for text in row] for row in rows]
    table = Table(title=cell(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column.name, justify=column.side, no_wrap=True)
    for row in safe:
        table.add_row(*map(Text, row))
    if console.measure(table, options=console.options.update_width(_ANY_WIDTH)).maximum <= console.width:
        console.print(table)
    else:
        _print_in_pairs(console, columns, safe, named, title)


def _print_in_pairs(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], named: int, title: str
) -> None:
    """Two lines for each row: what it is of, and its numbers in columns."""
    headings = [column.name for column in columns]
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]

    def numbers(row: Sequence[str]) -> str:
        places = zip(row[named:], widths[named:], columns[named:], strict=True)
        return "   " + "  ".join(
            text.rjust(w) if column.side == "right" else text.ljust(w) for text, w, column in places
        )

    if title:
        console.print(cell(title, "italic"))
    console.print(Text(", ".join(headings[:named]), "dim"))
    console.print(Text(numbers(headings), "dim"))
    for row in rows:
        place = zip(headings, row[:named], strict=False)
        console.print(Text(row[0] if named == 1 else ", ".join(f"{name} {text}" for name, text in place)))
        console.print(Text(numbers(row)))
    console.print()


def number_text(value: float, digits: int) -> str:
    """Write a number to so many significant digits; nothing for NaN."""
    return "" if math.isnan(value) else f"{value:.{digits}g}"
