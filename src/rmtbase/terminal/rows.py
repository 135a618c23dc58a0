"""Tables that can be read at any width: on a narrow terminal, each row's numbers stand below its name."""

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
"""Text of a cell whose number is not known because there is no test: never 0, and not empty."""

_ANY_WIDTH = 10_000


class Column(NamedTuple):
    """Heading of a column, and the alignment of its cells."""

    name: str
    side: Literal["left", "right"] = "right"


def print_rows(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], *, named: int = 1, title: str = ""
) -> None:
    """Print texts of any origin as a table, whose first ``named`` columns identify a row."""
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
    """Print two lines for each row: its name, and its numbers in columns."""
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
    """Format a number with ``digits`` significant digits; "" for NaN."""
    return "" if math.isnan(value) else f"{value:.{digits}g}"
