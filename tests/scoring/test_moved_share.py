"""The moved share of heads, what random heads have of it, its part that equal axes take away, and the relation R."""

import json

import numpy as np
import pytest
from made_models import layers, model_of

import rmtbase
from rmtbase.nulls import Gaussian, random_heads
from rmtbase.results import open_table
from rmtbase.results.scores import circuit_scores, summarize_scores
from rmtbase.results.scores._how_much import Towards
from rmtbase.results.scores.report import as_json
from rmtbase.statistics import moved_parts, moved_share
from rmtbase.tables import write_table

D, H = 336, 28
THRESHOLD = (D * H) ** 0.25  # from which a direction stands out in a factor


def dense_eigenvalues(w_q, w_k):
    """By the whole matrix, in float64."""
    return np.linalg.svd(w_q.T @ w_k, compute_uv=False)[: len(w_q)] ** 2


def directions(rng, d, h, count, strength):
    """W_Q and W_K, each with ``count`` equally strong directions of its own."""
    factors = rng.standard_normal((2, h, d))
    for factor in factors:
        axes, inputs = (np.linalg.qr(rng.standard_normal((size, count)))[0] for size in (h, d))
        factor += strength * axes @ inputs.T
    return factors


PLANTED = {
    "nothing": lambda rng: rng.standard_normal((2, H, D)),
    "row gains": lambda rng: rng.standard_normal((2, H, D)) * np.exp(0.5 * rng.standard_normal((2, H, 1))),
    "half the axes small": lambda rng: rng.standard_normal((2, H, D)) * np.where(np.arange(H) % 2, 0.1, 1.0)[:, None],
    "three directions": lambda rng: directions(rng, D, H, 3, 2 * THRESHOLD),
    "all directions": lambda rng: directions(rng, D, H, H, 3 * THRESHOLD),
}


@pytest.fixture(scope="module")
def planted():
    """Six heads of each kind, a layer of each, as the rows of one model."""
    rng = np.random.default_rng(3)
    each = {name: np.stack([draw(rng) for _ in range(6)], axis=1) for name, draw in PLANTED.items()}
    w_q, w_k = np.stack(list(each.values()), axis=1)
    return rmtbase.score_heads(w_q, w_k, "analytic", circuits=("qk", "query"))


def test_moved_share_is_half_the_summed_difference_of_the_shares():
    eigenvalues, mean = np.array([6.0, 2.0, 1.0, 1.0]), np.array([4.0, 3.0, 2.0, 1.0])
    assert moved_share(eigenvalues, mean) == pytest.approx((0.2 + 0.1 + 0.1 + 0.0) / 2)
    assert moved_share(1e-300 * eigenvalues, 1e300 * mean) == pytest.approx(0.2)
    assert moved_parts(eigenvalues, mean) == pytest.approx((0.2, 0.0))
    assert moved_parts(mean, eigenvalues) == pytest.approx((0.0, 0.2))
    assert moved_parts(np.array([5.0, 2.0, 1.5, 1.5]), mean) == pytest.approx((0.1, 0.05))
    assert np.isnan(moved_share(np.zeros(4), mean))
    assert moved_share([6.0, 2.0, np.nan], [4.0, 3.0, 2.0]) == pytest.approx(0.75 - 4 / 7)


def test_every_head_has_one_in_the_file_and_in_json(planted, tmp_path):
    tree = open_table(write_table(planted, tmp_path / "scores.nc"))
    heads, null = tree["heads"].to_dataset(), tree["null"].to_dataset()
    for name in ("moved_share", "moved_share_equal_axes"):
        assert heads[name].dims == ("layer", "head") and heads[name].notnull().all()
    again = moved_share(heads["eigenvalue"].values, null["eigenvalue_mean"].values)
    np.testing.assert_allclose(heads["moved_share"], again, rtol=1e-12)
    assert (heads["moved_share"] >= heads["moved_towards_fewer"] + heads["moved_towards_more"] - 1e-12).all()
    rows = json.loads(json.dumps(as_json(planted)))["heads"]
    assert {one["towards"] for one in rows} <= {"", "fewer", "more", "both"}
    for name in ("moved_share", "moved_share_equal_axes", "relation", "relation_q_value"):
        assert [one[name] for one in rows] == pytest.approx(planted["heads"][name].values.ravel().tolist())


def test_moved_share_of_planted_heads_is_that_of_an_independent_computation(planted):
    """Within 4 standard errors of MATH's table, which was made by other code: 37, 33, 7.8 and 5.6 %."""
    expected = {"row gains": 0.37, "half the axes small": 0.33, "three directions": 0.078, "all directions": 0.056}
    for layer, name in enumerate(PLANTED):
        shares = planted["heads"]["moved_share"].values[layer]
        if name in expected:
            spread = shares.std(ddof=1) / np.sqrt(len(shares))
            assert abs(shares.mean() - expected[name]) < 4 * spread + 0.005, name
        else:
            assert shares.mean() < float(planted["null"]["moved_share_upper"])


def test_equal_axes_take_away_what_unequal_axes_moved_and_the_answer_says_so_and_which_way_strength_moved(planted):
    heads, upper = planted["heads"].to_dataset(), float(planted["null"]["moved_share_equal_axes_upper"])
    share, equal, summary = (
        heads["moved_share"].values,
        heads["moved_share_equal_axes"].values,
        summarize_scores(planted),
    )
    amounts, of_axes = dict(summary.moved.heads), ("row gains", "half the axes small")
    for layer, name in enumerate(PLANTED):
        if name != "nothing":
            assert (equal[layer] < 1.5 * upper if name in of_axes else equal[layer] > 0.75 * share[layer]).all(), name
            of_kind = [amounts[f"layer {layer} head {head}"] for head in range(6)]
            assert {one.mostly_axes for one in of_kind} == {name in of_axes}
            towards = {"all directions": {Towards.MORE}, "three directions": {Towards.FEWER}}
            assert {one.towards for one in of_kind} == towards.get(name, {one.towards for one in of_kind})
    (line,) = (one for one in summary.answer() if one.startswith("Mostly because axes are unequal: "))
    assert "layer 1 head" in line and "and 9 more" in line


def test_upper_point_is_that_of_random_heads():
    """600 dense heads: 5 % above, within 4.5 binomial standard deviations and 3 standard errors of the point."""
    rng = np.random.default_rng(0)
    for d, h in ((64, 8), (48, 40)):
        chance = random_heads((d, h, d), 1)
        spectra = np.array([dense_eigenvalues(*rng.standard_normal((2, h, d))) for _ in range(600)])
        shares = np.sort(moved_share(spectra, spectra.mean(axis=0)))
        point, error = chance.upper.value, chance.upper.standard_error
        allowed = 4.5 * np.sqrt(0.95 * 0.05 / 600)
        assert (shares < point - 3 * error).mean() < 0.95 + allowed
        assert (shares < point + 3 * error).mean() > 0.95 - allowed


@pytest.mark.parametrize("order", ["halves", pytest.param("pairs", marks=pytest.mark.exhaustive)])
def test_rows_of_rotary_pairs_in_either_order_and_shared_keys_change_nothing(order):
    """Gains of rotary pairs, W_K shared by two heads: what equal axes leave does not depend on how rows are stored."""
    rng = np.random.default_rng(5)
    w_q, w_k = rng.standard_normal((4, 16, 128)), rng.standard_normal((2, 16, 128))
    gains = np.exp(0.8 * rng.standard_normal(8)).repeat(2)[:, None]
    rows = np.arange(16) if order == "pairs" else np.arange(16).reshape(8, 2).T.ravel()
    tree = rmtbase.score_heads((gains * w_q)[:, rows], (gains * w_k)[:, rows], Gaussian(draws=2000))
    heads, mean = tree["heads"].to_dataset(), tree["null"]["eigenvalue_mean_equal_axes"].values
    assert (heads["moved_share"] > 0.2).all()
    w_q, w_k = (w / np.linalg.norm(w, axis=2, keepdims=True) for w in (w_q, w_k))
    expected = [moved_share(dense_eigenvalues(w_q[head], w_k[head // 2]), mean) for head in range(4)]
    np.testing.assert_allclose(heads["moved_share_equal_axes"].values[0], expected, rtol=1e-9)
    assert (heads["moved_share_equal_axes"] < 2 * tree["null"]["moved_share_equal_axes_upper"]).all()
    assert sum(one.mostly_axes for _, one in summarize_scores(tree).moved.heads) == 4


def test_outputs_and_values_have_no_axes_and_queries_and_keys_of_other_streams_no_relation():
    model, other = (
        model_of(np.random.default_rng(2), layers(1), d_model=32, d_head=8, widths=widths)
        for widths in (None, {0: (40, 32)})
    )
    tree = circuit_scores(rmtbase.score(model, "analytic", circuits=("qk", "ov"), matrices="none"), "ov")
    assert {"moved_share_equal_axes", "relation"}.isdisjoint(tree["heads"].data_vars)
    assert tree["heads"]["moved_share"].notnull().all()
    heads = rmtbase.score(other, "analytic", matrices="none")["heads"]
    assert heads["relation"].isnull().all() and heads["moved_share_equal_axes"].notnull().all()


def test_relation_is_the_share_that_was_planted():
    """W_K = B W_Q + noise, 82 % of ‖W_QK‖² related: R within 4 standard errors, beside the dense projector."""
    rng = np.random.default_rng(7)
    h, d, heads = 16, 128, 40
    w_q = rng.standard_normal((heads, h, d))
    own = rng.standard_normal((heads, h, h)) @ w_q / np.sqrt(h)
    w_k = own + np.sqrt(0.18 / 0.82) * rng.standard_normal(own.shape)
    tree = rmtbase.score_heads(w_q, w_k, "analytic")
    basis, product = np.linalg.qr(w_q.swapaxes(1, 2))[0], w_q.swapaxes(1, 2) @ w_k
    related, planted, total = (
        np.sum(part**2, axis=(1, 2)) for part in (product @ basis, w_q.swapaxes(1, 2) @ own, product)
    )
    values = tree["heads"]["relation"].values[0]
    np.testing.assert_allclose(values, (related / total - h / d) / (1 - h / d), rtol=1e-9)
    assert abs(values.mean() - (planted / total).mean()) < 0.02
    assert (tree["heads"]["relation_q_value"] < 1e-6).all()
    (line,) = summarize_scores(tree).related.sentences()
    assert line.startswith("Related queries and keys in 40 of 40 heads")


@pytest.mark.parametrize("law", ["normal", "t3", "row gains"])
def test_relation_of_unrelated_heads_is_chance(law):
    """At 5 % and 1 % at most 1.5 and 2.5 times as often, beside 4 binomial standard deviations: 1 600 heads."""
    rng = np.random.default_rng(11)
    shape = (2, 20, 80, 8, 64)
    w = rng.standard_t(3, shape) if law == "t3" else rng.standard_normal(shape)
    if law == "row gains":
        w *= np.exp(0.5 * rng.standard_normal((*shape[:-1], 1)))
    p = rmtbase.score_heads(*w, "analytic")["heads"]["relation_p_value"].values
    for level, factor in ((0.05, 1.5), (0.01, 2.5)):
        assert np.mean(p < level) < factor * level + 4 * np.sqrt(level / p.size)
    assert 0.4 < np.mean(p < 0.5) < 0.6


def test_a_head_that_does_not_differ_is_named_and_copies_with_random_signs_keep_unequal_axes():
    rng = np.random.default_rng(1)
    w = directions(rng, 128, 16, 2, 5 * (128 * 16) ** 0.25)
    w_q, w_k = np.stack([*[w] * 7, rng.standard_normal((2, 16, 128))], axis=1)
    summary = summarize_scores(rmtbase.score_heads(w_q, w_k, "analytic"))
    assert summary.verdict() == (
        "7 of 8 heads differ from random heads (false discovery rate 5%). Not told from them: layer 0 head 7."
    )
    rng = np.random.default_rng(4)
    w = PLANTED["row gains"](rng)[:, None, :8, :64]
    tree = rmtbase.score_heads(*w, "signs")
    assert float(tree["heads"]["moved_share"].item()) < 2 * float(tree["null"]["moved_share_upper"].item())
    assert not any(one.mostly_axes for _, one in summarize_scores(tree).moved.heads)
