"""Of layers that are alike two run, and show what all would; where they are not, all run."""

import os
from dataclasses import replace

import pytest

from exhaustive import mostly_exhaustive

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers
from torch import nn

from rmtbase.errors import CheckpointError
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._expressions import take_rows
from tests.models.conftest import stored_of

PASSES = 3  # of one reading, where the first is enough
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = ENDS | {"vocab_size": 40, "hidden_size": 48, "intermediate_size": 56, "num_attention_heads": 6}
GROUPED = SIZES | {"num_key_value_heads": 2, "head_dim": 10}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 12}
CONFIGS = {
    "qwen3": transformers.Qwen3Config(**GROUPED, num_hidden_layers=5),
    "gemma2": transformers.Gemma2Config(**GROUPED, num_hidden_layers=6),  # windows in every second layer
    "qwen3_next": transformers.Qwen3NextConfig(
        **GROUPED, **EXPERTS, num_experts=4, linear_num_key_heads=2, linear_num_value_heads=2, num_hidden_layers=6,
        layer_types=["linear_attention", "full_attention"] * 3,
    ),
    "deepseek_v3": transformers.DeepseekV3Config(
        **SIZES, num_key_value_heads=6, num_hidden_layers=7, q_lora_rank=14, kv_lora_rank=18, qk_nope_head_dim=8,
        qk_rope_head_dim=4, v_head_dim=10, moe_intermediate_size=20, n_routed_experts=4, num_experts_per_tok=2,
        n_group=1, topk_group=1, first_k_dense_replace=3,
    ),
    "t5": transformers.T5Config(vocab_size=40, d_model=48, d_kv=10, num_heads=6, num_layers=5, d_ff=56, **ENDS),
    "vit": transformers.ViTConfig(
        hidden_size=48, num_attention_heads=6, num_hidden_layers=4, intermediate_size=56, image_size=16, patch_size=8
    ),
    "bert": transformers.BertConfig(**SIZES, num_hidden_layers=4),
    "gpt2": transformers.GPT2Config(
        n_embd=48, n_head=6, n_layer=4, n_positions=32, vocab_size=40, scale_attn_by_inverse_layer_idx=True, **ENDS
    ),
}  # fmt: skip
RUNNING = {  # attention modules of each pass; of T5 those of the first layer have positions, and there are no others
    "qwen3": 2,
    "gemma2": 4,
    "qwen3_next": 2,
    "deepseek_v3": 4,
    "t5": 9,
    "vit": 2,
    "bert": 4,  # the norm before a layer is the layer's before it, and before the first that of the embeddings
    "gpt2": 4,  # scores are divided by the layer's number
}


def counted(network):
    """Its attention modules, and a list with an entry for each call of one of them."""
    calls = []

    def count(module, args):
        calls.append(module)

    modules = [one for one in network.modules() if type(one).__name__.endswith("Attention") and [*one.parameters()]]
    for module in [one for one in modules if not any(inner in modules for inner in [*one.modules()][1:])]:
        next(module.children()).register_forward_pre_hook(count)  # a layer that is left out is called, but no more
    return calls


def read(module, inputs=None):
    """What is found, and how many attention modules run in a pass."""
    calls = counted(module)
    inventory = Network.of_module(module, inputs).inventory()
    return inventory, len(calls) / PASSES


def made_unlike(module):
    """The module with something in each layer that no other has."""
    for stack in [one for one in module.modules() if isinstance(one, nn.ModuleList)]:
        for layer in stack:
            layer.own = object()
    return module


@pytest.mark.parametrize("name", mostly_exhaustive(CONFIGS, always=1))
def test_two_layers_of_a_kind_show_what_all_do(name):
    models = []
    for _ in range(2):
        torch.manual_seed(7)
        models.append(transformers.AutoModel.from_config(CONFIGS[name]).double().eval())
    found, running = read(models[0])
    expected, all_running = read(made_unlike(models[1]))
    assert found == expected
    assert found.notes == ()
    assert running == RUNNING[name] or (running > all_running == RUNNING[name])  # begun, and then with all
    assert all_running == len(found.sites)


def test_layers_that_did_not_run_are_proved_with_their_own_weights():
    torch.manual_seed(7)
    model = transformers.AutoModel.from_config(CONFIGS["qwen3"]).double().eval()
    network, before = Network.of_module(model), [dict(vars(one)) for one in model.modules()]
    sites = network.inventory().sites
    for module, held in zip(model.modules(), before, strict=True):
        assert vars(module) == held
    assert model.config.use_cache
    assert network.prove(sites, *stored_of(model)) == sites
    rows = [*range(10, 60), *range(10)]
    wrong = replace(sites[4], query=take_rows(sites[4].query, rows))
    with pytest.raises(CheckpointError, match=r"layer 4 head \d+: q·k of"):
        network.prove((*sites[:4], wrong), *stored_of(model))


def test_a_network_at_its_size_runs_two_of_its_layers(tmp_path):
    """Mixtral-8x7B: 32 layers with 8 experts of 14 336."""
    network = Network.of_config(transformers.MixtralConfig().to_dict(), tmp_path)
    calls = counted(network.network)
    assert len(network.inventory().sites) == 32
    assert len(calls) == 2 * PASSES


class AnAttention(nn.Module):
    """One head, whose scores have a factor of their own."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.query, self.key, self.value = (nn.Linear(12, 12, bias=False) for _ in range(3))

    def forward(self, x, factor=1.0, states=None):
        keys = x if states is None else states
        scores = self.query(x) @ self.key(keys).mT * (factor / (1 + self.divisor()))
        return x + scores.softmax(-1) @ self.value(keys)

    def divisor(self):
        return 0


class ByItsNumber(AnAttention):
    """It divides by its number from the third layer on."""

    def divisor(self):
        return self.number if self.number > 2 else 0


class InTurn(nn.Module):
    """Five layers; ``change`` says what is not the same for all."""

    def __init__(self, change: str = "", layer: type[AnAttention] = AnAttention) -> None:
        super().__init__()
        self.change = change
        self.layers = nn.ModuleList(layer(number) for number in range(5))
        if change == "shared":
            self.layers[4].key.weight = self.layers[3].key.weight
        if change == "buffer":
            for number, one in enumerate(self.layers):
                one.register_buffer("there", torch.ones(1) * number)

    def forward(self, x):
        given = x
        for number, layer in enumerate(self.layers):
            if self.change == "argument":
                x = layer(x, 1.0 + (number == 4))
            elif self.change == "states":
                x = layer(x, states=given if number in (0, 1, 4) else x)
            elif self.change == "between":
                x = layer(x) + (given if number == 3 else 0)
            elif self.change == "reversed":
                x = self.layers[4 - number](x)
            elif self.change == "beside":
                x = x + layer(given)
            elif self.change == "twice" and number == 4:
                x = layer(layer(x))
            elif self.change == "without" and number == 4:
                continue
            else:
                x = layer(x)
        return x


CHANGES = ("argument", "states", "between", "reversed", "beside", "twice", "without", "shared", "buffer")


@pytest.mark.parametrize("change", mostly_exhaustive(["", *CHANGES], always={"", "argument", "twice", "shared"}))
def test_layers_that_are_not_used_alike_all_run(change):
    inputs = {"x": torch.randn(2, 5, 12)}
    found, running = read(InTurn(change), inputs)
    expected, _ = read(made_unlike(InTurn(change)), inputs)
    assert found == expected
    assert (running == 2) == (change == "")


def test_a_layer_that_asks_for_its_number_is_like_no_other():
    module = InTurn(layer=ByItsNumber)
    sites = Network.of_module(module, {"x": torch.randn(2, 5, 12)}).inventory().sites
    assert [site.logit_scale for site in sites] == pytest.approx([1, 1, 1, 1 / 4, 1 / 5])
    assert [one.number for one in module.layers] == [0, 1, 2, 3, 4]
