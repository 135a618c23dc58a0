"""Weight matrices of modules that are drawn anew.

False failures: standard deviations at five standard errors (6e-7 each), and one q-value at 0.05 over 32 heads.
"""

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model, LlamaConfig, LlamaForCausalLM

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.ensembles import INITIALIZERS, initialized_matrix
from rmtbase.errors import ParameterError
from rmtbase.models import initialize, inspect_model, open_model

SIZES = {"n_embd": 128, "n_head": 8, "vocab_size": 50, "n_positions": 16}
OPTIONS = {
    "uniform": {"bound": 0.1},
    "small_init": {"d_model": 64},
    "wang_init": {"n_layers": 4, "d_model": 64},
    "scaled_normal": {"n_layers": 4},
}


@pytest.fixture
def gpt2():
    return GPT2LMHeadModel(GPT2Config(n_layer=4, **SIZES))


def state(module):
    return {name: one.clone() for name, one in module.state_dict().items()}


def deviation(layer):
    return float(layer.weight.detach().float().std())


def learn(module):
    """Give all parameters and buffers values that no initialiser gives."""
    with torch.no_grad():
        for one in module.parameters():
            one.copy_(torch.arange(one.numel(), dtype=one.dtype).reshape(one.shape) / one.numel() + 1.0)
    return module


def test_a_module_that_is_drawn_anew_has_learned_nothing(gpt2):
    learned = rmtbase.score(learn(gpt2), "analytic", matrices="none")["heads"].to_dataset()
    assert (learned["omnibus_q_value"].values <= 0.05).all()
    initialize(gpt2, "normal", std=0.3, seed=1)
    scores = rmtbase.score(gpt2, "analytic", matrices="elements")
    assert (scores["heads"]["omnibus_q_value"].values <= 0.05).mean() <= 0.05
    sigma = scores["matrices"]["sigma"].values
    assert np.nanmax(np.abs(sigma / 0.3 - 1.0)) < 5.0 / np.sqrt(2 * 128 * 128)


def test_only_matrices_change_and_shared_ones_once(gpt2):
    before = state(learn(gpt2))
    names = initialize(gpt2)
    changed = {name for name, one in gpt2.state_dict().items() if not torch.equal(one, before[name])}
    assert changed == {*names, "lm_head.weight"}  # tied to the embedding
    assert gpt2.lm_head.weight is gpt2.transformer.wte.weight
    assert len(names) == 2 + 4 * 4
    assert not any("ln" in name or name.endswith("bias") for name in names)
    assert deviation(gpt2.transformer.wte) == pytest.approx(0.02, rel=5.0 / np.sqrt(2 * 50 * 128))


def test_draws_depend_on_seed_and_name_alone(gpt2):
    initialize(gpt2, "torch_linear", seed=3)
    first = state(gpt2)
    deeper = GPT2LMHeadModel(GPT2Config(n_layer=5, **SIZES))
    torch.manual_seed(5)
    initialize(deeper, "torch_linear", seed=3)
    again = state(deeper)
    assert all(torch.equal(one, again[name]) for name, one in first.items())
    initialize(deeper, "torch_linear", seed=4)
    names = [name for name in first if name.endswith("c_attn.weight")]
    assert not any(torch.equal(first[name], deeper.state_dict()[name]) for name in names)
    assert not torch.equal(first[names[0]], first[names[1]])


@pytest.mark.exhaustive
def test_fans_are_those_of_the_matrix_however_it_is_stored(gpt2):
    initialize(gpt2, "torch_linear")
    wide = gpt2.transformer.h[0].mlp.c_proj  # stored as (inputs, outputs): 512 inputs
    assert float(wide.weight.detach().abs().max()) == pytest.approx(512**-0.5, rel=1e-3)
    fused = gpt2.transformer.h[0].attn.c_attn.weight  # queries, keys and values as they are stored
    initialize(gpt2, "orthogonal")
    torch.testing.assert_close(fused @ fused.T, torch.eye(128), atol=1e-5, rtol=0)
    kernel = torch.nn.Sequential(torch.nn.Conv1d(32, 64, 5, bias=False))
    initialize(kernel, "torch_linear")
    assert float(kernel[0].weight.detach().abs().max()) == pytest.approx((32 * 5) ** -0.5, rel=1e-3)


@pytest.mark.parametrize("name", mostly_exhaustive(INITIALIZERS, always=4))
def test_every_initializer_draws_with_its_own_deviation(name):
    module = torch.nn.Linear(96, 160).to(torch.bfloat16 if name == "normal" else torch.float32)
    bias = module.bias.detach().clone()
    initialize(module, name, **OPTIONS.get(name, {}))
    expected = initialized_matrix(160, 96, name, **OPTIONS.get(name, {})).element_std
    assert deviation(module) == pytest.approx(expected, rel=5.0 / np.sqrt(2 * 96 * 160))
    assert torch.equal(module.bias, bias)


def test_patterns_give_matrices_laws_of_their_own(gpt2):
    embedding = gpt2.transformer.wte.weight.detach().clone()
    rules = {"*.c_proj.weight": {"initializer": "scaled_normal", "n_layers": 4}, "*.h.*": {"std": 0.02}}
    names = initialize(gpt2, rules)
    assert len(names) == 4 * 4
    assert torch.equal(embedding, gpt2.transformer.wte.weight)
    block = gpt2.transformer.h[2]
    assert deviation(block.mlp.c_proj) == pytest.approx(0.02 / np.sqrt(8), rel=0.02)
    assert deviation(block.mlp.c_fc) == pytest.approx(0.02, rel=0.02)


def test_grouped_queries_and_stacks_of_matrices_are_drawn():
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 20}
    llama = LlamaForCausalLM(LlamaConfig(hidden_size=64, intermediate_size=64, initializer_range=0.5, **sizes))
    norms = llama.model.layers[0].input_layernorm.weight.detach().clone()
    initialize(llama)
    assert torch.equal(norms, llama.model.layers[0].input_layernorm.weight)
    assert deviation(llama.model.layers[0].self_attn.k_proj) == pytest.approx(0.5, rel=0.1)
    experts = torch.nn.Module()
    experts.weight = torch.nn.Parameter(torch.zeros(3, 40, 16))
    initialize(experts, "orthogonal")
    torch.testing.assert_close(experts.weight.mT @ experts.weight, torch.eye(16).expand(3, 16, 16), atol=1e-5, rtol=0)
    assert not torch.equal(experts.weight[0], experts.weight[1])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("xavier",), "one of normal"),
        (("normal", {"deviation": 1.0}), "an option of normal"),
        ((None, {"std": 0.02}), "none, unless"),
        (({"*.q.weight": {}},), "pattern"),
        (({"*": {}, "*.weight": {}},), "pattern"),
        ((), "initializer_range"),
    ],
)
def test_what_cannot_be_drawn_leaves_the_module_unchanged(given, expected):
    module = torch.nn.Sequential(torch.nn.Linear(4, 4))
    before = state(module)
    initializer, options = (*given, None, None)[:2]
    with pytest.raises(ParameterError, match=expected):
        initialize(module, initializer, **(options or {}))
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    with torch.device("meta"):
        nothing = torch.nn.Linear(4, 4)
    with pytest.raises(ParameterError, match="floating-point"):
        initialize(nothing, "normal")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"init_method": "trunc_normal_"}, "'init_method' is 'trunc_normal_': trunc_normal_ of torch"),
        ({"weight_init": {"name": "truncated_normal"}}, "--initialization normal"),
        ({"init_fn": "orthogonal_"}, "--initialization orthogonal"),
        ({"initializer_cutoff_factor": 2.0}, "cut at 2 standard deviations: --initialization truncated_normal"),
        ({"initializer_cutoff_factor": "2"}, None),
        ({"init_method": "normal", "name": "trunc_normal"}, None),
    ],
)
def test_a_truncated_or_orthogonal_initializer_is_explained(settings, said):
    config = GPT2Config(n_layer=1, **SIZES, **settings)
    notes = [note for note in inspect_model(open_model(GPT2Model(config))).notes if note.startswith("configuration:")]
    assert len(notes) == (said is not None)
    assert said is None or said in notes[0]
