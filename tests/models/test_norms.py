"""Norms found by the forward pass, folded, against the queries and keys of tiny models with gains far from 1.

The normalised input x̂ is computed here, of what the norm that a site names was given: another norm's would not do.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from exhaustive import mostly_exhaustive

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from attention_trace import watching
from observe_norms import tensors_of
from tiny_models import PROFILES, inputs, make_model
from torch import nn

from rmtbase.errors import ParameterError
from rmtbase.models import Checkpoint, open_model
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._architectures import find_inventory
from rmtbase.models.layouts._sites import FOLDS, PLAIN, Norm, fold_site
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
    """What the model's attention and norms were given, rotations by angle zero."""
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
    """q·k of each head and pair of tokens."""
    return np.einsum("hik,hjk->hij", queries, keys.repeat(len(queries) // len(keys), 0))


def table_sites(model: nn.Module, older: bool = False, **changed):
    """What is read without torch, of a configuration that is changed so."""
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
        np.testing.assert_allclose(
            site.logit_scale * products(queries, keys), shown, atol=TOLERANCE * np.abs(shown).max()
        )


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
