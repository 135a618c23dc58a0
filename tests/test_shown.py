"""Text from outside is shown whole, harmless, on one line and not too long."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmtbase.shown import one_line, quoted, shown


@pytest.mark.parametrize("text", ["plain", "Größe λ_max, 模型", "a/b c.nc", "[red]markup[/red]", ""])
def test_printable_text_is_shown_as_it_is(text):
    assert shown(text) == text


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("a\u202eb", r"a\u202eb"),
        ("\u200b", r"\u200b"),
        ("\udcff", r"\udcff"),
        ("\x00\r\n", r"\x00\r\n"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_steers_a_terminal_or_hides_is_shown_as_its_escape(text, escaped):
    assert shown(text) == escaped


def test_a_folder_name_that_is_no_text_is_shown():
    assert shown(Path("/data/\udcfe.nc")) == r"/data/\udcfe.nc"


def test_a_long_name_keeps_both_ends_and_says_how_much_is_left_out():
    text = shown("begin" + "x" * 10**7 + "end", longest=60)
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "9,999,948 characters" in text
    assert len(text) < 120


@given(st.text(alphabet=st.characters(), max_size=400))
def test_any_text_becomes_one_printable_line(text):
    for line in (shown(text), quoted(text), one_line(text)):
        assert line.isprintable()
        line.encode()
