"""Every kind of result has a page: its first sentence, its figures, its tables, and nothing from the network."""

import re
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from exhaustive import mostly_exhaustive
from rmtbase.report import Heading, Rows, print_report
from rmtbase.report.page import render_page
from rmtbase.results import KINDS, open_table
from rmtbase.terminal.endings import VERBOSITY, Verbosity
from rmtbase.terminal.streams import out

DATA = Path(__file__).parents[1] / "data"
FILES = ("baseline", "spectra", "signal", "composition", "effective_depth", "changes", "trajectory", "comparison")


@pytest.fixture(scope="module", params=mostly_exhaustive(FILES, always={"changes", "trajectory", "comparison"}))
def result(request):
    """A table, the items of its report, and its page."""
    table = open_table(DATA / f"{request.param}.nc")
    folder = f"rmtbase.results.{KINDS[request.param]}"
    items = list(import_module(f"{folder}.report").report(table))
    return table, items, render_page(table, items, import_module(f"{folder}.figures").figure_recipes)


def text_of(page):
    page = re.sub(r'<a class="term"[^>]*>(.*?)</a>', r"\1", page)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", re.sub(r"<(style|script).*?</\1>", "", page, flags=re.S))).split())


def test_a_page_says_what_the_terminal_says(result, capsys):
    _, items, page = result
    shown = text_of(page)
    sentences = [item for item in items if type(item) in (str, Heading)]
    assert isinstance(items[0], Heading)
    for one in sentences:
        assert " ".join(one.split()) in shown
    for rows in (item for item in items if isinstance(item, Rows)):
        for row in rows.texts[:3]:
            assert all(" ".join(cell.split()) in shown for cell in row)
    token = VERBOSITY.set(Verbosity.VERBOSE)
    try:
        print_report(items, out())
    finally:
        VERBOSITY.reset(token)
    printed = " ".join(capsys.readouterr().out.split())
    for one in sentences:
        assert " ".join(one.split()) in printed


def test_a_page_has_its_figures_and_asks_no_network(result):
    _, _, page = result
    assert page.count('<svg class="wide"') == page.count('<svg class="narrow"') >= 1
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)


def test_texts_of_a_model_are_escaped():
    table = open_table(DATA / "signal.nc")
    table.attrs["model"] = "<script>alert(1)</script>"
    page = render_page(table, import_module("rmtbase.results.signal.report").report(table))
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
