"""Files made to do harm: looked at before they are read, and refused for little memory and time."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.errors import TableError
from rmtbase.results import open_table

SECRET = b"the contents of another file of this machine, as numbers" * 2000
MANY = 10**8
TEXT = h5py.string_dtype()


def in_place_of(file: h5py.File, name: str, make) -> None:
    """Another dataset of that name, on the dimensions of the old one."""
    dims = [axis[0].name for axis in file[name].dims]
    shape = file[name].shape
    del file[name]
    attach(make(shape), [file[dim] for dim in dims])


def attach(variable: h5py.Dataset, scales) -> h5py.Dataset:
    for axis, scale in zip(variable.dims, scales, strict=True):
        axis.attach_scale(scale)
    return variable


def dimension(file: h5py.File, name: str, size: int) -> h5py.Dataset:
    """A dimension without coordinates, as netCDF makes it."""
    scale = file.create_dataset(name, (size,), "f4")
    scale.make_scale(f"This is a netCDF dimension but not a netCDF variable{size:10d}")
    return scale


def external_storage(file, folder):
    outside = [(str(folder / "secret"), 0, h5py.h5f.UNLIMITED)]
    in_place_of(file, "sample", lambda shape: file.create_dataset("sample", shape, "f8", external=outside))


def virtual_dataset(file, folder):
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones(file["sample"].shape)

    def make(shape):
        layout = h5py.VirtualLayout(shape, "f8")
        layout[...] = h5py.VirtualSource(folder / "other.h5", "x", shape)
        return file.create_virtual_dataset("sample", layout)

    in_place_of(file, "sample", make)


def links(file, folder):
    os.mkfifo(folder / "pipe")  # opening it would wait for ever
    file["more"] = h5py.ExternalLink(str(folder / "pipe"), "/x")
    file["most"] = h5py.SoftLink("/sample")


def group_in_itself(file, folder):
    file["more"] = file["/"]


def dimension_of_10_to_the_8(file, folder):
    many = dimension(file, "many", MANY)
    attach(file.create_dataset("more", (MANY,), "f8", chunks=(2**16,), compression="gzip"), [many])


def dimension_that_others_do_not_have(file, folder):
    chunks = {"chunks": (1, 1, 2**16)}
    in_place_of(file, "sample", lambda shape: file.create_dataset("sample", (*shape[:2], MANY), "f8", **chunks))


def bomb(file, folder):
    chunk = 1 << 23
    many = dimension(file, "many", 16 * chunk)
    more = file.create_dataset("more", (16 * chunk,), "f8", chunks=(chunk,), compression="gzip")
    packed = zlib.compress(bytes(8 * chunk))
    for start in range(0, 16 * chunk, chunk):
        more.id.write_direct_chunk((start,), packed)
    attach(more, [many])


def chunk_larger_than_its_variable(file, folder):
    one = dimension(file, "one", 1)
    more = file.create_dataset("more", (1,), "f8", maxshape=(None,), chunks=(1 << 25,), compression="gzip")
    more.id.write_direct_chunk((0,), zlib.compress(bytes(8 << 25)))
    attach(more, [one])


def values_that_were_never_written(file, folder):
    in_place_of(file, "sample", lambda shape: file.create_dataset("sample", shape, "f8"))


def filter_of_another_library(file, folder):
    values = file["sample"][...]
    in_place_of(file, "sample", lambda shape: file.create_dataset("sample", data=values, compression="lzf"))


def scaled_values(file, folder):
    file["sample"].attrs["scale_factor"] = 2.0


def records(file, folder):
    kind = np.dtype([("a", "f8"), ("b", "f8")])
    in_place_of(file, "sample", lambda shape: file.create_dataset("sample", data=np.zeros(shape, kind)))


def no_dimensions(file, folder):
    values = file["sample"][...]
    del file["sample"]
    file["sample"] = values


def thousands_of_variables(file, folder):
    for number in range(1100):
        file[f"more{number}"] = 0.0


def array_as_attribute(file, folder):
    file.attrs["draws"] = np.array([12, 12])


def texts_as_attribute(file, folder):
    file.attrs.create("more", ["x" * 60_000] * 10, dtype=TEXT)


def deep_json(file, folder):
    file.attrs["provenance"] = "[" * 60_000


HOSTILE = {
    external_storage: "whose values lie in another file",
    virtual_dataset: "whose values lie in another file",
    links: "'more', a link",
    group_in_itself: "more than 1000 objects",
    bomb: "more values than so small a file can hold.*'/more'",
    dimension_of_10_to_the_8: "more values than so small a file can hold.*'/more'",
    chunk_larger_than_its_variable: "more values than so small a file can hold.*'/more'",
    values_that_were_never_written: "'/sample' that does not fit its digest",
    array_as_attribute: "'draws'.*one text or number",
    deep_json: "provenance.*not JSON",
    **dict.fromkeys(
        (
            dimension_that_others_do_not_have, filter_of_another_library, scaled_values, records, no_dimensions,
            thousands_of_variables, texts_as_attribute,
        ),
        "found .*expected",
    ),
}  # fmt: skip


def one_long_text_many_times(path: Path) -> None:
    """A thousand texts of 600 000 letters, which pack to little: 0.6 GB, and decoded 2.4 GB."""
    with h5py.File(path, "r+") as file:
        many, letters = dimension(file, "many", 1000), dimension(file, "letters", 600_000)
        more = file.create_dataset("more", (1000, 600_000), "S1", chunks=(100, 600_000), compression="gzip")
        packed = zlib.compress(b"x" * 60_000_000)
        for start in range(0, 1000, 100):
            more.id.write_direct_chunk((start, 0), packed)
        attach(more, [many, letters])


def free_space_of_a_heap(content: bytearray) -> int:
    """Where the first object without an index stands in the heaps of an HDF5 file."""
    start = -1
    while (start := content.find(b"GCOL\1\0\0\0", start + 1)) >= 0:
        place, end = start + 16, start + int.from_bytes(content[start + 8 : start + 16], "little")
        while place + 16 <= end:
            if not int.from_bytes(content[place : place + 2], "little"):
                return place
            place += 16 + -(-int.from_bytes(content[place + 8 : place + 16], "little") // 8) * 8
    raise AssertionError("no heap has room")


def test_heap_without_an_end_is_refused(stored_file):
    # HDF5 itself goes round for ever at free space of size zero.
    path = stored_file("baseline")
    content = bytearray(path.read_bytes())
    place = free_space_of_a_heap(content)
    content[place + 8 : place + 16] = bytes(8)
    path.write_bytes(content)
    with pytest.raises(TableError, match="a heap that has no end"):
        open_table(path)


def test_hole_of_8_gib_is_not_read(stored_file):
    path = stored_file("elements")
    with h5py.File(path, "r+") as file:
        many = dimension(file, "many", MANY * 10)
        more = attach(file.create_dataset("more", (MANY * 10,), "f8"), [many])
        more[-1] = 1.0  # all before it is a hole
    assert path.stat().st_size > 8e9
    with pytest.raises(TableError, match="more values than so small a file can hold"):
        open_table(path)


@pytest.mark.parametrize("change", mostly_exhaustive(HOSTILE, always=10), ids=lambda change: change.__name__)
def test_hostile_file_is_refused(change, stored_file, run, tmp_path):
    (tmp_path / "secret").write_bytes(SECRET)
    path = stored_file("baseline")
    with h5py.File(path, "r+") as file:
        change(file, tmp_path)
    with pytest.raises(TableError, match=HOSTILE[change]) as caught:
        open_table(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "found" in message and "expected" in message
    assert len(message) < 1000
    ran = run("plot", path, "-o", tmp_path)
    assert (ran.status, len(ran.err.splitlines())) == (2, 1)
    assert ran.err.startswith(f"rmtbase: error: {path}")


@pytest.mark.exhaustive
def test_all_hostile_files_together_take_less_than_a_gigabyte(stored_file, tmp_path):
    (tmp_path / "secret").write_bytes(SECRET)
    whole = stored_file("baseline").read_bytes()
    paths = []
    for number, change in enumerate((*HOSTILE, None)):
        paths.append(tmp_path / f"{number}.nc")
        paths[-1].write_bytes(whole)
        if change is None:
            one_long_text_many_times(paths[-1])
        else:
            with h5py.File(paths[-1], "r+") as file:
                change(file, tmp_path)
        (tmp_path / "pipe").unlink(missing_ok=True)
        assert paths[-1].stat().st_size < 2_000_000
    code = (
        "import sys\n"
        "from rmtbase.errors import TableError\n"
        "from rmtbase.tables import open_table\n"
        "refused = 0\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n"
        "        open_table(path)\n"
        "    except TableError:\n"
        "        refused += 1\n"
        # Not ru_maxrss, which begins with what the test's own process had when it started this one.
        "(peak,) = (line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:'))\n"
        "print(refused, peak)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    refused, kilobytes = map(int, ended.stdout.split())
    assert refused == len(paths)
    assert kilobytes < 2**20


def test_heap_is_found_wherever_it_lies(stored_file):
    # Across the border of two blocks that are read one after the other.
    path = stored_file("elements")
    whole = path.read_bytes()
    endless = b"GCOL\1\0\0\0" + (4096).to_bytes(8, "little") + bytes(4080)
    for before in range((4 << 20) - 10, (4 << 20) + 2):
        path.write_bytes(whole + b"x" * (before - len(whole)) + endless)
        with pytest.raises(TableError, match="a heap that has no end"):
            open_table(path)
