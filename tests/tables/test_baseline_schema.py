"""A baseline file holds what its schema says, and says what it holds."""

import json

import numpy as np
import pytest
import xarray as xr

from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import BASELINE_SCHEMA, SCHEMA_VERSION, describe, open_baseline, open_table


def test_file_opens_with_plain_xarray_and_has_every_variable_described(table_file):
    with xr.open_dataset(table_file) as opened:
        for name, variable in BASELINE_SCHEMA.items():
            assert opened[name].dims == variable.dims, name
            assert opened[name].attrs["long_name"] == variable.long_name, name
            assert opened[name].attrs["units"] == variable.units, name


def test_every_variable_that_is_not_a_plain_counter_is_in_the_schema(table):
    assert set(table.data_vars) <= set(BASELINE_SCHEMA)


def test_what_is_read_is_what_was_written(table, table_file):
    opened = open_baseline(table_file)
    xr.testing.assert_identical(opened, table)
    assert isinstance(open_table(table_file), xr.Dataset)


def test_names_come_back_as_text(table_file):
    opened = open_baseline(table_file)
    assert opened["statistic"].values.tolist() == list(SPECTRAL_STATISTICS)
    assert all(isinstance(method, str) for method in opened["analytic_method"].values.ravel())
    assert opened["convention"].sel(statistic="effective_rank").item() == "singular value"


def test_attributes_say_how_the_table_came_to_be(table_file):
    attributes = open_baseline(table_file).attrs
    assert attributes["schema_version"] == SCHEMA_VERSION
    assert (attributes["kind"], attributes["normalization"]) == ("baseline", "sqrt_d")
    assert (attributes["draws"], attributes["seed"]) == (30, 0)
    record = json.loads(attributes["provenance"])
    assert record["call"]["cases"] == [{"d_model": 16, "d_head": 4}, {"d_model": 12, "d_head": 3}]
    assert record["call"]["sigmas"] == [[1.0, 1.0], [0.5, 0.25]]
    assert record["numerics"]["dtype"] == "float64"
    assert record["numerics"]["prng"] == "threefry2x32"
    assert {"python", "jax", "numpy", "scipy", "rmtbase"} <= set(record["software"])


def test_cases_are_every_shape_at_every_sigma(table):
    rows = zip(*(table[name].values.tolist() for name in ("d_model", "d_head", "sigma_q", "sigma_k")), strict=True)
    assert list(rows) == [(16, 4, 1, 1), (16, 4, 0.5, 0.25), (12, 3, 1, 1), (12, 3, 0.5, 0.25)]


@pytest.mark.parametrize("name", [name for name, variable in BASELINE_SCHEMA.items() if "index" in variable.dims])
def test_nan_pads_beyond_d_head_and_nowhere_else(name, table):
    for case in range(table.sizes["case"]):
        values = table[name].isel(case=case)
        d_head = int(table["d_head"][case])
        assert np.isfinite(values.values[:d_head]).all()
        assert np.isnan(values.values[d_head:]).all()


def test_all_else_is_finite_but_the_analytic_values_that_are_not_offered(table):
    for name in BASELINE_SCHEMA:
        variable = table[name]
        if "index" in variable.dims or variable.dtype.kind not in "fi" or name.startswith("analytic"):
            continue
        assert np.isfinite(variable.values).all(), name
    offered = table["analytic_method"] != "none"
    assert np.isfinite(table["analytic_mean"].where(offered, 0.0)).all()
    assert np.isnan(table["analytic_mean"].where(~offered)).all()


def test_describing_a_variable_of_other_dims_is_refused(table):
    with pytest.raises(ValueError, match="variable 'mean' has dims"):
        describe(table.transpose("statistic", ...), BASELINE_SCHEMA)
