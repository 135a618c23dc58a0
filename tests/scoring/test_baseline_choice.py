"""Where the null comes from: the table given, in any units; or simulated, with a note; never a neighbour."""

import numpy as np
import pytest

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.errors import TableError
from rmtbase.nulls import Gaussian, Table, draws_for
from rmtbase.tables import write_table
from telling import Told

SCORES = ("z_score", "p_value", "q_value", "omnibus_p_value", "null_mean", "null_std", "null_quantile")


@pytest.mark.parametrize(
    "units",
    [
        {"normalization": "sqrt_d"},
        {"normalization": "none", "sigma": 0.02},
        {"normalization": "sqrt_d", "sigma": (0.02, 3.0)},
        {"normalization": "sqrt_d", "sigma": [0.5, 1.0]},
    ],
)
def test_units_of_the_baseline_do_not_matter(units, arrays, score_arrays, null_table):
    other = rmtbase.baseline(32, 8, draws=null_table.sizes["draw"], **units)
    here, there = score_arrays(*arrays), score_arrays(*arrays, baseline=other)
    for name in SCORES:
        np.testing.assert_allclose(here[name], there[name], rtol=1e-7, atol=1e-9, err_msg=name)
    for name in ("outliers_above", "outliers_below"):
        np.testing.assert_array_equal(here[name], there[name])


def test_null_of_a_scores_tree_is_in_raw_units_whatever_the_baselines(model_folder, null_table):
    other = rmtbase.baseline(32, 8, draws=null_table.sizes["draw"], normalization="sqrt_d", sigma=0.02)
    here, there = (rmtbase.score(model_folder, Table(table), matrices="none")["null"] for table in (null_table, other))
    for name in here.data_vars:
        np.testing.assert_allclose(here[name], there[name], rtol=1e-6, atol=1e-12, err_msg=name)


def test_file_path_and_dataset_are_the_same_baseline_and_so_is_one_among_others(
    arrays, score_arrays, null_table, tmp_path
):
    path = write_table(null_table, tmp_path / "null.nc")
    expected = score_arrays(*arrays)
    assert score_arrays(*arrays, baseline=path).identical(expected)
    assert score_arrays(*arrays, baseline=str(path)).identical(expected)
    several = rmtbase.baseline([64, 32, 16], [8, 8, 8], draws=null_table.sizes["draw"], normalization="none")
    np.testing.assert_array_equal(score_arrays(*arrays, baseline=several)["p_value"], score_arrays(*arrays)["p_value"])


@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive([(32, 7), (33, 8), (31, 8), (64, 8)], always=1))
def test_a_neighbours_null_is_never_used(d_model, d_head, arrays):
    neighbour = rmtbase.baseline(d_model, d_head, draws=20)
    notes = Told()
    scores = rmtbase.score_heads(*arrays, Table(neighbour, draws=300), progress=notes)
    expected = rmtbase.score_heads(*arrays, Gaussian(draws=300))
    np.testing.assert_array_equal(scores["heads"]["p_value"], expected["heads"]["p_value"])
    np.testing.assert_array_equal(scores["heads"]["null_mean"], expected["heads"]["null_mean"])
    assert notes[0] == (
        f"the baseline dataset holds ({d_model}, {d_head}), but not (32, 8): the null of that shape is taken separately"
    )
    assert notes[1].startswith("null of (d_model, d_head) = (32, 8), 300 draws, seed 0: ")


def test_lacking_case_is_simulated_and_kept_and_then_found(arrays, tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path / "cache"))
    neighbour = rmtbase.baseline(32, 7, draws=20)
    first, second = Told(), Told()
    rmtbase.score_heads(*arrays, Table(neighbour, draws=300), progress=first)
    assert "simulated now and kept in the cache" in first[1]
    (kept,) = (tmp_path / "cache").iterdir()
    assert str(kept) in first[1]
    rmtbase.score_heads(*arrays, Table(neighbour, draws=300), progress=second)
    assert f"from the cache, {kept}" in second[1]


def test_baseline_file_that_lacks_the_case_is_left_as_it_is(arrays, tmp_path, watch):
    path = write_table(rmtbase.baseline(32, 7, draws=20), tmp_path / "other.nc")
    before = watch(tmp_path)
    rmtbase.score_heads(*arrays, Table(path, draws=300))
    before.assert_untouched()


def test_a_coarse_baseline_is_said_to_be_coarse_and_one_that_lacks_a_statistic_is_refused(arrays, null_table):
    notes = Told()
    rmtbase.score_heads(*arrays, Table(rmtbase.baseline(32, 8, draws=50)), progress=notes)
    # The smallest q of a lone head among 4 is 2 * 4 / 51.
    assert "with 50 null draws and 4 heads a lone head cannot reach q below 0.16" in notes[1]
    assert "10000 draws" in notes[1]
    with pytest.raises(TableError, match="effective_rank"):
        rmtbase.score_heads(*arrays, Table(null_table.drop_sel(statistic="effective_rank")))


@pytest.mark.parametrize("n_heads", [1, 200, 201, 1024])
def test_default_draws_let_a_lone_head_reach_five_per_cent(n_heads):
    assert draws_for(n_heads) >= 10_000
    assert 2 * n_heads / (draws_for(n_heads) + 1) < 0.05
