"""``rmtbase composition``: a summary for the reader, JSON and a file for machines."""

import csv
import io
import json

import pytest

from rmtbase.results import open_table
from rmtbase.results.composition import composition
from rmtbase.results.composition.report import summarize_composition


def test_the_strongest_pairs_are_printed_and_all_are_written(run, tmp_path):
    nc = tmp_path / "pairs.nc"
    ran = run("-v", "composition", "demo", "-o", nc)
    assert ran.status == 0
    expected = composition("demo")
    assert open_table(nc, "composition").identical(expected)
    surviving = summarize_composition(expected).surviving
    assert f"{len(surviving)} of 1152 pairs of heads compose beyond chance" in ran.out
    first = surviving[0]
    assert any(
        all(text in line for text in (first.earlier, first.later, f"{first.score:.4f}", f"{first.p_value:.1e}"))
        for line in ran.out.splitlines()
    )
    rows = list(csv.DictReader(io.StringIO(run("export", nc).out)))
    assert len(rows) == 1152
    one = rows[100]
    there = expected.sel(kind=one["kind"], earlier=one["earlier"], later=one["later"])
    assert float(one["score"]) == there["score"].item() and float(one["q_value"]) == there["q_value"].item()


def test_a_random_model_has_nothing_to_list(run):
    ran = run("composition", "demo@step-0", "--kinds", "k", "--json")
    printed = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert printed["surviving"] == []
    (kind,) = printed["kinds"]
    assert (kind["kind"], kind["pairs"], kind["surviving"]) == ("k", 384, 0)
    assert "0 of 384 pairs" in run("composition", "demo@step-0", "--kinds", "k").out


def test_plot_draws_the_map_and_the_graph(run, tmp_path):
    path = tmp_path / "pairs.nc"
    run("composition", "demo", "-o", path)
    assert run("plot", path, "-o", tmp_path / "figures").status == 0
    drawn = {one.name for one in (tmp_path / "figures").iterdir()}
    assert drawn == {f"pairs-composition{end}.png" for end in ("", "-by-layer", "-graph")}


def test_a_layer_or_a_head_is_asked_for_and_every_pair_is_tested_and_written(run, tmp_path):
    nc, page = tmp_path / "pairs.nc", tmp_path / "pairs.html"
    ran = run("composition", "demo", "--layer", 2, "--head", 5, "--json", "-o", nc, "-o", page)
    printed, whole = json.loads(ran.out), composition("demo")
    assert open_table(nc, "composition").identical(whole)
    everything = summarize_composition(whole).surviving
    expected = [one for one in everything if "L2H5" in (one.earlier, one.later)]
    assert [(one["earlier"], one["later"], one["q_value"]) for one in printed["surviving"]] == [
        (one.earlier, one.later, one.q_value) for one in expected
    ]
    assert 0 < len(expected) < len(everything)
    assert f"{len(expected)} of 72 pairs with a head of layer 2 head 5" in printed["sentences"][0]
    assert "pairs with a" in page.read_text() and "L2H4" not in page.read_text().partition("<script")[0]


def test_the_words_of_the_table_are_explained(run):
    said = " ".join(run("composition", "demo", "-v").out.split())
    assert "survive" not in said and "avoid" not in said
    for words in ("family-wise sure, so that even one false pair", "reads less of what the earlier one writes"):
        assert words in said
