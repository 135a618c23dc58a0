"""What changed between two checkpoints: what was planted is found, and a change that knows nothing has uniform p."""

import math

import numpy as np
import pytest
from made_models import layers, model_of

from rmtbase.errors import ParameterError
from rmtbase.heads.read_sites import head_factors
from rmtbase.models import Tensor
from rmtbase.results.diff import diff
from rmtbase.results.diff.report import most_changed, report
from rmtbase.tables import CIRCUITS

QUERY = ["attention_query"]
ATTENTION = [f"attention_{name}" for name in ("query", "key", "value", "output")]


def pair_of(rng, change, count=1, **sizes):
    """A model and another, whose query matrices are what ``change`` makes of the first one's."""
    drawn = [rng.standard_normal((sizes["heads"] * sizes["d_head"], sizes["d_model"])) for _ in range(count)]
    seed = rng.integers(2**32)
    models = []
    for queries in (drawn, [change(one) for one in drawn]):
        changed = {f"t{k}_query": each for k, each in enumerate(queries)}
        models.append(model_of(np.random.default_rng(seed), layers(count), **sizes, **changed))
    return models


def top(matrix):
    """The first singular directions of a matrix."""
    u, _, v = np.linalg.svd(matrix, full_matrices=False)
    return u[:, 0], v[0]


def test_a_change_that_knows_nothing_has_uniform_p_values_and_no_directions():
    # 3 layers of 12 heads and their whole matrices, two sides: 72 tests of heads that share nothing of a side, and 4.5
    # standard errors, one seed in 100 000; the law's own error at these levels is within 5 %.
    rng = np.random.default_rng(1)
    before, after = pair_of(rng, lambda w: w + 0.1 * rng.standard_normal(w.shape), 3, heads=12, d_head=12, d_model=64)
    tree = diff(before, after, components=QUERY)
    heads = tree["heads"].to_dataset()
    p = np.concatenate([heads[f"p_value_{side}"].values.ravel() for side in ("in", "out")])
    assert p.size == 72
    for level in (0.1, 0.5):
        assert abs((p <= level).mean() - level) < 4.5 * math.sqrt(level * (1 - level) / p.size) + 0.05 * level
    np.testing.assert_allclose(heads["relative_change"], 0.1, rtol=0.2)  # 5 standard errors of each head
    assert (heads["n_directions"] > 0).mean() < 0.05 + 4.5 * math.sqrt(0.05 * 0.95 / 36)
    assert (heads["reason"] == "").all()
    assert (heads["expected_share_in"] == heads["n_old_directions"] / 64).all()
    assert not (heads["q_value_in"] < 0.01).any()


def test_directions_that_grew_are_old_ones_and_new_ones_are_counted():
    rng = np.random.default_rng(2)

    def grown(w):
        u, v = top(w)
        return w + 8.0 * np.outer(u, v) + 0.02 * rng.standard_normal(w.shape)

    before, after = pair_of(rng, grown, heads=1, d_head=48, d_model=96)
    one = diff(before, after, components=QUERY)["matrices"].to_dataset().sel(component="attention_query")[{"layer": 0}]
    assert one["n_directions"] == 1 and one["first_p_value"] == 1 / 200
    for side in ("in", "out"):
        assert one[f"old_share_{side}"] > 0.98 and one[f"p_value_{side}"] < 1e-3
    rng = np.random.default_rng(3)

    def learned(w):
        left = np.linalg.qr(rng.standard_normal((w.shape[0], 3)))[0]
        right = np.linalg.qr(rng.standard_normal((w.shape[1], 3)))[0]
        return w + left @ np.diag([6.0, 5.0, 4.0]) @ right.T + 0.05 * rng.standard_normal(w.shape)

    before, after = pair_of(rng, learned, heads=1, d_head=40, d_model=120)
    one = diff(before, after, components=QUERY)["matrices"].to_dataset()
    assert one["n_directions"].item() == 3 and one["first_p_value"].item() == 1 / 200
    assert one["p_value_in"].item() > 1e-3
    assert 2.5 < one["effective_rank"].item() < 4.0


def test_weights_that_shrink_have_cosine_minus_one_and_rounding_is_told():
    before, after = pair_of(np.random.default_rng(4), lambda w: 0.9 * w, heads=2, d_head=6, d_model=24)
    one = diff(before, after, components=QUERY)["heads"].to_dataset()
    np.testing.assert_allclose(one["cosine"], -1.0, atol=1e-6)
    np.testing.assert_allclose(one["relative_change"], 0.1, rtol=1e-5)
    before, after = pair_of(np.random.default_rng(5), lambda w: w, heads=2, d_head=6, d_model=24)
    tree = diff(before, after)
    for name in ("matrices", "heads"):
        group = tree[name].to_dataset()
        assert (group["relative_change"] == 0.0).all()
        assert group["p_value_in"].isnull().all() and group["effective_rank"].isnull().all()
    rng = np.random.default_rng(8)
    before, after = pair_of(rng, lambda w: w + 1e-7 * rng.standard_normal(w.shape), heads=2, d_head=6, d_model=24)
    share = diff(before, after, components=QUERY)["matrices"]["rounding_share"].item()
    assert 0.1 < share < 10.0  # steps of float32 at 1 are 1.2e-7


def test_other_models_and_other_components_are_refused():
    rng = np.random.default_rng(9)
    one, other = (model_of(rng, layers(1), d_model=width) for width in (24, 20))
    with pytest.raises(ParameterError, match=r"before = .*d_query = 20.*expected 24"):
        diff(other, one)
    for bad in (["mlp_in"], [], ["attention_key", "attention_key"]):
        with pytest.raises(ParameterError, match="distinct ones of attention_query"):
            diff(one, one, components=bad)
    with pytest.raises(ParameterError, match="level"):
        diff(one, one, level=0.0)
    assert isinstance(one.sites[0].query, Tensor)


def test_the_change_of_a_heads_products_is_that_of_the_products_and_heads_are_listed_by_it():
    """Four heads on two key heads: W_QK and W_OV of each are multiplied out, before and after."""
    before, after = noisy_pair()
    heads = diff(before, after, components=ATTENTION)["heads"].to_dataset()
    for circuit in ("qk", "ov"):
        for layer, head in np.ndindex(2, 4):
            factors = (head_factors(model, layer, CIRCUITS[circuit], head) for model in (before, after))
            old, new = (left.T.astype(float) @ right.astype(float) for left, right in factors)
            there = {name: heads[f"{name}_{circuit}"].values[layer, head] for name in ("relative_change", "similarity")}
            size = np.linalg.norm(old)
            np.testing.assert_allclose(there["relative_change"], np.linalg.norm(new - old) / size, rtol=1e-10)
            np.testing.assert_allclose(there["similarity"], np.vdot(old, new) / size / np.linalg.norm(new), rtol=1e-9)
    tree = diff(*noisy_pair(), components=ATTENTION)
    listed = most_changed(tree)
    change = tree["heads"]["relative_change_qk"].values
    assert [one["relative_change_qk"] for one in listed] == sorted(change.ravel().tolist(), reverse=True)
    assert all(change[int(one["layer"].split()[-1]), one["head"]] == one["relative_change_qk"] for one in listed)
    first = next(item for item in report(tree) if type(item) is str)
    assert first.startswith("Heads whose W_QK changed most")
    assert f"{listed[0]['layer']} head {listed[0]['head']}" in first


def noisy_pair():
    """A model of four heads on two key heads in each of two layers, and the same with noise."""
    sizes = {"heads": 4, "key_heads": 2, "d_head": 3, "d_value": 5, "d_model": 16}
    before = model_of(np.random.default_rng(11), layers(2), **sizes)
    noise = np.random.default_rng(12)

    def draw(rng, shape):
        return rng.standard_normal(shape) + 0.3 * noise.standard_normal(shape)

    return before, model_of(np.random.default_rng(11), layers(2), **sizes, draw=draw)


def test_a_head_that_is_turned_has_not_changed_by_its_product_and_outputs_are_columns_of_the_whole():
    """W_Q → M W_Q and W_K → M⁻ᵀ W_K leave W_QK as it is: the parts have changed, the product has not."""
    rng = np.random.default_rng(12)
    sizes = {"heads": 1, "d_head": 3, "d_model": 8}
    query, key = (rng.standard_normal((3, 8)) for _ in range(2))
    m = rng.standard_normal((3, 3)) + 3 * np.eye(3)
    before, after = (
        model_of(np.random.default_rng(0), layers(1), **sizes, t0_query=q, t0_key=k)
        for q, k in ((query, key), (m @ query, np.linalg.inv(m).T @ key))
    )
    heads = diff(before, after, components=["attention_query", "attention_key"])["heads"].to_dataset()
    assert (heads["relative_change"] > 0.1).all()
    assert heads["relative_change_qk"].max() < 1e-6, "weights are stored in float32"
    np.testing.assert_allclose(heads["similarity_qk"], 1.0)
    assert "relative_change_ov" not in heads, "its matrices were not asked for"
    sizes = {"heads": 3, "d_head": 4, "d_value": 5, "d_model": 24}
    rng = np.random.default_rng(6)
    models = [
        model_of(np.random.default_rng(7), layers(1), **sizes, t0_output=rng.standard_normal((24, 15)))
        for _ in range(2)
    ]
    heads = diff(*models, components=["attention_output"])["heads"].to_dataset().squeeze()
    assert (heads["n_rows"] == 24).all() and (heads["n_columns"] == 5).all()
    old, new = (model.outputs(0)[1].T.astype(float) for model in models)
    change = new - old
    basis = np.linalg.svd(old, full_matrices=False)[0][:, : int(heads["n_old_directions"][1])]
    expected = np.linalg.norm(basis.T @ change) ** 2 / np.linalg.norm(change) ** 2
    assert heads["old_share_out"][1].item() == pytest.approx(expected, rel=1e-9)
