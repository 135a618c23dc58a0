"""Published tables as data, to the digits printed, each with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rmtbase.errors import ParameterError

TABLES = Path(__file__).with_name("published.json")
PUBLISHED_BAND = (1.186, 1.204)
"""Weibull shapes that T. Ding, arXiv:2605.18898 (2026), calls the transmission band: medians of 12 models."""
_SLACK = 1e-12  # relative, of ends that are equal but for rounding


class Interval(NamedTuple):
    """Interval of numbers from ``low`` to ``high``, both included."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Centre of the interval."""
        return 0.5 * (self.low + self.high)

    def meets(self, other: Interval) -> bool:
        """Return True if the two have a number in common."""
        slack = _SLACK * max(map(abs, (*self, *other)))
        return self.low <= other.high + slack and other.low <= self.high + slack


class PublishedColumn(NamedTuple):
    """Meaning of a column of a published table in words, and its unit ("" if it has none)."""

    words: str
    unit: str


@dataclass(frozen=True)
class PublishedTable:
    """Published table.

    Attributes:
        name: name by which :func:`published_table` finds it, such as ``weibull-table-5``.
        citation: citation of its source.
        link: link to its source.
        license: licence of its source, "" if it states none.
        place: its place in the source.
        title: its subject.
        columns: columns by name; the first says what a row is.
        rows: the cells, text for text as printed, except that a size has the name of its family, and 10⁻³ is e-3.
    """

    name: str
    citation: str
    link: str
    license: str
    place: str
    title: str
    columns: Mapping[str, PublishedColumn]
    rows: tuple[Mapping[str, str], ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """First cell of each row."""
        first = next(iter(self.columns))
        return tuple(row[first] for row in self.rows)

    def number(self, label: str, column: str) -> float:
        """Return the number printed in a row, given by its first cell, and a column.

        Raises:
            ParameterError: there is no such row or column, or no number in it.
        """
        found = printed_interval(self._cell(label, column))
        if found is None:
            raise ParameterError("column", column, f"one of {self.name} that holds a number at {label}")
        return float(self._cell(label, column))

    def interval(self, label: str, column: str) -> Interval:
        """Interval of numbers that round to the printed one; raises as :meth:`number`."""
        found = printed_interval(self._cell(label, column))
        if found is None:
            raise ParameterError("column", column, f"one of {self.name} that holds a number at {label}")
        return found

    def numbers(self, column: str, prefix: str = "") -> list[float]:
        """Numbers of a column, in the rows whose first cell begins with ``prefix``."""
        return [self.number(label, column) for label in self.labels if label.startswith(prefix)]

    def _cell(self, label: str, column: str) -> str:
        if label not in self.labels:
            raise ParameterError("label", label, f"one of {', '.join(self.labels)}")
        if column not in self.columns:
            raise ParameterError("column", column, f"one of {', '.join(self.columns)}")
        return self.rows[self.labels.index(label)][column]


def printed_interval(text: str) -> Interval | None:
    """Interval of numbers that round to a printed one: half a unit of its last digit to either side; None if no number.

    ``0.0131`` is 0.01305 to 0.01315, ``1.0e-3`` 0.00095 to 0.00105.
    """
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int):
        return None
    half = Decimal(5).scaleb(exponent - 1)
    return Interval(float(value - half), float(value + half))


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """All seven tables of the sources, and the numbers that their text and figures state, in the order of printing."""
    held = json.loads(TABLES.read_text(encoding="utf-8"))
    return tuple(
        PublishedTable(
            name=table["name"],
            **held["sources"][table["source"]],
            place=table["place"],
            title=table["title"],
            columns={name: PublishedColumn(**column) for name, column in table["columns"].items()},
            rows=tuple(dict(zip(table["columns"], row, strict=True)) for row in table["rows"]),
        )
        for table in held["tables"]
    )


def published_table(name: str) -> PublishedTable:
    """Return the published table of that name; a :class:`ParameterError` lists all names if there is none."""
    found = {table.name: table for table in published_tables()}
    if name not in found:
        raise ParameterError("name", name, f"one of {', '.join(found)}")
    return found[name]
