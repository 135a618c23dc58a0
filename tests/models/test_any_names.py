"""Modules and state dicts whose tensors have names of their own: read by running them, or by sites that are given."""

import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from unittest.mock import Mock

import numpy as np
import pytest
import torch
import transformers

import rmtbase
from rmtbase.errors import CheckpointError, MissingTensorError, ParameterError, ShapeError
from rmtbase.models import Place, Site, Stacked, Tensor, open_model, take_rows
from rmtbase.nulls import Gaussian

HEADS, KEY_HEADS, D_HEAD, D_MODEL = 6, 2, 5, 24
RNG = np.random.default_rng(5)


class Block(torch.nn.Module):
    """Grouped queries beside the keys of two heads and the values in one matrix, under names of nobody else."""

    def __init__(self):
        super().__init__()
        self.ask = torch.nn.Linear(D_MODEL, HEADS * D_HEAD, bias=False)
        self.tell = torch.nn.Linear(D_MODEL, 2 * KEY_HEADS * D_HEAD, bias=False)
        self.give = torch.nn.Linear(HEADS * D_HEAD, D_MODEL, bias=False)

    def forward(self, x):
        def heads(part):
            return part.unflatten(-1, (-1, D_HEAD)).transpose(1, 2)

        k, v = (heads(part).repeat_interleave(HEADS // KEY_HEADS, 1) for part in self.tell(x).chunk(2, -1))
        weights = torch.softmax(heads(self.ask(x)) @ k.mT / D_HEAD**0.5, -1)
        return x + self.give((weights @ v).transpose(1, 2).flatten(2))


class Own(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def test_module_of_ones_own_is_read_by_running_it(monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    torch.manual_seed(1)
    own = Own()
    model = open_model(own, inputs={"x": torch.randn(1, 7, D_MODEL)}, name="mine")
    assert (model.n_heads, model.n_key_heads, model.d_head, model.d_model) == (HEADS, KEY_HEADS, D_HEAD, D_MODEL)
    for layer, block in enumerate(own.blocks):
        shape = (-1, D_HEAD, D_MODEL)
        np.testing.assert_array_equal(model.queries(layer), block.ask.weight.detach().reshape(shape))
        keys, values = block.tell.weight.detach().chunk(2)
        np.testing.assert_array_equal(model.keys(layer), keys.reshape(shape))
        np.testing.assert_array_equal(model.values(layer), values.reshape(shape))
    assert model.prove().notes[-1] == "proved by running the Own that was given: all of 2 sites"
    tree = rmtbase.score(model, Gaussian(draws=200), circuits=("ov",))
    assert tree["heads"].sizes["head"] == HEADS


def llama():
    torch.manual_seed(4)
    sizes = {"hidden_size": 48, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10}
    config = transformers.LlamaConfig(**sizes, num_hidden_layers=3, intermediate_size=80, vocab_size=32)
    return transformers.LlamaModel(config)


def test_a_model_is_proved_before_it_is_scored(monkeypatch, tmp_path):
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    llama().save_pretrained(tmp_path)
    proof = open_model(tmp_path).prove().notes[-1]
    assert proof.startswith(f"proved against transformers' own forward pass (transformers {transformers.__version__})")
    assert proof.endswith("2 of 3 sites, the first and the last of each kind")
    notes = json.loads(rmtbase.score(llama(), Gaussian(draws=200)).attrs["notes"])
    (proof,) = (note for note in notes if note.startswith("proved"))
    assert proof == "proved by running the LlamaModel that was given: all of 3 sites"
    notes = json.loads(rmtbase.score(open_model(llama(), proof=False), Gaussian(draws=200)).attrs["notes"])
    assert not any("proved" in note for note in notes)


def test_what_is_read_wrongly_or_does_not_run_is_refused_and_without_torch_the_note_says_so(monkeypatch):
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    model = open_model(llama())
    rows = np.roll(np.arange(60), 10).tolist()
    in_another_order = tuple(replace(site, query=take_rows(site.query, rows)) for site in model.sites)
    with pytest.raises(CheckpointError, match=r"layer 0 head \d: q·k of layers.0.self_attn is"):
        replace(model, _raw=in_another_order).prove()
    with pytest.raises(CheckpointError, match="Own does not run on noise"):
        open_model(Own(), inputs={"x": torch.randn(1, 7, D_MODEL + 1)})
    monkeypatch.setattr("rmtbase.models.forward._torch_route.version", Mock(side_effect=PackageNotFoundError))
    assert model.prove().notes[-1].startswith("not proved: a proof needs the package 'torch'")


STATE = {
    f"blocks.{layer}.attn.W_{side}": RNG.normal(size=(heads, D_MODEL, D_HEAD)).astype(np.float32)
    for layer in range(2)
    for side, heads in (("Q", HEADS), ("K", KEY_HEADS))
}


def site(layer, **changed):
    """As TransformerLens keeps heads: (head, d_model, d_head)."""

    def stacked(side, heads):
        name = f"blocks.{layer}.attn.W_{side}"
        return Stacked(tuple(Tensor(name, transposed=True, index=head) for head in range(heads)))

    sizes = {"n_heads": HEADS, "n_key_heads": KEY_HEADS, "d_head": D_HEAD, "d_query": D_MODEL, "d_key": D_MODEL}
    parts = {"query": stacked("Q", HEADS), "key": stacked("K", KEY_HEADS)}
    return Site(**{"place": Place("", layer), **sizes, **parts, **changed})


def test_state_dict_with_its_sites():
    model = open_model(STATE, sites=[site(0), site(1)], name="lens")
    for layer in range(2):
        np.testing.assert_array_equal(model.queries(layer), STATE[f"blocks.{layer}.attn.W_Q"].swapaxes(1, 2))
        np.testing.assert_array_equal(model.keys(layer), STATE[f"blocks.{layer}.attn.W_K"].swapaxes(1, 2))
    scored = rmtbase.score(model, Gaussian(draws=200))
    sides = [[STATE[f"blocks.{layer}.attn.W_{side}"].swapaxes(1, 2) for layer in range(2)] for side in "QK"]
    arrays = rmtbase.score_heads(*sides, Gaussian(draws=200))
    np.testing.assert_array_equal(scored["heads"]["p_value"], arrays["heads"]["p_value"])


@pytest.mark.parametrize(
    ("sites", "error", "words"),
    [
        ([], ParameterError, "a Site for each layer"),
        (["W_Q"], ParameterError, "expected a Site"),
        ([site(0), site(0)], ParameterError, r"sites\[1\] at Place"),
        ([site(0, query=None)], ParameterError, "without queries"),
        ([site(0, n_key_heads=4)], ParameterError, "6 heads of 5 on 4 key heads"),
        ([site(0, query=Tensor("W"))], MissingTensorError, "'W'"),
        ([site(0, d_query=D_MODEL + 1)], ShapeError, r"\(30, 24\); expected \(30, 25\)"),
        ([site(0, query=Tensor("blocks.0.attn.W_Q", index=6))], CheckpointError, "layer 0 attention_query"),
    ],
)
def test_sites_that_do_not_fit_are_refused(sites, error, words):
    with pytest.raises(error, match=words):
        open_model(STATE, sites=sites)
