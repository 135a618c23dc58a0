"""The notebooks of examples/ can be run: they are the site's tutorials, each cell of which runs when it is built."""

from pathlib import Path

import nbformat
import pytest

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
