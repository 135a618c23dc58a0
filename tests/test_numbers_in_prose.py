"""Every number in the prose of README and docs comes from a file that a script writes, and is still the file's.

Those of three digits and more in the README of a study are among its results, or in docs/numbers.toml; so many results
that most numbers are near one prove nothing. Pages whose tables a script writes are the same with their tables made
anew, and the prose beside these is held as that of docs.
"""

import json
import math
import re
import runpy
import tomllib
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import xarray as xr

import rmtbase
from markdown_pages import PAGES as ALL_PAGES
from markdown_pages import ROOT, WORD, WORDS, numerals

SAID = tomllib.loads((ROOT / "docs" / "numbers.toml").read_text(encoding="utf-8"))
ELSEWHERE = {"docs/errata.md", "docs/architectures.md"}  # see docs/numbers.toml
BY_SCRIPTS: dict[str, tuple[str, str | None]] = {
    "benchmarks/README.md": ("benchmarks/tables.py", None),
    "benchmarks/validation/README.md": (
        "benchmarks/validation/tables.py",
        "benchmarks/validation/results/validation.json",
    ),
    "studies/signal/README.md": ("studies/signal/tables.py", "studies/signal/results.json"),
}
"""Pages beside those, whose tables a script writes between marks; see also tests/studies/test_spectral_tails.py."""
PAGES = [
    *(name for name in (path.relative_to(ROOT).as_posix() for path in ALL_PAGES) if name not in ELSEWHERE),
    *BY_SCRIPTS,
    "studies/attention_twins/README.md",
    "studies/spectral_tails/README.md",
    "studies/training_run/README.md",
]
HELD_ROWS = {
    "studies/attention_twins/README.md": r"^\| (?:queries|keys|values|attention output|MLP, \w+|NPR .*|.* → .*) \|.*$",
    "studies/training_run/README.md": r"^\| \d+ \|.*$",
}
"""Rows of tables that tests/studies hold to the file they were made of."""
POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
STUDIES = (
    "calibration", "demo_model", "element_nulls", "hard_edge", "heavy_tails", "residual_depth", "what_was_learned",
)  # fmt: skip
ENTRIES = [(kind, entry) for kind in ("number", "claim", "held", "given") for entry in SAID[kind]]


@cache
def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def content(source: str) -> Any:
    if source == "rmtbase":
        return rmtbase
    file = SAID["sources"][source]
    return xr.open_datatree(ROOT / file) if file.endswith(".nc") else json.loads(read(file))


def plain(numeral: str) -> float:
    """The number of a numeral: 24 200, 10⁷, 1e-3, sixteen."""
    word = " ".join(numeral.lower().split())
    if word in WORDS:
        return WORDS[word]
    if numeral.startswith("10") and numeral[2:] and numeral[2:].translate(POWERS) == numeral[2:].strip("0123456789"):
        sign = -1 if numeral[2] == "⁻" else 1
        return 10.0 ** (sign * int("".join(str("⁰¹²³⁴⁵⁶⁷⁸⁹".index(digit)) for digit in numeral[2:].lstrip("⁻"))))
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
    numeral = r"([-−]?\d+(?:[\s  ]\d{3})*(?:\.\d+)?(?:e-?\d+)?[⁰¹²³⁴⁵⁶⁷⁸⁹]*|(?i:" + WORD + "))"
    return list(re.finditer(numeral.join(parts), read(page)))


@pytest.mark.parametrize(("kind", "entry"), ENTRIES, ids=lambda one: one["text"][:60] if isinstance(one, dict) else one)
def test_a_text_stands_in_its_page_with_the_numbers_of_its_source(kind, entry):
    (found,) = places(entry["page"], entry["text"])
    if kind == "given":
        assert entry["why"]
    elif kind == "claim":
        assert entry["holds"]
        for source, expression in entry["holds"]:
            assert eval(expression, {"d": content(source)}) is True, expression
    elif kind == "held":
        source = re.sub(r'"\s+f?"', "", read(entry["by"]))  # a sentence of several strings of Python
        source = re.sub(r"\s+", " ", source)
        assert [sentence for sentence in entry["says"] if sentence not in source] == []
        for numeral in re.findall(r"\d+(?:\.\d+)*(?:e-?\d+)?", found[0]):
            assert any(re.search(rf"(?<![\w.]){re.escape(numeral)}(?![\w.]*\d)", one) for one in entry["says"]), numeral
    else:
        assert len(found.groups()) == len(entry["values"])
        for numeral, (source, expression, form) in zip(found.groups(), entry["values"], strict=True):
            value = eval(expression, {"d": content(source)})
            if form == "<":
                assert value <= plain(numeral) <= 3 * value, expression  # a limit, and not one that anything keeps
            elif form == "word":
                assert plain(numeral) == (value // 100 * 100 if "hundred" in numeral else value)
            else:
                assert re.sub(r"\s", " ", numeral) == written(value, form), expression


def covered(page: str) -> list[tuple[int, int]]:
    """The parts of a page that entries of docs/numbers.toml speak of."""
    return [
        span
        for kind, entry in ENTRIES
        if entry["page"] == page and kind != "claim"
        for found in places(page, entry["text"])
        for span in (
            map(found.span, range(1, len(found.groups()) + 1))
            if kind == "number" and "label" not in entry
            else [found.span()]
        )
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_a_page_has_its_source(page):
    text = read(page)
    known = covered(page) + [mark.span() for mark in re.finditer(r"<!-- begin (\w+) -->[\s\S]*?<!-- end \1 -->", text)]
    elsewhere = HELD_ROWS[page] + r"|^ {4}python .*$" if page in HELD_ROWS else r"^ {4}python .*$"
    known += [line.span() for line in re.finditer(elsewhere, text, flags=re.MULTILINE)]
    unknown = [
        text[max(0, numeral.start - 30) : numeral.end + 20]
        for numeral in numerals(text)
        if not any(start <= numeral.start and numeral.end <= end for start, end in known)
    ]
    assert unknown == [], "neither in docs/numbers.toml nor code, mathematics or a condition"


@pytest.mark.parametrize("page", BY_SCRIPTS)
def test_the_tables_of_a_page_are_those_of_its_script(page):
    script, found = BY_SCRIPTS[page]
    tables = runpy.run_path(str(ROOT / script))
    assert "<!-- begin" in read(page)
    given = () if found is None else (tables.get("from_json", json.loads)(read(found)),)
    assert tables["filled"](read(page), *given) == read(page)


def test_the_whole_table_of_the_validation_is_that_of_its_results():
    tables = runpy.run_path(str(ROOT / "benchmarks/validation/tables.py"))
    record = tables.get("from_json", json.loads)(read("benchmarks/validation/results/validation.json"))
    assert tables["full"](record) == read("benchmarks/validation/TABLE.md")


def results(content: Any) -> Iterator[float]:
    """Every number of a JSON file, those in its keys and texts among them."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from results(key)
            yield from results(value)
    elif isinstance(content, list):
        for value in content:
            yield from results(value)
    elif isinstance(content, str):
        yield from map(float, re.findall(r"\d+(?:\.\d+)?", content))
    elif isinstance(content, int | float) and math.isfinite(content):
        yield abs(float(content))


def is_among(value: float, step: float, known: np.ndarray) -> bool:
    """Whether a value, written to that step, is a known one as it is, in per cent or in millions."""
    spans = [((value - 0.501 * step) / unit, (value + 0.501 * step) / unit) for unit in (1.0, 100.0, 1e-6)]
    return any(known.searchsorted(low) < known.searchsorted(high, "right") for low, high in spans)


@pytest.mark.parametrize("study", STUDIES)
def test_a_number_of_a_study_is_among_its_results(study):
    page = f"studies/{study}/README.md"
    files = (ROOT / "studies" / study).glob("*.json")
    known = np.unique([value for file in files for value in results(json.loads(file.read_text(encoding="utf-8")))])
    unknown, by_chance, text = [], [], read(page)
    for numeral in numerals(text):
        mantissa, _, exponent = re.sub(r"\s", "", numeral.text).partition("e")
        decimals = len(mantissa.partition(".")[2])
        if not re.fullmatch(r"[0-9.]+", mantissa) or len(mantissa.replace(".", "").lstrip("0")) < 3:
            continue
        value, step = plain(numeral.text), 10.0 ** (int(exponent or 0) - decimals)
        by_chance.append(is_among(value + 7 * step, step, known))
        if not is_among(value, step, known) and not any(
            start <= numeral.start and numeral.end <= end for start, end in covered(page)
        ):
            unknown.append(text[max(0, numeral.start - 30) : numeral.end + 20])
    assert unknown == [], "neither a result of the study nor in docs/numbers.toml"
    assert np.mean(by_chance) < 0.5, "a wrong number would hardly be noticed"


def test_a_difference_of_the_errata_is_among_the_numbers_of_its_tests():
    page = read("docs/errata.md")
    unknown, by_chance, known_spans = [], [], covered("docs/errata.md")
    for point in re.finditer(r"^#{2,3} \d[\s\S]*?(?=^##|\Z)", page, flags=re.MULTILINE):
        tests = "".join(read(f"tests/errata/{file}") for file in set(re.findall(r"`(test_\w+\.py)`", point[0])))
        known = np.unique([float(one) for one in re.findall(r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:e-?\d+)?", tests)])
        row = re.search(r"^\| Difference \| .*$", point[0], flags=re.MULTILINE)
        assert row is not None
        for numeral in numerals(row[0]):
            digits, start = re.sub(r"\s", "", numeral.text), point.start() + row.start() + numeral.start
            if not re.fullmatch(r"[0-9.]+", digits) or len(digits.replace(".", "").lstrip("0")) < 2:
                continue
            power = re.match(r"·(10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", row[0][numeral.end :])
            scale = plain(power[1]) if power else 1.0
            value, step = scale * float(digits), scale * 10.0 ** -len(digits.partition(".")[2])
            by_chance.append(is_among(value + 7 * step, step, known))
            if not is_among(value, step, known) and not any(low <= start < high for low, high in known_spans):
                unknown.append(row[0][max(0, numeral.start - 30) : numeral.end + 20])
    assert unknown == [], "neither in the tests of the point nor in docs/numbers.toml"
    assert np.mean(by_chance) < 0.3, "a wrong number would hardly be noticed"


def test_a_number_that_no_source_has_is_found():
    assert not is_among(0.124, 0.001, np.array([0.1224, 0.1246]))
    page = "# 7 rooms\n\nIn 12 % of `34` heads, of shape (768, 64), σ = 1 and $5$, 24 200 draws.\n"
    assert [numeral.text for numeral in numerals(page)] == ["12", "24 200"]
