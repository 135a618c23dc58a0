"""Text from outside is shown whole, harmless, on one line and not too long."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmtbase import constants, ensembles, laws, montecarlo, nulls, statistics, tables
from rmtbase.drawing.theme import LIGHT
from rmtbase.models import ArrayModel, head_shape, open_model
from rmtbase.shown import in_one_line, last_place, one_line, quoted, shown, to_place


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


@in_one_line
@dataclasses.dataclass
class Inner:
    """Something inside."""

    number: float


@in_one_line
class Fields(NamedTuple):
    """One of each."""

    number: float = 0.1 + 0.2
    exact: float = 0.02
    name: str = "<b>" + 100 * "x"
    array: object = np.zeros((3, 4))
    inner: object = Inner(1.0)
    many: tuple = tuple(range(100))


def test_an_object_is_one_short_line_of_its_fields():
    assert repr(Fields(name="short")) == (
        "Fields(number=0.3, exact=0.02, name='short', array=<3 × 4 float64>, inner=Inner(…), many=<100 items>)"
    )
    assert repr(Inner(2.5)) == "Inner(number=2.5)"
    assert repr(Fields()).startswith("Fields(number=0.3, exact=0.02, name='<b>xxx")
    assert Fields()._repr_html_().startswith("<code>Fields(number=0.3, exact=0.02, name=&#x27;&lt;b&gt;xxx")


WEIGHTS = np.random.default_rng(0).standard_normal((16, 16))
OBJECTS = {
    "chain": lambda: laws.low_rank_product(d_model=768, d_head=64),
    "null": lambda: laws.null("condition_number", d_model=768, d_head=64),
    "edge": lambda: laws.largest_eigenvalue(d_model=768, d_head=64),
    "ordered": lambda: laws.ordered_eigenvalues(d_model=768, d_head=64),
    "trace_moments": lambda: laws.residual_trace_moments(4, 1.0, 64),
    "anchor": lambda: laws.weibull_anchor(),
    "weibull_null": lambda: laws.weibull_null(),
    "weibull_product_null": lambda: laws.weibull_product_null(768, 64),
    "closure": lambda: laws.weibull_closure(),
    "entropy": lambda: laws.histogram_entropy(768, 64, 120, (-6.0, 6.0)),
    "plan": lambda: montecarlo.baseline_plan(list(range(8, 40)), [4] * 32),
    "draws": lambda: next(iter(montecarlo.draw_spectra(ensembles.low_rank_product(16, 4), 8, 0))),
    "signs": lambda: ensembles.sign_flipped_head(*WEIGHTS.reshape(2, 8, 16)),
    "axes": lambda: ensembles.axis_permuted_head(*WEIGHTS.reshape(2, 8, 16)),
    "statistic": lambda: statistics.get_statistic("spectral_entropy_singular"),
    "summary": lambda: statistics.summarize(WEIGHTS, [0.5]),
    "moments": lambda: statistics.element_moments(WEIGHTS),
    "weibull": lambda: statistics.weibull_fit(WEIGHTS),
    "student_t": lambda: statistics.fit_student_t(WEIGHTS),
    "analytic_null": lambda: nulls.AnalyticNull(768, 64),
    "model": lambda: open_model("demo"),
    "arrays": lambda: ArrayModel.from_factors(*WEIGHTS.reshape(2, 2, 4, 16), "m" * 200, "step 7"),
    "head_shape": lambda: head_shape("gpt2"),
    "theme": lambda: LIGHT,
    "software": lambda: constants.software(),
    "kind": lambda: tables.KINDS["scores"],
}


@pytest.mark.parametrize(
    ("value", "error", "known", "text"),
    [
        (0.7974987654321, 0.000053, 0.0, "0.797499"),
        (0.7974987654321, 0.000053, 0.00081, "0.79750"),
        (0.7974987654321, 0.000053, np.nan, "0.797499"),
        (36.0, 5.5, 0.0, "36.0"),
        (0.0, 0.012, 0.0, "0.000"),
        (12_345.0, 230.0, 0.0, "12345"),
        (7_970_583.0, 29_790.0, 0.0, "7.971e+06"),
        (5.93e-7, 7.3e-9, 0.0, "5.930e-07"),
        (-0.00321, 0.00012, 0.0, "-0.00321"),
        (np.nan, 0.1, 0.0, ""),
    ],
)
def test_number_has_its_last_digit_at_the_second_one_of_its_error_or_of_what_is_known(value, error, known, text):
    assert to_place(value, last_place(error, known)) == text


def test_an_error_is_written_as_its_value_and_one_that_says_nothing_has_no_place():
    assert to_place(0.00058, -5, 0.66) == "0.00058"
    assert to_place(0.00058, -5) == "5.8e-04"
    assert [last_place(error) for error in (0.0, -1.0, np.nan, np.inf)] == [None] * 4


@pytest.mark.parametrize("name", OBJECTS)
def test_what_a_user_is_given_is_shown_as_one_short_line(name):
    line = repr(OBJECTS[name]())
    assert len(line) <= 150
    assert "\n" not in line
    assert "array(" not in line
