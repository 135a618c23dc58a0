"""The pages of README and docs: their blocks of code, the commands that they show, the numerals in their prose."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "generated" not in path.parts)]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Each block of code: its language, "" where none is named, and its text."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[str]:
    """Each line that runs rmtbase, without what is run before it and without its comment."""
    lines = (line for language, text in blocks(page) if not language for line in text.splitlines())
    run = (line.rpartition("&& ")[2].partition("  #")[0].strip() for line in lines)
    return [command for command in run if command.startswith("rmtbase ")]


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
    r"(?:Python|step|depth|version|schema|theorem) \d[\d.]*",
)
_NUMERAL = re.compile(
    r"(?<![\w.{}^/])(?<![A-Za-z]-)"  # no part of a name: float64, GPT-2, n_0, W_QK
    r"\d+(?:[   ]\d{3})*(?:\.\d+)?"
    r"(?:e-?\d+)?[⁰¹²³⁴⁵⁶⁷⁸⁹]*"
    r"(?![\w])"
)
_UNITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
WORDS = {word: 13 + place for place, word in enumerate(_TEENS)}
WORDS |= {ten: 20 + 10 * place for place, ten in enumerate(_TENS)}
WORDS |= {f"{ten}-{unit}": WORDS[ten] + 1 + place for ten in _TENS for place, unit in enumerate(_UNITS)}
WORDS |= {f"{unit} hundred": 100 + 100 * place for place, unit in enumerate(_UNITS)} | {"a hundred": 100}
"""Numbers in words from thirteen on: those below are words of the language more often than results."""
WORD = "(?:" + "|".join(sorted(WORDS, key=len, reverse=True)).replace(" ", r"\s+") + ")"
_NUMBER = re.compile(rf"{_NUMERAL.pattern}|(?<![\w-])(?i:{WORD})(?![\w-])")


class Numeral(NamedTuple):
    """A numeral, and where it stands."""

    text: str
    start: int
    end: int


def numerals(page: str) -> list[Numeral]:
    """Those of a page's prose, in its order: of what is not code, mathematics, link, heading, shape or name."""
    prose = page
    for pattern in _NOT_PROSE:
        prose = re.sub(pattern, lambda found: "\x00" * len(found[0]), prose, flags=re.MULTILINE)
    return [Numeral(found[0], *found.span()) for found in _NUMBER.finditer(prose)]
