"""The shape of a site's null and its sigmas are read off the expressions, however they are written down."""

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.heads.factors import head_dims, head_sigmas
from rmtbase.models import Gained, Place, Product, Scaled, Site, Stacked, Tensor, take_rows
from rmtbase.statistics import LatentShape

D, Q_RANK, KV_RANK, NOPE, ROPE, VALUE, HEADS = 24, 10, 7, 4, 3, 5, 2
HEAD = NOPE + ROPE
RNG = np.random.default_rng(0)
WEIGHTS = {
    name: scale * RNG.standard_normal(shape)
    for scale, (name, shape) in enumerate(
        {
            "q_a": (Q_RANK, D),
            "q_b": (HEADS * HEAD, Q_RANK),
            "q": (HEADS * HEAD, D),
            "k": (HEADS * HEAD, D),
            "kv_a": (KV_RANK + ROPE, D),
            "kv_b": (HEADS * (NOPE + VALUE), KV_RANK),
            "o": (D, HEADS * VALUE),
        }.items(),
        start=1,
    )
} | {"gain": RNG.uniform(1, 2, D)}
LATENT, ROTATED = (take_rows(Tensor("kv_a"), rows) for rows in (range(KV_RANK), range(KV_RANK, KV_RANK + ROPE)))
NOPE_ROWS = [range(head * (NOPE + VALUE), head * (NOPE + VALUE) + NOPE) for head in range(HEADS)]
VALUE_ROWS = [row for rows in NOPE_ROWS for row in range(rows.stop, rows.stop + VALUE)]


def head_after_head():
    """[W_UK W_DKV; W_KR] of one head, then of the next."""
    each = [(Product((take_rows(Tensor("kv_b"), rows), LATENT)), ROTATED) for rows in NOPE_ROWS]
    return Stacked(tuple(part for one in each for part in one))


def rows_in_order():
    """Rows of one product of all heads and of the rotated key, in the order of the heads."""
    together = take_rows(Tensor("kv_b"), [row for rows in NOPE_ROWS for row in rows])
    stacked = Stacked((Product((together, LATENT)), ROTATED))
    order = [
        [*range(head * NOPE, (head + 1) * NOPE), *range(HEADS * NOPE, HEADS * NOPE + ROPE)] for head in range(HEADS)
    ]
    return take_rows(stacked, [row for one in order for row in one])


def site(**parts):
    sizes = {"n_heads": HEADS, "n_key_heads": HEADS, "d_head": HEAD, "d_query": D, "d_key": D, "d_value": VALUE}
    return Site(place=Place("", 0), **(sizes | parts))


def sigmas_of(at, *names):
    return head_sigmas(at, names, shapes, WEIGHTS.__getitem__)


def shapes(name):
    return WEIGHTS[name].shape


def root_mean_square(matrix):
    return np.sqrt(np.mean(matrix**2))


QUERY = Product((Tensor("q_b"), Tensor("q_a")))


@pytest.mark.parametrize("key", [head_after_head(), rows_in_order()], ids=["head after head", "rows in order"])
@pytest.mark.parametrize(("query", "q_rank"), [(QUERY, Q_RANK), (Tensor("q"), None)], ids=["latent query", "plain"])
def test_latent_attention_is_told_by_its_keys(key, query, q_rank):
    at = site(query=query, key=key)
    shape = head_dims(at, ("query", "key"), shapes)
    assert shape == LatentShape(D, KV_RANK, NOPE, ROPE, q_rank)
    sigmas, ratio = sigmas_of(at, "query", "key")
    w_k = key.evaluate(WEIGHTS.__getitem__).reshape(HEADS, HEAD, D)
    up_query = WEIGHTS["q" if q_rank is None else "q_b"].reshape(HEADS, HEAD, -1)
    for head, rows in enumerate(NOPE_ROWS):
        up, down, rotated = WEIGHTS["kv_b"][rows], WEIGHTS["kv_a"][:KV_RANK], w_k[head, NOPE:]
        expected = [up_query[head], *([] if q_rank is None else [WEIGHTS["q_a"]]), up, down]
        np.testing.assert_allclose([sigma[head] for sigma in sigmas], [root_mean_square(one) for one in expected])
        assert ratio[head] == pytest.approx(shape.rope_ratio(*map(root_mean_square, (up, down, rotated))))


def test_grouped_keys_serve_several_heads_and_gains_are_of_the_factor_that_they_touch():
    at = site(n_key_heads=1, query=Tensor("q"), key=take_rows(Tensor("k"), range(HEAD)))
    assert head_dims(at, ("query", "key"), shapes) == (D, HEAD, D)
    (_, of_key), _ = sigmas_of(at, "query", "key")
    np.testing.assert_allclose(of_key, root_mean_square(WEIGHTS["k"][:HEAD]))
    at = site(query=Gained(Scaled(QUERY, 3.0), "gain"), key=Tensor("k"))
    assert head_dims(at, ("query", "key"), shapes) == (D, Q_RANK, HEAD, D)
    (inner, outer, _), _ = sigmas_of(at, "query", "key")
    np.testing.assert_allclose(inner, root_mean_square(WEIGHTS["q_a"] * WEIGHTS["gain"]))
    np.testing.assert_allclose(outer[0], 3.0 * root_mean_square(WEIGHTS["q_b"][:HEAD]))


def test_what_has_no_known_null_is_refused():
    kinds = Product((take_rows(Tensor("kv_b"), range(HEAD)), LATENT)), take_rows(Tensor("k"), range(HEAD))
    rotated_queries, heads_of_two_kinds = (head_after_head(), Tensor("k")), (Tensor("q"), Stacked(kinds))
    for query, key in (rotated_queries, heads_of_two_kinds):
        with pytest.raises(ParameterError, match="latent attention"):
            head_dims(site(query=query, key=key), ("query", "key"), shapes)
