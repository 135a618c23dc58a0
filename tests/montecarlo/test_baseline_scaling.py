"""One simulation serves every σ, both normalizations and every table that the shape stands in."""

import json

import numpy as np
import pytest
import xarray as xr

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.statistics import SPECTRAL_STATISTICS, summarize
from telling import Told

DRAWS = 60
EIGENVALUES = ("eigenvalue_mean", "eigenvalue_std", "eigenvalue_quantile", "eigenvalue_quantile_self_normalized")
SPREADS = (
    *("std", "standard_error", "std_standard_error", "quantile_standard_error"),
    *("analytic_std", "analytic_mean_tolerance", "analytic_std_tolerance"),
)
ERRORS = tuple(f"{name}_standard_error" for name in EIGENVALUES)


@pytest.fixture(scope="module")
def unit():
    return rmtbase.baseline(24, 6, 1.0, draws=DRAWS, normalization="none")


def assert_scaled(table, unit, scale):
    for name, statistic in SPECTRAL_STATISTICS.items():
        here, there = table.sel(statistic=name), unit.sel(statistic=name)
        for field in ("mean", "quantile", "sample", "analytic_mean"):
            expected = statistic.rescale(there[field].values, scale, 6)
            np.testing.assert_allclose(here[field].values, expected, rtol=1e-12, atol=1e-13, err_msg=f"{name} {field}")
        power = 0 if statistic.scaling == "additive" else statistic.scaling
        for field in SPREADS:
            expected = there[field].values * scale**power
            np.testing.assert_allclose(here[field].values, expected, rtol=1e-9, err_msg=f"{name} {field}")
    for name in (*EIGENVALUES, *ERRORS, "bin_edge", "edge_lower", "edge_upper"):
        np.testing.assert_allclose(table[name].values, unit[name].values * scale, rtol=1e-9, err_msg=name)
    for name in ("density", "density_standard_error", "density_marchenko_pastur", "density_free"):
        np.testing.assert_allclose(
            table[name].values * scale, unit[name].values, rtol=1e-6, atol=1e-9 * unit[name].max().item(), err_msg=name
        )


@pytest.mark.parametrize("sigma", [0.02, (0.5, 3.0), 1e-6, 1e6, 1e-12, 1e12])
def test_sigma_scales_every_variable_exactly(sigma, unit):
    q, k = sigma if isinstance(sigma, tuple) else (sigma, sigma)
    table = rmtbase.baseline(24, 6, sigma, draws=DRAWS, normalization="none")
    assert_scaled(table, unit, (q * k) ** 2)
    np.testing.assert_allclose(table["sigma_q_estimate"], q * unit["sigma_q_estimate"], rtol=1e-14)
    np.testing.assert_allclose(table["sigma_k_estimate"], k * unit["sigma_k_estimate"], rtol=1e-14)


def test_a_table_is_scaled_by_its_normalization_and_summarises_its_sample(unit):
    assert_scaled(rmtbase.baseline(24, 6, draws=DRAWS), unit, 1 / 24)
    told = Told()
    table = rmtbase.baseline(24, 6, 1.0, draws=DRAWS, normalization="none", progress=told)
    assert told.steps == {"drawing the null": DRAWS}
    assert table.identical(unit)
    sample = unit["sample"]
    np.testing.assert_allclose(unit["mean"], sample.mean("draw"), rtol=1e-12)
    np.testing.assert_allclose(unit["std"], sample.std("draw", ddof=1), rtol=1e-9)
    np.testing.assert_allclose(unit["standard_error"], sample.std("draw", ddof=1) / np.sqrt(DRAWS), rtol=1e-9)
    quantile = sample.quantile(unit["probability"].values, dim="draw").transpose("case", "statistic", "quantile")
    np.testing.assert_allclose(unit["quantile"].values, quantile.values, rtol=1e-12)
    mass = float((unit["density"].values * np.diff(unit["bin_edge"].values)).sum())
    assert 0.99 < mass <= 1 + 1e-12


def rows(table, **values):
    chosen = np.logical_and.reduce([table[name].values == value for name, value in values.items()])
    return table.isel(case=np.flatnonzero(chosen))


def test_rows_do_not_depend_on_what_else_is_in_the_table():
    together, again = (rmtbase.baseline([24, 16], [6, 4], [1.0, 0.1], draws=DRAWS) for _ in range(2))
    assert together.identical(again)
    for d_model, d_head in ((24, 6), (16, 4)):
        for sigma in (1.0, 0.1):
            alone = rmtbase.baseline(d_model, d_head, sigma, draws=DRAWS)
            row = rows(together, d_model=d_model, sigma_q=sigma).isel(index=slice(0, d_head))
            xr.testing.assert_equal(row.drop_vars("bin"), alone.drop_vars("bin"))  # numbers, where bins differ


def test_other_seeds_give_other_draws_and_more_draws_continue_the_sequence(unit):
    other = rmtbase.baseline(24, 6, draws=DRAWS, seed=1, normalization="none")
    assert not np.isin(other["sample"].values, unit["sample"].values).any()
    np.testing.assert_array_equal(other["analytic_mean"], unit["analytic_mean"])
    assert json.loads(other.attrs["provenance"])["call"]["seed"] == 1
    table = rmtbase.baseline(24, 6, draws=1500, normalization="none").isel(case=0)  # more than one chunk
    np.testing.assert_array_equal(table["sample"].values[..., :DRAWS], unit["sample"].values[0])
    whole = summarize(table["sample"].values.T, table["probability"].values)
    np.testing.assert_array_equal(table["quantile_standard_error"], whole.quantile_standard_error)
    extremes = table.sel(statistic=["largest_eigenvalue", "smallest_eigenvalue"])
    for name in ("quantile", "quantile_standard_error"):
        ordered = table[f"eigenvalue_{name}"].isel(index=[0, 5])
        np.testing.assert_array_equal(ordered, extremes[name])


@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive([(1, 1), (9, 1), (2, 2), (4, 4)], always=2))
def test_smallest_and_square_shapes_have_finite_tables(d_model, d_head):
    table = rmtbase.baseline([d_model, d_model], d_head, [1.0, 1.0], draws=20)
    assert table.sizes["case"] == 1  # repeated ones are given once
    for name in ("quantile", "density", "density_free", *EIGENVALUES):
        assert np.isfinite(table[name].values).all(), name
    for name, order in (("mean", 1), ("std", 2), ("standard_error", 2)):
        np.testing.assert_array_equal(np.isfinite(table[name]), table["moment_order"] > order, err_msg=name)
