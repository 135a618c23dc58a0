"""A path holds the old file or the whole new one, whatever happens in between."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

from exhaustive import mostly_exhaustive
from rmtbase.errors import OutputError
from rmtbase.results import open_table
from rmtbase.tables import write_bytes, write_table


def half_then(error):
    """A ``to_netcdf`` that writes half a file and then fails."""

    def to_netcdf(self, path, **options):
        Path(path).write_bytes(b"\x89HDF half a table")
        raise error

    return to_netcdf


FULL = [
    OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    OSError(errno.EIO, os.strerror(errno.EIO)),
    RuntimeError("NetCDF: HDF error"),  # what netCDF4 makes of a disk that fills up
]


@pytest.mark.parametrize("error", mostly_exhaustive(FULL, always=3), ids=["no_space", "io_error", "netcdf_error"])
@pytest.mark.parametrize("kind", ["table", "scores"])
def test_write_that_fails_midway_leaves_the_old_file_and_nothing_else(
    kind, error, table, scores, tmp_path, watch, monkeypatch
):
    what = table if kind == "table" else scores
    write_table(what, tmp_path / "kept.nc")
    before = watch(tmp_path)
    monkeypatch.setattr(type(what), "to_netcdf", half_then(error))

    def fail(*arguments):
        raise error

    monkeypatch.setattr("rmtbase.tables._writing._netcdf_in_memory", fail)  # netCDF cannot write in memory either
    with pytest.raises(OutputError, match=r"cannot write .*kept\.nc: ") as caught:
        write_table(what, tmp_path / "kept.nc")
    assert str(error.args[-1]) in str(caught.value)
    before.assert_untouched()


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError()])
def test_interruption_leaves_the_old_file_and_nothing_else(error, table, table_file, tmp_path, watch, monkeypatch):
    before = watch(tmp_path)
    monkeypatch.setattr(xr.Dataset, "to_netcdf", half_then(error))
    with pytest.raises(type(error)):
        write_table(table, table_file)
    before.assert_untouched()


def test_file_size_limit_reached_while_writing_leaves_the_old_file(table_file, tmp_path, watch):
    before = watch(tmp_path)
    code = (
        "import resource, sys\n"
        "from rmtbase.tables import open_table, write_bytes, write_table\n"
        "from rmtbase.errors import OutputError\n"
        "table = open_table(sys.argv[1], 'baseline')\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "for write, content in ((write_table, table), (write_bytes, bytes(30_000))):\n"
        "    try:\n"
        "        write(content, sys.argv[1])\n"
        "    except OutputError as error:\n"
        "        print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", code, table_file], capture_output=True, text=True, check=False)
    assert ended.stdout == 2 * f"cannot write {table_file}: File too large\n", ended.stderr
    before.assert_untouched()


KILLED_WRITERS = """
import os, signal, sys, time
from rmtbase.results import open_table
from rmtbase.tables import write_table
path = sys.argv[1]
table = open_table(path, "baseline")
for attempt in range(6):
    reading, writing = os.pipe()
    writer = os.fork()
    if writer == 0:
        for count in range(100_000):
            write_table(table.assign_attrs(seed=count), path)
            if count == 0:
                os.write(writing, b"w")
    os.read(reading, 1)
    time.sleep(0.017 * attempt)
    os.kill(writer, signal.SIGKILL)
    assert os.waitpid(writer, 0)[1] == signal.SIGKILL
    kept = open_table(path, "baseline")
    assert kept.equals(table)
    assert kept.attrs["seed"] >= 0
"""


@pytest.mark.exhaustive
def test_killed_writer_leaves_a_whole_file(table, tmp_path):
    # The writer replaces the file again and again, each time in 30 ms, and is killed at 6 moments spread over that.
    path = write_table(table, tmp_path / "table.nc")
    ended = subprocess.run([sys.executable, "-c", KILLED_WRITERS, path], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    xr.testing.assert_equal(open_table(path, "baseline"), table)
    assert all(name.name == "table.nc" or name.name.endswith(".part") for name in tmp_path.iterdir())
    write_table(table, path)
    assert list(tmp_path.iterdir()) == [path]


def test_what_writers_that_are_no_more_have_left_is_removed_and_nothing_else(tmp_path, monkeypatch):
    named = []
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", lambda temporary, target: named.append(temporary.name))
        write_bytes(b"", tmp_path / "new")
    (of_a_thread,) = named
    killed = "import os, sys; from pathlib import Path; from rmtbase.tables import write_bytes\n"
    killed += "Path.replace = lambda *paths: os.kill(os.getpid(), 9)\nwrite_bytes(b'', Path(sys.argv[1]))"
    left = []
    for name in ("new", "other"):
        subprocess.run([sys.executable, "-c", killed, tmp_path / name], check=False)
        left += {one.name for one in tmp_path.iterdir()} - set(left)
    of_another_machine = left[0].replace(left[0].split("-")[2], "00000000")
    without_a_number = left[0].replace(left[0].split("-")[3], "x")
    kept = {left[1], of_a_thread, of_another_machine, without_a_number}
    for name in kept:
        (tmp_path / name).touch()
    assert {one.name for one in tmp_path.iterdir()} == {*kept, left[0]}
    write_bytes(b"new", tmp_path / "new")
    assert {one.name for one in tmp_path.iterdir()} == {*kept, "new"}


def test_a_new_file_has_the_user_s_mode_and_one_that_is_written_over_its_own(tmp_path):
    for mask, mode in ((0o027, 0o640), (0o002, 0o664)):
        before = os.umask(mask)
        try:
            path = write_bytes(b"new", tmp_path / f"{mask}")
        finally:
            os.umask(before)
        assert stat.S_IMODE(path.stat().st_mode) == mode
    for mode in (0o600, 0o640, 0o666, 0o444):
        path.chmod(mode)
        assert stat.S_IMODE(write_bytes(b"newer", path).stat().st_mode) == mode
        assert path.read_bytes() == b"newer"


def test_a_link_stays_and_the_longest_name_is_written(tmp_path):
    (tmp_path / "store").mkdir()
    target, link = tmp_path / "store" / ("a" * 252 + ".nc"), tmp_path / "table.nc"
    write_bytes(b"old", target)
    link.symlink_to(target)
    write_bytes(b"new", link)
    assert link.is_symlink() and target.read_bytes() == b"new"


def failing(error, function=None, when=lambda place: True):
    """A function of ``os`` that fails, or fails of some files and works of others."""

    def fail(place, *arguments, **options):
        if when(place):
            raise OSError(error, os.strerror(error))
        return function(place, *arguments, **options)

    return fail


def is_folder(descriptor):
    return stat.S_ISDIR(os.fstat(descriptor).st_mode)


@pytest.mark.parametrize("error", [errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS, errno.EPERM])
def test_a_file_system_that_lacks_something_can_be_written_to(error, tmp_path, monkeypatch):
    path = write_bytes(b"old", tmp_path / "table.nc")
    path.chmod(0o600)
    monkeypatch.setattr(os, "fsync", failing(error, os.fsync, is_folder))
    monkeypatch.setattr(os, "chmod", failing(error))
    assert write_bytes(b"new", path).read_bytes() == b"new"
    monkeypatch.setattr(os, "open", failing(errno.EACCES, os.open, lambda place: Path(place) == tmp_path))
    assert write_bytes(b"newer", path).read_bytes() == b"newer"
    assert [one.name for one in tmp_path.iterdir()] == ["table.nc"]


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EINVAL], ids=errno.errorcode.get)
def test_file_that_cannot_be_synced_is_not_written(error, tmp_path, watch, monkeypatch):
    write_bytes(b"old", tmp_path / "table.nc")
    before = watch(tmp_path)
    monkeypatch.setattr(os, "fsync", failing(error))
    with pytest.raises(OutputError, match=os.strerror(error)):
        write_bytes(b"new", tmp_path / "table.nc")
    before.assert_untouched()
