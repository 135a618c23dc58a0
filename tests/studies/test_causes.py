"""The study of causes: tables as in its results, and a wrong cause in at most 5 % of the heads of every cell."""

import json

import pytest

from studies.causes.planted import CAUSES
from studies.causes.study import NAMED, PAGES, RESULTS, SHAPES, confusion, named, sizes


@pytest.fixture(scope="module")
def results():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def test_every_cause_was_tried_at_every_shape(results):
    assert list(results["cases"]) == list(CAUSES)
    assert all(list(cases) == [f"{d}x{h}" for d, h in SHAPES] for cases in results["cases"].values())


def test_a_wrong_cause_is_named_in_at_most_5_percent_of_every_cell(results):
    for cause, cases in results["cases"].items():
        for shape, one in cases.items():
            assert one["wrong"] <= 0.05 * results["heads"], (cause, shape)


def test_tables_are_those_of_the_results(results):
    tables = {"confusion": confusion(results), "sizes": sizes(results)}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in ("confusion", "sizes"):
            assert f"<!-- begin {name} -->" not in text or tables[name] in text
    assert tables["confusion"] in PAGES[1].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("verdict", "causes"),
    [
        ("directions in W_Q and W_K; W_Q and W_K are related along the head axes", set(NAMED[:3])),
        ("directions in W_K; elements of W_Q are not independent draws of the initial law", {NAMED[1], NAMED[3]}),
        ("W_Q and W_K differ, cause unresolved", set()),
        ("W_QK has a direction; whether of W_Q, of W_K or of their relation is unresolved", set()),
    ],
)
def test_causes_are_read_from_a_verdict(verdict, causes):
    assert named(verdict) == causes
