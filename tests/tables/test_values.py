"""Values outside their domains, and sizes that do not fit, are not read, whoever wrote them."""

import numpy as np
import pytest
import xarray as xr

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.errors import TableError
from rmtbase.montecarlo import make_plan, run_in_memory
from rmtbase.results import open_table
from rmtbase.tables import KINDS, validate, write_table


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


def swapped(values):
    values[[0, 1]] = values[[1, 0]]
    return values


def alike(values):
    return np.repeat(values[:1], len(values))


def reversed_last(values):
    return values[..., ::-1].copy()


def as_text(values):
    return values.astype(str)


CANNOT_BE = [
    ("baseline", "density", first(-1.0), "density"),
    ("baseline", "density_free", first(-1.0), "density_free"),
    ("baseline", "bin_edge", first(np.nan), "NaN in variable 'bin_edge'"),
    ("baseline", "bin_edge", reversed_last, "bin_edge"),
    ("baseline", "probability", as_text, "'probability' of type"),
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
    ("baseline", "std", first(np.inf), "infinity in variable 'std'"),
    ("baseline", "quantile", reversed_last, "out of order in variable 'quantile'"),
    ("baseline", "eigenvalue_mean", reversed_last, "eigenvalue_mean"),
    ("baseline", "draws", lambda n: n + 1, "a sample of 12 draws; expected 13"),
    ("baseline", "draws", lambda n: n - 1, "a sample of 12 draws; expected 11"),
    ("baseline", "analytic_method", lambda _: np.zeros((4, 16)), "'analytic_method' of type float64; expected text"),
    ("spectra", "density_law", first(-1.0), "density_law"),
    ("spectra", "quantile", reversed_last, "quantile"),
    ("elements", "bin_edge", first(np.inf), "bin_edge"),
    ("elements", "n_rows", lambda n: 0 * n, "n_rows"),
    ("effective_depth", "p_value", first(1.5), "the value 1.5 in variable 'p_value'"),
    ("effective_depth", "depth", reversed_last, "depth"),
    ("effective_depth", "component", alike, "component"),
    ("effective_depth", "singular_value", reversed_last, "singular_value"),
    ("effective_depth", "effective_depth", lambda d: 0 * d + 1.5, "the value 1.5 in variable 'effective_depth'"),
    ("effective_depth", "fits", lambda f: 0 * f + 0.5, "0, 1 or NaN"),
    ("composition", "score", first(1.5), "the value 1.5 in variable 'score'"),
    ("composition", "kind", first("x"), "'x' in variable 'kind'; expected kinds of composition, q, k, v"),
    ("composition", "later_head", lambda h: h + 1, "other heads along later"),
    ("composition", "earlier", swapped, "other heads along later"),
    ("composition", "later_layer", lambda h: h - 1, "integers of at least 0"),
    ("atlas", "quantile", reversed_last, "quantile"),
    ("atlas", "distance_spread", first(0.0), "distance_spread"),
]


@pytest.mark.parametrize(
    ("kind", "name", "change", "said"), CANNOT_BE, ids=lambda one: one if isinstance(one, str) else ""
)
def test_variable_that_cannot_be_is_refused(kind, name, change, said, stored_tables):
    with pytest.raises(TableError, match=said):
        validate(with_values(name, change)(stored_tables[kind]), "the table", kind)


@pytest.mark.parametrize(
    ("kind", "name", "value", "said"),
    [
        ("baseline", "provenance", "made by hand", "which is not JSON"),
        ("baseline", "provenance", "[1]", "a JSON list"),
        ("baseline", "draws", "many", "attribute draws = many"),
        ("baseline", "draws", 1, "at least 2"),
        ("baseline", "seed", 0.5, "attribute seed"),
        ("baseline", "schema_version", "1.x", "schema version 1.x"),
        ("baseline", "kind", 3, "kind '3'"),
        ("effective_depth", "part", "half", "attribute part"),
        ("scores", "d_head", -8, "attribute d_head"),
        ("scores", "null_method", "guessed", "attribute null_method"),
        ("scores", "warnings", "{}", "attribute warnings"),
        ("atlas", "normalization", "sqrt_d", "attribute normalization"),
    ],
)
def test_attribute_that_cannot_be_is_refused(kind, name, value, said, stored_tables, tmp_path):
    table = stored_tables[kind].copy()
    table.attrs = table.attrs | {name: value}
    with pytest.raises(TableError, match=said):
        open_table(write_table(table, tmp_path / "table.nc"), kind)


@pytest.mark.parametrize(
    ("kind", "group", "name", "change", "said"),
    [
        ("scores", "heads", "p_value", lambda p: p + 1.0, "'/heads/p_value'"),
        ("scores", "heads", "key_head", lambda k: k - 5, "'/heads/key_head'"),
        ("scores", "heads", "statistic", first("trace"), "'/heads/statistic'"),
        ("scores", "heads", "eigenvalue", reversed_last, "'/heads/eigenvalue'"),
        ("scores", "null", "bin_edge", reversed_last, "'/null/bin_edge'"),
        ("scores", "matrices", "q_value", lambda q: -q - 1.0, "'/matrices/q_value'"),
        ("scores", "matrices", "component", alike, "'/matrices/component'"),
        ("signal", "circuits/qk/heads", "n_directions", first(99.0), "more n_directions"),
        ("signal", "circuits/qk/heads", "n_directions", first(0.5), "the value 0.5 in variable"),
        ("signal", "circuits/qk/heads", "noise_floor", first(0.5), "0, 1 or NaN"),
        ("signal", "circuits/qk/heads", "overlap_left", first(1.5), "the value 1.5 in variable"),
        ("signal", "circuits/qk/heads", "eigenvalue", reversed_last, "out of order"),
        ("signal", "circuits/qk/heads", "reason", first("no reason"), "'no reason' in variable"),
        ("signal", "matrices", "n_rows", first(0.0), "n_rows"),
        ("changes", "matrices", "old_share_out", first(1.5), "old_share_out"),
        ("changes", "matrices", "cosine", first(-2.0), "cosine"),
        ("changes", "matrices", "n_directions", first(0.5), "n_directions"),
    ],
)
def test_group_that_cannot_be_is_refused(kind, group, name, change, said, stored_tables, tmp_path):
    tree = stored_tables[kind].copy(deep=True)
    tree[group] = xr.DataTree(with_values(name, change)(tree[group].to_dataset()))
    with pytest.raises(TableError, match=said):
        open_table(write_table(tree, tmp_path / "table.nc"))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_as_they_were_made_are_what_they_should_be(kind, stored_tables):
    validate(stored_tables[kind], "the table", kind)


def test_elements_of_a_shape_that_cannot_be_are_refused(stored_tables):
    table = stored_tables["elements"].assign_coords(d_model=("case", [12.5]))
    with pytest.raises(TableError, match=r"the value 12\.5"):
        validate(table, "the table", "elements")


@pytest.mark.parametrize("kind", ["baseline", "spectra", "elements"])
@pytest.mark.parametrize("dim", ["draw", "bin"])
def test_a_part_of_the_draws_or_of_the_bins_is_no_table(dim, kind, stored_tables):
    with pytest.raises(TableError, match=r"a sample of 5 draws; expected \d|edges of 5 bins; expected 6 edges"):
        validate(stored_tables[kind].isel({dim: slice(5)}), "the table", kind)


@pytest.mark.parametrize(
    "make",
    mostly_exhaustive(
        [
            lambda: rmtbase.baseline(1, 1, draws=20),
            lambda: run_in_memory(make_plan("random_subspaces", [{"d_model": 12, "d_head": 4}], 20, 1)),
            lambda: run_in_memory(make_plan("residual_path", [{"d_model": 24, "depth": 30, "sigma": 3.0}], 20, 1)),
        ],
        always=1,
    ),
    ids=["smallest", "constant_statistics", "deep_path"],
)
def test_tables_at_the_ends_of_their_range_can_be_read(make, tmp_path):
    table = make()
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)


def test_cases_picked_from_a_table_are_a_table(stored_tables):
    validate(stored_tables["baseline"].isel(case=[2, 0]), "the table", "baseline")


def test_table_without_its_sample_is_checked_for_the_rest(stored_tables, tmp_path):
    table = stored_tables["baseline"].drop_vars(["sample", "sigma_q_estimate", "sigma_k_estimate", "draw"])
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)
    table = table.drop_vars("draws")
    with pytest.raises(TableError, match="no variable 'draws'"):
        open_table(write_table(table, tmp_path / "table.nc"))


@pytest.mark.parametrize("dim", ["layer", "component", "head", "case", "statistic", "bin"])
def test_table_with_nothing_along_a_dimension_is_refused(dim, stored_tables, tmp_path):
    kind = {"layer": "scores", "component": "effective_depth", "head": "scores"}.get(dim, "elements")
    table = stored_tables[kind]
    if kind == "scores":
        table = table.copy(deep=True)
        table["heads"] = xr.DataTree(table["heads"].to_dataset().isel({dim: slice(0, 0)}))
    else:
        table = table.isel({dim: slice(0, 0)})
    with pytest.raises(TableError, match=rf"0 entries of {dim}|no group|no coordinate"):
        open_table(write_table(table, tmp_path / "table.nc"), kind)
