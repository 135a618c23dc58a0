"""Values outside their domains, and sizes that do not fit, are not read, whoever wrote them."""

import numpy as np
import pytest
import xarray as xr

from exhaustive import mostly_exhaustive
from rmtbase.errors import TableError
from rmtbase.montecarlo import make_plan, run_in_memory
from rmtbase.results import open_table
from rmtbase.tables import validate, write_table


def with_values(name, change):
    """The table with other values of a variable, coordinates included."""

    def changed(table):
        variable = table[name].variable.copy(deep=True)
        variable = xr.Variable(variable.dims, np.asarray(change(variable.values.copy())), variable.attrs)
        return table.assign_coords({name: variable}) if name in table.coords else table.assign({name: variable})

    return changed


def first(value):
    def change(values):
        values = values.astype(object) if isinstance(value, str) else values
        values[(0,) * values.ndim] = value
        return values

    return change


def reversed_last(values):
    return values[..., ::-1].copy()


CANNOT_BE = [
    ("baseline", "density", first(-1.0), "density"),
    ("baseline", "bin_edge", first(np.nan), "NaN in variable 'bin_edge'"),
    ("baseline", "probability", lambda p: p.astype(str), "'probability' of type"),
    ("baseline", "probability", lambda p: p + 1.0, "probability"),
    ("baseline", "probability", reversed_last, "'probability'; expected probabilities"),
    ("baseline", "index", reversed_last, "'index'"),
    ("baseline", "draw", first(5), "'draw'"),
    ("baseline", "statistic", first("trace"), "twice in variable 'statistic'"),
    ("baseline", "d_head", lambda h: h + 0.5, "'d_head' of type float64"),
    ("baseline", "d_model", lambda d: -d, "'d_model'; expected integers of at least 1"),
    ("baseline", "sigma_q", first(0.0), "sigma_q"),
    ("baseline", "mean", first(np.inf), "infinity in variable 'mean'"),
    ("baseline", "std", first(-1.0), "std"),
    ("baseline", "quantile", reversed_last, "out of order in variable 'quantile'"),
    ("baseline", "eigenvalue_mean", reversed_last, "eigenvalue_mean"),
    ("baseline", "draws", lambda n: n + 1, "a sample of 12 draws; expected 13"),
    ("baseline", "analytic_method", lambda _: np.zeros((4, 16)), "'analytic_method' of type float64; expected text"),
    ("spectra", "density_law", first(-1.0), "density_law"),
    ("elements", "n_rows", lambda n: 0 * n, "n_rows"),
    ("elements", "d_model", lambda d: 0 * d + 12.5, "the value 12.5"),
    ("effective_depth", "p_value", first(1.5), "the value 1.5 in variable 'p_value'"),
    ("effective_depth", "depth", reversed_last, "depth"),
    ("effective_depth", "component", lambda c: np.repeat(c[:1], len(c)), "component"),
    ("effective_depth", "effective_depth", lambda d: 0 * d + 1.5, "the value 1.5 in variable 'effective_depth'"),
    ("effective_depth", "fits", lambda f: 0 * f + 0.5, "0, 1 or NaN"),
    ("composition", "score", first(1.5), "the value 1.5 in variable 'score'"),
    ("composition", "kind", first("x"), "'x' in variable 'kind'; expected kinds of composition, q, k, v"),
    ("composition", "later_head", lambda h: h + 1, "other heads along later"),
    ("composition", "earlier", lambda k: k[[1, 0, *range(2, len(k))]], "other heads along later"),
    ("composition", "later_layer", lambda h: h - 1, "integers of at least 0"),
    ("atlas", "distance_spread", first(0.0), "distance_spread"),
    ("scores", "heads/p_value", lambda p: p + 1.0, "'/heads/p_value'"),
    ("scores", "heads/key_head", lambda k: k - 5, "'/heads/key_head'"),
    ("scores", "heads/eigenvalue", reversed_last, "'/heads/eigenvalue'"),
    ("scores", "matrices/q_value", lambda q: -q - 1.0, "'/matrices/q_value'"),
    ("signal", "circuits/qk/heads/n_directions", first(99.0), "more n_directions"),
    ("signal", "circuits/qk/heads/n_directions", first(0.5), "the value 0.5 in variable"),
    ("signal", "circuits/qk/heads/noise_floor", first(0.5), "0, 1 or NaN"),
    ("signal", "circuits/qk/heads/overlap_left", first(1.5), "the value 1.5 in variable"),
    ("signal", "circuits/qk/heads/reason", first("no reason"), "'no reason' in variable"),
    ("signal", "matrices/n_rows", first(0.0), "n_rows"),
    ("changes", "matrices/old_share_out", first(1.5), "old_share_out"),
    ("baseline", "@provenance", "made by hand", "which is not JSON"),
    ("baseline", "@provenance", "[1]", "a JSON list"),
    ("baseline", "@draws", "many", "attribute draws = many"),
    ("baseline", "@draws", 1, "at least 2"),
    ("baseline", "@seed", 0.5, "attribute seed"),
    ("baseline", "@schema_version", "1.x", "schema version 1.x"),
    ("effective_depth", "@part", "half", "attribute part"),
    ("scores", "@d_head", -8, "attribute d_head"),
    ("scores", "@null_method", "guessed", "attribute null_method"),
    ("scores", "@warnings", "{}", "attribute warnings"),
    ("atlas", "@normalization", "sqrt_d", "attribute normalization"),
]


@pytest.mark.parametrize(("kind", "name", "change", "said"), CANNOT_BE, ids=[" ".join(case[:2]) for case in CANNOT_BE])
def test_what_cannot_be_is_refused(kind, name, change, said, stored_tables):
    """A variable of a dataset, or of a group of a tree, or after a @ an attribute of the root."""
    table, (group, _, name) = stored_tables[kind].copy(deep=True), name.rpartition("/")
    if name[0] == "@":
        table.attrs = table.attrs | {name[1:]: change}
    elif group:
        table[group] = xr.DataTree(with_values(name, change)(table[group].to_dataset()))
    else:
        table = with_values(name, change)(table)
    with pytest.raises(TableError, match=said):
        validate(table, "the table", kind)


@pytest.mark.parametrize("kind", ["baseline", "spectra", "elements"])
@pytest.mark.parametrize("dim", ["draw", "bin"])
def test_a_part_of_the_draws_or_of_the_bins_is_no_table(dim, kind, stored_tables):
    with pytest.raises(TableError, match=r"a sample of 5 draws; expected \d|edges of 5 bins; expected 6 edges"):
        validate(stored_tables[kind].isel({dim: slice(5)}), "the table", kind)


AT_THE_ENDS = [  # the smallest, of constant statistics, and a deep path
    ("low_rank_product", {"d_model": 1, "d_head": 1}),
    ("random_subspaces", {"d_model": 12, "d_head": 4}),
    ("residual_path", {"d_model": 24, "depth": 30, "sigma": 3.0}),
]


@pytest.mark.parametrize(("ensemble", "case"), mostly_exhaustive(AT_THE_ENDS, always=1))
def test_tables_at_the_ends_of_their_range_can_be_read(ensemble, case, tmp_path):
    table = run_in_memory(make_plan(ensemble, [case], 20, 1))
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)


def test_table_without_its_sample_is_checked_for_the_rest(stored_tables, tmp_path):
    validate(stored_tables["baseline"].isel(case=[2, 0]), "the table", "baseline")
    table = stored_tables["baseline"].drop_vars(["sample", "sigma_q_estimate", "sigma_k_estimate", "draw"])
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)
    table = table.drop_vars("draws")
    with pytest.raises(TableError, match="no variable 'draws'"):
        open_table(write_table(table, tmp_path / "table.nc"))


@pytest.mark.parametrize("dim", ["layer", "component", "head", "case", "statistic", "bin"])
def test_table_with_nothing_along_a_dimension_is_refused(dim, stored_tables):
    kind = {"layer": "scores", "component": "effective_depth", "head": "scores"}.get(dim, "elements")
    table = stored_tables[kind].copy(deep=True)
    if kind == "scores":
        table["heads"] = xr.DataTree(table["heads"].to_dataset().isel({dim: slice(0, 0)}))
    else:
        table = table.isel({dim: slice(0, 0)})
    with pytest.raises(TableError, match=rf"0 entries of {dim}|no group|no coordinate"):
        validate(table, "the table", kind)
