"""What must not change a score, and what every score must equal."""

import ml_dtypes
import numpy as np
import pytest
from scipy.stats import false_discovery_control, ortho_group

import rmtbase
from rmtbase.linalg import blas_threads
from rmtbase.nulls import Table
from rmtbase.statistics import SPECTRAL_STATISTICS, monte_carlo_p_value

SCORES = ("z_score", "p_value", "q_value", "omnibus_p_value", "outliers_above", "outliers_below")


def assert_same_scores(one, other, rtol=1e-7):
    for name in SCORES:
        np.testing.assert_allclose(one[name].values, other[name].values, rtol=rtol, atol=1e-9, err_msg=name)


def dense_values(w_q, w_k, head):
    key = head // (len(w_q) // len(w_k))
    return np.linalg.svd(w_q[head].T @ w_k[key], compute_uv=False)


@pytest.mark.parametrize("scale", [7.0, 1e-3, 1e-30, 1e30])
def test_scale_of_the_weights_changes_no_score(scale, arrays, score_arrays):
    w_q, w_k = arrays
    assert_same_scores(score_arrays(scale * w_q, w_k), score_arrays(w_q, w_k))
    assert_same_scores(score_arrays(w_q, scale * w_k), score_arrays(w_q, w_k))


def test_rotating_the_stream_or_the_head_and_swapping_queries_and_keys_change_no_score(arrays, score_arrays):
    of_stream, of_head = ortho_group.rvs(32, random_state=1), ortho_group.rvs(8, random_state=2)
    w_q, w_k = arrays
    plain = score_arrays(w_q, w_k)
    assert_same_scores(score_arrays(w_q @ of_stream, w_k @ of_stream), plain)
    assert_same_scores(score_arrays(of_head @ w_q, of_head @ w_k), plain)
    assert_same_scores(score_arrays(w_q[:2], w_k), score_arrays(w_k, w_q[:2]))


def test_observed_values_are_those_of_the_dense_products_svd(arrays, score_arrays):
    scores = score_arrays(*arrays)
    for head in range(4):
        s = dense_values(*arrays, head)[:8]
        eigenvalue = s**2
        share = eigenvalue / eigenvalue.sum()
        share_s = s / s.sum()
        expected = {
            "largest_eigenvalue": eigenvalue[0],
            "smallest_eigenvalue": eigenvalue[-1],
            "trace": eigenvalue.sum(),
            "trace_of_square": (eigenvalue**2).sum(),
            "participation_ratio": eigenvalue.sum() ** 2 / (eigenvalue**2).sum(),
            "normalized_participation_ratio": eigenvalue.sum() ** 2 / (eigenvalue**2).sum() / 8,
            "spectral_entropy": -(share * np.log(share)).sum(),
            "condition_number": eigenvalue[0] / eigenvalue[-1],
            "stable_rank": eigenvalue.sum() / eigenvalue[0],
            "log_determinant": np.log(eigenvalue).sum(),
            "effective_rank": np.exp(-(share_s * np.log(share_s)).sum()),
            "participation_ratio_singular": s.sum() ** 2 / (s**2).sum(),
            "normalized_participation_ratio_singular": s.sum() ** 2 / (s**2).sum() / 8,
            "spectral_entropy_singular": -(share_s * np.log(share_s)).sum(),
            "condition_number_singular": s[0] / s[-1],
            "stable_rank_singular": s.sum() / s[0],
        }
        assert set(expected) == set(SPECTRAL_STATISTICS)
        for name, value in expected.items():
            found = scores["observed"].sel(head=head, statistic=name).item()
            assert found == pytest.approx(value, rel=1e-10), name
        np.testing.assert_allclose(scores["eigenvalue"].sel(head=head), eigenvalue, rtol=1e-10)


def test_sigma_is_the_root_mean_square_of_each_factor_and_grouped_queries_read_their_key_head(arrays, score_arrays):
    w_q, w_k = arrays
    scores = score_arrays(0.3 * w_q, 2.0 * w_k)
    np.testing.assert_allclose(scores["sigma_q"], 0.3 * np.sqrt((w_q**2).mean(axis=(1, 2))), rtol=1e-12)
    np.testing.assert_allclose(scores["sigma_k"], 2.0 * np.sqrt((w_k**2).mean(axis=(1, 2)))[[0, 0, 1, 1]], rtol=1e-12)
    w_q, w_k = arrays
    grouped = score_arrays(w_q, w_k)
    assert grouped["key_head"].values.tolist() == [0, 0, 1, 1]
    repeated = score_arrays(w_q, np.repeat(w_k, 2, axis=0))
    assert repeated["key_head"].values.tolist() == [0, 1, 2, 3]
    assert_same_scores(grouped, repeated)
    assert not np.allclose(grouped["observed"], score_arrays(w_q, np.tile(w_k, (2, 1, 1)))["observed"])


def self_normalised_null(null_table):
    """Each null draw's statistics after bringing it to σ̂ = 1, from its own estimates."""
    row = null_table.isel(case=0)
    scale = 1 / (row["sigma_q_estimate"].values * row["sigma_k_estimate"].values) ** 2
    return {name: one.rescale(row["sample"].sel(statistic=name), scale, 8) for name, one in SPECTRAL_STATISTICS.items()}


def test_the_null_is_brought_to_the_heads_own_sigma_and_p_values_are_ranks_among_its_draws(
    arrays, score_arrays, null_table
):
    scores = score_arrays(0.02 * arrays[0], 0.1 * arrays[1])
    null = self_normalised_null(null_table)
    scale = (scores["sigma_q"].values * scores["sigma_k"].values) ** 2
    for name, one in SPECTRAL_STATISTICS.items():
        here = scores.sel(statistic=name)
        power = 0 if one.scaling == "additive" else one.scaling
        np.testing.assert_allclose(here["null_mean"], one.rescale(null[name].mean(), scale, 8), rtol=1e-9)
        np.testing.assert_allclose(here["null_std"], null[name].std(ddof=1) * scale**power, rtol=1e-9)
        z_score = (here["observed"] - here["null_mean"]) / here["null_std"]
        np.testing.assert_allclose(here["z_score"], z_score, rtol=1e-6, atol=1e-8)
        median = here["null_quantile"].sel(probability=0.5)
        np.testing.assert_allclose(median, one.rescale(np.median(null[name]), scale, 8), rtol=1e-9)
    for name, one in SPECTRAL_STATISTICS.items():
        standard = one.rescale(scores["observed"].sel(statistic=name).values, 1 / scale, 8)
        expected = monte_carlo_p_value(standard, null[name])
        np.testing.assert_array_equal(scores["p_value"].sel(statistic=name), expected)


def test_q_values_are_scipys_over_the_heads_and_integers_and_lists_are_numbers_too(score_arrays):
    rng = np.random.default_rng(13)
    scores = score_arrays(*rng.standard_normal((2, 9, 8, 32)))
    for name in SPECTRAL_STATISTICS:
        p_value = scores["p_value"].sel(statistic=name).values
        np.testing.assert_allclose(scores["q_value"].sel(statistic=name), false_discovery_control(p_value), rtol=1e-12)
    expected = false_discovery_control(scores["omnibus_p_value"].values)
    np.testing.assert_allclose(scores["omnibus_q_value"], expected, rtol=1e-12)
    whole = np.random.default_rng(14).integers(-9, 10, (2, 2, 8, 32))
    expected = score_arrays(*whole.astype(float))
    assert score_arrays(*whole).identical(expected)
    assert score_arrays(*whole.tolist()).identical(expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_arrays_are_scored_as_their_exact_double_values(dtype, arrays, score_arrays):
    narrow = [w.astype(dtype) for w in arrays]
    assert score_arrays(*narrow).identical(score_arrays(*(w.astype(float) for w in narrow)))


def test_a_model_and_its_arrays_have_the_same_scores(weights, model_folder, null_table):
    tree = rmtbase.score(model_folder, Table(null_table), matrices="none")
    for layer in range(2):
        here = tree["heads"].to_dataset().sel(layer=layer, drop=True)
        of_arrays = rmtbase.score_heads(weights.queries[layer], weights.keys[layer], Table(null_table))
        there = of_arrays["heads"].isel(layer=0)
        for name in ("observed", "null_mean", "null_std", "z_score", "p_value", "omnibus_p_value", "eigenvalue"):
            np.testing.assert_allclose(here[name], there[name], rtol=1e-9, err_msg=name)
        np.testing.assert_array_equal(here["key_head"], there["key_head"])


def test_sharding_a_checkpoint_changes_no_score(weights, tmp_path, null_table):
    whole = rmtbase.score(weights.save(tmp_path / "whole" / "m"), Table(null_table))
    sharded = rmtbase.score(weights.save(tmp_path / "sharded" / "m", sharded=True), Table(null_table))
    assert whole.identical(sharded)


def test_scores_of_arrays_do_not_depend_on_the_threads_of_blas():
    # At this size QR by two threads differs from that by one in two thirds of the singular values.
    heads = np.random.default_rng(0).standard_normal((2, 2, 128, 4096))
    found = []
    for threads in (1, 2):
        with blas_threads(threads):
            found.append(rmtbase.score_heads(*heads, "analytic"))
    assert found[0].identical(found[1])
