"""Disks that are full, limited or without locks: the true reason is told, and what can be done is done."""

import errno
import os
from pathlib import Path

import h5py
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


@pytest.fixture(params=NO_LOCKS, ids=errno.errorcode.get)
def no_locks(request, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*arguments):
        raise OSError(request.param, os.strerror(request.param))

    for name in ("flock", "lockf"):
        monkeypatch.setattr(fcntl, name, refuse)


def lock(folder):
    return locked_folder(folder, "chunks", lambda: True)


def test_a_folder_is_taken_by_one_run_at_a_time_without_locks(no_locks, run, tmp_path):
    folder = tmp_path / "store"
    with lock(folder):
        with pytest.raises(StoreError, match=r"another run at work on it.*remove its file lock"), lock(folder):
            pass
        assert (folder / "lock").read_text() == f"{here()}{os.getpid()}"
    assert not folder.exists()
    folder.mkdir()
    for left in ("", f"{here()}{2**30}", "no mark"):  # empty, of a dead process, foreign
        (folder / "lock").write_text(left)
        with lock(folder):
            assert (folder / "lock").read_text() == f"{here()}{os.getpid()}"
        folder.mkdir()
    (folder / "lock").write_text("01234567-1")  # of another machine
    with pytest.raises(StoreError, match="on any machine, remove its file lock"), lock(folder):
        pass
    assert (folder / "lock").read_text() == "01234567-1"
    ran = run("baseline", "--d-model", 16, "--d-head", 4, "--draws", 20, "-o", tmp_path / "null.nc")
    assert ran.status == 0, ran.err
    assert {path.name for path in tmp_path.iterdir()} == {"store", "null.nc"}


def test_other_faults_of_locking_are_errors(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def fail(*arguments):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(OutputError, match="it cannot be locked: Input/output error"), lock(tmp_path / "store"):
        pass


@pytest.fixture
def unreadable(monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    return lambda: monkeypatch.setattr("rmtbase.tables._hdf5.heap_fault", refuse)


def test_a_table_is_read_without_locks_and_one_that_may_not_be_read_is_told_so(unreadable, monkeypatch):
    keywords, file = [], h5py.File
    monkeypatch.setattr(h5py, "File", lambda *paths, **options: keywords.append(options) or file(*paths, **options))
    open_table(DATA / "baseline.nc")
    assert [options["locking"] for options in keywords] == [False]
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
