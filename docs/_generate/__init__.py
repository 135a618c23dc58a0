"""Pages that are made from the code: the reference, the kinds of file, the constants, the gallery."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

HERE = Path(__file__).parents[1]
FOLDER = HERE / "generated"


def write_page(name: str, text: str) -> None:
    """Write a page of that name, unless it is there as it is: what has not changed is not read again."""
    path = FOLDER / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def as_plain(text: str) -> str:
    """Text of which Markdown takes no character for a sign."""
    return re.sub(r"([\\`*_<>\[\]$|{}~^#])", r"\\\1", text)


def table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table in Markdown."""
    lines = (heading, ["---"] * len(heading), *rows)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
