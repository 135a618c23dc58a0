"""What must not change a score, and what every score must equal."""

import ml_dtypes
import numpy as np
import pytest
import xarray as xr
from scipy.stats import entropy, false_discovery_control, ortho_group

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.linalg import blas_threads
from rmtbase.models import open_model
from rmtbase.nulls import Table
from rmtbase.statistics import SPECTRAL_STATISTICS, monte_carlo_p_value

SCORES = ("z_score", "p_value", "q_value", "omnibus_p_value", "outliers_above", "outliers_below")


def assert_same_scores(one, other, rtol=1e-7):
    for name in SCORES:
        np.testing.assert_allclose(one[name].values, other[name].values, rtol=rtol, atol=1e-9, err_msg=name)


def test_scale_rotation_of_the_stream_or_the_head_and_swapping_queries_and_keys_change_no_score(arrays, score_arrays):
    of_stream, of_head = ortho_group.rvs(32, random_state=1), ortho_group.rvs(8, random_state=2)
    (w_q, w_k), plain = arrays, score_arrays(*arrays)
    for scale in (7.0, 1e-3, 1e-30, 1e30):
        assert_same_scores(score_arrays(scale * w_q, w_k), plain)
        assert_same_scores(score_arrays(w_q, scale * w_k), plain)
    assert_same_scores(score_arrays(w_q @ of_stream, w_k @ of_stream), plain)
    assert_same_scores(score_arrays(of_head @ w_q, of_head @ w_k), plain)
    assert_same_scores(score_arrays(w_q[:2], w_k), score_arrays(w_k, w_q[:2]))


def test_observed_values_are_those_of_the_dense_products_svd(arrays, score_arrays):
    scores, (w_q, w_k) = score_arrays(*arrays), arrays
    for head in range(4):
        s = np.linalg.svd(w_q[head].T @ w_k[head // 2], compute_uv=False)[:8]
        expected = {"log_determinant": 2.0 * np.log(s).sum(), "effective_rank": np.exp(entropy(s))}
        expected |= {"trace": (s**2).sum(), "trace_of_square": (s**4).sum()}
        expected |= {"largest_eigenvalue": s[0] ** 2, "smallest_eigenvalue": s[-1] ** 2}
        for ending, x in (("", s**2), ("_singular", s)):
            ratio = x.sum() ** 2 / (x**2).sum()
            expected |= {f"participation_ratio{ending}": ratio, f"normalized_participation_ratio{ending}": ratio / 8}
            expected |= {f"condition_number{ending}": x[0] / x[-1], f"stable_rank{ending}": x.sum() / x[0]}
            expected[f"spectral_entropy{ending}"] = entropy(x)
        assert set(expected) == set(SPECTRAL_STATISTICS)
        for name, value in expected.items():
            assert scores["observed"].sel(head=head, statistic=name).item() == pytest.approx(value, rel=1e-10), name
        np.testing.assert_allclose(scores["eigenvalue"].sel(head=head), s**2, rtol=1e-10)


def test_sigma_is_the_root_mean_square_of_each_factor_and_grouped_queries_read_their_key_head(arrays, score_arrays):
    w_q, w_k = arrays
    scores = score_arrays(0.3 * w_q, 2.0 * w_k)
    np.testing.assert_allclose(scores["sigma_q"], 0.3 * np.sqrt((w_q**2).mean(axis=(1, 2))), rtol=1e-12)
    np.testing.assert_allclose(scores["sigma_k"], 2.0 * np.sqrt((w_k**2).mean(axis=(1, 2)))[[0, 0, 1, 1]], rtol=1e-12)
    grouped, repeated = score_arrays(w_q, w_k), score_arrays(w_q, np.repeat(w_k, 2, axis=0))
    assert grouped["key_head"].values.tolist() == [0, 0, 1, 1]
    assert repeated["key_head"].values.tolist() == [0, 1, 2, 3]
    assert_same_scores(grouped, repeated)
    assert not np.allclose(grouped["observed"], score_arrays(w_q, np.tile(w_k, (2, 1, 1)))["observed"])


def test_the_null_is_brought_to_the_heads_own_sigma_and_p_values_are_ranks_among_its_draws(
    arrays, score_arrays, null_table
):
    scores, row = score_arrays(0.02 * arrays[0], 0.1 * arrays[1]), null_table.isel(case=0)
    unit = 1 / (row["sigma_q_estimate"].values * row["sigma_k_estimate"].values) ** 2  # each draw at its own σ̂ = 1
    scale = (scores["sigma_q"].values * scores["sigma_k"].values) ** 2
    for name, one in SPECTRAL_STATISTICS.items():
        here, null = scores.sel(statistic=name), one.rescale(row["sample"].sel(statistic=name), unit, 8)
        power = 0 if one.scaling == "additive" else one.scaling
        np.testing.assert_allclose(here["null_mean"], one.rescale(null.mean(), scale, 8), rtol=1e-9)
        np.testing.assert_allclose(here["null_std"], null.std(ddof=1) * scale**power, rtol=1e-9)
        z_score = (here["observed"] - here["null_mean"]) / here["null_std"]
        np.testing.assert_allclose(here["z_score"], z_score, rtol=1e-6, atol=1e-8)
        median = here["null_quantile"].sel(probability=0.5)
        np.testing.assert_allclose(median, one.rescale(np.median(null), scale, 8), rtol=1e-9)
        standard = one.rescale(here["observed"].values, 1 / scale, 8)
        np.testing.assert_array_equal(here["p_value"], monte_carlo_p_value(standard, null))


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


def test_a_model_sharded_or_not_and_its_arrays_have_the_same_scores(weights, tmp_path, null_table):
    whole, sharded = (
        rmtbase.score(weights.save(tmp_path / str(cut) / "m", sharded=cut), Table(null_table)) for cut in (False, True)
    )
    assert whole.identical(sharded)
    for layer in range(2):
        here = whole["heads"].to_dataset().sel(layer=layer, drop=True)
        of_arrays = rmtbase.score_heads(weights.queries[layer], weights.keys[layer], Table(null_table))
        there = of_arrays["heads"].isel(layer=0)
        for name in ("observed", "null_mean", "null_std", "z_score", "p_value", "omnibus_p_value", "eigenvalue"):
            np.testing.assert_allclose(here[name], there[name], rtol=1e-9, err_msg=name)
        np.testing.assert_array_equal(here["key_head"], there["key_head"])


def test_scores_of_arrays_do_not_depend_on_the_threads_of_blas():
    # At this size QR by two threads differs from that by one in two thirds of the singular values.
    heads, found = np.random.default_rng(0).standard_normal((2, 2, 128, 4096)), []
    for threads in (1, 2):
        with blas_threads(threads):
            found.append(rmtbase.score_heads(*heads, "analytic"))
    assert found[0].identical(found[1])


D_MODEL, HEADS, KEY_HEADS, D_HEAD = 48, 6, 2, 8
ROWS = {"q": HEADS * D_HEAD, "k": KEY_HEADS * D_HEAD, "v": KEY_HEADS * D_HEAD}
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "hidden_size": D_MODEL}
CONFIG |= {"num_hidden_layers": 2}
NAME = "model.layers.{}.self_attn.{}_proj.{}"


def state_dict(dtype, of_biases=None):
    rng = np.random.default_rng(7)
    state = {}
    for layer in range(2):
        for part, rows in ROWS.items():
            state[NAME.format(layer, part, "weight")] = rng.standard_normal((rows, D_MODEL)).astype(dtype)
            if of_biases is not None:
                state[NAME.format(layer, part, "bias")] = rng.standard_normal(rows).astype(of_biases)
        state[NAME.format(layer, "o", "weight")] = rng.standard_normal((D_MODEL, HEADS * D_HEAD)).astype(dtype)
    return state


def in_float32(state):
    return {name: values.astype(np.float32) for name, values in state.items()}


@pytest.mark.parametrize("dtype", mostly_exhaustive([ml_dtypes.bfloat16, np.float16], always=1))
def test_scores_are_those_of_the_same_weights_in_float32_to_the_bit(dtype):
    state = state_dict(dtype)
    opening = {"family": "llama", "config": CONFIG, "name": "model", "proof": False}
    narrow, wide = (
        rmtbase.score(open_model(one, **opening), "analytic", circuits=("ov", "key"))
        for one in (state, in_float32(state))
    )
    for group in ("heads", "matrices", "circuits/ov/heads", "circuits/key/heads"):
        xr.testing.assert_identical(narrow[group].to_dataset(), wide[group].to_dataset())


def test_a_matrix_of_tensors_of_two_types_is_that_of_both_in_float32():
    state = state_dict(ml_dtypes.bfloat16, of_biases=np.float16)
    narrow, wide = (open_model(one, family="qwen2", config=CONFIG, fold="biases") for one in (state, in_float32(state)))
    assert narrow.queries(1).shape == (HEADS, D_HEAD, D_MODEL + 1)
    for component in ("attention_query", "attention_key"):
        np.testing.assert_array_equal(narrow.matrix(1, component), wide.matrix(1, component))
