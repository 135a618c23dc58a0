"""What the null of a head does not cover, and what its p-values are not: each limit that is stated, shown."""

import math

import numpy as np
import pytest

import rmtbase
from rmtbase.laws import null
from rmtbase.results.depth import effective_depth
from telling import Told

D_MODEL, D_HEAD, HEADS = 128, 16, 1500
RNG_SEED = 11


@pytest.fixture(scope="module")
def normal():
    notes = Told()
    rng = np.random.default_rng(RNG_SEED)
    scores = rmtbase.score_heads(*rng.standard_normal((2, HEADS, D_HEAD, D_MODEL)), progress=notes)
    assert "shipped" in notes[0]
    return scores["heads"].to_dataset().isel(layer=0, drop=True)


def draws_of(law, rng, shape):
    if law == "uniform":
        return rng.uniform(-1.0, 1.0, shape)
    return rng.laplace(size=shape)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("law", "excess_kurtosis"), [("uniform", -1.2), ("Laplace", 3.0)])
def test_entries_that_are_not_normal_move_the_log_determinant(law, excess_kurtosis):
    # By -κ₄ h/d, an amount of the order of its standard deviation at any size: -κ₄/√2 of it for h much smaller than d.
    shape = (2, HEADS, D_HEAD, D_MODEL)
    scores = (
        rmtbase.score_heads(*draws_of(law, np.random.default_rng(RNG_SEED), shape))["heads"]
        .to_dataset()
        .sel(statistic="log_determinant")
    )
    spread = null("log_determinant", (D_MODEL, D_HEAD, D_MODEL), self_normalized=True, normalization="none").std()
    expected = -excess_kurtosis * D_HEAD / D_MODEL / spread
    assert expected == pytest.approx(-excess_kurtosis / math.sqrt(2), rel=0.1)
    # Five standard errors are 0.13 (uniform) and 0.17; the next order is within 15 % at this size.
    assert float(scores["z_score"].mean()) == pytest.approx(expected, rel=0.15, abs=0.15)
    assert (scores["p_value"] < 0.05).mean() > 0.08


def test_normal_entries_are_calibrated_and_p_values_of_the_atlas_lie_on_plateaus(normal):
    scores = normal.sel(statistic="log_determinant")
    assert abs(float(scores["z_score"].mean())) < 4.5 / math.sqrt(HEADS)  # false failure: 7e-6
    assert (scores["p_value"] < 0.05).mean() < 0.05 + 4.5 * math.sqrt(0.05 * 0.95 / HEADS)
    # Valid and right in size, but not uniform: nothing that reads their whole distribution holds as it stands.
    p = normal["p_value"].values
    for k in range(p.shape[1]):
        steps = np.unique(p[:, k])
        assert steps.size < 250 < 0.9 * HEADS
        assert np.diff(steps[steps > 0.5]).max() > 0.02
    assert np.unique(normal["omnibus_p_value"]).size < 250


def test_untrained_heads_of_latent_attention_are_flagged():
    # k = W_UK W_DKV x: the product of two random matrices is no Gaussian matrix, and all heads share W_DKV.
    rng = np.random.default_rng(RNG_SEED)
    w_q = rng.standard_normal((40, D_HEAD, D_MODEL))
    w_k = rng.standard_normal((40, D_HEAD, 2 * D_HEAD)) @ rng.standard_normal((2 * D_HEAD, D_MODEL))
    scores = rmtbase.score_heads(w_q, w_k)["heads"]
    assert (scores["omnibus_q_value"] < 0.05).all()
    assert (scores["z_score"].sel(statistic="normalized_participation_ratio") < -5).all()


def test_depth_p_values_share_their_draws_and_come_in_hundredths():
    rng = np.random.default_rng(RNG_SEED)
    told, found = Told(), []
    for _ in range(3):
        matrix = np.eye(24) + rng.standard_normal((24, 24)) / math.sqrt(24)
        found.append(effective_depth(matrix, depths=[1], seed=RNG_SEED, progress=told))
    assert told.steps["drawing residual paths"] == 99  # for all three matrices together
    for one in found:
        assert one.p_value * 100 == pytest.approx(round(one.p_value * 100), abs=1e-9)
