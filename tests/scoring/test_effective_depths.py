"""Effective depths of a model's matrices: each as if it were alone, all in one labelled file."""

import json

import numpy as np
import pytest

from rmtbase.models import open_model
from rmtbase.results import open_table
from rmtbase.results.depth import depth, effective_depth
from rmtbase.results.depth.schema import EFFECTIVE_DEPTH_SCHEMA
from rmtbase.tables import write_table
from telling import Told

SETTINGS = {"depths": [1, 2, 3, 5], "draws": 39, "seed": 3}


@pytest.fixture
def model(model_folder):
    return open_model(str(model_folder))


def test_each_matrix_is_fitted_as_if_it_were_alone_and_the_file_is_the_table(model, tmp_path):
    told = Told()
    table = depth(model, **SETTINGS, progress=told)
    assert dict(table.sizes) == {"layer": 2, "component": 2, "depth": 4, "index": 32}
    assert table["component"].values.tolist() == ["attention_query", "attention_key"]
    assert told.steps == told.totals == {"fitting": 4, "drawing residual paths": 4 * SETTINGS["draws"]}
    for layer in range(2):
        for component, shape in (("attention_query", (32, 32)), ("attention_key", (16, 32))):
            alone = effective_depth(model.matrix(layer, component), **SETTINGS)
            row = table.sel(layer=layer, component=component)
            assert (int(row["n_rows"]), int(row["n_columns"])) == shape
            assert row["effective_depth"] == alone.depth
            assert (row["effective_depth_low"], row["effective_depth_high"]) == alone.interval
            assert row["p_value"] == alone.p_value
            assert bool(row["fits"]) is alone.fits
            assert row["distance"] == alone.distance
            np.testing.assert_array_equal(row["distance_profile"], alone.distances)
            np.testing.assert_array_equal(row["scale_profile"], alone.scales)
            values = row["singular_value"].values
            np.testing.assert_array_equal(values[np.isfinite(values)], alone.singular_values)
    path = write_table(table, tmp_path / "depth.nc")
    assert open_table(path).identical(table)
    for name, variable in EFFECTIVE_DEPTH_SCHEMA.items():
        assert table[name].dims == variable.dims
        assert table[name].attrs["long_name"]
        assert table[name].attrs.get("units", "") == variable.units
    call = json.loads(table.attrs["provenance"])["call"]
    assert (call["part"], call["draws"], call["seed"]) == ("path", 39, 3)


def test_an_untrained_model_is_an_update_of_depth_one(model):
    table = depth(model, part="update", depths=range(1, 6), components=["attention_query"])
    # Gaussian 32 x 32 matrices: each p is 0.01 with probability 0.01, on the same draws.
    assert (table["effective_depth"] == 1).all()
    assert (table["p_value"] > 0.01).all()


def test_a_matrix_of_zeros_is_left_out_and_named(weights, tmp_path):
    weights.queries[1] = 0.0
    told = Told()
    table = depth(str(weights.save(tmp_path / "zeros")), **SETTINGS, progress=told)
    row = table.sel(layer=1, component="attention_query")
    for name in ("effective_depth", "p_value", "fits", "scale"):
        assert np.isnan(row[name])
    assert int(row["n_rows"]) == 32
    assert np.isfinite(table["p_value"]).sum() == 3
    (warning,) = json.loads(table.attrs["warnings"])
    assert "layer 1 attention_query" in warning
    assert warning in told
