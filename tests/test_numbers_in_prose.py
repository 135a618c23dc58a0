"""Every number in the prose of README and docs comes from a file that a script writes, and is still the file's."""

from __future__ import annotations

import json
import math
import re
import tomllib
from functools import cache
from typing import Any

import pytest

import rmtbase
from markdown_pages import PAGES as ALL_PAGES
from markdown_pages import ROOT, numerals

SAID = tomllib.loads((ROOT / "docs" / "numbers.toml").read_text(encoding="utf-8"))
ELSEWHERE = {"docs/errata.md", "docs/architectures.md"}  # see docs/numbers.toml
PAGES = [name for name in (path.relative_to(ROOT).as_posix() for path in ALL_PAGES) if name not in ELSEWHERE]
POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
ENTRIES = [(kind, entry) for kind in ("number", "held", "given") for entry in SAID[kind]]


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def content(source: str) -> Any:
    return rmtbase if source == "rmtbase" else json.loads(read(SAID["sources"][source]))


def plain(numeral: str) -> float:
    """The number of a numeral: 24 200, 10⁷, 1e-3."""
    if numeral.startswith("10") and numeral[2:] and numeral[2:].translate(POWERS) == numeral[2:].strip("0123456789"):
        return 10.0 ** int("".join(str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(digit)) for digit in numeral[2:]))
    return float(re.sub(r"\s", "", numeral).replace("−", "-"))


def written(value: float, form: str) -> str:
    """A number as a page has it, by the format of docs/numbers.toml."""
    if form == "e":
        return "10" + str(round(math.log10(value))).translate(POWERS)
    if form == "plain":
        return str(value)
    if form.startswith("."):
        return f"{value:{form}f}"
    digits = int(form)
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(float(f"{value:.{digits - 1}e}")))))
    return f"{float(f'{value:.{digits - 1}e}'):,.{decimals}f}".replace(",", " ")


@cache
def places(page: str, text: str) -> list[re.Match[str]]:
    """Where a text stands in a page, each {} a numeral, however its lines are broken."""
    parts = [r"\s+".join(map(re.escape, re.split(r"\s+", part))) for part in text.split("{}")]
    numeral = r"([-−]?\d+(?:[\s  ]\d{3})*(?:\.\d+)?(?:e-?\d+)?[⁰¹²³⁴⁵⁶⁷⁸⁹]*)"
    return list(re.finditer(numeral.join(parts), read(page)))


@pytest.mark.parametrize(("kind", "entry"), ENTRIES, ids=lambda one: one["text"][:60] if isinstance(one, dict) else one)
def test_a_text_stands_in_its_page_with_the_numbers_of_its_source(kind, entry):
    (found,) = places(entry["page"], entry["text"])
    if kind == "given":
        assert entry["why"]
    elif kind == "held":
        source = read(entry["by"])
        for numeral in re.findall(r"\d+(?:\.\d+)?(?:e-?\d+)?", found[0]):
            assert re.search(rf"(?<![\w.]){re.escape(numeral)}(?![\w.]*\d)", source), numeral
    else:
        assert len(found.groups()) == len(entry["values"])
        for numeral, (source, expression, form) in zip(found.groups(), entry["values"], strict=True):
            value = eval(expression, {"d": content(source)})
            if form == "<":
                assert value <= plain(numeral)
            else:
                assert re.sub(r"\s", " ", numeral) == written(value, form), expression


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_a_page_has_its_source(page):
    covered = [
        span
        for kind, entry in ENTRIES
        if entry["page"] == page
        for found in places(page, entry["text"])
        for span in (
            map(found.span, range(1, len(found.groups()) + 1))
            if kind == "number" and "label" not in entry
            else [found.span()]
        )
    ]
    text = read(page)
    unknown = [
        text[max(0, numeral.start - 30) : numeral.end + 20]
        for numeral in numerals(text)
        if not any(start <= numeral.start and numeral.end <= end for start, end in covered)
    ]
    assert unknown == [], "neither in docs/numbers.toml nor code, mathematics or a condition"


def test_a_number_that_no_source_has_is_found():
    page = "# 7 rooms\n\nIn 12 % of `34` heads, of shape (768, 64), σ = 1 and $5$, 24 200 draws.\n"
    assert [numeral.text for numeral in numerals(page)] == ["12", "24 200"]
