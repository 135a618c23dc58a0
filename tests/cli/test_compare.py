"""``rmtbase compare``."""

import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from strict import strict_json

import rmtbase
from rmtbase.results import open_table
from rmtbase.results.comparison import compare
from rmtbase.results.comparison.summary import summarize_comparison
from rmtbase.tables import write_table

TENTHS = ["--permutations", 99]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Scores of four small models, the second a copy of the first, the others of heads alone."""
    folder = tmp_path_factory.mktemp("scores")
    for name, seed in zip("abcd", (1, 1, 2, 3), strict=True):
        weights, matrices = np.random.default_rng(seed).standard_normal((2, 2, 3, 8, 32)), seed == 1
        tree = rmtbase.score_heads(*weights, "analytic", model=name, matrices="elements" if matrices else "none")
        write_table(tree, folder / f"{name}.nc")
    return [folder / f"{name}.nc" for name in "abcd"]


def test_compare_writes_the_comparison_of_the_python_call(files, run, tmp_path):
    nc = tmp_path / "both.nc"
    ran = run("compare", *files[:2], *TENTHS, "-o", nc)
    assert ran.status == 0
    expected = compare({path.stem: open_table(path, "scores") for path in files[:2]}, permutations=99)
    assert open_table(nc, "comparison").identical(expected)
    assert f"rmtbase: wrote {nc}" in ran.err.splitlines()
    assert "a and b: duplicates: the same queries and keys, to the bit." in ran.out
    rows = list(csv.DictReader(io.StringIO(run("export", nc, "--group", "components").out)))
    rows = [row for row in rows if float(row["n_matrices"])]
    assert [row["model"] for row in rows] == ["a", "a", "b", "b"]
    shape = open_table(nc, "comparison")["components"]["shape"].sel(model="a", component="attention_query").item()
    assert float(rows[0]["shape"]) == shape


def test_compare_as_json_says_what_the_library_says(files, run):
    printed = strict_json(run("compare", *files, *TENTHS, "--published", "--json").out)
    assert [row["model"] for row in printed["models"]] == ["a", "b", "c", "d"]
    assert len(printed["pairs"]) == 6 and len(printed["pairs"][0]["statistics"]) == 16
    assert printed["pairs"][0]["duplicate"] == 1
    assert [row["published_model"] for row in printed["published"]][:2] == ["Pythia-70m", "Pythia-160m"]
    assert [row["transmission_shape"] for row in printed["models"]] == [None] * 4
    tree = compare({path.stem: open_table(path, "scores") for path in files}, published=True, permutations=99)
    assert printed["sentences"] == summarize_comparison(tree)


def test_the_answer_about_many_models_is_five_lines_and_the_rest_are_details(files, run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    lines = run("compare", *files, *TENTHS).out.splitlines()
    assert lines[0] == "4 models: a, b, c, d"
    assert len(lines) <= 5
    assert "pairs of models have heads that differ" in lines[1]
    alone = run("compare", files[0]).out
    assert "attention_query" in alone and "untrained k" in alone and "duplicates" not in alone
    a, b, c, d = files
    groups = ["--group", f"first={a},{c}", "--group", f"second={b},{d}"]
    (contrast,) = strict_json(run("compare", *groups, *TENTHS, "--json").out)["groups"]
    assert (contrast["first_group"], contrast["n_first"], contrast["smallest_p_value"]) == ("first", 2, 2 / 6)
    assert "a and c: " not in lines[1] and "a and c: " in run("-v", "compare", *files, *TENTHS).out


@pytest.mark.exhaustive
def test_groups_of_runs_are_read_at_eighty_columns(run, tmp_path, monkeypatch):
    stored = Path(__file__).parents[1] / "data" / "trajectory.nc"
    paths = [tmp_path / f"{group}{k}.nc" for group in ("a", "b") for k in range(2)]
    for path in paths:
        path.write_bytes(stored.read_bytes())
    groups = [
        option for k, name in enumerate("ab") for option in ("--group", f"{name}={paths[2 * k]},{paths[2 * k + 1]}")
    ]
    with monkeypatch.context() as terminal:
        terminal.setenv("COLUMNS", "80")
        terminal.setattr("rich.console.Console.is_terminal", property(lambda console: True))
        ran = run("-v", "compare", *groups, "--permutations", 9, "--paired", "-o", tmp_path / "runs.nc")
    assert ran.status == 0
    shown = re.sub(r"\x1b\[[0-9;]*m", "", ran.out)
    assert max(map(len, shown.splitlines())) <= 80
    assert "Along " in shown and "departure_step" in shown
    tree = open_table(tmp_path / "runs.nc", "comparison")
    assert (tree["between"]["p_value"] == 1.0).all()
    assert tree["groups"]["paired"].values.tolist() == [1]
    printed = strict_json(run("compare", *groups, "--permutations", 9, "--json").out)
    assert printed["between"][0]["groups"][0]["group"] == "a"
    assert printed["along"]["between"][0]["step"] == tree["along/between"]["step"].values[0]
