"""Nulls made of a head's own matrices: what each explains away, what it finds, and that nothing else matters."""

import json

import numpy as np
import pytest
from scipy import stats

import rmtbase
from rmtbase.nulls import Axes, Table, find_null
from rmtbase.progress import SILENT
from rmtbase.results import open_table
from rmtbase.results.scores import summarize_scores
from rmtbase.results.scores.schema import own_null_schema
from rmtbase.statistics import SPECTRAL_STATISTICS
from rmtbase.tables import QK, write_table
from telling import Told

NAMES = list(SPECTRAL_STATISTICS)
FREE = [name for name in NAMES if name != "log_determinant"]  # what permutations of the axes move
NULLS = ("signs", "axes")
every_null = pytest.mark.parametrize("null", NULLS)
D_MODEL, D_HEAD, DRAWS = 32, 8, 499
SCORES = ("z_score", "p_value", "omnibus_p_value", "null_mean", "null_std", "null_quantile", "outliers_above")


def heads(n, decay=0.0, seed=0):
    """Heads whose singular values decay as exp(-decay k), with random directions."""
    rng = np.random.default_rng(seed)
    spectrum = np.exp(-decay * np.arange(D_HEAD))[:, None]
    left = stats.ortho_group(D_HEAD, seed=rng).rvs(2 * n).reshape(2, n, D_HEAD, D_HEAD)
    right = np.linalg.qr(rng.standard_normal((2, n, D_MODEL, D_HEAD)))[0]
    return left @ (spectrum * np.swapaxes(right, -1, -2))


def score(w_q, w_k, null, *, progress=SILENT, **options):
    tree = rmtbase.score_heads(w_q, w_k, find_null(null, **{"draws": DRAWS} | options), progress=progress)
    return tree["heads"].to_dataset().isel(layer=0, drop=True)


def test_planted_alignment_is_found_by_signed_permutations_and_anti_alignment_with_the_other_sign():
    w_q, _ = heads(6, decay=0.25)
    scores = score(w_q, w_q, "axes")
    assert (scores["omnibus_q_value"] < 0.01).all()
    trace = scores.sel(statistic="trace")
    assert (trace["z_score"] > 5).all()
    np.testing.assert_allclose(trace["observed"], np.exp(-np.arange(D_HEAD)).sum(), rtol=1e-9)
    left, right = stats.ortho_group(D_HEAD, seed=1).rvs(), np.random.default_rng(2).normal(size=(32, 8))
    right = np.linalg.qr(right)[0].T
    spectrum = np.exp(-0.5 * np.arange(D_HEAD))
    w_q, w_k = left * spectrum @ right, left * spectrum[::-1] @ right
    scores = score(w_q[None], w_k[None], "axes")
    assert scores["z_score"].sel(statistic="trace").item() < -1
    assert scores["p_value"].sel(statistic="effective_rank").item() == pytest.approx(2 / (DRAWS + 1))


@pytest.mark.exhaustive
def test_decaying_spectra_are_explained_by_signed_permutations_and_not_by_the_others(null_table):
    w_q, w_k = heads(8, decay=0.5)
    assert (score(w_q, w_k, "axes")["omnibus_q_value"] > 0.05).all()
    assert (score(w_q, w_k, "signs")["omnibus_q_value"] < 0.05).all()
    assert (rmtbase.score_heads(w_q, w_k, Table(null_table))["heads"]["omnibus_q_value"] < 0.05).all()


def test_heavy_tails_are_explained_by_random_signs_and_not_by_the_gaussian(null_table):
    w_q, w_k = np.random.default_rng(3).standard_t(1.5, (2, 8, D_HEAD, D_MODEL))
    assert (score(w_q, w_k, "signs")["omnibus_q_value"] > 0.05).all()
    assert (rmtbase.score_heads(w_q, w_k, Table(null_table))["heads"]["omnibus_q_value"] < 0.05).sum() >= 7


@every_null
def test_a_head_has_the_same_scores_in_any_company_and_with_the_key_head_that_it_reads(null):
    w_q, w_k = np.random.default_rng(4).standard_normal((2, 4, D_HEAD, D_MODEL))
    together, backwards = score(w_q, w_k, null, draws=99), score(w_q[::-1], w_k[::-1], null, draws=99)
    alone = score(w_q[2:3], w_k[2:3], null, draws=99)
    for name in SCORES:
        np.testing.assert_array_equal(backwards[name].values[::-1], together[name].values, err_msg=name)
        np.testing.assert_array_equal(alone[name].values[0], together[name].values[2], err_msg=name)
    grouped, repeated = (score(w_q, keys, null, draws=99)["p_value"] for keys in (w_k[:2], w_k[:2].repeat(2, axis=0)))
    np.testing.assert_array_equal(grouped, repeated)


@every_null
def test_scores_are_a_function_of_the_weights_and_the_seed_whatever_their_scale(null):
    w_q, w_k = np.random.default_rng(5).standard_normal((2, 2, D_HEAD, D_MODEL)).astype(np.float32)
    first, scaled = score(w_q, w_k, null), score(w_q * 2.0**-10, w_k * 2.0**4, null)
    assert score(w_q.astype(float), w_k.astype(float), null).identical(first)
    other = score(w_q, w_k, null, seed=1)
    assert (other["null_mean"].sel(statistic=FREE) != first["null_mean"].sel(statistic=FREE)).all()
    np.testing.assert_array_equal(other["observed"], first["observed"])
    for name, one in SPECTRAL_STATISTICS.items():
        mean, spread, again = (
            of.sel(statistic=name).values for of in (first["null_mean"], first["null_std"], scaled["null_mean"])
        )
        # Other weights have other draws: two means of one law. Of 64, one is five errors off with probability 4e-5.
        error = one.rescale_spread(spread, 2.0**-12) * np.sqrt(2 / DRAWS)
        assert (np.abs(again - one.rescale(mean, 2.0**-12, D_HEAD)) <= 5 * error + 1e-12 * np.abs(again)).all(), name


def test_what_the_null_holds_fixed_is_not_ranked_among_rounding_errors():
    w_q, w_k = heads(3, decay=0.5)
    fixed = score(w_q, w_k, "axes").sel(statistic="log_determinant")
    assert ((fixed["p_value"] == 1) & (fixed["z_score"] == 0) & (fixed["null_std"] == 0)).all()
    scores = score(heads(3)[0], w_k, "axes")
    assert ((scores["p_value"] == 1) & (scores["z_score"] == 0)).all() and (scores["omnibus_p_value"] == 1).all()
    assert not scores["outliers_above"].any() and not scores["outliers_below"].any()


@every_null
def test_dead_dimensions_few_weights_and_products_of_zero_have_the_scores_that_they_can_have(null):
    w_q, w_k = np.random.default_rng(8).standard_normal((2, 1, D_HEAD, D_MODEL))
    w_q[0, 3] = 0
    scores = score(w_q, w_k, null).isel(head=0).sel(statistic=["smallest_eigenvalue", "condition_number"])
    assert ((scores["p_value"] == 1) & (scores["z_score"] == 0)).all()
    w_q, w_k = np.zeros((2, 1, D_HEAD, D_MODEL))
    rng = np.random.default_rng(9)
    for w in (w_q, w_k):
        w[0].flat[rng.permutation(D_HEAD * D_MODEL)[:20]] = rng.standard_normal(20)
    scores = score(w_q, w_k, null)
    assert ((scores["p_value"] > 0) & (scores["p_value"] <= 1)).all()
    assert (scores["omnibus_p_value"] > 2 / (DRAWS + 1)).all()  # nothing is there to be found
    w_q, w_k = np.zeros((2, 2, D_HEAD, D_MODEL))
    w_q[:, 0], w_k[:, 1] = 1.0, 1.0  # no query dimension with weights meets a key dimension with weights
    w_q[1], w_k[1] = np.random.default_rng(10).standard_normal((2, D_HEAD, D_MODEL))
    scores = score(w_q, w_k, null)
    assert np.isnan(scores["p_value"].values[0]).all() and np.isfinite(scores["p_value"].values[1]).all()
    assert scores["farthest_statistic"].values[0] == ""


@pytest.mark.parametrize(("draws", "level"), [(499, 1 / 500), (999, 1 / 1000), (1000, 1 / 1001), (2999, 3 / 3000)])
def test_edges_are_order_statistics_at_the_level_they_state(draws, level):
    heads = np.random.default_rng(13).standard_normal((2, 1, D_HEAD, D_MODEL))
    attrs = rmtbase.score_heads(*heads, Axes(draws=draws)).attrs
    facts = [attrs[name] for name in ("edge_level", "p_value_floor", "null_draws")]
    assert facts == pytest.approx([level, 2 / (draws + 1), draws])


def test_default_is_a_thousand_draws_of_each_head_and_too_few_are_said_to_be_too_few():
    w_q, w_k = np.random.default_rng(11).standard_normal((2, 30, D_HEAD, D_MODEL))
    notes = Told()
    score(w_q, w_k, "axes", draws=99, progress=notes)
    assert notes[0] == "null of each head: 99 draws from its own matrices (axes), seed 0"
    assert "30 heads a lone head cannot reach q below 0.6 by one statistic, nor below 0.3 by all together" in notes[1]
    assert "1500 draws" in notes[1]
    notes.clear()
    score(w_q[:1], w_k[:1], "axes", draws=99, progress=notes)
    assert len(notes) == 1
    w_q, w_k = np.random.default_rng(12).standard_normal((2, 2, D_HEAD, D_MODEL))
    told = Told()
    rmtbase.score_heads(w_q, w_k, null="axes", progress=told)
    assert told.steps == {"reading layers": 1, "drawing the null": 2000}


@every_null
def test_a_model_scores_as_its_arrays_do_and_its_file_says_which_null_it_is(null, weights, model_folder, tmp_path):
    tree = rmtbase.score(model_folder, find_null(null, draws=DRAWS, seed=3))
    for layer in range(2):
        alone = score(weights.queries[layer], weights.keys[layer], null, seed=3)
        for name in ("p_value", "z_score", "omnibus_p_value"):
            np.testing.assert_array_equal(tree["heads"][name].values[layer], alone[name].values, err_msg=name)
    opened = open_table(write_table(tree, tmp_path / "scores.nc"), "scores")
    for name, variable in own_null_schema(QK).items():
        found = opened["null"][name]
        assert (found.dims, found.attrs.get("units", "")) == (variable.dims, variable.units)
    for group in ("heads", "null", "matrices"):
        assert opened[group].to_dataset().identical(tree[group].to_dataset())
    assert summarize_scores(opened).n_heads == 8
    assert tree.attrs["null"].startswith(f"{null}: the head's own W_Q and W_K")
    assert (tree.attrs["null_method"], tree.attrs["table"]) == ("resampled", "each head's own matrices")
    record = json.loads(tree.attrs["provenance"])
    assert record["null"].items() >= {"resampler": null, "draws_per_head": DRAWS, "seed": 3}.items()
    assert record["call"]["null_draws"] == DRAWS
    own = tree["null"].to_dataset()
    assert own["eigenvalue_quantile"].dims == ("layer", "head", "index", "probability") and "density" not in own
    assert (own["edge_quantile_lower"] < own["eigenvalue_mean"].isel(index=-1)).all()
    assert (own["edge_quantile_upper"] > own["eigenvalue_mean"].isel(index=0)).all()


@every_null
def test_zero_head_of_a_model_is_recorded_and_the_rest_is_scored(null, weights, tmp_path):
    usual = rmtbase.score(weights.save(tmp_path / "usual"), find_null(null, draws=99), matrices="none")
    weights.queries[1, 2] = 0
    tree = rmtbase.score(weights.save(tmp_path / "zero"), find_null(null, draws=99), matrices="none")
    assert "layer 1 head 2: W_Q is zeros, or rounding" in tree.attrs["warnings"]
    missing = np.isnan(tree["heads"]["p_value"].values).all(axis=-1)
    assert np.argwhere(missing).tolist() == [[1, 2]]
    np.testing.assert_array_equal(tree["heads"]["p_value"].values[~missing], usual["heads"]["p_value"].values[~missing])
    assert np.isnan(tree["null"]["eigenvalue_mean"].values[1, 2]).all()
