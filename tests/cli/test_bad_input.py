"""Every bad input ends in one clear line and exit status 2, and every file stays as it was."""

import errno
import json
import os
from pathlib import Path

import pytest
import xarray as xr

import rmtbase
from rmtbase.nulls import Table
from rmtbase.tables import open_table, write_table


@pytest.fixture
def refused(run, tmp_path, watch, monkeypatch):
    """Run a command that must fail: status 2, one line of error with these words, no result, files untouched."""
    monkeypatch.chdir(tmp_path)

    def check(*fragments, command):
        before = watch(tmp_path)
        ran = run(*command)
        assert ran.status == 2, ran.err
        lines = ran.err.splitlines()
        (at,) = (k for k, line in enumerate(lines) if line.startswith("rmtbase: error: "))
        assert all(note.startswith("rmtbase: ") for note in lines[:at])
        assert all(not line or line.startswith("    ") for line in lines[at + 1 :])  # Python that opens such weights
        assert "Traceback" not in ran.err
        for fragment in fragments:
            assert str(fragment) in lines[at]
        assert ran.out == ""
        before.assert_untouched()

    return check


@pytest.fixture(params=["baseline", "score"])
def writing(request, shape, model_folder, null_file):
    """A command that writes the file it is given, by each of the ways there are."""
    if request.param == "baseline":
        return lambda path: ["baseline", *shape, "--draws", 5, "-o", path]
    return lambda path: ["score", model_folder, "--null", null_file, "-o", path]


@pytest.mark.parametrize(
    ("make", "name", "words"),
    [
        (None, "missing/out.nc", "missing does not exist"),
        (Path.mkdir, "there", "it is a folder"),
        (Path.touch, "there/out.nc", "there"),
        (None, "/proc/out.nc", "/proc/out.nc"),
        (None, "a" * 300, "too long"),
        (os.mkfifo, "there", "it is a named pipe"),  # nor a device: a rename would replace it
    ],
)
def test_output_that_cannot_be_written(make, name, words, writing, refused, tmp_path):
    if make is not None:
        make(tmp_path / "there")
    refused("cannot write", words, command=writing(tmp_path / name))


def half_then_full(self, path, **options):
    Path(path).write_bytes(b"\x89HDF half a table")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def no_space(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_disk_that_fills_up_while_writing_keeps_the_old_file_and_what_was_drawn(
    shape, run, watch, null_file, tmp_path, monkeypatch
):
    path = tmp_path / "kept.nc"
    path.write_bytes(null_file.read_bytes())
    before = watch(tmp_path)
    monkeypatch.setattr(xr.Dataset, "to_netcdf", half_then_full)
    monkeypatch.setattr("rmtbase.tables._writing._netcdf_in_memory", no_space)  # Python knows the reason
    ran = run("baseline", *shape, "--draws", 5, "-o", path)
    assert ran.status == 2
    assert f"rmtbase: error: cannot write {path}: {os.strerror(errno.ENOSPC)}" in ran.err.splitlines()[-1]
    now = before.contents()
    assert now.pop("kept.nc") == before.before["kept.nc"]
    assert {name.split("/")[0] for name in now} == {"kept.nc.chunks"}
    monkeypatch.undo()
    ran = run("baseline", *shape, "--draws", 5, "-o", path)
    assert "nothing is left to draw" in ran.err
    assert set(before.contents()) == {"kept.nc"}
    assert open_table(path, "baseline").sizes["draw"] == 5


@pytest.fixture
def unscorable(refused, null_file, tmp_path):
    """Scoring this folder must fail, whatever stands at the outputs' places."""

    def check(folder, *fragments):
        for name in ("scores.nc", "scores.html"):
            (tmp_path / name).write_bytes(b"")
        outputs = ["-o", tmp_path / "scores.nc", "-o", tmp_path / "scores.html"]
        refused(*fragments, command=["score", folder, "--null", null_file, *outputs])

    return check


def test_what_cannot_be_scored_is_one_line(weights, make_weights, unscorable, tmp_path):
    folder = weights.save(tmp_path / "sharded", sharded=True)
    (folder / "model-00002.safetensors").unlink()
    unscorable(folder, "model-00002.safetensors: no such file", "model.safetensors.index.json", "download")
    folder = weights.save(tmp_path / "other", num_attention_heads=8)
    unscorable(folder, "q_proj.weight", "(32, 32)", "expected (64, 32)", "num_attention_heads = 8")
    folder = make_weights(weights.queries[..., :6], weights.keys[..., :6]).save(tmp_path / "wide")
    unscorable(folder, "d_head = 8", "at most d_model = 6")
    unscorable(weights.save(tmp_path / "unknown", model_type="mistrel"), "'mistrel'", "rmtbase.score_heads(w_q, w_k)")


def test_what_is_no_model(model_folder, unscorable):
    unscorable("./nowhere", "nowhere: no such file")
    unscorable("some-people/some-model", "some-people/some-model", "cannot be fetched from the hub", "connection")
    (model_folder / "model.safetensors").rename(model_folder / "weights.pt")
    unscorable(model_folder / "weights.pt", "is a safetensors file")
    unscorable(model_folder, "model.safetensors: no such file")
    (model_folder / "config.json").unlink()
    unscorable(model_folder, "config.json: no such file")


def scores(path, null_file, model_folder):
    write_table(rmtbase.score(model_folder, Table(null_file), matrices="none"), path)


@pytest.mark.parametrize(
    ("make", "fragments"), [(None, ["no such file"]), (scores, ["kind 'scores'", "a baseline file (or atlas)"])]
)
def test_file_that_is_no_baseline(make, fragments, model_folder, null_file, refused, tmp_path):
    if make is not None:
        make(tmp_path / "null.nc", null_file, model_folder)
    refused("null.nc", *fragments, command=["score", model_folder, "--null", "null.nc"])


def test_baseline_that_lacks_the_shape_is_answered_with_a_visible_note(run, model_folder, tmp_path, monkeypatch, watch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    other = write_table(rmtbase.baseline([32, 31], [4, 8], draws=20), tmp_path / "other.nc")
    before = other.read_bytes()
    first = run("-v", "score", model_folder, "--null", other, "--draws", 300, "--json")
    assert first.status == 0
    assert f"rmtbase: {other} holds (31, 8), (32, 4), but not (32, 8)" in first.err
    assert "null of (d_model, d_head) = (32, 8), 300 draws, seed 0: simulated now and kept in the cache" in first.err
    assert len(list((tmp_path / "cache").iterdir())) == 1
    second = run("-v", "score", model_folder, "--null", other, "--draws", 300, "--json")
    assert "from the cache" in second.err
    without = run("score", model_folder, "--draws", 300, "--json")
    assert json.loads(first.out) == json.loads(second.out) == json.loads(without.out)
    assert other.read_bytes() == before


# Plots and the demo
