"""``.bin`` files: what torch.save writes is read, anything else is one line, whatever it claims to hold."""

import os
import pickle
import subprocess
import sys
import textwrap
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, CorruptFileError
from rmtbase.models import Checkpoint

WEIGHT = torch.randn(6, 4, generator=torch.Generator().manual_seed(5))


def saved(state, path):
    torch.save(state, path)
    return path


def refused(path, *fragments):
    """The message, one line in rmtbase's own words."""
    with pytest.raises(CorruptFileError) as caught:
        Checkpoint.open(path.parent)
    message = str(caught.value)
    for fragment in fragments:
        assert fragment in message
    assert len(message) < 600
    assert message.isprintable()
    for advice in ("trust", "add_safe_globals", "documentation", "\x1b"):
        assert advice not in message
    return message


@pytest.fixture
def bin_file(tmp_path):
    return tmp_path / "pytorch_model.bin"


def archive(path, program, **records):
    """An archive laid out as torch.save lays it out, with this pickle and these storages."""
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, content in {"data.pkl": program, "byteorder": b"little", **records}.items():
        writer.write_record(name.replace("data_", "data/"), content, len(content))
    writer.write_end_of_file()
    return path


# What is read


def test_tied_weights_parameters_and_transposed_views_are_read_as_they_are(bin_file):
    state = OrderedDict(
        weight=WEIGHT, tied=WEIGHT, rows=WEIGHT[1:3], turned=WEIGHT.T, learned=torch.nn.Parameter(WEIGHT.double()),
        one=torch.tensor(3.0),
    )  # fmt: skip
    state._metadata = OrderedDict({"": {"version": 1}})
    saved(state, bin_file)
    checkpoint = Checkpoint.open(bin_file.parent)
    assert checkpoint.names == tuple(sorted(state))
    for name, tensor in state.items():
        np.testing.assert_array_equal(checkpoint.read(name), tensor.detach().numpy())


def test_modules_numbers_and_texts_beside_tensors_and_types_that_are_no_weights(bin_file):
    layer = torch.nn.MultiheadAttention(8, 2)
    others = {"epoch": 3, "loss": 0.5, "name": "tiny", "best": None, "done": True}
    narrow = {"codes": torch.zeros(3, dtype=torch.float8_e4m3fn), "mask": torch.ones(2, dtype=torch.bool)}
    saved({**layer.state_dict(), **others, **narrow}, bin_file)
    checkpoint = Checkpoint.open(bin_file.parent)
    np.testing.assert_array_equal(checkpoint.read("in_proj_weight"), layer.in_proj_weight.detach().numpy())
    assert not others.keys() & set(checkpoint.names)
    assert checkpoint.dtype("codes") == "F8_E4M3"
    with pytest.raises(CheckpointError, match="'mask' has element type BOOL"):
        checkpoint.read("mask")


# What is damaged


def test_an_archive_larger_than_four_gigabytes_by_its_numbers_is_none(bin_file):
    whole = bytearray(saved({"w": WEIGHT}, bin_file).read_bytes())
    whole[whole.rindex(b"PK\x06\x06") + 40 + 8 : whole.rindex(b"PK\x06\x06") + 56] = b"\xff" * 8
    bin_file.write_bytes(whole)
    refused(bin_file, "bytes that are no whole archive")


def test_a_flipped_byte_anywhere_is_refused_or_changes_no_number(bin_file):
    whole = saved({"w": WEIGHT}, bin_file).read_bytes()
    named = 0
    for place in range(0, len(whole), 7):
        bin_file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x21]) + whole[place + 1 :])
        try:
            checkpoint = Checkpoint.open(bin_file.parent)
        except CorruptFileError as error:
            named += "with other bytes than were written (its checksum differs)" in str(error)
            continue
        np.testing.assert_array_equal(checkpoint.read("w"), WEIGHT.numpy())
    assert named > 20


def test_truncated_archives(bin_file):
    whole = saved({"w": WEIGHT}, bin_file).read_bytes()
    for lost in (1, 30, 100, 300):
        bin_file.write_bytes(whole[:-lost])
        refused(bin_file, f"{len(whole) - lost} bytes that are no whole archive (truncated perhaps")
        bin_file.write_bytes(bytes(lost) + whole)
        refused(bin_file, "a file that is not a zip archive")


def test_what_is_no_archive_is_told_what_it_is(bin_file):
    for content, fragment in (
        (b"", "an empty file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"GGUF\x03\x00\x00\x00", "a GGUF file"),
        (pickle.dumps({"w": 1}), "a pickle, which can run code"),
        (b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "a file that is not a zip archive"),
        (b"PK\x03\x04" + bytes(200), "204 bytes that are no whole archive"),
    ):
        bin_file.write_bytes(content)
        refused(bin_file, fragment)
    torch.save({"w": WEIGHT}, bin_file, _use_new_zipfile_serialization=False)
    refused(bin_file, "the format of torch before 1.6, which has no checksums", "write that with torch.save")


def test_a_file_that_changes_its_length_while_in_use_is_named(bin_file):
    for change in (lambda whole: whole[:-5000], lambda whole: b"", lambda whole: whole + whole):
        whole = saved({"w": torch.ones(4000)}, bin_file).read_bytes()
        checkpoint = Checkpoint.open(bin_file.parent)
        with bin_file.open("r+b") as stream:
            stream.truncate(0)
            stream.write(change(whole))
        with pytest.raises(CorruptFileError, match="changed while in use"):
            checkpoint.read("w")


# What claims too much


def test_compressed_records_are_refused(bin_file):
    plain = saved({"w": torch.zeros(1 << 20)}, bin_file)
    with zipfile.ZipFile(plain) as reader:
        records = {info.filename: reader.read(info) for info in reader.infolist()}
    with zipfile.ZipFile(bin_file, "w", zipfile.ZIP_DEFLATED) as writer:
        for name, content in records.items():
            writer.writestr(name, content)
    assert bin_file.stat().st_size < 1 << 16
    refused(bin_file, "compressed or encrypted")


def test_an_archive_of_another_program_is_refused(bin_file):
    for names in (["archive/code/model.py"], ["data.pkl"], ["w.npy"], ["archive/data.pkl", "other/data.pkl"]):
        with zipfile.ZipFile(bin_file, "w") as writer:
            for name in names:
                writer.writestr(name, b"content")
        refused(bin_file, f"an archive with {len(names) - len(names) % 2} records data.pkl")


PROTOCOL = b"\x80\x02"
HUGE = b"\x8a\x05\x00\x00\x00\x00\x02"  # 2^33


@pytest.mark.parametrize(
    ("program", "fragment"),
    [
        (b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R.", "the object '__builtin__.bytearray'"),
        (b"cos\nsystem\nX\x02\x00\x00\x00ls\x85R.", "the object 'os.system'"),
        (b"\x96\x00\x00\x00\x80\x01\x00\x00\x00.", "a pickle that breaks off (expected 6442450944 bytes"),
        (b"I" + b"9" * 100_000 + b"\n.", "a pickle that breaks off"),
        (b"S'\\u'\n.", "a file that torch refuses to load (UnpicklingError)"),
        (b"ctorch\nFloatStorage", "a pickle that breaks off"),
        (b"h\x05.", "a file that torch refuses to load (KeyError)"),
        (b"}K\x01K\x02s.", "a key of type int"),
        (b"].", "of type list at its top"),
    ],
)
def test_a_pickle_that_asks_for_more_than_tensors_is_refused(program, fragment, bin_file):
    refused(archive(bin_file, PROTOCOL + program), fragment)


def storage(count, key=b"0", kind=b"FloatStorage"):
    """Instructions that name a storage."""
    name = b"X" + len(key).to_bytes(4, "little") + key
    return b"(X\x07\x00\x00\x00storagectorch\n" + kind + b"\n" + name + b"X\x03\x00\x00\x00cpu" + count + b"tQ"


def tensor(count=b"K\x01", shape=b"K\x01\x85", strides=b"K\x01\x85", offset=b"K\x00", **of):
    """A dictionary of one tensor, in instructions."""
    return (
        b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n("
        + storage(count, **of) + offset + shape + strides + b"\x89ccollections\nOrderedDict\n)RtRs."
    )  # fmt: skip


SQUARE = b"J\x60\xea\x00\x00J\x60\xea\x00\x00\x86"


@pytest.mark.parametrize(
    ("program", "fragment"),
    [
        (tensor(shape=SQUARE, strides=b"K\x00K\x00\x86"), "'w' of shape (60000, 60000) over a storage of 4 bytes"),
        (tensor(shape=HUGE + b"\x85", strides=b"K\x00\x85"), "over a storage of 4 bytes"),
        (tensor(offset=b"K\x01"), "a file that torch refuses to load (RuntimeError)"),
        (tensor(offset=b"J\xff\xff\xff\xff"), "a file that torch refuses to load (RuntimeError)"),
        (tensor(shape=b"J\xff\xff\xff\xff\x85"), "a file that torch refuses to load (RuntimeError)"),
        (tensor(count=HUGE, shape=HUGE + b"\x85"), "a file that torch refuses to load (RuntimeError)"),
        (tensor(key=b"1"), "a file that torch refuses to load (RuntimeError)"),
        (tensor(kind=b"QInt8Storage"), "the object 'torch.QInt8Storage'"),
        (PROTOCOL + b"}X\x01\x00\x00\x00w" + storage(b"K\x01") + b"s.", "Storage as entry 'w'"),
    ],
)
def test_a_tensor_that_pretends_to_be_larger_than_its_storage_is_refused(program, fragment, bin_file):
    refused(archive(bin_file, program, data_0=b"\0\0\x80\x3f"), fragment)
    archive(bin_file, tensor(), data_0=b"\0\0\x80\x3f")  # a sound one of the same making
    assert Checkpoint.open(bin_file.parent).read("w").tolist() == [1.0]


class Labelled(torch.Tensor):
    """A tensor of a class of its own."""


CONJUGATE = torch.ones(2, dtype=torch.complex64).conj()
OF_TORCH = {
    "_rebuild_sparse_tensor": lambda: WEIGHT.to_sparse(),
    "_rebuild_nested_tensor": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "_rebuild_meta_tensor_no_storage": lambda: torch.empty(3, device="meta"),
    "_rebuild_qtensor": lambda: torch.quantize_per_tensor(WEIGHT, 0.1, 0, torch.qint8),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "fragment"),
    [
        (lambda: {1: WEIGHT}, "a key of type int"),
        (lambda: {b"w": WEIGHT}, "the object '_codecs.encode'"),
        (lambda: {"w": WEIGHT.untyped_storage()}, "Storage as entry 'w'"),
        *((lambda make=make: {"w": make()}, f"object 'torch._utils.{name}'") for name, make in OF_TORCH.items()),
        (lambda: {"w": CONJUGATE}, "a conjugate or negated view as entry 'w'"),
        (lambda: {"w": CONJUGATE.imag}, "a conjugate or negated view as entry 'w'"),
        (lambda: {"w": torch.ones(1).expand(60_000, 60_000)}, "shape (60000, 60000) over a storage of 4 bytes"),
        (lambda: {"w": torch.ones(2).as_subclass(Labelled)}, "the object 'torch._tensor._rebuild_from_type_v2'"),
        (lambda: {"w": np.ones(3)}, "the object 'numpy"),
        (lambda: {"model": {"w": WEIGHT}, "epoch": 3}, "of type dict as entry 'model'"),
        (lambda: {"w": [WEIGHT]}, "of type list as entry 'w'"),
        (lambda: [WEIGHT], "of type list at its top"),
        (lambda: WEIGHT, "of type Tensor at its top"),
        (lambda: torch.nn.Linear(2, 2), "the object 'torch.nn.modules.linear.Linear'"),
    ],
)
def test_what_is_no_dictionary_of_dense_tensors_is_told_so(make, fragment, bin_file):
    refused(saved(make(), bin_file), fragment)


@pytest.mark.exhaustive
def test_hostile_files_take_little_memory_and_time(tmp_path):
    """Under 1 GiB of address space beyond torch's own, and 20 s of CPU, for all of them in one process."""
    call = b"c__builtin__\nbytearray\nJ\xff\xff\xff\x7f\x85R."
    programs = (
        b"\x80\x02" + b"]" * 1_050_000 + b".",  # lists
        b"\x80\x02" + b"(" * 200_000 + b".",  # marks
        b"\x80\x02" + b")" * 200_000 + b".",  # tuples
        b"\x80\x02(" + b"K\x01" * 100_000 + b"tq\x01" + b"h\x01" * 20_000 + b".",  # shapes
        b"\x80\x02}X\x01\x00\x00\x00w" + b"]" * 100_000 + b"a" * 99_999 + b"s.",  # nested lists
        b"\x80\x05\x96" + (1 << 33).to_bytes(8, "little") + b".",  # bytes
        b"\x80\x02" + bytes(1 << 25),  # a long pickle
        call,
    )
    for number in range(len(programs) + 1):
        (tmp_path / str(number)).mkdir()
    for number, program in enumerate(programs):
        archive(tmp_path / str(number) / "pytorch_model.bin", program)
    (tmp_path / str(len(programs)) / "pytorch_model.bin").write_bytes(call)
    code = """
        import resource, sys
        import torch
        from pathlib import Path
        from rmtbase.errors import CorruptFileError
        from rmtbase.models import Checkpoint
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), used + (1 << 30)))
        resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
        for folder in Path(sys.argv[1]).iterdir():
            try:
                Checkpoint.open(folder)
            except CorruptFileError:
                print("refused")
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["refused"] * (len(programs) + 1)


# The torch that reads them


@pytest.mark.parametrize("version", mostly_exhaustive(["2.5.1", "2.9.1+cpu", "1.13", "unknown"], always=1))
def test_an_older_torch_is_refused_by_its_version(version, bin_file, tmp_path):
    saved({"w": WEIGHT}, bin_file)
    package = tmp_path / "older" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"__version__ = {version!r}\n")
    code = f"from rmtbase.models import Checkpoint; Checkpoint.open({str(bin_file.parent)!r})"
    path = os.environ | {"PYTHONPATH": os.pathsep.join([str(package.parent), *map(str, sys.path)])}
    done = subprocess.run([sys.executable, "-c", code], env=path, capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("rmtbase.errors.MissingDependencyError: ")
    assert f"needs the package 'torch' 2.10 or later, and {version} is installed" in last
    assert 'pip install --upgrade "rmtbase[hf]"' in last
