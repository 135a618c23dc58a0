"""The kind of result of docs/extending.md, and the notebooks of examples/, each cell of which runs with the site."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "row_norms"


@pytest.fixture(scope="module")
def extended(tmp_path_factory):
    """A copy of rmtbase with the folder in results and its line in KINDS."""
    place = tmp_path_factory.mktemp("extended")
    package = place / "rmtbase"
    shutil.copytree(ROOT / "src" / "rmtbase", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(FOLDER, package / "results" / "row_norms", ignore=shutil.ignore_patterns("__pycache__"))
    kinds = package / "results" / "__init__.py"
    text = kinds.read_text(encoding="utf-8")
    line = '    "comparison": "comparison",\n'
    assert text.count(line) == 1
    kinds.write_text(text.replace(line, line + '    "row_norms": "row_norms",\n'), encoding="utf-8")

    return place


def python(place, *arguments):
    """Run Python with the copy of rmtbase in a folder."""
    environment = os.environ | {"PYTHONPATH": str(place), "RMTBASE_PROOF": "0"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=place, env=environment)


def test_it_is_a_folder_of_at_most_110_lines():
    assert sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FOLDER.glob("*.py")) <= 110


COMMANDS = """
import contextlib, io, json, sys
from rmtbase.cli import main
ended = []
for command in json.loads(sys.argv[1]):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            main(command)
        except SystemExit as end:
            ended.append([end.code or 0, out.getvalue()])
print(json.dumps(ended))
"""


@pytest.mark.exhaustive
def test_command_file_figure_page_and_table_work(extended, tmp_path):
    path, page, figure, table = (str(tmp_path / f"rows.{kind}") for kind in ("nc", "html", "svg", "csv"))
    commands = [
        ["row-norms", "demo", "-o", path, "-o", page, "--json"],
        ["plot", path, "-o", figure],
        ["export", path, "-o", table],
        ["row-norms", "demo", "-o", path],  # its own kind is replaced
        ["signal", "demo", "-o", path, "--matrices", "none"],  # any other kind is not
    ]
    ran = python(extended, "-c", COMMANDS, json.dumps(commands))
    assert ran.returncode == 0, ran.stderr
    (_, said), *_ = ended = json.loads(ran.stdout)
    assert [status for status, _ in ended] == [0, 0, 0, 0, 2], ran.stderr
    found = json.loads(said)
    assert len(found["rows"]) == 4 * (8 + 4)  # query heads and key heads of four layers
    assert "row longer than chance" in found["sentences"][0]
    assert min(Path(written).stat().st_size for written in (figure, table)) > 1000
    assert "<svg" in Path(page).read_text(encoding="utf-8")


@pytest.mark.exhaustive
def test_rows_of_an_untrained_model_are_not_flagged(extended):
    code = (
        "import rmtbase, numpy as np\n"
        "from rmtbase.models import ArrayModel\n"
        "from rmtbase.results.row_norms.measure import row_norms\n"
        "rng = np.random.default_rng(0)\n"
        "w_q, w_k = rng.standard_normal((2, 20, 16, 12, 64))\n"
        "print(float((row_norms(ArrayModel.from_factors(w_q, w_k, 'arrays', None))['p_value'] <= 0.05).mean()))\n"
    )
    ran = python(extended, "-c", code)
    assert ran.returncode == 0, ran.stderr
    assert 0.02 < float(ran.stdout) < 0.08  # 640 matrices: 0.05 less a little, ± 0.009


EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = {path.stem: nbformat.read(path, as_version=4) for path in sorted(EXAMPLES.glob("*.ipynb"))}


def test_a_module_becomes_a_report_in_at_most_ten_lines():
    cells = NOTEBOOKS["own_model"].cells
    (cell,) = (cell for cell in cells if cell.cell_type == "code" and ".render(" in cell.source)
    lines = [line for line in cell.source.splitlines() if line.strip()]
    assert len(lines) + 1 <= 10  # and the import of split_qkv, which the cell before it has


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_none_is_stored_with_what_it_once_printed(name):
    nbformat.validate(NOTEBOOKS[name])
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in NOTEBOOKS[name].cells)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_ends_by_checking_what_it_found_in_a_cell_that_the_page_leaves_out(name):
    last = NOTEBOOKS[name].cells[-1]
    assert last.metadata["tags"] == ["remove-cell"]
    assert sum(line.startswith("assert ") for line in last.source.splitlines()) >= 3


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_each_is_a_page_of_the_site(name):
    assert f"generated/tutorials/{name}\n" in (EXAMPLES.parent / "docs" / "index.md").read_text(encoding="utf-8")
