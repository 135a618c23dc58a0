"""What is read is never written over, whatever links lead to it."""

import os
import shutil

import pytest

from rmtbase.errors import OutputError
from rmtbase.models import open_model, require_other_files


@pytest.fixture
def snapshot(model_folder, tmp_path):
    """The model as the hub's cache keeps it: links to files in a folder of their own."""
    blobs, folder = tmp_path / "hub" / "blobs", tmp_path / "hub" / "snapshots" / "0123"
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    for number, file in enumerate(sorted(model_folder.iterdir())):
        shutil.copy(file, blobs / str(number))
        (folder / file.name).symlink_to(f"../../blobs/{number}")
    return folder


def test_every_way_to_a_file_of_the_model_is_refused_and_other_files_may_be_written_beside_it(snapshot, tmp_path):
    model, weights = open_model(snapshot), snapshot / "model.safetensors"
    (tmp_path / "link.nc").symlink_to(weights)
    (tmp_path / "folder").symlink_to(snapshot)
    os.link(weights.resolve(), tmp_path / "name.nc")
    onto = [tmp_path / "link.nc", tmp_path / "folder" / "config.json", tmp_path / "name.nc"]
    for path in (weights, weights.resolve(), *onto):
        with pytest.raises(OutputError, match="a file of the model"):
            require_other_files([tmp_path / "new.nc", path], model)
    (tmp_path / "old.nc").write_bytes(b"scores")
    require_other_files([tmp_path / "old.nc", tmp_path / "new.nc", snapshot / "new.nc"], model)


@pytest.mark.parametrize("command", ["score", "depth"])
def test_command_leaves_the_model_as_it_was(command, snapshot, tmp_path, run, watch):
    before = watch(tmp_path)
    blob = (snapshot / "model.safetensors").resolve()
    ended = run(command, snapshot, "-o", blob)
    assert ended.status == 2
    assert ended.err == (
        f"rmtbase: error: cannot write {blob}: it is a file of the model that is read; expected another name\n"
    )
    before.assert_untouched()
