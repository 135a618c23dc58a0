"""The study of the bound on the learned share: its requirement holds, and its tables are of its numbers."""

import json
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

STUDY = Path(__file__).parents[2] / "studies" / "how_much"
CASES = json.loads((STUDY / "learned_bound.json").read_text(encoding="utf-8"))
LAWS = sorted({(tuple(one["shape"]), one["law"]) for one in CASES})


@pytest.fixture(scope="module")
def study():
    return runpy.run_path(str(STUDY / "learned_bound.py"))


@pytest.mark.parametrize(("shape", "law"), LAWS)
def test_at_most_one_bound_in_twenty_is_five_points_too_large(shape, law):
    own = [one for one in CASES if (tuple(one["shape"]), one["law"]) == (shape, law)]
    planted = [one for one in own if one["planted"] != "none"]
    assert sum(one["bounds"] for one in planted) > 500
    assert sum(one["too large"] for one in planted) <= 0.05 * sum(one["bounds"] for one in planted)
    assert all(one["too large"] <= 0.05 * one["bounds"] for one in planted if one["bounds"] >= 30)
    (none,) = [one for one in own if one["planted"] == "none"]
    assert none["bounds"] <= 0.01 * none["heads"]


def test_tables_are_of_the_numbers(study):
    page = (STUDY / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- begin learned_bound -->\n(.*?)\n<!-- end learned_bound -->", page, re.DOTALL)
    assert block == study["tables"](CASES)


def test_a_case_drawn_anew_is_the_one_of_the_file(study):
    shape, law, name = (64, 8), "row gains", "3 at 4"
    number, planting = next((k, one) for k, one in enumerate(study["plantings"](shape[1])) if one[0] == name)
    rng = np.random.default_rng([study["SEED"], study["LAWS"].index(law), *shape, number])
    drawn = study["case"](rng, law, shape, planting)
    (stored,) = [one for one in CASES if (one["shape"], one["law"], one["planted"]) == ([*shape], law, name)]
    assert drawn["bounds"] == stored["bounds"] and drawn["too large"] == stored["too large"]
    assert drawn["bound"] == pytest.approx(stored["bound"]) and drawn["share"] == pytest.approx(stored["share"])
