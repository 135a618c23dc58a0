"""The study of causes: tables as in its results, and a wrong cause in at most 5 % of the heads with a named one."""

import json

from scipy.stats import binom

from studies.causes import mixture
from studies.causes.planted import CAUSES
from studies.causes.study import NAMED, PAGES, RESULTS, SHAPES, confusion, named_causes, sizes

results, mixtures = (json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, mixture.RESULTS))


def test_every_cause_was_tried_at_every_shape():
    assert list(results["cases"]) == list(CAUSES)
    assert all(list(cases) == [f"{d}x{h}" for d, h in SHAPES] for cases in results["cases"].values())


def test_of_the_heads_with_a_named_cause_at_most_5_percent_are_wrong():
    """In all, and in every cell but for chance: if each cell had 5 %, this would fail in 1 % of studies."""
    cells = {(cause, shape): one for cause, cases in results["cases"].items() for shape, one in cases.items()}
    named = {place: results["heads"] - one["unresolved"] - one["nothing"] for place, one in cells.items()}
    assert sum(one["wrong"] for one in cells.values()) <= 0.05 * sum(named.values())
    for place, one in cells.items():
        assert one["wrong"] <= binom.ppf(1.0 - 0.01 / len(cells), named[place], 0.05), place


def test_tables_are_those_of_the_results():
    tables = {"confusion": confusion(results), "sizes": sizes(results)}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in ("confusion", "sizes"):
            assert f"<!-- begin {name} -->" not in text or tables[name] in text
    assert tables["confusion"] in PAGES[1].read_text(encoding="utf-8")


def test_causes_are_those_of_the_tests_that_name_one():
    tests = ("query", "query_signs", "subspaces", "key_entries")
    assert named_causes(tests, (False, True, True, False)) == set(NAMED[:1]) | {NAMED[2]}
    assert named_causes(tests, (False, False, False, True)) == {NAMED[4]}
    assert named_causes(tests, (False, False, False, False)) == set()


def test_of_heads_with_a_named_cause_at_most_5_percent_are_wrong_in_every_mixture():
    """Within two standard errors of the study."""
    assert list(mixtures["shapes"]) == [f"{d}x{h}" for d, h in mixture.SHAPES]
    for shape, cases in mixtures["shapes"].items():
        assert list(cases) == list(mixture.MIXTURES)
        for name, models in cases.items():
            for heads, case in models.items():
                error = case["wrong_of_named_standard_error"]
                assert case["wrong_of_named"] <= 0.05 + 2 * error, (shape, name, heads)


def test_the_table_of_mixtures_is_that_of_the_results():
    assert mixture.table(mixtures) in PAGES[0].read_text(encoding="utf-8")
