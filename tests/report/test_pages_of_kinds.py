"""Every kind of result has a page: first sentence, figures, tables, terms explained, nothing from the network."""

import re
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

from exhaustive import mostly_exhaustive
from rmtbase.report import Heading, Rows, glossary, print_report
from rmtbase.report.page import render_page
from rmtbase.results import KINDS, open_table
from rmtbase.results.scores import render
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


def test_a_page_says_what_the_terminal_says_has_its_figures_and_asks_no_network(result, capsys):
    _, items, page = result
    sentences = [" ".join(item.split()) for item in items if type(item) in (str, Heading)]
    assert isinstance(items[0], Heading)
    token = VERBOSITY.set(Verbosity.VERBOSE)
    try:
        print_report(items, out())
    finally:
        VERBOSITY.reset(token)
    for text in (text_of(page), " ".join(capsys.readouterr().out.split())):
        assert not [one for one in sentences if one not in text]
    for rows in (item for item in items if isinstance(item, Rows)):
        assert all(" ".join(cell.split()) in text_of(page) for row in rows.texts[:3] for cell in row)
    assert page.count('<svg class="wide"') == page.count('<svg class="narrow"') >= 1
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)=\"(?!#|data:)", page)


DATA = Path(__file__).parents[1] / "data"
LINK = re.compile(r'<a class="term" href="#([^"]*)" title="([^"]*)">([^<]*)</a>')


def page_of(name):
    """The page of a file, without figures."""
    table = open_table(DATA / f"{name}.nc")
    if table.attrs["kind"] == "scores":
        return render(table, pictures=False)
    return render_page(table, import_module(f"rmtbase.results.{KINDS[name]}.report").report(table))


def explained(page):
    """Explanations on a page by anchor."""
    section = re.search(r'<section id="glossary".*?</section>', page, re.DOTALL)[0]
    return dict(re.findall(r'<div id="([^"]*)"><dt>.*?</dt><dd>(.*?)</dd>', section, re.DOTALL))


@pytest.mark.parametrize("name", ["scores", "signal", "composition", "changes", "baseline", "trajectory", "comparison"])
def test_first_uses_are_linked_to_explanations_at_the_end_of_the_same_file(name):
    page = page_of(name)
    main, _, end = page.partition('<section id="glossary"')
    links, explanations = LINK.findall(main), explained(page)
    assert len(explanations) >= 3
    assert len({anchor for anchor, _, _ in links}) == len(links), "a term is linked once"
    assert {anchor for anchor, _, _ in links} <= {*explanations}
    assert "</main>" in end and "http" not in "".join(anchor for anchor, _, _ in links)
    for anchor, title, word in links:
        plain = re.sub(
            r"<a class=\"term\".*?</a>", lambda link: LINK.match(link[0])[3], main.partition(f"#{anchor}")[0]
        )
        apart = r"<(script|style|h1|h2|h3|caption|thead|dt|summary|select|title|a)\b.*?</\1>|<[^>]*>"
        before = re.sub(apart, " ", plain, flags=re.S)
        assert not re.search(rf"(?<![\w‖]){re.escape(word)}(?![\w‖²])", before), f"{word!r} is used before it is linked"
        assert title


def test_what_a_reader_of_scores_and_signal_would_not_know_is_explained():
    terms = {term.name for term in glossary()}
    pages = {name: {*explained(page_of(name))} for name in ("scores", "signal")}
    for name, words in {
        "scores": (
            "W_QK", "residual stream", "head axes", "initial law", "excess kurtosis", "Weibull shape", "random head",
            "moved share", "q-value", "null", "spectrum",
        ),
        "signal": ("W_QK", "direction", "spectrum", "noise", "learned share", "number of directions", "q-value"),
        "composition": ("composition score", "family-wise", "overlap", "by chance"),
        "changes": ("change of a matrix", "old directions", "W_QK"),
    }.items():  # fmt: skip
        assert {*words} <= terms
        if name in pages:
            anchors = {term.name: term.anchor for term in glossary()}
            assert {anchors[word] for word in words} <= pages[name], name


def test_terms_have_one_spelling_each_and_are_linked_in_no_heading_and_texts_of_a_model_are_escaped():
    spellings = [form.lower() for term in glossary() for form in (term.name, *term.also)]
    assert len(spellings) == len(set(spellings))
    assert len({term.anchor for term in glossary()}) == len(glossary())
    for term in glossary():
        assert term.text.endswith(".") and "<" not in term.text.replace("q < 0.05", "")
    table = open_table(DATA / "signal.nc")
    table.attrs["model"] = "<script>alert(1)</script>"
    page = render_page(table, [Heading("a head and its null"), "a head with <b>eigenvalues</b> & a p-value"])
    assert "<h1>a head and its null</h1>" in page and "&lt;b&gt;" in page
    assert [word for _, _, word in LINK.findall(page)] == ["head", "eigenvalues", "p-value"]
    page = render_page(table, import_module("rmtbase.results.signal.report").report(table))
    assert "<script>alert" not in page and "&lt;script&gt;alert(1)" in page


def test_verbose_explains_the_terms_below_a_result_and_nothing_else_does(capsys):
    items = list(import_module("rmtbase.results.signal.report").report(open_table(DATA / "signal.nc")))
    print_report(items, out())
    assert "What the words mean" not in capsys.readouterr().out
    token = VERBOSITY.set(Verbosity.VERBOSE)
    try:
        print_report(items, out())
    finally:
        VERBOSITY.reset(token)
    printed = " ".join(capsys.readouterr().out.split())
    _, _, words = printed.partition("What the words mean")
    for term in glossary():
        if term.name in ("spectrum", "direction", "W_QK", "noise"):
            assert f"{term.name}: {term.text}" in words
