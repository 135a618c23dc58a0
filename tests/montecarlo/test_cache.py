"""Nulls are kept between runs, and what is kept is never taken for something else."""

import errno
import os
import subprocess
import sys
import time

import netCDF4
import numpy as np
import pytest
import xarray as xr

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.ensembles import latent_attention
from rmtbase.montecarlo import CacheWarning, cache_folder, cached_latent_attention, cached_table
from rmtbase.progress import SILENT
from rmtbase.tables import open_table, write_table
from telling import Told


def cached_baseline(d_model, d_head, draws, seed=0, progress=SILENT):
    return cached_table("low_rank_product", {"d_model": d_model, "d_head": d_head}, draws, seed).get(progress)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_second_call_reads_what_the_first_one_kept_and_each_null_has_its_own_file(cache):
    told = Told()
    first = cached_baseline(16, 4, 20, progress=told)
    (kept,) = cache.iterdir()
    written = kept.stat().st_mtime_ns
    second = cached_baseline(16, 4, 20, progress=told)
    assert told.steps == {"drawing the null": 20}
    assert first.identical(second)
    assert first.equals(rmtbase.baseline(16, 4, 1.0, 20, normalization="none"))
    assert kept.stat().st_mtime_ns == written
    assert told.notes[0].startswith("null of (d_model, d_head) = (16, 4), 20 draws, seed 0: simulated now and kept")
    assert told.notes[1] == f"null of (d_model, d_head) = (16, 4), 20 draws, seed 0: from the cache, {kept}"
    for call in ((16, 4, 20, 0), (16, 4, 21, 0), (16, 4, 20, 1), (16, 3, 20, 0)):
        cached_baseline(*call)
    assert len(list(cache.iterdir())) == 4


def changed_number(path):
    with netCDF4.Dataset(path, "a") as file:
        file["eigenvalue_mean"][0, 0] = 1.0 + file["eigenvalue_mean"][0, 0]


def another(**other):
    call = {"d_model": 16, "d_head": 4, "draws": 20, "normalization": "none"} | other
    return lambda path: write_table(rmtbase.baseline(**call), path)


DAMAGES = {
    "shape": (another(d_model=12), "made again"),
    "empty": (lambda path: path.write_bytes(b""), "damaged cache file, made again"),
    "no table": (lambda path: path.write_bytes(b"not a table"), "damaged cache file, made again"),
    "a changed number": (changed_number, "'/eigenvalue_mean' that does not fit its digest"),
    "draws": (another(draws=30), "made again"),
    "zeros": (lambda path: path.write_bytes(bytes(1000)), "damaged cache file, made again"),
    "seed": (another(seed=5), "made again"),
    "normalization": (another(normalization="sqrt_d"), "made again"),
    "sigma": (another(sigma=0.5), "made again"),
}


@pytest.mark.parametrize("name", mostly_exhaustive(DAMAGES, always=5))
def test_file_that_is_damaged_or_holds_another_null_is_named_and_made_again(name, cache):
    damage, words = DAMAGES[name]
    good = cached_baseline(16, 4, 20)
    (kept,) = cache.iterdir()
    damage(kept)
    with pytest.warns(CacheWarning, match=words) as warned:
        assert cached_baseline(16, 4, 20).equals(good)
    assert kept.name in str(warned[0].message)
    assert open_table(kept, "baseline").equals(good)


def test_cache_that_cannot_be_written_is_said_and_the_null_is_returned(cache, monkeypatch):
    cache.write_text("a file where the folder should be")
    told = Told()
    with pytest.warns(UserWarning, match="is not kept"):
        table = cached_baseline(16, 4, 20, progress=told)
    assert table.sizes["draw"] == 20
    assert told.notes[-1].endswith("simulated now")
    assert cache.read_text() == "a file where the folder should be"
    cache.unlink()

    def fail(self, path, **options):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(xr.Dataset, "to_netcdf", fail)
    with pytest.warns(UserWarning, match="is not kept.*No space left"):
        cached_baseline(16, 4, 20)
    assert list(cache.iterdir()) == []


def test_folder_is_the_named_one_or_the_users(tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    monkeypatch.setenv("RMTBASE_CACHE", "")  # or nulls would be left in whatever folder the command was started in
    assert cache_folder() == tmp_path / "x" / "rmtbase"
    monkeypatch.delenv("RMTBASE_CACHE")
    assert cache_folder() == tmp_path / "x" / "rmtbase"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "rmtbase"


LATENT = latent_attention(24, 10, 6, 4, 16)
RATIOS = (0.5, 1.0, 2.0)


def assert_same_draws(found, expected):
    np.testing.assert_array_equal(found.sample, expected.sample)
    np.testing.assert_array_equal(found.eigenvalues, expected.eigenvalues)


@pytest.fixture(scope="module")
def latent(tmp_path_factory):
    return drawn_anew(LATENT, RATIOS, 5000, 3, tmp_path_factory.mktemp("cache"))


def drawn_anew(ensemble, ratios, draws, seed, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RMTBASE_CACHE", str(folder / "empty"))
        return cached_latent_attention(ensemble, ratios, draws, seed)


def chunks(cache):
    return sorted(cache.glob("*/*.chunk"))


@pytest.mark.exhaustive
def test_ratios_and_draws_of_latent_attention_that_are_there_are_not_drawn_again(cache, latent, tmp_path):
    told = Told()
    assert_same_draws(
        cached_latent_attention(LATENT, RATIOS[1:2], 4100, 3, told), drawn_anew(LATENT, (1.0,), 4100, 3, tmp_path)
    )
    written = {path: path.stat().st_mtime_ns for path in chunks(cache)}
    assert told.steps["drawing the null"] == 4100
    assert [path.name for path in written] == [
        f"rope_ratio=1.0-draws-{draws}.chunk" for draws in ("0-2048", "2048-4096", "4096-4100")
    ]
    # The same at more ratios: the one that is there is used, but for the chunk that was not whole.
    more = Told()
    assert_same_draws(cached_latent_attention(LATENT, RATIOS, 5000, 3, more), latent)
    assert "27.3 % of it from the cache" in more.notes[0]
    assert {path: path.stat().st_mtime_ns for path in written} == written
    # And all of it: nothing is drawn.
    all_there = Told()
    assert_same_draws(cached_latent_attention(LATENT, RATIOS, 5000, 3, all_there), latent)
    assert not all_there.totals
    assert all_there.notes == [
        f"null of latent_attention 24-16x6-10+4 at 3 ratios, 5000 draws, seed 3: from the cache, "
        f"{chunks(cache)[0].parent}"
    ]
    other = len(list(cache.iterdir()))
    for ensemble, seed in ((LATENT, 0), (LATENT, 1), (latent_attention(24, 10, 6, 4), 0)):
        cached_latent_attention(ensemble, np.array([1.0]), np.int64(20), np.int64(seed))
    assert len(list(cache.iterdir())) == 3 + other


BROKEN = ["a flipped bit", "the end is missing", "another ratio's"]


@pytest.mark.parametrize("damage", mostly_exhaustive(BROKEN, always=1))
def test_damaged_draws_of_latent_attention_are_named_and_made_again(damage, cache, latent):
    cached_latent_attention(LATENT, RATIOS, 5000, 3)
    contents = {path: path.read_bytes() for path in chunks(cache)}
    one, other = list(contents)[1], list(contents)[4]
    whole = contents[one]
    flipped = whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:]
    one.write_bytes(dict(zip(BROKEN, (flipped, whole[:-8], contents[other]), strict=True))[damage])
    told = Told()
    with pytest.warns(CacheWarning, match=rf"damaged cache file, made again: .*{one.name}"):
        assert_same_draws(cached_latent_attention(LATENT, RATIOS, 5000, 3, told), latent)
    assert told.steps["drawing the null"] == 2048
    assert {path: path.read_bytes() for path in chunks(cache)} == contents


def test_latent_attention_that_cannot_be_kept_is_said_once_and_returned(cache, latent):
    cache.write_text("a file where the folder should be")
    told = Told()
    with pytest.warns(CacheWarning, match="is not kept") as said:
        assert_same_draws(cached_latent_attention(LATENT, RATIOS, 5000, 3, told), latent)
    assert len(said) == 1
    assert told.notes[-1].endswith("simulated now")


CODE = f"""
from rmtbase.ensembles import latent_attention
from rmtbase.montecarlo import cached_latent_attention
cached_latent_attention(latent_attention(24, 10, 6, 4, 16), {RATIOS}, 10**6, 3)
"""


@pytest.mark.exhaustive
def test_latent_attention_goes_on_where_a_killed_run_stood(cache, latent):
    run = subprocess.Popen([sys.executable, "-c", CODE])
    while len(chunks(cache)) < 3:
        assert run.poll() is None
        time.sleep(0.01)
    run.kill()
    run.wait()
    told = Told()
    assert_same_draws(cached_latent_attention(LATENT, RATIOS, 5000, 3, told), latent)
    assert told.steps["drawing the null"] < 5000
