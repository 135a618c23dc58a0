"""The analytic null: a law for every statistic, the moments of the simulated one, calibrated p-values, and no draws.

The claims about random heads are made of 2 000 independent heads of (128, 16), each with its own σ's. False failures:
the whole file is allowed one seed in 1 000, shared evenly by all its comparisons (Bonferroni). The seeds are fixed.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from scipy import stats

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase import laws, statistics
from rmtbase.errors import MissingFileError, ParameterError
from rmtbase.laws import PROBABILITIES
from rmtbase.nulls import SMALLEST_P_VALUE, AnalyticNull, GaussianNull, Table
from rmtbase.results import open_table
from rmtbase.results.scores import summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics
from rmtbase.tables import write_table
from statistical.harness import uniform
from telling import Told

NAMES = list(SPECTRAL_STATISTICS)
HEADS, D_MODEL, D_HEAD = 2_000, 128, 16
DRAWS = 4_000
COMPARISONS = 3 * len(NAMES) + 5
LEVEL = 1e-3 / COMPARISONS
SQUARISH = (20, 16)
AT_THE_LOWER_EDGE = ["smallest_eigenvalue", "condition_number", "condition_number_singular"]


def random_factors(rng, n_heads, d_model, d_head):
    return rng.standard_normal((2, n_heads, d_head, d_model))


@pytest.fixture(scope="module")
def heads():
    """Scores of random heads against the analytic null."""
    rng = np.random.default_rng(41)
    w_q, w_k = random_factors(rng, HEADS, D_MODEL, D_HEAD)
    w_q *= rng.uniform(0.01, 3.0, (HEADS, 1, 1))
    return rmtbase.score_heads(w_q, w_k, "analytic")["heads"].to_dataset().isel(layer=0, drop=True)


@pytest.fixture(scope="module")
def simulated():
    """A simulated null of another shape."""
    null = GaussianNull.from_baseline(rmtbase.baseline(256, 32, draws=DRAWS, seed=42), 256, 32, "simulated")
    assert null is not None
    return null


@pytest.mark.parametrize("d_head", [2, 7])
def test_heads_too_thin_for_the_laws_are_refused_and_told_what_to_do(d_head):
    factors = random_factors(np.random.default_rng(0), 2, 32, d_head)
    message = f"null = 'analytic': expected a table, or draws, at d_head = {d_head}"
    for call in (lambda: rmtbase.score_heads(*factors, "analytic"), lambda: AnalyticNull(32, d_head)):
        with pytest.raises(ParameterError, match=message):
            call()


def test_only_the_word_itself_asks_for_it_and_a_file_of_that_name_has_a_path(arrays, null_table, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("Analytic", "analytic.nc", "./analytic", Path("analytic")):
        with pytest.raises(MissingFileError):
            rmtbase.score_heads(*arrays, Table(name))
    write_table(null_table, tmp_path / "analytic")
    notes = Told()
    rmtbase.score_heads(*arrays, Table(Path("analytic")), progress=notes)
    assert all(f": {null_table.sizes['draw']} draws from" in note for note in notes)


def test_every_registered_statistic_has_a_law():
    assert set(laws.NULL_STATISTICS) == set(SPECTRAL_STATISTICS)
    assert AnalyticNull(D_MODEL, D_HEAD).unknown == [] and AnalyticNull(*SQUARISH).unknown == []
    few = AnalyticNull(dims=(8,) * 6).unknown  # eigenvalues, of many factors
    assert set(few) == {*AT_THE_LOWER_EDGE, "stable_rank"}


@pytest.mark.parametrize("shape", [(16, 8), (8, 8), SQUARISH, (768, 64), (4096, 128)])
def test_every_null_is_complete_and_in_order(shape):
    null = AnalyticNull(*shape)
    extremes = statistics.ExtremeMoments(smallest=statistics.inverse_moment_order((*shape, shape[0])))
    orders = np.array([statistics.moment_order(one, extremes, shape[1]) for one in SPECTRAL_STATISTICS.values()])
    for values, known in ((null.mean, orders > 1), (null.std, orders > 2), (null.quantile, orders > 0)):
        np.testing.assert_array_equal(np.isfinite(values).reshape(len(NAMES), -1).all(axis=-1), known)
    known = orders > 2
    assert (null.std[known] > 0).all() and (np.diff(null.quantile[known]) > 0).all()
    lower, upper = null.edge_quantiles
    assert 0 <= lower < upper
    spectrum = null.spectrum()
    assert (np.diff(spectrum["eigenvalue_mean"]) < 0).all()
    assert (spectrum["eigenvalue_quantile"].diff("probability") >= 0).all()
    assert spectrum["density"].values @ np.diff(spectrum["bin_edge"]) == pytest.approx(1.0, rel=1e-6)


def test_p_value_of_a_quantile_is_twice_its_smaller_tail():
    null = AnalyticNull(D_MODEL, D_HEAD)
    tails = 2 * np.minimum(PROBABILITIES, 1 - np.array(PROBABILITIES))
    p_value = null.p_value(null.quantile.T)
    np.testing.assert_allclose(p_value, np.tile(tails, (len(NAMES), 1)).T, rtol=1e-6)


@pytest.mark.parametrize("statistic", mostly_exhaustive(NAMES, always=2))
def test_moments_are_those_of_the_simulated_null(statistic, simulated):
    # The laws' own errors are stated: 0.02 sd in the mean and 2.5 % in the sd. The draws' errors come on top.
    null, place = AnalyticNull(256, 32), NAMES.index(statistic)
    sample = simulated.sample[:, place]
    wide = stats.norm.isf(LEVEL / 2)
    std = sample.std(ddof=1)
    assert abs(null.mean[place] - sample.mean()) < (0.02 + wide / np.sqrt(DRAWS)) * std
    relative_error = np.sqrt((stats.kurtosis(sample) + 2) / (4 * DRAWS))
    assert abs(null.std[place] / std - 1) < 0.025 + wide * relative_error


def test_quantiles_of_every_eigenvalue_are_those_of_the_simulated_null(simulated):
    # Stated within 0.2 sd from 1 % to 99 %. Margin on top: the error of an empirical quantile of nearly normal draws.
    here, there = (null.spectrum()["eigenvalue_quantile"].values for null in (AnalyticNull(256, 32), simulated))
    std = np.diff(there[:, [PROBABILITIES.index(0.16), PROBABILITIES.index(0.84)]]) / 2
    wide = stats.norm.isf(LEVEL / 32)
    for probability in (0.01, 0.05, 0.16, 0.5, 0.84, 0.95, 0.99):
        error = np.sqrt(probability * (1 - probability) / DRAWS) / stats.norm.pdf(stats.norm.ppf(probability))
        place = PROBABILITIES.index(probability)
        distance = np.abs((here - there) / std)[:, place]
        assert (distance < 0.2 + wide * error).all(), probability


def test_p_values_of_random_heads_are_uniform_and_the_omnibus_test_and_the_edges_have_their_stated_sizes(heads):
    for name in NAMES:
        assert uniform(heads["p_value"].sel(statistic=name)) > LEVEL, name
    p_value = heads["omnibus_p_value"].values
    for level, least, most in ((0.05, 0.053, 0.056), (0.01, 0.010, 0.012)):
        count = int((p_value <= level).sum())
        assert stats.binom.cdf(count, HEADS, least) > LEVEL
        assert stats.binom.sf(count - 1, HEADS, most) > LEVEL
    for side in ("outliers_above", "outliers_below"):
        assert stats.binom.sf(int((heads[side] > 0).sum()) - 1, HEADS, 1e-3) > LEVEL


def test_the_law_of_a_neighbouring_shape_or_at_the_true_sigma_would_not_be_calibrated(heads):
    # at the heads' own σ̂ = 1, (head, statistic)
    standard = spectral_statistics(np.sqrt(heads["eigenvalue"] / (heads["sigma_q"] * heads["sigma_k"]) ** 2).values)
    of_neighbour = ("participation_ratio", "spectral_entropy_singular", "smallest_eigenvalue")
    for name in (*of_neighbour, "trace", "largest_eigenvalue", "log_determinant"):
        beside = name in of_neighbour
        law = laws.null(name, (D_MODEL, D_HEAD + beside, D_MODEL), self_normalized=beside, normalization="none")
        assert uniform(law.p_value(standard[:, NAMES.index(name)])) < LEVEL, name


def test_nothing_is_drawn_and_the_null_is_brought_to_the_heads_own_sigma(arrays, monkeypatch):
    monkeypatch.setattr("rmtbase.nulls._gaussian.cached_null", lambda *_, **__: pytest.fail("a draw was made"))
    notes = Told()
    rmtbase.score_heads(*arrays, "analytic", progress=notes)
    assert notes == ["null of (32, 8): analytic, no draws"]
    w_q, w_k = arrays
    scores = rmtbase.score_heads(0.02 * w_q, w_k, "analytic")["heads"].to_dataset().isel(layer=0, head=1)
    null = AnalyticNull(32, 8)
    scale = float(scores["sigma_q"] * scores["sigma_k"]) ** 2
    for k, one in enumerate(SPECTRAL_STATISTICS.values()):
        assert scores["null_mean"][k] == pytest.approx(one.rescale(null.mean[k], scale, 8), rel=1e-12)
        assert scores["null_std"][k] == pytest.approx(one.rescale_spread(null.std[k], scale), rel=1e-12)
    np.testing.assert_allclose(
        scores["z_score"], (scores["observed"] - scores["null_mean"]) / scores["null_std"], rtol=1e-9
    )


@pytest.fixture(scope="module")
def planted(make_weights, tmp_path_factory):
    """Two layers of 16 heads at (64, 16); heads 5 and 9 of layer 1 have spikes far above and farther above the null."""
    rng = np.random.default_rng(43)
    queries, keys = random_factors(rng, 32, 64, 16).reshape(2, 2, 16, 16, 64)
    for head, strength in ((5, 40.0), (9, 80.0)):
        for factors in (queries, keys):
            factors[1, head] += strength * np.outer(np.eye(16)[3], rng.standard_normal(64) / 8.0)
    # 30 random heads at a false discovery rate of 5 % beside two found: the chance that one of them is called is about
    # 10 % over seeds; the seed is fixed.
    folder = make_weights(0.02 * queries, keys).save(tmp_path_factory.mktemp("spikes") / "planted")
    return rmtbase.score(folder, "analytic")


def test_only_the_planted_heads_are_found_the_farthest_first_and_no_p_value_lies_below_the_floor(planted):
    summary, heads, null = summarize_scores(planted), planted["heads"].to_dataset(), AnalyticNull(64, 16)
    first, second = summary.findings
    assert [(finding.layer, finding.head) for finding in (first, second)] == [(1, 9), (1, 5)]
    assert first.omnibus_q_value == second.omnibus_q_value == pytest.approx(16 * SMALLEST_P_VALUE)
    assert first.distance > second.distance > 8
    for finding in (first, second):
        assert finding.outliers_above == 1 and finding.at_floor
        scores = heads.sel(layer=finding.layer, head=finding.head)
        scale = float(scores["sigma_q"] * scores["sigma_k"]) ** 2
        distance = null.distance(spectral_statistics(np.sqrt(scores["eigenvalue"].values / scale)))
        assert finding.statistic == NAMES[int(np.argmax(distance))]
        assert finding.distance == pytest.approx(distance.max(), rel=1e-9)
    sentence, lines = first.sentence(), summary.sentences()
    assert sentence.startswith("Layer 1 head 9: ") and f"{first.distance:.1f} standard deviations " in sentence
    assert f"q ≤ {first.omnibus_q_value:.2g}" in sentence and summary.flagged["largest_eigenvalue"] >= 2
    assert lines[0] == "2 of 32 heads differ from random heads (false discovery rate 5%)."
    assert lines[1].startswith("Moved share of ‖W_QK‖²: layer 1 head 9 (")
    assert sum(line.startswith("Layer") for line in lines) == 2
    for name in ("p_value", "q_value", "omnibus_p_value", "omnibus_q_value"):
        assert heads[name].min() >= SMALLEST_P_VALUE, name
    assert heads["p_value"].min() == heads["omnibus_p_value"].min() == SMALLEST_P_VALUE
    assert planted["matrices"]["p_value"].min() >= SMALLEST_P_VALUE


def test_the_file_says_that_the_null_is_analytic_and_how_well_it_is_known(planted, tmp_path):
    tree = open_table(write_table(planted, tmp_path / "scores.nc"), "scores")
    xr.testing.assert_identical(tree, planted)
    facts = [tree.attrs[name] for name in ("null_method", "null_draws", "p_value_floor")]
    assert facts == ["analytic", 0, SMALLEST_P_VALUE]
    record = json.loads(tree.attrs["provenance"])["null"]
    assert set(record) == set(SPECTRAL_STATISTICS) and record["log_determinant"].startswith("exact: ")
    np.testing.assert_array_equal(tree["null"]["density"], tree["null"]["density_free"])
    assert not tree["null"]["density_standard_error"].any()


def test_statistics_at_a_nearly_hard_edge_are_scored_and_what_comes_after_copes_without_them(tmp_path):
    factors = random_factors(np.random.default_rng(44), 6, *SQUARISH).reshape(2, 2, 3, 16, 20)
    factors[0, 1, 2] += 5.0
    tree = rmtbase.score_heads(*factors, "analytic")
    heads, absent = tree["heads"].to_dataset(), tree["heads"]["statistic"].isin(AT_THE_LOWER_EDGE)
    for name in ("null_mean", "null_std", "null_quantile", "z_score", "p_value", "q_value", "omnibus_p_value"):
        assert np.isfinite(heads[name]).all(), name
    assert heads["p_value"].sel(statistic=AT_THE_LOWER_EDGE).values.reshape(6, -1)[:5].min() > 1e-3
    null = AnalyticNull(*SQUARISH)
    assert (null.distance(null.quantile[:, null.quantile.shape[1] // 2]) < 0.5).all()
    for name in ("null_mean", "null_std", "null_quantile", "z_score", "p_value", "q_value"):
        heads[name] = heads[name].where(~absent)
    scored = list(set(NAMES) - set(AT_THE_LOWER_EDGE))
    farthest = np.abs(heads["z_score"]).sel(statistic=scored).idxmax("statistic").values
    farthest = heads["farthest_statistic"].copy(data=farthest.astype(str))
    tree["heads"] = xr.DataTree(heads.assign(farthest_statistic=farthest))
    xr.testing.assert_identical(open_table(write_table(tree, tmp_path / "scores.nc"), "scores"), tree)
    summary = summarize_scores(tree)
    assert (1, 2) in [(finding.layer, finding.head) for finding in summary.findings]
    assert tuple(summary.unscored) == tuple(AT_THE_LOWER_EDGE) and set(summary.flagged) == set(scored)
    assert any(line.startswith("Not tested by") and "condition number" in line for line in summary.sentences())
    header, first, *_ = rmtbase.export(tree, statistics=["condition_number"]).decode().splitlines()
    column = dict(zip(header.split(","), first.split(","), strict=True))
    assert column["p_value"] == "nan" and float(column["observed"]) > 1


def test_zero_head_is_not_scored_and_a_rank_deficient_one_is_infinitely_far(weights, tmp_path):
    weights.queries[1, 2] = 0
    weights.queries[0, 1, 3] = 0  # one of its eight dimensions is dead
    tree = rmtbase.score(weights.save(tmp_path / "model"), "analytic")
    heads = tree["heads"].to_dataset()
    assert np.argwhere(np.isnan(heads["omnibus_p_value"].values)).tolist() == [[1, 2]]
    assert np.isnan(heads["p_value"].values[1, 2]).all()
    dead = heads.sel(layer=0, head=1)
    far = dead["p_value"].sel(statistic=["log_determinant", "condition_number", "smallest_eigenvalue"])
    assert (far == SMALLEST_P_VALUE).all() and dead["omnibus_p_value"] == SMALLEST_P_VALUE
    finding = summarize_scores(tree).findings[0]
    assert (finding.layer, finding.head, finding.distance) == (0, 1, np.inf)
    assert "nan" not in finding.sentence()
