"""Rows as comma-separated values that are harmless to who opens them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from rmtbase.shown import shown

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # how a formula begins, in wide letters too
_BEFORE = " \"'"  # what spreadsheets take away before they look for one


def csv_text(titles: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A line of titles, and one for each row, with nothing where a row has no such cell.

    Numbers carry all their digits, so that nothing is lost on the way through. A text that a spreadsheet would run as a
    formula begins with an apostrophe; control characters stand as their escapes.
    """
    titles, file = list(titles), io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_cell, titles))
    writer.writerows([_cell(row.get(title, "")) for title in titles] for row in rows)
    return file.getvalue()


def _cell(value: object) -> object:
    """A number as it is; a text harmless to who opens the file."""
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.lstrip(_BEFORE).startswith(_FORMULA) else text
