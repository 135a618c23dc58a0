"""Condition numbers without a mean or a variance, of heads and of matrices: no such moment is told, and z is p's."""

import csv
import io
import math
import re

import numpy as np
import pytest
from scipy.stats import norm

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.nulls import GaussianNull, Table
from rmtbase.results.scores import summarize_scores
from rmtbase.results.scores._how_much import farthest_distance, signed_distance
from rmtbase.statistics import SPECTRAL_STATISTICS, monte_carlo_p_value

D_HEAD, DRAWS = 8, 300
ON_LAMBDA, ON_S = CONDITION_NUMBERS = ("condition_number", "condition_number_singular")


@pytest.fixture(scope="module")
def scored():
    """The scores of heads d_head + gap wide, and the null's draws; the last of the heads is nearly singular."""

    def scored(gap):
        d_model = D_HEAD + gap
        table = rmtbase.baseline(d_model, D_HEAD, draws=DRAWS)
        w_q, w_k = np.random.default_rng(gap).standard_normal((2, 6, D_HEAD, d_model))
        w_q[-1, 1] = w_q[-1, 0] + 1e-5 * w_q[-1, 1]
        tree = rmtbase.score_heads(w_q, w_k, Table(table))
        return tree, GaussianNull.from_baseline(table, d_model, D_HEAD, "the test's").sample

    return scored


@pytest.mark.parametrize(
    ("gap", "means", "stds"),
    mostly_exhaustive([(0, (), ()), (1, (ON_S,), ()), (2, CONDITION_NUMBERS, ()), (4, CONDITION_NUMBERS, (ON_S,)),
     (7, CONDITION_NUMBERS, (ON_S,)), (8, CONDITION_NUMBERS, CONDITION_NUMBERS)], always=3),
)  # fmt: skip
def test_only_the_moments_that_draws_tell_are_told(gap, means, stds, scored):
    tree, sample = scored(gap)
    heads = tree["heads"].to_dataset().isel(layer=0)
    for k, name in enumerate(SPECTRAL_STATISTICS):
        one = heads.sel(statistic=name)
        of_ratios = name in CONDITION_NUMBERS
        assert np.isnan(one["null_mean"]).all() == (of_ratios and name not in means), name
        assert np.isnan(one["null_std"]).all() == (of_ratios and name not in stds), name
        assert np.isfinite(one["null_quantile"]).all() and np.isfinite(one["z_score"]).all()
        if of_ratios:  # scale-free, so that the draws are those of every head
            np.testing.assert_array_equal(one["p_value"], monte_carlo_p_value(one["observed"], sample[:, k]))
        if name in CONDITION_NUMBERS and name not in stds:
            np.testing.assert_allclose(2.0 * norm.sf(np.abs(one["z_score"])), one["p_value"], rtol=1e-12)
            above = one["observed"].values > np.median(sample[:, k])
            assert (np.sign(one["z_score"].values) == np.where(above, 1, -1)).all()
        else:
            of_moments = (one["observed"] - one["null_mean"]) / one["null_std"]
            np.testing.assert_allclose(one["z_score"], of_moments, rtol=1e-6, atol=1e-8)


def test_what_is_far_is_said_with_the_median_and_without_a_mean(scored, tmp_path):
    tree, _ = scored(0)
    heads = tree["heads"].to_dataset()
    assert np.isfinite(signed_distance(heads)).all() and np.isfinite(farthest_distance(heads)).all()
    (finding,) = (one for one in summarize_scores(tree).findings if one.statistic in (ON_LAMBDA, "smallest_eigenvalue"))
    unknown = {"null_mean": math.nan, "null_std": math.nan}
    text = finding._replace(statistic=ON_LAMBDA, null_median=3e4, z_score=2.5, distance=2.5, **unknown).sentence()
    assert "above the null's median 3e+04, as rare as 2.5 standard deviations of a normal law" in text
    assert "nan" not in text and "±" not in text
    (*_, last) = csv.DictReader(io.StringIO(rmtbase.export(tree, statistics=[ON_LAMBDA]).decode()))
    assert (last["null_mean"], last["null_std"]) == ("nan", "nan") and float(last["z_score"]) > 2.0
    opened = rmtbase.open_table(rmtbase.tables.write_table(tree, tmp_path / "scores.nc"))
    np.testing.assert_array_equal(opened["heads"]["z_score"], heads["z_score"])
    page = rmtbase.results.scores.render(opened, pictures=False)
    assert "|median " in page or '"median ' in page
    assert not re.search(r"[>| (]nan[<|, )]", page.partition("<script>")[0])


@pytest.mark.parametrize(("gap", "told"), mostly_exhaustive([(0, False), (3, False), (8, True)], always=1))
def test_the_condition_number_of_a_square_matrix_has_no_mean_either(gap, told):
    w_q, w_k = np.random.default_rng(0).standard_normal((2, 2, 8, 16 + gap))
    matrices = rmtbase.score_heads(w_q, w_k, "analytic", matrices="spectra")["matrices"].to_dataset()
    assert (matrices["n_rows"] == 16).all() and (matrices["n_columns"] == 16 + gap).all()
    one, others = matrices.sel(statistic=ON_LAMBDA), matrices.drop_sel(statistic=ON_LAMBDA)
    assert np.isfinite(others["null_std"]).all()
    assert (np.isfinite(one["null_std"]).all(), np.isfinite(one["null_mean"]).all()) == (told, gap > 1)
    if told:
        np.testing.assert_array_equal(one["z_score"], (one["observed"] - one["null_mean"]) / one["null_std"])
    else:
        np.testing.assert_allclose(2.0 * norm.sf(np.abs(one["z_score"])), one["p_value"], rtol=1e-12)
