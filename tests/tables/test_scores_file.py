"""A scores file holds what its schema says, as a tree that xarray opens."""

import json

import numpy as np
import xarray as xr

from rmtbase.results import open_table
from rmtbase.results.scores.schema import SCORES
from rmtbase.tables import write_table


def test_every_variable_comes_back_with_dims_long_name_and_units(scores, tmp_path):
    with xr.open_datatree(write_table(scores, tmp_path / "scores.nc")) as opened:
        for group in ("/heads", "/null", "/matrices", "/heads/elements", "/super_weights"):
            for name, variable in SCORES.groups[group].items():
                found = opened[group][name]
                assert found.dims == variable.dims, (group, name)
                assert found.attrs["long_name"] == variable.long_name, (group, name)
                assert found.attrs.get("units", "") == variable.units, (group, name)


def test_every_coordinate_is_described_and_the_density_lies_over_eigenvalues(scores, tmp_path):
    opened = open_table(write_table(scores, tmp_path / "scores.nc"), "scores")
    for tree in (scores, opened):
        for group in ("heads", "matrices", "null"):
            for name, coordinate in tree[group].coords.items():
                assert coordinate.attrs.get("long_name"), (group, name)
        edges = tree["null"]["bin_edge"].values
        np.testing.assert_array_equal(tree["null"]["bin"], 0.5 * (edges[1:] + edges[:-1]))


def test_infinities_and_nan_come_back(scores, tmp_path):
    scores["heads"]["observed"].values[0, 0, 0] = -np.inf
    scores["heads"]["z_score"].values[0, 0, :2] = np.inf, np.nan
    opened = open_table(write_table(scores, tmp_path / "scores.nc"), "scores")["heads"]
    assert opened["observed"].values[0, 0, 0] == -np.inf
    np.testing.assert_array_equal(opened["z_score"].values[0, 0, :2], [np.inf, np.nan])


def test_attributes_name_model_family_null_and_table(scores, tmp_path):
    attributes = open_table(write_table(scores, tmp_path / "scores.nc"), "scores").attrs
    assert (attributes["model"], attributes["family"]) == ("model", "llama")
    assert attributes["null"].startswith("gaussian")
    assert attributes["null_draws"] == 400
    record = json.loads(attributes["provenance"])
    assert len(record["weights"]["query_key_sha256"]) == 64
    assert record["null"]["table"]["call"]["cases"] == [{"d_model": 32, "d_head": 8}]
    assert json.loads(attributes["warnings"]) == []
