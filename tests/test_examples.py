"""The notebooks of examples/ run as they stand, each in a kernel and a folder of its own."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

# What must be so once all cells have run: a last cell of ours, in the notebook's own kernel.
CHECKS = {
    "own_model": """
assert len(planted) == 30 and found == planted and scores["heads"]["omnibus_q_value"].size == 384
assert scores["heads"].sizes["layer"] == 12
page = Path("report.html").read_text(encoding="utf-8")
assert "my model" in page and len(figures) > 3
assert rmtbase.open_scores("scores.nc")["heads"].to_dataset().equals(scores["heads"].to_dataset())
""",
    "ten_checkpoints": """
assert heads["z_score"].sizes == {"step": 4, "layer": 4, "head": 8, "statistic": 16}
assert heads["step"].values.tolist() == list(demo_revisions())
assert left.sum(["layer", "head"]).values.tolist() == [0, 32, 32, 32]
assert (first == "step-200").all()
""",
}
NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))


def test_a_module_becomes_a_report_in_at_most_ten_lines():
    notebook = nbformat.read(NOTEBOOKS[0].with_name("own_model.ipynb"), as_version=4)
    (cell,) = (cell for cell in notebook.cells if cell.cell_type == "code" and "report.html" in cell.source)
    lines = [line for line in cell.source.splitlines() if line.strip()]
    assert len(lines) + 1 <= 10  # and the import of split_qkv, which the cell before it has


def test_all_are_checked_and_none_is_stored_with_what_it_once_printed():
    assert [path.stem for path in NOTEBOOKS] == sorted(CHECKS)
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in notebook.cells), path.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell(CHECKS[path.stem]))
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
