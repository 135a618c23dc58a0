"""``rmtbase depth``: a table for the reader, JSON and a file for machines."""

import json
import re

import numpy as np
import pytest

from rmtbase.results import open_table
from rmtbase.results.depth import depth

QUICK = ("--max-depth", 6, "--draws", 39, "--component", "attention_query")


def test_the_table_is_printed_and_written(run, model_folder, tmp_path):
    path = tmp_path / "depth.nc"
    ran = run("-v", "depth", model_folder, *QUICK, "-o", path)
    assert ran.status == 0
    assert f"rmtbase: wrote {path}" in ran.err
    assert "fits" in ran.out
    assert len([line for line in ran.out.splitlines() if "attention_query " in line and "×" in line]) == 2
    assert "Matrices of all 2 layers: attention_query; --component also takes attention_key." in ran.out
    expected = depth(str(model_folder), depths=range(1, 7), draws=39, components=["attention_query"])
    assert open_table(path).identical(expected)
    assert f"{expected['distance'].values[0, 0]:.4f}" in ran.out


def test_interval_of_a_matrix_that_no_depth_fits_is_there_and_said_to_be_none(run, model_folder):
    ran = run("-v", "depth", model_folder, "--max-depth", 2, "--draws", 39, "--component", "attention_query")
    rows = [line for line in ran.out.splitlines() if "no depth" in line and "×" in line]
    assert rows
    assert all(re.search(r"\(\d+–\d+\)", row) for row in rows)
    assert "no confidence interval" in ran.out
    printed = json.loads(run("depth", model_folder, "--max-depth", 2, "--draws", 39, "--json").out)
    assert "no confidence interval" in printed["interval"]


def test_without_a_choice_all_matrices_are_said_to_be_there(run, model_folder):
    ran = run("depth", model_folder, "--max-depth", 2, "--draws", 39)
    assert "Matrices of all 2 layers: attention_query, attention_key." in ran.out


def test_json_holds_every_matrix(run, weights, tmp_path):
    weights.keys[0] = 0.0
    folder = weights.save(tmp_path / "model")
    ran = run("depth", folder, "--max-depth", 6, "--draws", 39, "--sigma", 0.5, "--sigma", 1, "--json")
    printed = json.loads(ran.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert printed["depths"] == [1, 2, 3, 4, 5, 6]
    assert [(one["layer"], one["component"]) for one in printed["matrices"]] == [
        (layer, component) for layer in range(2) for component in ("attention_query", "attention_key")
    ]
    assert printed["matrices"][1]["effective_depth"] is None
    assert "layer 0 attention_key" in printed["warnings"][0]
    first = printed["matrices"][0]
    assert first["sigma"] in (0.5, 1.0)
    assert isinstance(first["effective_depth"], int)
    assert isinstance(first["fits"], bool)
    assert np.isfinite(first["p_value"])


def test_plot_draws_the_file(run, model_folder, tmp_path):
    path = tmp_path / "depth.nc"
    run("depth", model_folder, *QUICK, "-o", path)
    ran = run("plot", path, "-o", tmp_path / "figures")
    assert ran.status == 0
    assert [one.name for one in (tmp_path / "figures").iterdir()] == ["depth-effective-depth.png"]


@pytest.mark.exhaustive
def test_depths_beyond_the_law_of_an_update_are_refused(run, model_folder):
    ran = run("depth", model_folder, "--part", "update", "--max-depth", 18)
    assert (ran.status, "at depth 18" in ran.err) == (2, True)
