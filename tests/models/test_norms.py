"""Norms found by the forward pass, folded, against the queries and keys of tiny models with gains far from 1.

The normalised input x̂ is computed here, of what the norm that a site names was given: another norm's would not do.
Expressions over stored tensors are compared with NumPy.
"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from attention_trace import watching
from hypothesis import given as drawn
from hypothesis import strategies as st
from observe_norms import tensors_of
from tiny_models import PROFILES, inputs, make_model
from torch import nn

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.models import Checkpoint, open_model
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts import _expressions as expressions
from rmtbase.models.layouts._architectures import find_inventory
from rmtbase.models.layouts._expressions import Gained, Product, Rows, Scaled, Stacked, Sum, Tensor, take_rows, to_json
from rmtbase.models.layouts._sites import FOLDS, PLAIN, Norm, Place, Site, fold_site, require_folds
from tests.models.conftest import stored_of

TOLERANCE = 1e-5  # some of the modules norm in float32
CENTRED = {"gpt2", "bert", "phi", "whisper", "gpt_neox"}
TYPES = ["llama", "gpt2", "bert", "gemma2", "qwen3", "olmo2", "t5", "phi", "whisper", "gpt_neox"]


def make(model_type: str, **options) -> nn.Module:
    """Every gain and bias random: gains between 1/2 and 3/2, biases of the size of what they are added to."""
    model = make_model(model_type, PROFILES[0], **options)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.uniform_(0.5, 1.5, generator=generator)
                if name.endswith("bias"):
                    parameter.sub_(1)
    return model


def watch(model: nn.Module):
    given: dict[str, np.ndarray] = {}

    def keep(name):
        def hook(module, args, kwargs):
            tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
            if tensors:
                given[name] = tensors[0].detach().double().numpy()[0]

        return hook

    hooks = [one.register_forward_pre_hook(keep(name), with_kwargs=True) for name, one in model.named_modules()]
    with watching(model) as trace:
        model(**next(inputs(model)))
    for hook in hooks:
        hook.remove()
    return trace, given


def normalised(norm: Norm, given, model: nn.Module, attention: str) -> np.ndarray:
    """(x̂, 1), or where no norm is before the attention (x, 1)."""
    name = attention if norm == PLAIN else norm.gain.rsplit(".", 1)[0]
    x = given[name]
    if norm != PLAIN:
        module = model.get_submodule(name)
        epsilon = getattr(module, "eps", None) or module.variance_epsilon
        x = x - (model.config.model_type in CENTRED) * x.mean(-1, keepdims=True)
        x = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + epsilon)
    return np.column_stack([x, np.ones(len(x))])


def of_heads(matrix, x, n_heads: int, norm: Norm):
    """(head, token, d_head); where they have a norm of their own up to a factor for each token."""
    return unit(np.einsum("hkd,td->htk", matrix.reshape(n_heads, -1, matrix.shape[1]), x[:, : matrix.shape[1]]), norm)


def unit(vectors, norm: Norm):
    return vectors if norm == PLAIN else vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def products(queries, keys):
    return np.einsum("hik,hjk->hij", queries, keys.repeat(len(queries) // len(keys), 0))


def table_sites(model: nn.Module, older: bool = False, **changed):
    config = json.loads(model.config.to_json_string(use_diff=False)) | changed
    tensors = model.state_dict()
    if older:
        tensors = {name.replace("LayerNorm.weight", "LayerNorm.gamma"): one for name, one in tensors.items()}
    checkpoint = Checkpoint.of_tensors(tensors, "tiny")
    return find_inventory(config, checkpoint, Path("config.json"), config["model_type"]).sites


@pytest.mark.parametrize("model_type", mostly_exhaustive(TYPES, always=4))
def test_folded_matrices_on_normalised_inputs_give_the_logits_of_the_module(model_type):
    model = make(model_type)
    trace, given = watch(model)
    stored, read = stored_of(model)
    of_table = {tensors_of(site): site for site in table_sites(model)}
    for site in Network.of_module(model).inventory().sites:
        assert of_table[tensors_of(site)].norms() == site.norms()
        folded = fold_site(site, FOLDS, stored)
        (seen,) = (one for one in trace.attentions if one.module.startswith(site.module))
        before = (site.query_input_norm, site.key_input_norm)
        x, other = (normalised(norm, given, model, site.module) for norm in before)
        queries = of_heads(folded.query.evaluate(read), x, site.n_heads, site.query_norm)
        keys = of_heads(folded.key.evaluate(read), other, site.n_key_heads, site.key_norm)
        shown = seen.scale * products(unit(seen.query, site.query_norm), unit(seen.key, site.key_norm))
        found = site.logit_scale * products(queries, keys)
        np.testing.assert_allclose(found, shown, atol=TOLERANCE * np.abs(shown).max())


def test_offset_and_kind_of_a_norm_are_measured():
    (gemma, *_) = Network.of_module(make("gemma2")).inventory().sites
    assert gemma.query_input_norm == Norm("layers.0.input_layernorm.weight", offset=1.0)
    first, second = Network.of_module(make("bert")).inventory().sites
    assert first.key_input_norm == Norm("embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias")
    assert second.key_input_norm.gain == "encoder.layer.0.output.LayerNorm.weight"
    assert first.query_norm == first.key_norm == PLAIN
    cross = Network.of_module(make("t5")).inventory().sites[-1]
    assert cross.key_input_norm == Norm("encoder.final_layer_norm.weight")
    olmo, *_ = Network.of_module(make("olmo2")).inventory().sites
    assert olmo.query_input_norm == PLAIN and olmo.query_norm.gain == "layers.0.self_attn.q_norm.weight"


@pytest.mark.parametrize(
    ("model_type", "options", "unknown"),
    [
        ("phi", {"qk_layernorm": True}, "queries, keys"),  # it takes off the mean of queries
        ("deepseek_v3", {}, "inputs of keys, queries, keys"),  # between factors, but not before their rotated part
        ("albert", {}, "inputs of queries, inputs of keys"),  # one layer, which runs after several norms
    ],
)
def test_norms_that_fit_no_matrix_are_refused(model_type, options, unknown):
    site, *_ = Network.of_module(make_model(model_type, **options)).inventory().sites
    with pytest.raises(ParameterError, match=f"no norm is known that fits a matrix for {unknown}($|;)"):
        fold_site(site, ["norms"], ())
    assert fold_site(site, ["biases"], ()) == site


class Own(nn.Module):
    """Attention behind a norm written out, whose gains are a parameter of its own."""

    def __init__(self, learned: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(20)) if learned else None
        self.q, self.k, self.v = (nn.Linear(20, 21, bias=False) for _ in range(3))
        self.o = nn.Linear(21, 20)

    def forward(self, x):
        x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)
        x = x if self.gain is None else x * self.gain
        q, k, v = (one(x).unflatten(-1, (3, 7)).transpose(1, 2) for one in (self.q, self.k, self.v))
        return self.o(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def test_a_gain_that_is_no_norms_own_is_not_known():
    given = {"x": torch.randn(2, 5, 20)}
    (site,) = Network.of_module(Own(learned=False), given).inventory().sites
    assert site.query_input_norm == site.key_input_norm == PLAIN
    (site,) = Network.of_module(Own(learned=True), given).inventory().sites
    assert site.query_input_norm is None and site.key_input_norm is None


def test_norms_of_a_configuration_that_was_not_proved_are_not_known():
    """OPT's norms stand before the attention, or where the configuration says so behind it, under the same names."""
    model = make_model("opt")
    site, *_ = table_sites(model)
    assert site.query_input_norm.gain == "decoder.layers.0.self_attn_layer_norm.weight"
    site, *_ = table_sites(model, do_layer_norm_before=False)
    assert site.norms() == ()
    with pytest.raises(ParameterError, match="no norm is known that fits a matrix for inputs of queries"):
        fold_site(site, ["norms"], ())


@pytest.mark.parametrize(("model_type", "width"), [("gpt2", 65), ("qwen3", 64)])
def test_what_is_folded_in_is_no_longer_said_to_be_left_out(model_type, width, tmp_path, monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "0")
    make(model_type).save_pretrained(tmp_path)
    model = open_model(tmp_path)
    folded = model.fold(FOLDS)
    assert any(note.endswith("recorded, not folded in") for note in model.notes)
    assert not any(note.endswith("recorded, not folded in") for note in folded.notes)
    assert folded.notes[-1] == "folded into queries, keys and values: biases, norms"
    assert folded.queries(0).shape[-1] == width
    assert not np.allclose(folded.queries(0)[..., :64], model.queries(0))


def test_norms_have_the_names_that_are_stored():
    """BERT's were stored as gamma and beta, and behind the name of the base model."""
    model = make("bert")
    (site, *_), gamma = table_sites(model, older=True), "embeddings.LayerNorm.gamma"
    assert site.query_input_norm == Norm(gamma, "embeddings.LayerNorm.bias")
    stored = {f"bert.{name}": tuple(one.shape) for name, one in model.state_dict().items()}
    for new, old in (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")):
        stored = {name.replace(new, old): shape for name, shape in stored.items()}
    network = Network.of_module(model)
    site, *_ = network.inventory(stored).sites
    assert site.query_input_norm == Norm(f"bert.{gamma}", "bert.embeddings.LayerNorm.beta")
    del stored[f"bert.{gamma}"]
    site, *_ = network.inventory(stored).sites
    assert site.query_input_norm is None
    model.embeddings.LayerNorm.weight = nn.Parameter(torch.ones(3))  # of another width
    assert table_sites(model)[0].query_input_norm is None


RNG = np.random.default_rng(7)
STORED = {
    "w": (12, 5), "conv": (5, 12), "kernel": (12, 5, 1), "heads": (3, 4, 5), "outward": (5, 3, 4), "down": (5, 9),
    "g": 5, "of_head": 4, "b": 12,
}  # fmt: skip
STORED = {name: RNG.normal(size=shape) for name, shape in STORED.items()}
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
    "bias": (expressions.Biased(Tensor("w"), expressions.Column("b")), np.column_stack([W, B])),
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
        (expressions.Biased(Tensor("w"), expressions.Column("g")), "a bias of shape"),
    ],
)
def test_parts_that_do_not_fit(expression, words):
    with pytest.raises(ValueError, match=words):
        expression.shape(lambda name: STORED[name].shape)


@drawn(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_rows_by_index(indices):
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
    "q.weight": (12, 5), "q.bias": 12, "k.weight": (4, 5), "k.bias": 4, "norm.weight": 5, "norm.bias": 5,
    "q_norm.weight": 4, "k_norm.weight": 4,
}  # fmt: skip
WEIGHTS = {name: RNG.normal(size=shape) for name, shape in WEIGHTS.items()}
NORMS = dict.fromkeys(("query_input_norm", "key_input_norm"), Norm("norm.weight", "norm.bias"))
NORMS |= {f"{side}_norm": Norm(f"{side[0]}_norm.weight", offset=1.0) for side in ("query", "key")}


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
    plain = site(**dict.fromkeys(NORMS, PLAIN))
    assert fold_site(plain, fold, {"q.weight", "k.weight"}) == plain
    folded = fold_site(site(**NORMS), fold, WEIGHTS)
    assert fold or folded == site(**NORMS)
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


def test_norms_that_are_not_known_and_biases_of_a_part_of_the_rows_are_refused():
    """None is left out: what is folded in is what the forward pass has, or nothing is."""
    half = site(**NORMS | {"key_input_norm": PLAIN, "key_norm": None}, module="layers.0.attn")
    with pytest.raises(ParameterError, match=r"in layer 0 .*attn.* for keys; known for .*queries: norm.weight, inputs"):
        fold_site(half, ["norms"], WEIGHTS)
    assert fold_site(half, ["biases"], WEIGHTS).d_key == 6
    halves = site(query=Stacked((Tensor("q.weight"), Tensor("other.weight"))))
    with pytest.raises(ParameterError, match="only a part of the outputs has a bias"):
        fold_site(halves, ["biases"], WEIGHTS)


def test_unknown_fold_is_refused():
    for wrong in ("gains", ["biases", "gain"], 3, None):
        with pytest.raises(ParameterError, match="some of 'biases', 'norms'"):
            require_folds(wrong)
    assert require_folds("norms, biases") == FOLDS
