"""A file is replaced unasked only by the same kind, told by its content; what is read is never replaced."""

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from exhaustive import mostly_exhaustive
from rmtbase.errors import OutputError
from rmtbase.tables import require_replaceable

DATA = Path(__file__).parents[1] / "data"
NOTES = "my notes\n"


@pytest.fixture
def file(tmp_path):
    return Path(shutil.copy(DATA / "scores.nc", tmp_path / "read.nc"))


def foreign_hdf5(path):
    with h5py.File(path, "w") as made:
        made["measurements"] = np.arange(3.0)


def half_a_table(path):
    with h5py.File(path, "w") as made:
        made.attrs["kind"] = "comparison"


OTHERS = {
    "text": lambda path: path.write_text(NOTES),
    "weights": lambda path: path.write_bytes(b"\x08\0\0\0\0\0\0\0{}      "),
    "CSV of another program": lambda path: path.write_text("layer,head,loss\n0,0,1.5\n"),
    "HDF5 of another program": foreign_hdf5,
    "a table without a digest": half_a_table,
    "a table of another kind": lambda path: shutil.copy(DATA / "scores.nc", path),
    "a page": lambda path: path.write_text("<!DOCTYPE html>\n<html><p>mine</p></html>\n"),
    "a picture": lambda path: Image.new("RGB", (2, 2)).save(path, format="PNG"),
    "a PDF": lambda path: Figure().savefig(path, format="pdf"),
    "an SVG": lambda path: Figure().savefig(path, format="svg"),
    "LaTeX": lambda path: path.write_text("% rmt\n\\documentclass{article}\n"),
    "Parquet": lambda path: _parquet(path),
}


def _parquet(path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"head": [1, 2]}), path)


FORMS = {"table": ("comparison", "baseline"), "csv": ("head,z_score",), "parquet": ("scores",)} | dict.fromkeys(
    ("latex", "html", "pdf", "svg", "png", "gif", "mp4"), ()
)


@pytest.mark.parametrize("other", OTHERS)
def test_what_rmtbase_did_not_write_as_that_kind_stays(other, tmp_path):
    path = tmp_path / "there"
    OTHERS[other](path)
    for form, variants in FORMS.items():
        with pytest.raises(OutputError, match=r"a file that is no .* is there; remove it, or name another"):
            require_replaceable(path, form, variants=variants)
        require_replaceable(path, form, overwrite=True, variants=variants)


WRITING = (
    "export read.nc -o a.csv",
    "export read.nc -o a.tex",
    "export read.nc -o a.parquet",
    "export read.nc --columns head,z_score -o a.csv",
    "plot read.nc --only omnibus-map -o a.pdf",
    "baseline --d-model 8 --d-head 2 --draws 5 -o a.nc",
    "compare read.nc -o a.nc",
    "score demo --matrices none --null analytic -o a.html",
    "depth demo --component attention_key --max-depth 2 --draws 19 -o a.nc",
)


@pytest.mark.parametrize("command", mostly_exhaustive(WRITING, always=7))
def test_a_command_replaces_its_own_and_no_other(command, file, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / command.split()[-1]
    path.write_text(NOTES)
    ended = run(*command.split())
    assert (ended.status, path.read_text()) == (2, NOTES)
    assert "remove it, or name another" in ended.err
    path.unlink()
    for _ in range(2):  # the second time it replaces its own
        assert run(*command.split()).status == 0
    assert path.read_bytes()[:4] != NOTES.encode()[:4]


@pytest.mark.parametrize("link", [None, Path.symlink_to, Path.hardlink_to])
@pytest.mark.parametrize("command", mostly_exhaustive(["export", "plot", "compare"], always=1))
def test_no_command_replaces_what_it_reads(link, command, file, run, tmp_path):
    path = file = file.rename(tmp_path / "read.png")
    if link is not None:
        path = tmp_path / "other.png"
        link(path, file)
    whole = file.read_bytes()
    ended = run(command, file, "-o", path)
    assert ended.status == 2
    assert "it is a file that is read" in ended.err
    assert file.read_bytes() == whole


def test_files_of_a_model_that_is_read_stay(run, model_folder, null_file, tmp_path):
    own = Path(shutil.copy(null_file, tmp_path / "null.nc"))
    assert "null.nc" in run("score", model_folder, "--null", own, "-o", own).err
    assert own.read_bytes() == null_file.read_bytes()
    before = {path.name: path.read_bytes() for path in model_folder.iterdir()}
    for name in before:
        for command in (("score",), ("depth",), ("composition",), ("diff", model_folder)):
            assert run(*command, model_folder, "-o", model_folder / name).status == 2
    assert {path.name: path.read_bytes() for path in model_folder.iterdir()} == before


def test_of_a_folder_that_is_read_an_earlier_output_may_be_replaced_and_nothing_else(tmp_path):
    folder = tmp_path / "model"
    (folder / "deeper").mkdir(parents=True)
    shutil.copy(DATA / "scores.nc", folder / "scores.nc")
    require_replaceable(folder / "scores.nc", "table", inputs=[folder], variants=["scores"])
    require_replaceable(folder / "new.nc", "table", inputs=[folder], variants=["scores"])
    (folder / "deeper" / "weights").write_text(NOTES)
    with pytest.raises(OutputError, match="in a folder that is read, and no earlier output"):
        require_replaceable(folder / "deeper/weights", "table", True, inputs=[folder], variants=["scores"])


def test_a_dangling_link_says_where_it_leads(file, run, tmp_path):
    path = tmp_path / "out.csv"
    path.symlink_to(tmp_path / "gone" / "there.csv")
    ended = run("export", file, "-o", path)
    assert ended.status == 2
    gone = tmp_path / "gone"
    assert f"it is a link to {gone / 'there.csv'}: the folder {gone} does not exist" in ended.err
    gone.mkdir()
    assert run("export", file, "-o", path).status == 0
    assert (tmp_path / "gone" / "there.csv").stat().st_size
