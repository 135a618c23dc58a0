"""The numerals in the prose of a Markdown page: what is not code, mathematics, link, heading, shape or name."""

from __future__ import annotations

import re
from typing import NamedTuple

_NOT_PROSE = (
    r"^\s*\d+\. ",  # numbered lists
    r"^```[\s\S]*?^```",  # blocks of code, which are run
    r"^\s*\$\$[\s\S]*?\$\$",
    r"^#.*$",
    r"`[^`\n]+`",
    r"\$[^$\n]+\$",
    r"!\[[^\]]*\]",  # what a picture shows to those who cannot see it
    r"\]\([^)]*\)",
    r"https?://\S+",
    r"\([0-9,  …a-z_]*,[0-9,  a-z_]*\)",  # shapes: (768, 64), (d_head, d_model)
    r"\d+ × \d+",
    r"\b(?:19|20)\d\d(?=\))",  # the year of a reference
    r"(?:[\wσβγλ]|√λ) [=≥≤<] \d[\d.]*(?![\d.eE])(?! [%\d])",  # conditions: σ = 1, p < 0.05
    r"\d/√\d|\d/\w_?\w*|√\d",  # formulas: 1/d_model, √2
    r"(?:Python|step|depth|version|theorem) \d[\d.]*",
)
_NUMERAL = re.compile(
    r"(?<![\w.{}^/])(?<![A-Za-z]-)"  # no part of a name: float64, GPT-2, n_0, W_QK
    r"\d+(?:[   ]\d{3})*(?:\.\d+)?"
    r"(?:e-?\d+)?[⁰¹²³⁴⁵⁶⁷⁸⁹]*"
    r"(?![\w])"
)


class Numeral(NamedTuple):
    """A numeral, and where it stands."""

    text: str
    start: int
    end: int


def numerals(page: str) -> list[Numeral]:
    """Those of a page, in its order."""
    prose = page
    for pattern in _NOT_PROSE:
        prose = re.sub(pattern, lambda found: "\x00" * len(found[0]), prose, flags=re.MULTILINE)
    return [Numeral(found[0], *found.span()) for found in _NUMERAL.finditer(prose)]
