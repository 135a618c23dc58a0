"""Tables of any ensemble: what they hold, that they agree with exact values, that they can be opened and drawn.

False failures: exact means are compared within five standard errors, about twenty of them, with fixed seeds; a correct
table fails for one seed in 90 000.
"""

import json

import numpy as np
import pytest
import xarray as xr

from exhaustive import mostly_exhaustive
from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.montecarlo import make_plan, run_in_memory, run_plan
from rmtbase.results import open_table
from rmtbase.results.figures import figures
from rmtbase.tables import SPECTRA_SCHEMA

EXACT = ("trace", "trace_of_square")


def paths(depths, part="path", **options):
    return [{"d_model": 16, "depth": depth, "sigma": 0.5, "part": part, **options} for depth in depths]


PLANS = {
    "chains": ("gaussian_chain", [{"dims": [16, 6, 16]}, {"dims": [12, 20, 10, 9]}]),
    "matrices": ("gaussian_matrix", [{"n_rows": 12, "n_columns": 30}]),
    "paths": ("residual_path", paths((1, 3))),
    "updates": ("residual_path", paths((2,), "update")),
    "orders": ("residual_path", paths((3,), "order", order=2)),
    "initialised": ("initialized_matrix", [{"n_rows": 12, "n_columns": 8, "initializer": "torch_linear"}]),
}


SOME = mostly_exhaustive(PLANS, always={"chains", "paths"})


@pytest.fixture(scope="module", params=SOME, ids=str)
def table(request):
    ensemble, cases = PLANS[request.param]
    return run_in_memory(make_plan(ensemble, cases, 400, seed=5))


def test_every_variable_is_described_and_the_density_is_of_all_eigenvalues(table):
    assert set(table.data_vars) <= set(SPECTRA_SCHEMA)
    for name, variable in {**table.data_vars, **table.coords}.items():
        assert variable.attrs["long_name"], name
        assert variable.attrs.get("units") == ("1/lambda" if str(name).startswith("density") else None), name
    mass = (table["density"] * np.diff(table["bin_edge"].values)).sum("bin")
    assert (np.abs(mass - 1) < 0.02).all()  # the bins are those of the first chunk's eigenvalues, widened


PRODUCTS = [("gaussian_chain", {}), ("independent_chain", {"entries": "uniform"})]


@pytest.mark.parametrize(("ensemble", "more"), mostly_exhaustive(PRODUCTS, always=["gaussian_chain"]))
def test_a_chain_has_the_normalization_that_laws_have(ensemble, more):
    cases = [{"dims": [32, 4, 16, 32], **more}, {"dims": [8, 5], **more}]
    default, raw = (
        run_in_memory(make_plan(ensemble, cases, 200, seed=3, **keyword)) for keyword in ({}, {"normalization": "none"})
    )
    assert (default.attrs["normalization"], raw.attrs["normalization"]) == ("sqrt_d", "none")
    law = laws.GaussianChain(dims=(32, 4, 16, 32))
    edges = default.isel(case=0)[["edge_lower", "edge_upper"]].to_array().values
    np.testing.assert_allclose(edges, law.support, rtol=1e-12)
    largest = {"statistic": "largest_eigenvalue"}
    for name in ("mean", "std", "analytic_mean", "quantile", "standard_error"):
        divided, undivided = (one[name].sel(largest).values for one in (default, raw))
        np.testing.assert_array_equal(32 * divided[0], undivided[0])
        np.testing.assert_array_equal(divided[1], undivided[1])  # one matrix is taken as it is
    np.testing.assert_array_equal(32 * default["eigenvalue_mean"][0], raw["eigenvalue_mean"][0])
    np.testing.assert_array_equal(default["density_law"][0], 32 * raw["density_law"][0])
    shares = (default["density"] * np.diff(default["bin_edge"])).isel(case=0).sum()
    assert float(shares) == pytest.approx(1.0)


def test_tables_without_the_sample_lack_it_alone_and_no_table_depends_on_the_cut():
    cases = [{"d_model": 16, "d_head": 4}]
    whole, bare = (run_in_memory(make_plan("low_rank_product", cases, 30, keep_sample=keep)) for keep in (True, False))
    lacking = {"sample", "sigma_q_estimate", "sigma_k_estimate"}
    assert set(whole.data_vars) - set(bare.data_vars) == lacking
    xr.testing.assert_equal(whole.drop_vars([*lacking, "draw"]), bare)
    cases = [{"d_model": 16, "d_head": 4}, {"d_model": 9, "d_head": 3}]
    tables = [run_in_memory(make_plan("low_rank_product", cases, 50, chunk=chunk)) for chunk in (50, 7)]
    assert tables[0].equals(tables[1])
    orthogonal = {"dims": [8, 2, 8], "rows": [2, 2], "fused": False}
    for ensemble, cases in (PLANS["matrices"], PLANS["paths"], ("orthogonal_blocks", [orthogonal])):
        with pytest.raises(ParameterError, match=r"normalization = 'sqrt_d': expected 'none', except for spectra"):
            make_plan(ensemble, cases, 10, normalization="sqrt_d")


@pytest.mark.parametrize("statistic", EXACT)
def test_means_are_the_exact_ones_where_such_are_known(table, statistic):
    one = table.sel(statistic=statistic)
    known = np.isfinite(one["analytic_mean"].values)
    error = (one["mean"] - one["analytic_mean"]).values / one["standard_error"].values
    assert (np.abs(error[known]) < 5).all()


@pytest.mark.exhaustive
def test_exact_means_are_known_of_chains_and_paths():
    for name, known in (("chains", True), ("matrices", True), ("paths", True), ("orders", False)):
        ensemble, cases = PLANS[name]
        table = run_in_memory(make_plan(ensemble, cases, 2))
        assert np.isfinite(table["analytic_mean"].sel(statistic="trace").values).all() == known


def test_a_case_is_named_with_its_parameters_and_shorter_spectra_are_padded_with_nan():
    table = run_in_memory(make_plan(*PLANS["paths"], 2))
    assert table["name"].values.tolist() == ["residual_path 16x1 sigma 0.5", "residual_path 16x3 sigma 0.5"]
    assert table["parameter_depth"].values.tolist() == [1, 3]
    assert table["parameter_part"].values.tolist() == ["path", "path"]
    table = run_in_memory(make_plan(*PLANS["chains"], 3))
    mean = table["eigenvalue_mean"].values
    assert table["rank"].values.tolist() == [6, 9]
    assert np.isnan(mean[0, 6:]).all()
    assert np.isfinite(mean[0, :6]).all()
    assert np.isfinite(mean[1]).all()


@pytest.mark.parametrize("name", SOME)
def test_every_kind_of_table_comes_back_from_its_file_and_is_drawn(name, tmp_path):
    plan = make_plan(*PLANS[name], 20, name=name)
    made = run_plan(plan, tmp_path / "table.nc")
    opened = open_table(tmp_path / "table.nc")
    xr.testing.assert_identical(opened, made)
    assert opened.attrs["plan_hash"] == plan.hash
    assert json.loads(opened.attrs["provenance"])["call"] == plan.record()
    (figure,) = figures(opened).values()
    assert len(figure.axes) == opened.sizes["case"]
    limits = {ax.get_xlim() for ax in figure.axes} | {ax.get_ylim() for ax in figure.axes}
    assert len(limits) == 2  # panels that can be compared


def test_elements_of_a_product_are_measured_without_the_thin_draw(tmp_path):
    plan = make_plan("low_rank_product", [{"d_model": 24, "d_head": 8}], 12, measure="elements", chunk=5)
    made = run_plan(plan, tmp_path / "table.nc")
    opened = open_table(tmp_path / "table.nc")
    xr.testing.assert_identical(opened, made)
    assert opened.attrs["kind"] == "elements"
    assert opened.equals(
        run_in_memory(make_plan(plan.ensemble, [plan.cases[0].parameters], 12, measure="elements", chunk=12))
    )


@pytest.mark.exhaustive
def test_eigenvalues_that_are_rounding_are_not_in_the_table():
    cases = [{"d_model": 24, "depth": depth, "sigma": 3.0} for depth in (2, 30)]
    table = run_in_memory(make_plan("residual_path", cases, 40, 3))
    deep, shallow = table.isel(case=1), table.isel(case=0)
    ratios = ["condition_number", "condition_number_singular"]  # which have no mean, of a square matrix
    unknown = ["smallest_eigenvalue", "log_determinant", *ratios]
    for name in ("mean", "std", "standard_error", "quantile", "sample"):
        by_name = deep[name].sel(statistic=unknown)
        assert by_name.isnull().any("draw" if name == "sample" else [d for d in by_name.dims if d != "statistic"]).all()
        assert deep[name].drop_sel(statistic=unknown).notnull().all()
        assert shallow[name].drop_sel(statistic=ratios).notnull().all()
        assert shallow[name].sel(statistic=ratios).isnull().all() == (name in ("mean", "std", "standard_error"))
    assert deep["eigenvalue_mean"].isel(index=slice(0, 6)).notnull().all()
    assert deep["eigenvalue_mean"].isel(index=-1).isnull()
    assert shallow["eigenvalue_mean"].notnull().all()
    share = (table["density"] * table["bin_edge"].diff("edge").values).sum("bin")
    assert share[0] > 0.999
    assert 0.3 < share[1] < 0.9
    law = laws.ResidualPath(30, 3.0).log_eigenvalue
    kept = 1 - law.cdf(law.support[1] + 2 * np.log(24 * np.finfo(float).eps))
    assert share[1] == pytest.approx(kept, abs=0.05)


DRAWS = 2 * 2**14 + 100  # three blocks


@pytest.mark.exhaustive
@pytest.mark.parametrize("ensemble", mostly_exhaustive(["low_rank_product", "gaussian_chain"], always=1))
def test_a_table_of_several_blocks_does_not_depend_on_the_chunks(ensemble):
    case = {"d_model": 3, "d_head": 2} if ensemble == "low_rank_product" else {"dims": [3, 2, 3]}
    tables = [run_in_memory(make_plan(ensemble, [case], DRAWS, 7, chunk=chunk)) for chunk in (DRAWS, 10_001)]
    for name in tables[0].variables:
        np.testing.assert_array_equal(tables[0][name], tables[1][name], err_msg=str(name))
