"""``rmtbase composition``: a summary for the reader, JSON and a file for machines."""

import csv
import io
import json

import pytest

from rmtbase.results import open_table
from rmtbase.results.composition import composition
from rmtbase.results.composition.summary import summarize_composition


@pytest.mark.parametrize(
    ("options", "fragments"),
    [
        (["--kinds", "q,x"], ["kinds = ", "distinct ones of q, k, v"]),
        (["--level", 0], ["level = 0.0", "between 0 and 1"]),
        (["-o", "missing/pairs.nc"], ["cannot write missing/pairs.nc", "does not exist"]),
        (["-o", "-"], ["cannot be written to stdout"]),
    ],
)
def test_bad_input_is_one_line_and_status_two(options, fragments, run):
    ran = run("composition", "demo", *options)
    assert (ran.status, ran.out) == (2, "")
    line = ran.err.splitlines()[-1]
    assert line.startswith("rmtbase: error: ")
    for fragment in fragments:
        assert fragment in line


def test_a_model_of_which_no_outputs_are_known_is_refused(run, model_folder, watch):
    before = watch(model_folder)
    ran = run("composition", model_folder)
    assert ran.status == 2
    assert "its values or outputs are not known" in ran.err and "two layers" in ran.err
    before.assert_untouched()


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
    assert drawn == {"pairs-composition.png", "pairs-composition-graph.png"}
