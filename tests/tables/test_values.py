"""Values that cannot be are not read, whoever wrote them; a sample is that of the numbers beside it."""

import itertools

import numpy as np
import pytest
import xarray as xr

import rmtbase
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
    ("baseline", "density", lambda x: 0 * x, "density of mass 0"),
    ("baseline", "density", lambda x: 2 * x, "density of mass 2"),
    ("baseline", "density_free", first(-1.0), "density_free"),
    ("baseline", "bin_edge", first(np.nan), "NaN in variable 'bin_edge'"),
    ("baseline", "bin_edge", reversed_last, "bin_edge"),
    ("baseline", "probability", as_text, "'probability' of type"),
    ("baseline", "probability", lambda p: p + 1.0, "probability"),
    ("baseline", "probability", reversed_last, "'probability'; expected probabilities"),
    ("baseline", "index", reversed_last, "'index'"),
    ("baseline", "draw", first(5), "'draw'"),
    ("baseline", "statistic", first("trace"), "twice in variable 'statistic'"),
    ("baseline", "d_head", lambda h: h + 100, "d_head = 103 at d_model = 12"),
    ("baseline", "d_head", lambda h: h - 1, "eigenvalue_mean"),
    ("baseline", "d_head", lambda h: h + 0.5, "'d_head' of type float64"),
    ("baseline", "d_model", lambda d: d + 1, "trace"),
    ("baseline", "d_model", lambda d: -d, "'d_model'; expected integers of at least 1"),
    ("baseline", "sigma_q", first(0.0), "sigma_q"),
    ("baseline", "sigma_q", lambda s: 2 * s, "sigma"),
    ("baseline", "sigma_q_estimate", lambda s: 2 * s, "sigma_q_estimate"),
    ("baseline", "std", first(-1.0), "std"),
    ("baseline", "std", first(np.inf), "infinity in variable 'std'"),
    ("baseline", "standard_error", lambda s: 2 * s, "standard_error"),
    ("baseline", "quantile", reversed_last, "out of order in variable 'quantile'"),
    ("baseline", "eigenvalue_mean", reversed_last, "eigenvalue_mean"),
    ("baseline", "draws", lambda n: n + 1, "13 draws of a case"),
    ("baseline", "draws", lambda n: n - 1, "a sample of 12 draws; expected 11"),
    ("baseline", "analytic_method", lambda _: np.zeros((4, 16)), "'analytic_method' of type float64; expected text"),
    ("spectra", "rank", lambda r: r - 1, "rank"),
    ("spectra", "density_law", first(-1.0), "density_law"),
    ("spectra", "quantile", reversed_last, "quantile"),
    ("elements", "share_outside", lambda s: s + 0.5, "mass"),
    ("elements", "bin_edge", first(np.inf), "bin_edge"),
    ("elements", "n_rows", lambda n: 0 * n, "n_rows"),
    ("elements", "statistic", swapped, "with the formula"),
    ("effective_depth", "p_value", first(1.5), "the value 1.5 in variable 'p_value'"),
    ("effective_depth", "depth", reversed_last, "depth"),
    ("effective_depth", "component", alike, "component"),
    ("effective_depth", "singular_value", reversed_last, "singular_value"),
    ("effective_depth", "effective_depth", lambda d: 0 * d + 1.5, "the value 1.5 in variable 'effective_depth'"),
    ("effective_depth", "fits", lambda f: 0 * f + 0.5, "0, 1 or NaN"),
    ("composition", "score", first(1.5), "the value 1.5 in variable 'score'"),
    ("composition", "q_value", lambda q: 0.5 * q, "q_value below p_value"),
    ("composition", "overlap", lambda o: np.nan_to_num(o), "overlap of pairs without a score"),
    ("composition", "kind", first("x"), "another kind of composition"),
    ("composition", "later_head", lambda h: h + 1, "other heads along later"),
    ("composition", "earlier", swapped, "other heads along later"),
    ("composition", "later_layer", lambda h: h - 1, "integers of at least 0"),
    ("atlas", "quantile", reversed_last, "quantile"),
    ("atlas", "distance_spread", first(0.0), "distance_spread"),
    ("atlas", "d_head", lambda h: h + 100, "d_head"),
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
        ("baseline", "draws", 11, "12 draws of a case; expected at most 11"),
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
    ("group", "name", "change", "said"),
    [
        ("heads", "p_value", lambda p: p + 1.0, "'/heads/p_value'"),
        ("heads", "key_head", lambda k: k - 5, "'/heads/key_head'"),
        ("heads", "statistic", first("trace"), "'/heads/statistic'"),
        ("heads", "eigenvalue", reversed_last, "'/heads/eigenvalue'"),
        ("null", "bin_edge", reversed_last, "'/null/bin_edge'"),
        ("matrices", "q_value", lambda q: -q - 1.0, "'/matrices/q_value'"),
        ("matrices", "component", alike, "'/matrices/component'"),
    ],
)
def test_scores_that_cannot_be_are_refused(group, name, change, said, stored_tables, tmp_path):
    tree = stored_tables["scores"].copy(deep=True)
    tree[group] = xr.DataTree(with_values(name, change)(tree[group].to_dataset()))
    with pytest.raises(TableError, match=said):
        open_table(write_table(tree, tmp_path / "scores.nc"))


def only_where(known, value):
    """The change of a variable that makes it so where it is a number, or where it is none."""
    return lambda values: np.where(np.isnan(values) != known, value, values)


@pytest.mark.parametrize(
    ("group", "name", "change", "said"),
    [
        ("circuits/qk/heads", "n_directions", first(1.0), "another number of directions than n_directions"),
        ("circuits/qk/heads", "n_directions", first(99.0), "more n_directions"),
        ("circuits/qk/heads", "n_directions", first(0.5), "the value 0.5 in variable"),
        ("circuits/qk/heads", "p_value", only_where(True, 0.4), "p_value above the level"),
        ("circuits/qk/heads", "next_p_value", first(0.01), "not above the level"),
        ("circuits/qk/heads", "noise_floor", first(0.5), "0, 1 or NaN"),
        ("circuits/qk/heads", "overlap_left", first(1.5), "the value 1.5 in variable"),
        ("circuits/qk/heads", "eigenvalue", reversed_last, "out of order"),
        ("circuits/qk/heads", "strength_low", only_where(True, 1e9), "outside its limits"),
        ("circuits/qk/heads", "shrunken", only_where(True, 1e9), "above the strength"),
        ("matrices", "shrunken", only_where(False, 1.0), "another number of directions"),
        ("matrices", "noise_scale", first(np.nan), "where n_directions is not, or the reverse"),
        ("matrices", "n_rows", first(0.0), "n_rows"),
    ],
)
def test_signal_that_cannot_be_is_refused(group, name, change, said, stored_tables, tmp_path):
    tree = stored_tables["signal"].copy(deep=True)
    tree[group] = xr.DataTree(with_values(name, change)(tree[group].to_dataset()))
    with pytest.raises(TableError, match=said):
        open_table(write_table(tree, tmp_path / "signal.nc"))


@pytest.mark.parametrize(
    ("group", "name", "change", "said"),
    [
        ("heads", "n_rows", lambda n: np.nan * n, "a change of a matrix without rows in /heads"),
        ("heads", "q_value_in", lambda q: 0.0 * q, "q_value_in below p_value_in in /heads"),
        ("matrices", "old_share_out", first(1.5), "old_share_out"),
        ("matrices", "cosine", first(-2.0), "cosine"),
        ("matrices", "nearest_in", first(0.5), "nearest_in"),
    ],
)
def test_changes_that_cannot_be_are_refused(group, name, change, said, stored_tables, tmp_path):
    tree = stored_tables["changes"].copy(deep=True)
    tree[group] = xr.DataTree(with_values(name, change)(tree[group].to_dataset()))
    with pytest.raises(TableError, match=said):
        open_table(write_table(tree, tmp_path / "changes.nc"))


@pytest.mark.parametrize("kind", KINDS)
def test_tables_as_they_were_made_are_what_they_should_be(kind, stored_tables):
    validate(stored_tables[kind], "the table", kind)


@pytest.fixture(scope="module")
def square_table():
    """Of W_QK with d_head = d_model, whose condition number has no mean; not to be changed in place."""
    return rmtbase.baseline(4, 4, draws=30)


@pytest.mark.parametrize(
    ("name", "statistic", "value", "said"),
    [
        ("mean", "condition_number", 1e9, "mean of a statistic without that moment"),
        ("mean", "trace", np.nan, "NaN in variable 'mean'"),
        ("standard_error", "condition_number_singular", 1.0, "standard_error of a statistic without that moment"),
        ("standard_error", "trace", np.nan, "NaN in variable 'standard_error'"),
        ("moment_order", "condition_number", np.inf, "NaN in variable 'mean'"),
        ("moment_order", "trace", 2.0, "std of a statistic without that moment"),
        ("moment_order", "trace", 0.0, "'moment_order'; expected numbers above 0"),
    ],
)
def test_moments_are_there_where_they_are_finite_and_nowhere_else(name, statistic, value, said, square_table):
    table = square_table.copy(deep=True)
    table[name].loc[{"statistic": statistic}] = value
    with pytest.raises(TableError, match=said):
        validate(table, "the table", "baseline")


def test_center_that_is_not_that_of_its_bin_is_refused(square_table):
    with pytest.raises(TableError, match="bin_center that is not the middle"):
        validate(with_values("bin_center", lambda x: 1.01 * x)(square_table), "the table", "baseline")


SAMPLED = pytest.mark.parametrize("kind", ["baseline", "spectra", "elements"])


@SAMPLED
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: 2 * x, "has not the mean"),
        (lambda x: np.broadcast_to(x[..., :1], x.shape), "has not the mean"),
        (lambda x: np.full_like(x, 9.969209968386869e36), "has not the mean"),
        (lambda x: 2 * x.mean(axis=-1, keepdims=True) - x, "has not the (quantile|mean)|does not follow"),
        (lambda x: x.mean(axis=-1, keepdims=True) + 2 * (x - x.mean(axis=-1, keepdims=True)), "has not the std"),
        (first(np.nan), "NaN|mean"),
    ],
    ids=["doubled", "all_equal", "unwritten", "mirrored", "spread", "nan"],
)
def test_sample_that_is_not_that_of_its_summary_is_refused(change, said, kind, stored_tables):
    with pytest.raises(TableError, match=said):
        validate(with_values("sample", change)(stored_tables[kind]), "the table", kind)


@SAMPLED
@pytest.mark.parametrize("name", ["mean", "std", "quantile"])
def test_summary_that_is_not_that_of_its_sample_is_refused(name, kind, stored_tables):
    table = stored_tables[kind].copy(deep=True)
    for changed in (name, *(["standard_error"] if name == "std" else [])):
        table[changed].values[0, 2] *= 1.0001
    with pytest.raises(TableError, match=f"'?(trace|skewness)'?, case 0, that has not the {name}"):
        validate(table, "the table", kind)


@pytest.mark.parametrize(
    ("d_model", "d_head", "said"),
    [(12.5, 3.0, "the value 12.5"), (12.0, 40.0, "at most d_model"), (13.0, 3.0, "n_rows and n_columns")],
)
def test_elements_of_a_shape_that_cannot_be_are_refused(d_model, d_head, said, stored_tables):
    table = stored_tables["elements"].assign_coords(d_model=("case", [d_model]), d_head=("case", [d_head]))
    with pytest.raises(TableError, match=said):
        validate(table, "the table", "elements")


def test_all_draws_equal_are_refused_whatever_the_summary_says(stored_tables):
    table = stored_tables["baseline"].copy(deep=True)
    table["sample"].values[:] = table["sample"].values[..., :1]
    for name in ("std", "standard_error", "std_standard_error"):
        table[name].values[:] = 0.0
    table["mean"].values[:] = table["sample"].values[..., 0]
    table["quantile"].values[:] = table["sample"].values[..., :1]
    with pytest.raises(TableError, match="all of whose draws are the same"):
        validate(table, "the table", "baseline")


def test_any_two_names_exchanged_are_noticed(stored_tables):
    table = stored_tables["baseline"]
    names = table["statistic"].values.tolist()
    for one, other in itertools.combinations(range(len(names)), 2):
        exchanged = names.copy()
        exchanged[one], exchanged[other] = names[other], names[one]
        with pytest.raises(TableError):
            validate(table.assign_coords(statistic=exchanged), "the table", "baseline")


@pytest.mark.parametrize("kind", ["spectra", "elements"])
def test_neighbours_names_exchanged_are_noticed(kind, stored_tables):
    with pytest.raises(TableError, match=r"sample of|with the formula"):
        validate(with_values("statistic", swapped)(stored_tables[kind]), "the table", kind)


def test_quantiles_of_many_draws_are_counted(stored_tables):
    # 70 000 draws are too many to sort: those on either side of a quantile are counted.
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((1, 10, 70_000))
    table = stored_tables["elements"].drop_vars(["sample", "draw"])
    summaries = {
        "mean": sample.mean(axis=-1),
        "std": sample.std(axis=-1, ddof=1),
        "standard_error": sample.std(axis=-1, ddof=1) / np.sqrt(70_000),
        "quantile": np.moveaxis(np.quantile(sample, table["probability"].values, axis=-1), 0, -1),
        "draws": np.array([70_000]),
    }
    for name, values in summaries.items():
        table = with_values(name, lambda _, values=values: values)(table)
    table = table.assign(sample=(("case", "statistic", "draw"), sample)).assign_attrs(draws=70_000)
    validate(table, "the table", "elements")
    table["quantile"].values[0, 0, 7] += 1e-3
    with pytest.raises(TableError, match="has not the quantile"):
        validate(table, "the table", "elements")


@pytest.mark.parametrize(
    "make",
    [
        lambda: rmtbase.baseline(1, 1, draws=20),
        lambda: run_in_memory(make_plan("random_subspaces", [{"d_model": 12, "d_head": 4}], 20, 1)),
        lambda: run_in_memory(make_plan("residual_path", [{"d_model": 24, "depth": 30, "sigma": 3.0}], 20, 1)),
    ],
    ids=["smallest", "constant_statistics", "deep_path"],
)
def test_tables_at_the_ends_of_their_range_can_be_read(make, tmp_path):
    table = make()
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)


def test_cases_picked_from_a_table_are_a_table(stored_tables):
    validate(stored_tables["baseline"].isel(case=[2, 0]), "the table", "baseline")
    validate(stored_tables["baseline"].isel(case=[1]).assign_attrs(draws=20), "the table", "baseline")


def test_table_without_its_sample_is_checked_for_the_rest(stored_tables, tmp_path):
    table = stored_tables["baseline"].drop_vars(["sample", "sigma_q_estimate", "sigma_k_estimate", "draw"])
    assert open_table(write_table(table, tmp_path / "table.nc")).identical(table)
    table = table.drop_vars("draws")
    with pytest.raises(TableError, match="no variable 'draws'"):
        open_table(write_table(table, tmp_path / "table.nc"))


@pytest.mark.parametrize("command", ["plot", "score"])
@pytest.mark.parametrize(
    ("name", "change"),
    [("statistic", swapped), ("density", first(-1.0)), ("probability", as_text), ("d_head", lambda h: h + 100)],
    ids=["names", "density", "levels", "shape"],
)
def test_command_ends_in_one_line(name, change, command, stored_tables, tmp_path, run):
    path = write_table(with_values(name, change)(stored_tables["baseline"]), tmp_path / "table.nc")
    ended = run("plot", path, "-o", tmp_path) if command == "plot" else run("score", "demo", "--baseline", path)
    assert ended.status == 2
    assert ended.err.startswith(f"rmtbase: error: {path}: found ")
    assert len(ended.err.splitlines()) == 1


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
