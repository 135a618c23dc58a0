"""Items of a report, and their print on the terminal: on a narrow one each row's numbers stand below its name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rmtbase.report._glossary import Glossary
from rmtbase.shown import shown
from rmtbase.terminal.command_line import next_command
from rmtbase.terminal.endings import VERBOSITY, Verbosity, note

UNTESTED = "?"
"""Text of a cell whose number is not known because there is no test: never 0, and not empty."""

_ANY_WIDTH = 10_000
_LONGEST = 100_000  # characters: a sentence may name all heads of a large model


class Heading(str):
    """Name of what the next items are about, such as a model and its revision."""

    @classmethod
    def of_model(cls, attributes: Mapping[Any, Any]) -> Heading:
        """Return the model and the revision that a table's attributes name."""
        revision = attributes.get("revision")
        return cls(attributes["model"] + (f", revision {revision}" if revision else ""))


class Verbatim(str):
    """Text for other programs, of ASCII or of names that are safe on a terminal, printed as it is."""


class Column(NamedTuple):
    """Column of a table: its heading, the alignment of its cells, the format of its numbers, and its cells.

    For :meth:`Rows.of`, ``cell`` returns the text or number of an object, or is the key of both in a mapping, where
    None is a number that is not known because there is no test.
    """

    name: str
    side: Literal["left", "right"] = "right"
    form: str = ""  # such as ``.4g``
    cell: Callable[[Any], str | float] | str = str

    def of(self, item: Any) -> str | float:
        """Return the cell of an object."""
        if not isinstance(self.cell, str):
            return self.cell(item)
        value = item.get(self.cell, "")
        return UNTESTED if value is None else value


class Rows(NamedTuple):
    """Table of texts and numbers."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[str | float]]  #: texts of any origin, or numbers, of which NaN leaves its cell empty
    named: int = 1  #: number of first columns that identify a row
    title: str = ""  #: "" for none

    @classmethod
    def of(cls, objects: Iterable[Any], *columns: Column, named: int = 1, title: str = "") -> Rows:
        """Make a table with a row for each object, from the cells of the columns."""
        return cls(columns, [[column.of(item) for column in columns] for item in objects], named, title)

    @property
    def texts(self) -> list[list[str]]:
        """Harmless texts of the cells."""

        def text(value: str | float, form: str) -> str:
            if isinstance(value, str):
                return shown(value)
            return "" if math.isnan(value) else format(value, form)

        forms = [column.form for column in self.columns]
        return [[text(value, form) for value, form in zip(row, forms, strict=True)] for row in self.rows]


Item = str | Rows
"""Sentence, :class:`Heading` or table of a report."""

DETAILS = Verbatim("")
"""Item before the details of a report: what follows is printed only with ``--verbose``, and comes last on a page."""


def print_report(items: Iterable[Item], console: Console) -> None:
    """Print the items of a report in their order; its details, and its terms, only if ``--verbose`` is given."""
    texts = []
    for item in items:
        if item is DETAILS and VERBOSITY.get() < Verbosity.VERBOSE:
            note(f"more, and what the words mean: {next_command('--verbose')}")
            return
        texts += [column.name for column in item.columns] if isinstance(item, Rows) else [item]
        if isinstance(item, Rows):
            title = Text(shown(item.title)) if item.title else None
            table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
            for column in item.columns:
                table.add_column(column.name, justify=column.side, no_wrap=True)
            for row in item.texts:
                table.add_row(*map(Text, row))
            if console.measure(table, options=console.options.update_width(_ANY_WIDTH)).maximum <= console.width:
                console.print(table)
            else:
                _print_in_pairs(console, item)
        elif isinstance(item, Verbatim):
            print(item, end="")
        else:
            console.print(Text(shown(item, _LONGEST), "bold" if isinstance(item, Heading) else ""))
    if VERBOSITY.get() >= Verbosity.VERBOSE:
        console.print(Text("What the words mean", "bold"))
        for term in Glossary().explained(*texts):
            console.print(Text(f"{term.name}: {term.text}"))


def _print_in_pairs(console: Console, item: Rows) -> None:
    """Print below each row's name its numbers in columns, on as many lines as they need."""
    headings, texts = [column.name for column in item.columns], item.texts
    widths = [max(map(len, column)) for column in zip(headings, *texts, strict=True)]
    lines: list[list[int]] = [[]]
    for place in range(item.named, len(headings)):
        if lines[-1] and 3 + sum(widths[column] + 2 for column in [*lines[-1], place]) - 2 > console.width:
            lines.append([])
        lines[-1].append(place)

    def numbers(row: Sequence[str]) -> Iterator[str]:
        for line in lines:
            parts = [
                row[k].rjust(widths[k]) if item.columns[k].side == "right" else row[k].ljust(widths[k]) for k in line
            ]
            yield f"   {'  '.join(parts)}".rstrip()

    if item.title:
        console.print(Text(shown(item.title), "italic"))
    console.print(Text(", ".join(headings[: item.named]), "dim"))
    for line in numbers(headings):
        console.print(Text(line, "dim"))
    for row in texts:
        place = zip(headings, row[: item.named], strict=False)
        console.print(Text(row[0] if item.named == 1 else ", ".join(f"{name} {text}" for name, text in place)))
        for line in numbers(row):
            console.print(Text(line))
    console.print()
