"""Disks that are full, limited or without locks: the true reason is told, and what can be done is done."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from rmtbase.errors import OutputError, StoreError, UnreadableTableError
from rmtbase.montecarlo import CacheWarning, cached_table
from rmtbase.results import open_table
from rmtbase.tables import locked_folder, write_table
from rmtbase.tables._writing import here

DATA = Path(__file__).parents[1] / "data"
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)

LIMITED = """
import resource, sys
from pathlib import Path
from rmtbase.errors import OutputError
from rmtbase.results import open_table
from rmtbase.tables import write_bytes, write_table

folder = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for write in (
    lambda: write_table(open_table(sys.argv[2] + "/scores.nc"), folder / "scores.nc"),
    lambda: write_table(open_table(sys.argv[2] + "/baseline.nc"), folder / "baseline.nc"),
    lambda: write_bytes(bytes(30_000), folder / "page.html"),
):
    try:
        write()
    except OutputError as error:
        print(error)
print(sorted(path.name for path in folder.iterdir()))
"""


def test_limit_of_file_size_is_told_by_its_name(tmp_path):
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(DATA)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    *errors, left = ended.stdout.splitlines()
    names = ("scores.nc", "baseline.nc", "page.html")
    assert errors == [f"cannot write {tmp_path / name}: File too large" for name in names]
    assert left == "[]"


@pytest.mark.parametrize("kind", ["scores", "baseline", "trajectory"])
@pytest.mark.parametrize(
    "raised", [PermissionError(errno.EACCES, "Permission denied"), RuntimeError("NetCDF: HDF error")]
)
def test_full_disk_is_told_as_full_whatever_netcdf_calls_it(kind, raised, tmp_path, monkeypatch):
    def fail(*arguments, **keywords):
        raise raised

    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    table = open_table(DATA / f"{kind}.nc")
    for structure in (xr.Dataset, xr.DataTree):
        monkeypatch.setattr(structure, "to_netcdf", fail)
    # Where netCDF cannot write and Python can, the table is whole.
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match=r"full\.nc: No space left on device"):
        write_table(table, tmp_path / "full.nc")
    assert [path.name for path in tmp_path.iterdir()] == ["table.nc"]


def test_tables_are_read_without_locks(monkeypatch):
    import h5py

    how, file = [], h5py.File
    monkeypatch.setattr(
        h5py, "File", lambda *arguments, **keywords: how.append(keywords) or file(*arguments, **keywords)
    )
    open_table(DATA / "baseline.nc")
    assert [keywords["locking"] for keywords in how] == [False]


@pytest.fixture(params=NO_LOCKS, ids=errno.errorcode.get)
def no_locks(request, monkeypatch):
    """No file can be locked."""
    fcntl = pytest.importorskip("fcntl")

    def refuse(*arguments):
        raise OSError(request.param, os.strerror(request.param))

    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, refuse)


def lock(folder):
    return locked_folder(folder, "chunks", lambda: True)


def test_a_folder_is_taken_by_one_run_at_a_time_without_locks(no_locks, tmp_path):
    folder = tmp_path / "store"
    with lock(folder):
        with pytest.raises(StoreError, match=r"another run at work on it.*remove its file lock"), lock(folder):
            pass
        assert (folder / "lock").read_text() == f"{here()}{os.getpid()}"
    assert not folder.exists()
    with lock(folder):
        pass


@pytest.mark.parametrize("left", ["", f"{here()}{2**30}", "no mark"], ids=["empty", "of a dead process", "foreign"])
def test_what_a_killed_run_left_is_taken_over(left, no_locks, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store/lock").write_text(left)
    with lock(tmp_path / "store"):
        assert (tmp_path / "store/lock").read_text() == f"{here()}{os.getpid()}"


def test_a_run_on_another_machine_is_respected(no_locks, tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store/lock").write_text("01234567-1")
    with pytest.raises(StoreError, match="on any machine, remove its file lock"), lock(tmp_path / "store"):
        pass
    assert (tmp_path / "store/lock").read_text() == "01234567-1"


def test_other_faults_of_locking_are_errors(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def fail(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OutputError, match="it cannot be locked: Input/output error"), lock(tmp_path / "store"):
        pass


def test_baseline_works_without_locks(no_locks, run, tmp_path):
    ran = run("baseline", "--d-model", 16, "--d-head", 4, "--draws", 20, "-o", tmp_path / "null.nc")
    assert ran.status == 0, ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["null.nc"]


# Files that may not be read


@pytest.fixture
def unreadable(monkeypatch):
    """HDF5 files may not be read."""

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    return lambda: monkeypatch.setattr("rmtbase.tables._hdf5.heap_fault", refuse)


def test_a_table_that_may_not_be_read_is_told_so(unreadable):
    unreadable()
    with pytest.raises(UnreadableTableError, match=r"found a file that cannot be read \(Permission denied\)"):
        open_table(DATA / "baseline.nc")


FILE = cached_table("low_rank_product", {"d_model": 16, "d_head": 4}, 20)


def test_a_cached_null_that_may_not_be_read_is_not_called_damaged(unreadable, tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    good = FILE.get()
    with monkeypatch.context():
        unreadable()
        with pytest.warns(
            CacheWarning, match="^cache file that cannot be read, made again: .*Permission denied"
        ) as told:
            assert FILE.get().equals(good)
    assert all("damaged" not in str(one.message) for one in told)


def test_a_cache_whose_folder_may_not_be_searched_is_done_without(tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    good = FILE.get()

    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.warns(CacheWarning, match="cannot be read"):
        assert np.array_equal(FILE.get()["sample"], good["sample"])
