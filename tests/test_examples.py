"""Every notebook in ``examples`` is whole, holds no outputs, and runs."""

import json
from functools import cache
from pathlib import Path

import matplotlib
import pytest

from rmtbase.models import demo_revisions

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def cells(path, kind):
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def test_there_are_notebooks():
    assert "ten_checkpoints" in [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_outputs_are_stored(path):
    for cell in cells(path, "code"):
        assert (cell["outputs"], cell["execution_count"]) == ([], None)


@cache
def names_after(path):
    """What a notebook has defined when all its code has run."""
    matplotlib.use("agg")
    names = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path, "code")):
        exec(compile("".join(cell["source"]), f"{path.name}, code cell {number}", "exec"), names)
    return names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert names_after(path)


def test_ten_checkpoints_are_one_table_by_step():
    (path,) = (path for path in NOTEBOOKS if path.stem == "ten_checkpoints")
    names = names_after(path)
    heads = names["heads"]
    assert heads["z_score"].sizes == {"step": 4, "layer": 4, "head": 8, "statistic": 16}
    assert heads["step"].values.tolist() == list(demo_revisions())
    left = names["left"].sum(["layer", "head"]).to_series()
    assert left.tolist() == [0, 32, 32, 32]
    assert (names["first"] == "step-200").all()
