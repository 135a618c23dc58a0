"""What the study of the demo's training says is what its trajectory holds."""

import json
import re
from pathlib import Path

import pytest

import rmtbase
from rmtbase.results.trajectory import summarize_trajectory

STUDY = Path(__file__).parents[2] / "studies" / "training_run"
ROW = re.compile(r"^\| (\d+) \| (\d+) \| ([\d.]+) \|$", flags=re.MULTILINE)


@pytest.fixture(scope="module")
def summary():
    return summarize_trajectory(rmtbase.open_table(STUDY / "trajectory.nc"))


def test_the_table_is_that_of_the_trajectory(summary):
    rows = ROW.findall((STUDY / "README.md").read_text(encoding="utf-8"))
    assert len(rows) > 6
    at = {one.step: one for one in summary.steps}
    for step, left, median in rows:
        found = at[int(step)]
        assert found.left["gaussian"] == int(left)
        assert f"{found.median_participation_ratio:.3f}" == median


def test_the_results_are_those_of_the_trajectory(summary):
    results = json.loads((STUDY / "results.json").read_text(encoding="utf-8"))
    assert results["steps"] == len(summary.steps) == 41
    assert all(results["same_as_shipped"].values())
    for one in summary.departures:
        expected = json.loads(json.dumps(one._asdict()))
        assert results["departures"][expected.pop("null")] == expected
