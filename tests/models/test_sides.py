"""Sides of a product, queries and keys, by the rows and columns of the logits and by a proof that trusts neither.

A query changes the logits of its own row only, and all of them; a key changes one entry of many rows.
"""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

from exhaustive import mostly_exhaustive

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tiny_models
import torch
import transformers
from torch import nn

from rmtbase.errors import CheckpointError
from rmtbase.models import open_model
from rmtbase.models.forward import _prove
from rmtbase.models.forward._probe_network import written_out
from rmtbase.models.forward._prove import prove_parts
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._expressions import Scaled, Tensor
from rmtbase.models.layouts._sites import Disproved
from tests.models.conftest import stored_of

SIZES = {"num_hidden_layers": 1, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 97}
SIZES_OF_TWO = {f"{one}_attention_heads": 4 for one in ("encoder", "decoder")} | {
    f"{one}_{word}": size for one in ("encoder", "decoder") for word, size in (("layers", 1), ("ffn_dim", 64))
}


@pytest.fixture(autouse=True)
def proofs_are_wanted(monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")


def text(n_tokens):
    return {"input_ids": 3 + torch.arange(2 * n_tokens).reshape(2, n_tokens) % 90}


OF_TWO = SIZES_OF_TWO | {"d_model": 48, "vocab_size": 97}
MAKE = {
    "longformer": lambda window: transformers.LongformerConfig(**SIZES, attention_window=[window]),
    "led": lambda window: transformers.LEDConfig(**OF_TWO, attention_window=window),
    "big_bird": lambda block: transformers.BigBirdConfig(
        **SIZES, max_position_embeddings=256, num_random_blocks=1, block_size=block
    ),
    "pegasus_x": lambda block: transformers.PegasusXConfig(**OF_TWO, num_global_tokens=3, block_size=block),
}
WINDOWS = [
    ("longformer", 4, None),
    ("longformer", 8, None),
    ("led", 4, None),
    ("big_bird", 4, None),
    *(("longformer", window, None) for window in (6, 10, 12)),
    *(("longformer", window, 24) for window in (4, 6, 8, 10, 12)),
    *(("led", window, n_tokens) for window in (4, 8, 12) for n_tokens in (16, 24)),
    ("big_bird", 4, 64),
    *(("pegasus_x", 4, n_tokens) for n_tokens in (None, 24)),
]


def q_and_k(site):
    """The last words of the names of both maps, without which of the two they are."""
    each = [name.removesuffix(".weight").rpartition(".")[2] for one in (site.query, site.key) for name in one.tensors()]
    return [name.replace("query", "q").replace("key", "k").removesuffix("_proj") for name in each]


@pytest.mark.parametrize(("kind", "window", "n_tokens"), mostly_exhaustive(WINDOWS, always=4, weekly=True))
def test_queries_are_queries_in_windows_that_overlap(kind, window, n_tokens):
    torch.manual_seed(1)
    module = transformers.AutoModel.from_config(MAKE[kind](window))
    model = open_model(module, inputs=None if n_tokens is None else text(n_tokens)).prove()
    assert {tuple(q_and_k(site)) for site in model.sites} == {("q", "k")}
    assert [site.logit_scale for site in model.sites] == pytest.approx([12**-0.5] * len(model.sites))
    assert model.notes[-1].endswith(f"all of {len(model.sites)} sites")


def exchanged(network):
    """The parts of a network as a trace would have them that takes keys for queries and queries for keys."""

    def turned(met):
        site = replace(met.site, query=met.site.key, key=met.site.query)
        return met._replace(site=site, queries_left=not met.queries_left)

    return [replace(part, met={key: turned(met) for key, met in part.met.items()}) for part in network.parts]


def decided(parts):
    result = []
    for part in parts:
        with written_out(part.module):
            result += _prove._queries_move_rows(part, part.met).values()
    return result


def own_expressions(network):
    return {name: Tensor(name) for name, _ in network.network.named_parameters(remove_duplicate=False)}


KINDS = ["phi3", "gpt2", "longformer", "deepseek_v3", "bart", "vit", "t5", "falcon", "albert", "swin"]
KINDS += ["grounding-dino", "informer"]


@pytest.mark.parametrize("model_type", mostly_exhaustive(KINDS, always=3, weekly=True))
def test_a_trace_that_takes_keys_for_queries_proves_nothing(model_type):
    """Fused, transposed, latent, grouped, cross-attended, windowed: the sites are those of the same wrong trace."""
    network = Network.of_module(tiny_models.make_model(model_type, replace(tiny_models.PROFILES[0], n_layers=1)))
    parts = exchanged(network)
    assert {*decided(network.parts)} == {True}
    assert {*decided(parts)} == {False}
    sites = [met.site for part in parts for met in part.met.values()]
    _, read = stored_of(network.network)
    with pytest.raises(Disproved, match="changes rows of the logits as a whole, as queries do; expected that of"):
        prove_parts(sites, parts, own_expressions(network), read, network.path)


class Own(nn.Module):
    """Attention of four heads of 5, whose scores are arranged in some way before their softmax over an axis."""

    def __init__(self, arranged=lambda scores: scores, axis=-1, keys_first=False, n_keys=None):
        super().__init__()
        self.wq, self.wk, self.wv = (nn.Linear(24, 20, bias=False) for _ in range(3))
        self.arranged, self.axis, self.keys_first, self.n_keys = arranged, axis, keys_first, n_keys

    def forward(self, x):
        of_keys = x if self.n_keys is None else x[:, : self.n_keys]
        q, k, v = (
            one.unflatten(-1, (4, 5)).transpose(1, 2) for one in (self.wq(x), self.wk(of_keys), self.wv(of_keys))
        )
        scores = self.arranged(k @ q.mT if self.keys_first else q @ k.mT)
        weights = scores.softmax(self.axis)
        return (weights.mT if self.keys_first else weights) @ v


def read(module, n_tokens=6):
    torch.manual_seed(2)
    network = Network.of_module(module, {"x": torch.randn(2, n_tokens, 24)})
    return network, network.inventory().sites


@pytest.mark.parametrize("options", [{}, {"n_keys": 3}, {"n_keys": 1}, {"keys_first": True, "axis": -2}, {"axis": -2}])
def test_the_softmax_runs_over_the_keys_wherever_they_stand_whatever_they_are_called(options):
    network, (site,) = read(Own(**options))
    names = ("wk.weight", "wq.weight") if options == {"axis": -2} else ("wq.weight", "wk.weight")
    assert (*site.query.tensors(), *site.key.tensors()) == names
    assert any("runs over another axis" in note for note in site.notes) == ("axis" in options)
    assert network.prove((site,), *stored_of(network.network)) == (site,)
    assert decided(exchanged(network)) == [False]


def test_scores_in_neither_rows_nor_columns_are_not_read():
    def mixed(scores):
        order = torch.randperm(36, generator=torch.Generator().manual_seed(3))
        return scores.flatten(-2)[..., order].view(scores.shape)

    with pytest.raises(CheckpointError, match="neither rows nor columns of its scores belong to one token each"):
        read(Own(mixed))


def test_one_query_and_one_key_are_not_told_from_each_other():
    with pytest.raises(CheckpointError, match="one query meets one key: they are not told from each other"):
        read(Own(), n_tokens=1)
    network, sites = read(Own())
    (part,) = network.parts
    short = replace(part, inputs={"x": part.inputs["x"][:1, :1]})
    assert decided([short]) == decided(exchanged(SimpleNamespace(parts=[short]))) == [None]
    with pytest.raises(CheckpointError, match="are not told from the keys of"):
        prove_parts(sites, [short], own_expressions(network), stored_of(network.network)[1], network.path)


class BatchSecond(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(24, 4)

    def forward(self, x):
        return self.attend(x, x, x)[0]


def test_exchanged_weights_are_refused_where_the_batch_is_the_second_axis():
    network = Network.of_module(BatchSecond(), {"x": torch.randn(5, 2, 24)})
    (site,) = network.inventory().sites
    stored, read = stored_of(network.network)
    assert network.prove((site,), stored, read) == (site,)
    with pytest.raises(Disproved, match=r"head \d: q·k of"):
        network.prove((replace(site, query=site.key, key=site.query),), stored, read)


class Mutual(nn.Module):
    """Two texts that attend to each other by one product, as an image and a text do in Grounding DINO."""

    def __init__(self):
        super().__init__()
        self.wa, self.wb, self.va, self.vb = (nn.Linear(24, 10, bias=False) for _ in range(4))

    def forward(self, x):
        a, b = x[:, :4], x[:, 4:]
        scores = self.wa(a) @ self.wb(b).mT
        return scores.softmax(-1) @ self.vb(b), scores.mT.softmax(-1) @ self.va(a)


def test_both_sites_of_one_product_are_proved():
    network, sites = read(Mutual(), n_tokens=9)
    assert [site.query.name for site in sites] == ["wa.weight", "wb.weight"]
    stored, values = stored_of(network.network)
    assert network.prove(sites, stored, values) == sites
    for wrong in range(2):
        claimed = [replace(one, key=Scaled(one.key, 2.0)) if i == wrong else one for i, one in enumerate(sites)]
        with pytest.raises(Disproved, match=r"head 0: q·k of"):
            network.prove(claimed, stored, values)
