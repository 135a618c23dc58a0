"""``rmtbase diff``: what changed between two checkpoints, for the reader, as JSON and as a file."""

import json

import numpy as np
import pytest

from rmtbase.results import open_table
from rmtbase.results.diff import diff

STEPS = ("demo@step-0", "demo@step-200")
VALUES = ("--component", "attention_value")


def test_the_table_is_printed_written_and_drawn(run, weights, tmp_path):
    before = weights.save(tmp_path / "before")
    weights.keys[...] += 0.1 * np.random.default_rng(1).standard_normal(weights.keys.shape)
    after = weights.save(tmp_path / "after")
    path = tmp_path / "changes.nc"
    ran = run("-v", "diff", before, after, "-o", path)
    assert ran.status == 0
    expected = diff(str(before), str(after))
    assert open_table(path).identical(expected)
    median = expected["matrices"]["relative_change"].sel(component="attention_key").median().item()
    assert any("attention_key" in line and f"{median:.3g}" in line for line in ran.out.splitlines())
    assert "2 are the same in both" in ran.out
    change = expected["heads"]["relative_change_qk"]
    first = {name: int(place) for name, place in change.argmax(...).items()}
    assert ran.out.splitlines()[1].startswith(
        "Heads whose W_QK changed most, by the norm of its change over its norm before: "
        f"layer {first['layer']} head {first['head']} ({change.max().item():.2g})"
    )
    assert "W_OV" not in ran.out.partition("What the words mean")[0], "the model has no values"
    assert run("plot", path, "-o", tmp_path / "figures").status == 0
    drawn = {one.name for one in (tmp_path / "figures").iterdir()}
    assert drawn == {
        f"changes-{name}.png"
        for name in ("changes", "changes-of-heads", "old-directions", "old-directions-of-heads", "shares-of-heads")
    }


def test_json_has_each_component(run):
    same = ("demo@step-0", "demo@step-0")
    ran = run("diff", *same, *VALUES, "--json")
    printed = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    (row,) = printed["matrices"]
    assert (row["component"], row["matrices"], row["unchanged"]) == ("attention_value", 4, 4)
    assert row["effective_rank"] is None and row["flagged_in"] is None
