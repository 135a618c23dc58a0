"""Expressions over stored tensors against NumPy, and what is folded into them against a forward pass."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmtbase.errors import ParameterError
from rmtbase.models.layouts import _expressions as made
from rmtbase.models.layouts._expressions import Gained, Product, Rows, Scaled, Stacked, Sum, Tensor, take_rows, to_json
from rmtbase.models.layouts._sites import FOLDS, PLAIN, Norm, Place, Site, fold_site, require_folds

RNG = np.random.default_rng(7)
STORED = {
    "w": RNG.normal(size=(12, 5)),
    "conv": RNG.normal(size=(5, 12)),
    "kernel": RNG.normal(size=(12, 5, 1)),
    "heads": RNG.normal(size=(3, 4, 5)),
    "outward": RNG.normal(size=(5, 3, 4)),
    "down": RNG.normal(size=(5, 9)),
    "g": RNG.normal(size=5),
    "of_head": RNG.normal(size=4),
    "b": RNG.normal(size=12),
}
W, CONV, HEADS, DOWN, G, B = (STORED[name] for name in ("w", "conv", "heads", "down", "g", "b"))
EVERY = {
    "tensor": (Tensor("w"), W),
    "transposed": (Tensor("conv", transposed=True), CONV.T),
    "kernel of size 1": (Tensor("kernel"), STORED["kernel"][..., 0]),
    "heads first": (Tensor("heads"), HEADS.reshape(12, 5)),
    "heads last": (Tensor("outward", transposed=True), STORED["outward"].reshape(5, 12).T),
    "one of a stack": (Tensor("heads", index=1), HEADS[1]),
    "rows": (Rows(Tensor("w"), ((0, 4, 1), (5, 12, 3))), W[[0, 1, 2, 3, 5, 8, 11]]),
    "multiple": (Scaled(Tensor("w"), 0.5), 0.5 * W),
    "gain": (Gained(Tensor("w"), "g"), W * G),
    "gain from 1": (Gained(Tensor("w"), "g", 1.0), W * (1 + G)),
    "gain of each head": (Gained(Tensor("w"), "of_head", rows=True), W * np.tile(STORED["of_head"], 3)[:, None]),
    "bias": (made.Biased(Tensor("w"), made.Column("b")), np.column_stack([W, B])),
    "sum": (Sum((Tensor("w"), Scaled(Tensor("kernel"), 2.0))), W + 2 * STORED["kernel"][..., 0]),
    "product": (Product((Tensor("w"), Tensor("down"))), W @ DOWN),
    "stack": (Stacked((Tensor("w"), Tensor("heads", index=0))), np.concatenate([W, HEADS[0]])),
}


@pytest.mark.parametrize(("expression", "expected"), EVERY.values(), ids=EVERY)
def test_expression(expression, expected):
    found = expression.evaluate(STORED.__getitem__)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert expression.shape(lambda name: STORED[name].shape) == expected.shape
    assert set(expression.tensors()) <= STORED.keys()
    assert json.loads(json.dumps(to_json(expression))) == to_json(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (Tensor("g"), "no matrix"),
        (Tensor("heads", index=3), "no matrix of its own"),
        (take_rows(Tensor("w"), [11, 12]), "rows up to 13 of the 12 of w"),
        (Product((Tensor("down"), Tensor("w"))), r"a product of the shapes \(5, 9\) and \(12, 5\)"),
        (Sum((Tensor("w"), Tensor("down"))), r"a sum of the shapes \(12, 5\) and \(5, 9\)"),
        (Stacked((Tensor("w"), Tensor("down"))), "one above the other"),
        (Gained(Tensor("w"), "b"), "gains b of shape"),
        (made.Biased(Tensor("w"), made.Column("g")), "a bias of shape"),
    ],
)
def test_parts_that_do_not_fit(expression, words):
    with pytest.raises(ValueError, match=words):
        expression.shape(lambda name: STORED[name].shape)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_rows_by_index(indices):
    """Whatever the order of the rows, and however often one comes."""
    matrix = np.arange(31.0)[:, None]
    rows = take_rows(Tensor("w"), indices)
    assert rows.evaluate(lambda _: matrix).ravel().tolist() == indices
    assert rows.shape(lambda _: matrix.shape) == (len(indices), 1)


def test_rows_are_few_runs():
    heads = [row for head in range(32) for row in range(head * 192, head * 192 + 64)]
    assert len(take_rows(Tensor("w"), heads).runs) == 32
    assert take_rows(Tensor("w"), range(3, 99, 4)).runs == ((3, 96, 4),)


def site(**parts):
    plain = {"n_heads": 3, "n_key_heads": 1, "d_head": 4, "d_query": 5, "d_key": 5}
    plain |= {"query": Tensor("q.weight"), "key": Tensor("k.weight")}
    return Site(place=Place("", 0), **plain | parts)


WEIGHTS = {
    "q.weight": RNG.normal(size=(12, 5)),
    "q.bias": RNG.normal(size=12),
    "k.weight": RNG.normal(size=(4, 5)),
    "k.bias": RNG.normal(size=4),
    "norm.weight": RNG.normal(size=5),
    "norm.bias": RNG.normal(size=5),
    "q_norm.weight": RNG.normal(size=4),
    "k_norm.weight": RNG.normal(size=4),
}
NORMS = {
    "query_input_norm": Norm("norm.weight", "norm.bias"),
    "key_input_norm": Norm("norm.weight", "norm.bias"),
    "query_norm": Norm("q_norm.weight", offset=1.0),
    "key_norm": Norm("k_norm.weight", offset=1.0),
}


def logits(stored, head, normalised, other, *, biases, norms):
    """q·k of one head before what its norms divide by, written as a forward pass."""

    def projected(name, x, rows):
        if norms:
            x = x * stored["norm.weight"] + (stored["norm.bias"] if biases else 0)
        y = stored[f"{name}.weight"][rows] @ x + (stored[f"{name}.bias"][rows] if biases else 0)
        return y * (1 + stored[f"{name}_norm.weight"]) if norms else y

    return projected("q", normalised, slice(4 * head, 4 * head + 4)) @ projected("k", other, slice(0, 4))


@pytest.mark.parametrize("fold", [(), ("biases",), ("norms",), FOLDS])
def test_folded_matrices_are_the_forward_pass(fold):
    folded = fold_site(site(**NORMS), fold, WEIGHTS)
    w_q, w_k = (matrix.evaluate(WEIGHTS.__getitem__) for matrix in (folded.query, folded.key))
    assert w_q.shape == (12, folded.d_query)
    assert w_k.shape == (4, folded.d_key)
    x, other = RNG.normal(size=(2, 5))
    ends = [np.append(one, 1.0) if "biases" in fold else one for one in (x, other)]
    for head in range(3):
        found = ends[0] @ w_q[4 * head : 4 * head + 4].T @ w_k @ ends[1]
        expected = logits(WEIGHTS, head, x, other, biases="biases" in fold, norms="norms" in fold)
        assert found == pytest.approx(expected, rel=1e-12)


def test_biases_of_fused_rows_and_of_chains():
    """Rows of a bias go with rows of its weight; the bias of an inner map goes through the outer one."""
    stored = {name: RNG.normal(size=shape) for name, shape in (("qkv.weight", (12, 5)), ("qkv.bias", 12))}
    fused = fold_site(site(query=take_rows(Tensor("qkv.weight"), [9, 3, 0, 1] * 3)), ["biases"], stored)
    np.testing.assert_array_equal(fused.query.evaluate(stored.__getitem__)[:, -1], stored["qkv.bias"][[9, 3, 0, 1] * 3])
    chain = {"up.weight": (12, 2), "up.bias": 12, "down.weight": (2, 5), "down.bias": 2}
    chain = {name: RNG.normal(size=shape) for name, shape in chain.items()}
    folded = fold_site(site(query=Product((Tensor("up.weight"), Tensor("down.weight")))), ["biases"], chain)
    expected = chain["up.weight"] @ chain["down.bias"] + chain["up.bias"]
    np.testing.assert_allclose(folded.query.evaluate(chain.__getitem__)[:, -1], expected, rtol=1e-13)


def test_nothing_to_fold_leaves_a_site_as_it_is():
    plain = site(**dict.fromkeys(NORMS, PLAIN))
    assert fold_site(plain, FOLDS, {"q.weight", "k.weight"}) == plain
    assert fold_site(replace(plain, **NORMS), (), WEIGHTS) == replace(plain, **NORMS)


def test_bias_of_a_part_of_the_rows_is_refused():
    halves = site(query=Stacked((Tensor("q.weight"), Tensor("other.weight"))))
    with pytest.raises(ParameterError, match="only a part of the outputs has a bias"):
        fold_site(halves, ["biases"], WEIGHTS)


def test_norms_that_are_not_known_are_refused():
    """None is left out: what is folded in is what the forward pass has, or nothing is."""
    half = site(**NORMS | {"key_input_norm": PLAIN, "key_norm": None}, module="layers.0.attn")
    with pytest.raises(ParameterError, match=r"in layer 0 .*attn.* for keys; known for .*queries: norm.weight, inputs"):
        fold_site(half, ["norms"], WEIGHTS)
    assert fold_site(half, ["biases"], WEIGHTS).d_key == 6


@pytest.mark.parametrize("wrong", ["gains", ["biases", "gain"], 3, None])
def test_unknown_fold_is_refused(wrong):
    with pytest.raises(ParameterError, match="some of 'biases', 'norms'"):
        require_folds(wrong)
    assert require_folds("norms, biases") == FOLDS
