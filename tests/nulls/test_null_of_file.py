"""Nulls are values; what was made of a file is kept while the file is the same, and never across a change of it."""

import os

import numpy as np
import pytest
import xarray as xr

import rmtbase
from rmtbase.nulls import (
    AnalyticNull,
    Axes,
    FixedSpectrum,
    GaussianNull,
    LatentNull,
    Resampler,
    Signs,
    Table,
    null_of_file,
)
from rmtbase.nulls._kurtosis_null import KurtosisNull
from rmtbase.statistics import LatentShape
from rmtbase.tables import write_table

DIMS = (16, 4, 16)


class Made(list):
    """Makes a null that is none of any other call, and counts."""

    def __call__(self):
        self.append(GaussianNull(DIMS, np.zeros((2, 16)), "a test", xr.Dataset()))
        return self[-1]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "table.nc"
    path.write_bytes(b"as it was")
    return path


def test_a_null_is_made_once_while_its_file_is_the_same_to_the_bit(file, tmp_path):
    make, before = Made(), file.stat()
    assert null_of_file(file, DIMS, make) is null_of_file(file, DIMS, make)
    assert null_of_file(file, (16, 4, 12), make) is not null_of_file(file, DIMS, make)
    assert len(make) == 2
    with file.open("r+b") as opened:
        opened.write(b"A")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    null_of_file(file, DIMS, make)
    assert len(make) == 3

    asked = []
    file.write_bytes(b"what no null is made of")
    for path in (tmp_path / "none.nc", file):
        assert [null_of_file(path, DIMS, lambda: asked.append(1)) for _ in range(2)] == [None, None]
    assert len(asked) == 4


def test_a_file_that_changes_while_it_is_read_is_not_kept(file):
    make = Made()

    def changing():
        file.write_bytes(b"exchanged")
        return make()

    null_of_file(file, DIMS, changing)
    file.write_bytes(b"as it was")
    null_of_file(file, DIMS, make)
    assert len(make) == 2


def test_no_more_is_kept_than_there_is_room_for(tmp_path):
    large = [tmp_path / f"{number}.nc" for number in range(3)]
    for path in large:
        path.write_bytes(bytes(12 << 20))
    make = Made()
    first, second, third = (null_of_file(path, DIMS, make) for path in large)
    assert null_of_file(large[2], DIMS, make) is third
    assert null_of_file(large[1], DIMS, make) is second
    assert null_of_file(large[0], DIMS, make) is not first  # that of the three which was not used for longest
    (tmp_path / "0.nc").write_bytes(bytes(40 << 20))
    assert null_of_file(large[0], DIMS, make) is not null_of_file(large[0], DIMS, make)


def test_scores_follow_the_file_of_the_null(tmp_path):
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 3, 4, 16))
    path, scores = tmp_path / "baseline.nc", []
    for draws in (100, 100, 50):
        write_table(rmtbase.baseline(16, 4, draws=draws), path)
        scores.append(rmtbase.score_heads(w_q, w_k, Table(path))["heads"].to_dataset())
    assert scores[0].identical(scores[1])
    assert not scores[0]["p_value"].equals(scores[2]["p_value"])
    fresh = rmtbase.score_heads(w_q, w_k, Table(rmtbase.baseline(16, 4, draws=50)))["heads"].to_dataset()
    assert scores[2].equals(fresh)


ANALYTIC = AnalyticNull(32, 8)
NULLS = [
    (ANALYTIC, "normal", 0), (FixedSpectrum((32, 8, 32)), "orthogonal", 0), (KurtosisNull(ANALYTIC), "kurtosis", 0),
    (KurtosisNull(ANALYTIC, "uniform", -1.2), "uniform", 0),
    (LatentNull(LatentShape(64, 16, 8, 4), 100, 0), "normal", 100), (Resampler(Signs(), 60, 0), "signs", 60),
    (Resampler(Axes(), 60, 0), "axes", 60),
]  # fmt: skip


@pytest.mark.parametrize(("null", "entries", "draws"), NULLS)
def test_entries_and_draws_are_values(null, entries, draws):
    assert (null.entries, null.draws) == (entries, draws)
