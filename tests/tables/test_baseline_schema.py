"""A baseline file holds what its schema says, and says what it holds."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

import rmtbase
from rmtbase.laws import PROBABILITIES
from rmtbase.montecarlo import make_plan, run_in_memory
from rmtbase.results import open_table
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import BASELINE_SCHEMA, ELEMENTS_SCHEMA, SCHEMA_VERSION, SPECTRA_SCHEMA, describe, write_table

TOLD = np.array(PROBABILITIES) == 0.5  # of 30 draws: ten on either side
QUANTILES = ("quantile", "eigenvalue_quantile", "eigenvalue_quantile_self_normalized")
NO_ESTIMATES = {
    *("draws", "sample", "sigma_q_estimate", "sigma_k_estimate", "scale_estimate"),  # draws, and their number
    *("d_model", "d_head", "sigma_q", "sigma_k", "name", "rank", "n_rows", "n_columns", "bin_edge", "bin_center"),
    *(
        "analytic_mean", "analytic_std", "analytic_mean_tolerance", "analytic_std_tolerance", "moment_order",
        "edge_lower", "edge_upper",
    ),  # by formula
    *("analytic_method", "density_marchenko_pastur", "density_free", "density_law"),
}  # fmt: skip


def test_file_opens_with_plain_xarray_and_has_every_variable_described(table, table_file):
    assert set(table.data_vars) <= set(BASELINE_SCHEMA)
    rows = zip(*(table[name].values.tolist() for name in ("d_model", "d_head", "sigma_q", "sigma_k")), strict=True)
    assert list(rows) == [(16, 4, 1, 1), (16, 4, 0.5, 0.25), (12, 3, 1, 1), (12, 3, 0.5, 0.25)]
    with pytest.raises(ValueError, match="variable 'mean' has dims"):
        describe(table.transpose("statistic", ...), BASELINE_SCHEMA)
    for made in (table, open_table(table_file, "baseline")):  # no line joins a statistic with the next
        with pytest.raises(TypeError, match="Plotting requires coordinates to be numeric"):
            made["mean"].isel(case=0).plot()
    with xr.open_dataset(table_file) as opened:
        for name, variable in BASELINE_SCHEMA.items():
            assert opened[name].dims == variable.dims, name
            assert opened[name].attrs["long_name"] == variable.long_name, name
            assert opened[name].attrs.get("units", "") == variable.units, name


def test_names_come_back_as_text_and_attributes_say_how_the_table_came_to_be(table, table_file):
    opened = open_table(table_file, "baseline")
    xr.testing.assert_identical(opened, table)
    assert opened["statistic"].values.tolist() == list(SPECTRAL_STATISTICS)
    assert all(isinstance(method, str) for method in opened["analytic_method"].values.ravel())
    assert opened["convention"].sel(statistic="effective_rank").item() == "singular value"
    attributes = opened.attrs
    assert attributes["schema_version"] == SCHEMA_VERSION
    assert (attributes["kind"], attributes["normalization"]) == ("baseline", "sqrt_d")
    assert (attributes["draws"], attributes["seed"]) == (30, 0)
    record = json.loads(attributes["provenance"])
    assert record["call"]["cases"] == [{"d_model": 16, "d_head": 4}, {"d_model": 12, "d_head": 3}]
    assert record["call"]["sigmas"] == [[1.0, 1.0], [0.5, 0.25]]
    assert record["numerics"]["dtype"] == "float64"
    assert record["numerics"]["prng"] == "threefry2x32"
    assert {"python", "jax", "numpy", "scipy", "rmtbase"} <= set(record["software"])


def test_statistic_without_a_mean_has_its_quantiles_and_the_reason(tmp_path):
    made = rmtbase.baseline([8, 9, 10, 12], [8, 8, 8, 8], draws=50)  # d_model - d_head = 0, 1, 2, 4
    ratios = ["condition_number", "condition_number_singular"]
    for table in (made, open_table(write_table(made, tmp_path / "table.nc"), "baseline")):
        of = table.sel(statistic=ratios)
        assert of["moment_order"].values.tolist() == [[0.5, 1.0], [1.0, 2.0], [1.5, 3.0], [2.5, 5.0]]
        assert np.isnan(of["mean"]).values.tolist() == [[True, True], [True, False], [False, False], [False, False]]
        for name in ("std", "standard_error"):
            assert np.isnan(of[name]).values.tolist() == [[True, True], [True, True], [True, False], [False, False]]
        assert np.isnan(of["std_standard_error"]).values.tolist() == [[True, True]] * 2 + [[True, True], [True, False]]
        assert np.isfinite(of["quantile"]).all()
        assert "no mean where it is at most 1" in table["moment_order"].attrs["long_name"]
        others = table.drop_sel(statistic=ratios)
        assert np.isposinf(others["moment_order"]).all()
        assert np.isfinite(others["mean"]).all()
        assert np.isfinite(others["std_standard_error"]).all()


def test_heavy_tailed_elements_have_ordered_eigenvalues_with_as_many_moments_as_large_elements_they_need(tmp_path):
    cases = [{"n_rows": 8, "n_columns": 4, "df": df, "scale": 1.0} for df in (0.9, 2.0, 3.0)]
    made = run_in_memory(make_plan("student_t_matrix", cases, draws=30, seed=0))
    for table in (made, open_table(write_table(made, tmp_path / "table.nc"))):
        # The k-th largest has moments below k df/2.
        means, stds = (np.isfinite(table[f"eigenvalue_{name}"]).values.tolist() for name in ("mean", "std"))
        assert means == [[False, False, True, True], [False, True, True, True], [True] * 4]
        assert stds == [[False] * 4, [False, False, True, True], [False, True, True, True]]
        assert np.isfinite(table["eigenvalue_quantile"]).all()
        for name, expected in (("mean", [False, False, True]), ("standard_error", [False] * 3)):
            assert np.isfinite(table[name]).sel(statistic="trace").values.tolist() == expected
        assert np.isfinite(table["mean"]).sel(statistic="stable_rank").all()


@pytest.mark.parametrize("shape", [(16, 4), ([16, 12], [4, 3])], ids=["one_case", "two_cases"])
def test_density_is_drawn_over_eigenvalues_without_empty_units(shape, tmp_path):
    made = rmtbase.baseline(*shape, draws=20)
    path = write_table(made, tmp_path / "table.nc")
    with xr.open_dataset(path) as plain:
        for table in (made, open_table(path, "baseline"), plain.load()):
            edges, last = table["bin_edge"].values, table.isel(case=-1)
            np.testing.assert_array_equal(table["bin_center"], 0.5 * (edges[:, 1:] + edges[:, :-1]))
            one_case = table.sizes["case"] == 1
            (line,) = last["density"].plot(**({} if one_case else {"x": "bin_center"}))
            np.testing.assert_array_equal(line.get_xdata(), last["bin_center"])
            labels = line.axes.get_xlabel().replace("\n", " "), line.axes.get_ylabel().replace("\n", " ")
            plt.close(line.figure)
            assert labels[0] == "eigenvalue lambda, centre of the bin"
            assert labels[1].startswith("Monte Carlo density")
            (line,) = last["eigenvalue_mean"].plot()
            assert "[" not in line.axes.get_xlabel() + line.axes.get_ylabel()
            plt.close(line.figure)


def test_nan_pads_beyond_d_head_and_stands_where_no_number_is_known_and_nowhere_else(table):
    for name, schema in BASELINE_SCHEMA.items():
        values = table[name].values
        told = TOLD if name.endswith("quantile_standard_error") or "normalized_standard" in name else slice(None)
        if "index" in schema.dims:
            for of_case, d_head in zip(values, table["d_head"].values, strict=True):
                assert np.isfinite(of_case[:d_head][..., told]).all(), name
                assert np.isnan(of_case[d_head:]).all(), name
        elif values.dtype.kind in "fi" and not name.startswith(("analytic", "moment")):
            assert np.isfinite(values[..., told]).all(), name
    offered = table["analytic_method"] != "none"
    assert np.isfinite(table["analytic_mean"].where(offered, 0.0)).all()
    assert np.isnan(table["analytic_mean"].where(~offered)).all()
    for name in QUANTILES:
        known = np.isfinite(table[f"{name}_standard_error"]) | np.isnan(table[name])
        assert known.all([dim for dim in known.dims if dim != "probability"]).values.tolist() == TOLD.tolist(), name
        assert (table[f"{name}_standard_error"].isel(case=0).values[..., TOLD] > 0).any()


@pytest.mark.parametrize("schema", [BASELINE_SCHEMA, SPECTRA_SCHEMA, ELEMENTS_SCHEMA], ids=["W_QK", "any", "elements"])
def test_every_monte_carlo_number_has_its_standard_error(schema):
    errors = {name for name in schema if name.endswith("standard_error")}
    for name in {*schema} - errors - NO_ESTIMATES:
        error = "standard_error" if name == "mean" else f"{name}_standard_error"
        assert error in errors, name
        assert schema[error].dims == schema[name].dims, name
