"""Files that are not what they are given as: each refused by name, never read as something near."""

import numpy as np
import pytest
import xarray as xr

import rmtbase
from rmtbase.errors import MissingFileError, RmtbaseError, TableError
from rmtbase.nulls import Table
from rmtbase.results import open_table
from rmtbase.tables import write_table

ATTRIBUTES = ("provenance", "normalization", "draws", "seed")
VARIABLES = ("sample", "sigma_q_estimate", "d_head", "eigenvalue_quantile_self_normalized")


def without(table, name):
    return table.drop_attrs(deep=False).assign_attrs({key: table.attrs[key] for key in table.attrs if key != name})


def refused(kinds, path, *fragments):
    with pytest.raises(TableError) as caught:
        open_table(path, *kinds)
    for fragment in (str(path), *fragments):
        assert fragment in str(caught.value)


@pytest.mark.parametrize("kinds", [["baseline"], ["scores"], []])
def test_what_is_no_table_is_refused(kinds, tmp_path):
    xr.Dataset({"temperature": ("time", [1.0, 2.0])}).to_netcdf(tmp_path / "weather.nc", engine="netcdf4")
    refused(kinds, tmp_path / "weather.nc", "rmtbase did not write", "written by rmtbase")
    for content in (b"", b"d_model,d_head\n768,64\n", b"\x89HDF\r\n\x1a\n", b"CDF\x01", bytes(4096)):
        (tmp_path / "table.nc").write_bytes(content)
        refused(kinds, tmp_path / "table.nc", "netCDF", "a file written by rmtbase")
    with pytest.raises(MissingFileError, match=r"none\.nc: no such file") as caught:
        open_table(tmp_path / "none.nc", *kinds)
    assert "checkpoint" not in str(caught.value)
    with pytest.raises(RmtbaseError, match=str(tmp_path)):
        open_table(tmp_path, *kinds)


@pytest.mark.parametrize("kept", [0.02, 0.3, 0.6, 0.9, 0.99])
def test_truncated_table_is_refused(kept, table_file):
    whole = table_file.read_bytes()
    table_file.write_bytes(whole[: int(kept * len(whole))])
    refused(["baseline"], table_file, "netCDF")


def test_scores_given_as_baseline_and_baseline_given_as_scores(scores, table_file, tmp_path):
    write_table(scores, tmp_path / "scores.nc")
    refused(["baseline"], tmp_path / "scores.nc", "kind 'scores'", "a baseline file")
    refused(["scores"], table_file, "kind 'baseline'", "a scores file")


@pytest.mark.parametrize(
    ("change", "fragment"),
    [
        *((lambda t, name=name: without(t, name), f"attributes {name} missing") for name in ATTRIBUTES),
        *((lambda t, name=name: t.drop_vars(name), f"no variable '{name}'") for name in VARIABLES),
        (lambda t: t.rename(draw="sample_index"), "sample_index"),
        (lambda t: t.assign_attrs(normalization="per_head"), "per_head"),
        (lambda t: t.isel(draw=slice(0, 0)), "draw"),
        (lambda t: t.isel(draw=slice(0, 1)), "draw"),
        (lambda t: t.isel(case=slice(0, 0)), "case"),
        (lambda t: t.assign(sample=t["sample"].where(t["draw"] > 3)), "sample"),
        (lambda t: t.assign(sigma_q_estimate=0.0 * t["sigma_q_estimate"]), "sigma_q_estimate"),
        (lambda t: t.assign(mean=t["mean"].astype(str)), "mean"),
    ],
)
def test_table_with_contents_that_cannot_be_is_refused(change, fragment, table, tmp_path):
    write_table(change(table), tmp_path / "odd.nc")
    refused(["baseline"], tmp_path / "odd.nc", fragment)


def test_dataset_in_memory_is_validated_as_a_file_is(table):
    rng = np.random.default_rng(0)
    with pytest.raises(TableError, match="baseline dataset"):
        rmtbase.score_heads(*rng.standard_normal((2, 2, 4, 16)), Table(table.drop_attrs()))
