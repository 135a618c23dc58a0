"""What the study of the twins says is what its comparison holds."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rmtbase.results import open_table

STUDY = Path(__file__).parents[2] / "studies" / "attention_twins"
MEASURES = {
    "queries": "attention_query weibull_shape",
    "keys": "attention_key weibull_shape",
    "values": "attention_value weibull_shape",
    "attention output": "attention_output weibull_shape",
    "MLP, in": "mlp_in weibull_shape",
    "MLP, out": "mlp_out weibull_shape",
    "NPR of W_QK": "median normalized_participation_ratio",
}


@pytest.fixture(scope="module")
def comparison():
    return open_table(STUDY / "comparison.nc", "comparison")


@pytest.fixture(scope="module")
def rows():
    text = (STUDY / "README.md").read_text(encoding="utf-8").replace("−", "-")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]


def test_the_means_are_those_of_the_comparison(comparison, rows):
    between = comparison["between"].to_dataset()
    found = [row for row in rows if row[0] in MEASURES]
    assert len(found) == len(MEASURES)
    for name, *means, adjusted in found:
        own = between.sel(measure=MEASURES[name])
        assert means == [f"{mean:.3f}" for mean in own["mean"].values]
        assert adjusted == f"{float(own['adjusted_p_value']):.2f}"


def test_the_differences_are_those_of_the_comparison(comparison, rows):
    groups = comparison["groups"].to_dataset()
    found = [row for row in rows if " → " in row[0]]
    assert len(found) == 13
    for pair, name, difference, interval, p, adjusted in found:
        own = groups.sel(contrast=pair.replace(" → ", " | "), measure=MEASURES[name])
        assert difference == f"{float(own['difference']):+.3f}"
        assert interval == f"{float(own['interval_low']):+.3f} to {float(own['interval_high']):+.3f}"
        assert (p, adjusted) == tuple(f"{float(own[key]):.2g}" for key in ("p_value", "adjusted_p_value"))


def test_models_are_exchangeable_and_their_losses_as_told(comparison, rows):
    members = comparison["members"].to_dataset()
    losses = json.loads((STUDY / "losses.json").read_text(encoding="utf-8"))
    assert list(losses) == members["model"].values.tolist()
    seeds = [int(re.search(r"\d+$", name)[0]) for name in losses]
    assert len(set(seeds)) == len(seeds) == 17
    told = {row[0]: row for row in rows if len(row) == 6 and row[0] in members["group_of"].values}
    assert len(told) == 5
    for group, row in told.items():
        own = [losses[name] for name in members["model"].values[members["group_of"].values == group]]
        assert len(own) == int(row[4])
        assert row[5] == f"{np.min(own):.2f} – {np.max(own):.2f}"
