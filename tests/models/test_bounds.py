"""What a checkpoint's files may be: regular, bounded, and saying nothing twice; they are never written over."""

import json
import os
import re
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from rmtbase.errors import CheckpointError, CorruptFileError, MissingCheckpointFileError, OutputError
from rmtbase.models import Checkpoint, head_shape, open_model, require_other_files

# Opens each folder and says how that ended. What hangs is ended by the system or the caller, and what takes memory
# without end runs into the limit long before the machine's end.
OPEN = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
from rmtbase.errors import CheckpointError
from rmtbase.models import open_model
for folder in sys.argv[1:]:
    try:
        open_model(folder)
        print("opened")
    except CheckpointError as error:
        print(error)
# Not ru_maxrss, which begins with what the test's own process had when it started this one.
(peak,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM:"))
print(int(peak) << 10)
"""


def opened_elsewhere(*folders):
    """What opening each folder says, in one process of less than 1 GiB and 20 seconds of CPU for all."""
    ended = subprocess.run(
        [sys.executable, "-c", OPEN, *map(str, folders)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    *lines, peak = ended.stdout.splitlines()
    assert len(lines) == len(folders)
    assert int(peak) < 1 << 30
    return lines


def header(text):
    return struct.pack("<Q", len(text)) + text


def test_a_header_of_any_contents_is_refused_within_bounds(parts, tmp_path):
    entry = b'{"w":{"dtype":"U8","shape":[%s],"data_offsets":[0,1]}}'
    contents = {
        "1,000,000 dimensions": header(entry % b",".join([b"1"] * 1_000_000)) + b"x",
        "a file that the package safetensors refuses": header(b'{"w":' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"),
        "a header length of 99999998 bytes": header(b"{" + b"\0" * 99_999_996 + b"}"),
    }
    folders = []
    for number, content in enumerate(contents.values()):
        folders.append(parts.write(tmp_path / str(number)))
        (folders[-1] / "model.safetensors").write_bytes(content)
    for line, reason in zip(opened_elsewhere(*folders), contents, strict=True):
        assert "model.safetensors: found" in line
        assert reason in line


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"hidden_size": 12, "hidden_size": 16}', "the name 'hidden_size' twice in one object"),
        (b'{"rope": [{"a": {"x\\u202e": 1, "b": 2, "x\\u202e": 3}}]}', "the name 'x\\u202e' twice"),
        (b'{"a": ' + b"1" * 5000 + b"}", "a number of 5,000 characters"),
        (b'{"a": 0.' + b"1" * 5000 + b"}", "a number of 5,002 characters"),
        (b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", "more than 64 levels"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "more than 64 levels"),
        (b'{"a": "\\ud800"}', "half of a surrogate pair"),
        (b'{"\\udc00": 1}', "half of a surrogate pair"),
        ("{}".encode("utf-16"), "text that is not JSON"),
        ("{}".encode("utf-32"), "text that is not JSON"),
        (b'{"hidden_size": NaN}', "hidden_size = nan"),
        (b'{"hidden_size": 1e999}', "hidden_size = inf"),
    ],
)
def test_a_configuration_says_nothing_twice_and_nothing_beyond_bounds(text, reason, parts, tmp_path):
    if b"hidden_size" in text:
        text = text.replace(b"{", b'{"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, ', 1)
    (parts.write(tmp_path) / "config.json").write_bytes(text)
    for read in (open_model, head_shape):
        with pytest.raises(CheckpointError, match=re.escape(reason)) as caught:
            read(tmp_path)
        assert "config.json" in str(caught.value)
        assert str(caught.value).isprintable()


def test_a_configuration_has_any_numbers_and_at_most_four_mebibytes(parts, tmp_path):
    parts.config |= {"time_step_limit": [0.0, float("inf")], "pad": float("nan"), "longest": 10**30}
    parts.config["id2label"] = {str(number): "x" * 40 for number in range(20_000)}
    assert open_model(parts.write(tmp_path)).config["time_step_limit"] == [0.0, float("inf")]
    parts.config["more"] = "x" * (4 << 20)
    parts.write(tmp_path)
    with pytest.raises(CheckpointError, match=r"config\.json: 5,\d{3},\d{3} bytes; expected at most 4,194,304"):
        open_model(tmp_path)


def put_socket(path):
    here = os.open(".", os.O_RDONLY)
    os.chdir(path.parent)  # a socket's whole path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
    os.fchdir(here)
    os.close(here)


PUT = {
    "a named pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a socket": put_socket,
    "large": lambda path: path.touch() or os.truncate(path, 8_000_000_000),
}
FILES = ("config.json", "model.safetensors", "model.safetensors.index.json", "model-00001.safetensors")


def test_what_is_no_regular_file_is_named_and_never_waited_for(parts, tmp_path):
    expected, folders = [], []
    for file in FILES:
        for kind, put in PUT.items():
            folder = tmp_path / f"{file}-{kind}"
            (parts.write if file in FILES[:2] else parts.write_sharded)(folder)
            (folder / file).unlink()
            put(folder / file)
            folders.append(folder)
            # Of tensors there may be any number of bytes, but these are no safetensors file.
            reason = f"cannot be read: it is {kind}; expected a regular file"
            if kind == "large":
                weights = file.endswith(".safetensors")
                reason = "found a header length of 0 bytes" if weights else "8,000,000,000 bytes; expected at most"
            expected.append(f"{folder / file}: {reason}")
    for line, start in zip(opened_elsewhere(*folders), expected, strict=True):
        assert line.startswith(start)


def test_a_file_exchanged_for_a_pipe_while_in_use_is_never_waited_for(parts, tmp_path):
    model = open_model(parts.write(tmp_path))
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "model.safetensors")
    writer = os.open(tmp_path / "model.safetensors", os.O_RDWR)  # so that a reader that opens it gets nothing, at once
    os.set_blocking(writer, False)
    try:
        with pytest.raises(CheckpointError, match="is a named pipe; expected a regular file"):
            model.queries(0)
    finally:
        os.close(writer)


@pytest.mark.parametrize("file", FILES)
def test_a_link_to_nothing_is_a_missing_file(file, parts, tmp_path):
    (parts.write if file in FILES[:2] else parts.write_sharded)(tmp_path)
    (tmp_path / file).unlink()
    (tmp_path / file).symlink_to(tmp_path / "nothing")
    with pytest.raises(MissingCheckpointFileError, match=rf"{re.escape(file)}: no such file"):
        open_model(tmp_path)


def test_a_tensor_is_in_one_place(parts, tmp_path):
    index, (first, second) = parts.write_sharded(tmp_path) / FILES[2], list(parts.tensors)[:2]
    text = index.read_text()
    index.write_text(text.replace('{"weight_map": {', f'{{"weight_map": {{"{first}": "other.safetensors", '))
    with pytest.raises(CorruptFileError, match=rf"index\.json: .*the name '{re.escape(first)}' twice"):
        open_model(tmp_path)
    index.write_text(text)
    save_file({first: parts.tensors[first] + 1, second: parts.tensors[second]}, tmp_path / "model-00001.safetensors")
    with pytest.raises(CorruptFileError) as caught:
        open_model(tmp_path)
    for fragment in (repr(first), "in both model-00000.safetensors and model-00001.safetensors"):
        assert fragment in str(caught.value)


def test_tensors_that_the_index_does_not_name_are_no_less_there(parts, tmp_path):
    parts.write_sharded(tmp_path)
    first, extra = next(iter(parts.tensors)), np.ones((2, 2), np.float32)
    save_file({first: parts.tensors[first], "extra": extra}, tmp_path / "model-00000.safetensors")
    model = open_model(tmp_path)
    assert "tensors that model.safetensors.index.json does not name are read too: 'extra'" in model.notes
    np.testing.assert_array_equal(Checkpoint.open(tmp_path).read("extra"), extra)
    third = first.replace("layers.0.", "layers.2.")
    save_file({first: parts.tensors[first], third: parts.tensors[first]}, tmp_path / "model-00000.safetensors")
    with pytest.raises(CheckpointError, match=f"{re.escape(third)}' is there; expected none beyond the 2 layers"):
        open_model(tmp_path)
    parts.write(tmp_path)
    assert "model.safetensors is read, model.safetensors.index.json beside it is not" in open_model(tmp_path).notes


@pytest.mark.exhaustive
def test_an_index_of_more_than_a_million_tensors_is_refused_within_bounds(parts, tmp_path):
    names = ",".join(f'"{number:07x}":"a.safetensors"' for number in range(1_100_000))
    (parts.write_sharded(tmp_path) / FILES[2]).write_text(f'{{"weight_map":{{{names}}}}}')
    (line,) = opened_elsewhere(tmp_path)
    assert "text with 2,200,002 commas, colons and brackets; expected a JSON object with at most 2,097,152" in line


@pytest.mark.exhaustive
def test_an_index_of_a_large_model_is_read(tmp_path):
    """As many names as the largest published models have."""
    names = [f"model.layers.{number}.mlp.experts.w1.weight" for number in range(100_000)]
    entry = '"%s":{"dtype":"U8","shape":[1],"data_offsets":[%d,%d]}'
    entries = ",".join(entry % (name, place, place + 1) for place, name in enumerate(names))
    (tmp_path / "model-0.safetensors").write_bytes(header(f"{{{entries}}}".encode()) + bytes(len(names)))
    (tmp_path / FILES[2]).write_text(json.dumps({"weight_map": dict.fromkeys(names, "model-0.safetensors")}))
    assert Checkpoint.open(tmp_path).names == tuple(sorted(names))


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
