"""Comma-separated values that are safe to open."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from typing import Any

from rmtbase.shown import shown

_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # first characters of a formula, also in full width
_BEFORE = " \"'"  # characters that spreadsheets strip before they look for a formula


def csv_text(titles: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Format a line of titles and a line for each row; missing cells are empty.

    Numbers have all their digits, so that no precision is lost. A text that a spreadsheet would run as a formula gets a
    leading apostrophe, and control characters are escaped.
    """
    titles, file = list(titles), io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(map(_cell, titles))
    writer.writerows([_cell(row.get(title, "")) for title in titles] for row in rows)
    return file.getvalue()


def _cell(value: object) -> object:
    """Return a number unchanged, and a text in a form that is safe to open."""
    if not isinstance(value, str):
        return value
    text = shown(value)
    return f"'{text}" if text.lstrip(_BEFORE).startswith(_FORMULA) else text
