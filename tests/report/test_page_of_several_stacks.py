"""The page of a model of several stacks, shapes and circuits."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rmtbase.results import open_table
from rmtbase.results.scores import circuit_scores, render, summarize_scores
from rmtbase.tables import heads_present

pytestmark = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def tree():
    return open_table(Path(__file__).parents[1] / "data" / "scores-of-several-stacks.nc", "scores")


@pytest.fixture(scope="module")
def page(tree):
    return render(tree)


def section(page, name):
    return re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL).group()


def test_a_circuit_has_a_section_with_its_map_its_findings_and_a_row_for_each(page, tree):
    for name in ("ov", "key"):
        scores, part = circuit_scores(tree, name), section(page, f"circuit-{name}")
        assert f'href="#circuit-{name}"' in page
        assert part.count("<svg ") == 2  # wide and narrow
        assert summarize_scores(scores).verdict()[0] in part
        assert part.count("<tr") == 2 + heads_present(scores["heads"].to_dataset()).sum()
    assert "W<sub>OV</sub> = W<sub>O</sub><sup>⊤</sup>W<sub>V</sub>" in section(page, "circuit-ov")
    assert ">key head<" in section(page, "circuit-key")


def test_rows_the_null_and_the_head_of_the_page_tell_each_stack_and_shape(page):
    rows = re.findall(r"<tr(?: data-flagged)?><td.*?</tr>", section(page, "heads"))
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    assert [row[:5] for row in cells][3:5] == [
        ["encoder", "0", "3", "3", "32 × 8 × 32"],
        ["decoder", "0", "0", "0", "48 × 8 × 48"],
    ]
    assert cells[-1][:5] == ["cross", "1", "5", "5", "48 × 9 × 32"]
    assert len(re.findall("<tr", section(page, "matrices"))) == 2 + 5 + 10 + 1 + 8
    assert "Shapes: W<sub>Q</sub> and W<sub>K</sub> of 8 × 32; 8 × 48; 9 × 48 and 9 × 32." in section(page, "null")
    facts = re.search(r'<dl class="facts">.*?</dl>', page, re.DOTALL).group()
    facts = re.sub(r"</?a\b[^>]*>", "", facts)  # links to the words
    assert "<dt>encoder</dt><dd>1 layer × 4 heads, d_head 8, width 32</dd>" in facts
    assert "<dt>decoder</dt><dd>2 layers × 6 heads on 2 key heads, d_head 8, width 48</dd>" in facts
    assert "<dt>cross</dt><dd>2 layers × 6 heads, d_head 9, width 48 (queries), 32 (keys)</dd>" in facts


def test_the_page_nests_and_every_identifier_is_there_once(page):
    class Outline(HTMLParser):
        open, identifiers = [], []

        def handle_starttag(self, tag, attrs):
            self.identifiers += [value for name, value in attrs if name == "id"]
            if tag not in {"meta", "link", "input", "br", "img"}:
                self.open.append(tag)

        def handle_startendtag(self, tag, attrs):
            pass

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

    outline = Outline()
    outline.feed(page)
    assert not outline.open
    assert len(set(outline.identifiers)) == len(outline.identifiers)
