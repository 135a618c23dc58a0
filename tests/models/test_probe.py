"""Attention found and proved by a model's own forward pass, against queries and keys that its own modules computed.

Sizes differ pairwise (heads, key heads, the size of a head, the width), so that a wrong split cannot pass. Of layers
that are alike two run, and show what all would; where they are not, all run.
"""

import json
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import tiny_models
import torch
import transformers
from safetensors.numpy import load_file, save_file
from tiny_models import PROFILES
from torch import nn

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, MissingTensorError, UnknownArchitectureError, UnprovedConfigurationError
from rmtbase.models import open_model
from rmtbase.models.forward import _probe_forward, _torch_route
from rmtbase.models.forward._probe_rows import scale_of
from rmtbase.models.forward._torch_route import Network
from rmtbase.models.layouts._expressions import Scaled, Tensor, take_rows
from tests.models.conftest import stored_of

SIZES = {"vocab_size": 40, "hidden_size": 48, "num_hidden_layers": 2, "intermediate_size": 56, "pad_token_id": 0}
PLAIN = SIZES | {"num_attention_heads": 6, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = PLAIN | {"num_key_value_heads": 2, "head_dim": 10}
LATENT = {
    "q_lora_rank": 14, "kv_lora_rank": 18, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
    "moe_intermediate_size": 20, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
OLDER = ENDS | {"n_embd": 48, "n_layer": 2, "n_positions": 32, "vocab_size": 40}
CONFIGS = {
    "gpt2": transformers.GPT2Config(**OLDER, n_head=6),
    "gpt_neox": transformers.GPTNeoXConfig(**PLAIN),
    "falcon, one key head": transformers.FalconConfig(**PLAIN, multi_query=True, new_decoder_architecture=False),
    "falcon, interleaved": transformers.FalconConfig(**PLAIN, multi_query=False, alibi=True, bias=True),
    "falcon, grouped": transformers.FalconConfig(**PLAIN, num_kv_heads=2, new_decoder_architecture=True),
    "gpt_bigcode": transformers.GPTBigCodeConfig(**OLDER, n_head=6),
    "bloom": transformers.BloomConfig(vocab_size=40, hidden_size=48, n_head=6, n_layer=2, **ENDS),
    "gptj": transformers.GPTJConfig(**OLDER, n_head=6, rotary_dim=4),
    "codegen": transformers.CodeGenConfig(**OLDER, n_head=4, n_ctx=32, rotary_dim=6),
    "phi3": transformers.Phi3Config(**PLAIN, num_key_value_heads=2),
    "qwen3": transformers.Qwen3Config(**GROUPED),
    "gemma2": transformers.Gemma2Config(**GROUPED, query_pre_attn_scalar=7),
    "gpt_oss": transformers.GptOssConfig(**GROUPED, **EXPERTS),
    "deepseek_v3": transformers.DeepseekV3Config(**PLAIN, num_key_value_heads=6, **LATENT),
    "t5": transformers.T5Config(vocab_size=40, d_model=48, d_kv=10, num_heads=6, num_layers=2, d_ff=56, **ENDS),
    "bart": transformers.BartConfig(
        vocab_size=40, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=6,
        decoder_attention_heads=4, decoder_start_token_id=1, forced_eos_token_id=2, **ENDS,
    ),
    "albert": transformers.AlbertConfig(**PLAIN, embedding_size=20),
    "deberta-v2": transformers.DebertaV2Config(
        **PLAIN, relative_attention=True, pos_att_type=["p2c", "c2p"], max_relative_positions=8
    ),
    "vit": transformers.ViTConfig(
        hidden_size=48, num_attention_heads=6, num_hidden_layers=2, intermediate_size=56, image_size=16, patch_size=8
    ),
}  # fmt: skip
EXPECTED = {name: {"": (2, 6, 6, 8)} for name in CONFIGS} | {  # by stack: sites, heads, key heads, d_head
    "falcon, one key head": {"": (2, 6, 1, 8)},
    "falcon, grouped": {"": (2, 6, 2, 8)},
    "gpt_bigcode": {"": (2, 6, 1, 8)},
    "codegen": {"": (2, 4, 4, 12)},
    "phi3": {"": (2, 6, 2, 8)},
    **{name: {"": (2, 6, 2, 10)} for name in ("qwen3", "gemma2", "gpt_oss")},
    "deepseek_v3": {"": (2, 6, 6, 12)},
    "t5": dict.fromkeys(("encoder", "decoder", "cross"), (2, 6, 6, 10)),
    "bart": {"encoder": (2, 6, 6, 8), "decoder": (3, 4, 4, 12), "cross": (3, 4, 4, 12)},
    "albert": {"": (1, 6, 6, 8)},
}
ROTATED = {"gpt_neox": 2, "gptj": 4, "codegen": 6, "phi3": 8, "qwen3": 10, "gpt2": 0, "deepseek_v3": 4, "bloom": 0}
SCALES = {"gpt2": 8**-0.5, "t5": 1.0, "gemma2": 7**-0.5, "deepseek_v3": 12**-0.5, "bloom": 8**-0.5}


def make(name: str) -> nn.Module:
    torch.manual_seed(7)
    model = transformers.AutoModel.from_config(CONFIGS[name]).double().eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.3)
            elif parameter_name.endswith("bias"):
                parameter.zero_()
    return model


SOME = {"gpt2", "falcon, grouped", "phi3", "deepseek_v3", "t5"}


@pytest.fixture(scope="module", params=mostly_exhaustive(CONFIGS, always=SOME))
def traced(request):
    model = make(request.param)
    return request.param, model, Network.of_module(model)


def test_every_attention_is_found_and_proved(traced):
    name, model, network = traced
    inventory = network.inventory()
    found = {}
    for site in inventory.sites:
        count = found.get(site.place.stack, (0,))[0] + 1
        found[site.place.stack] = (count, site.n_heads, site.n_key_heads, site.d_head)
    assert found == EXPECTED[name]
    assert inventory.notes == ()
    assert all(site.value is not None and site.output is not None for site in inventory.sites)
    assert name not in ROTATED or {site.rotated for site in inventory.sites} == {ROTATED[name]}
    assert all(site.logit_scale == pytest.approx(SCALES[name], 1e-9) for site in inventory.sites if name in SCALES)
    assert network.prove(inventory.sites, *stored_of(model)) == inventory.sites
    if name == "deepseek_v3":  # latent factors are products, and the rotated key is shared
        site = inventory.sites[0]
        assert (site.d_query, site.d_key, site.d_value, site.d_output) == (48, 48, 10, 48)
        tensors = {f"layers.0.self_attn.{one}.weight" for one in ("kv_a_proj_with_mqa", "kv_b_proj")}
        assert set(site.key.tensors()) == tensors
        assert any("between the factors" in note for note in site.notes)


def test_queries_and_keys_of_another_split_are_refused_with_the_head(traced):
    _, model, network = traced
    sites = network.inventory().sites
    first = sites[0]
    rows = [*range(first.d_head, first.n_heads * first.d_head), *range(first.d_head)]
    wrong = [replace(first, query=take_rows(first.query, rows))]
    if first.n_heads == first.n_key_heads:
        wrong.append(replace(first, query=first.key, key=first.query))
    interleaved = np.arange(first.n_heads * first.d_head).reshape(first.n_heads, -1).T.ravel()
    wrong.append(replace(first, query=take_rows(first.query, interleaved.tolist())))
    for site in wrong:
        with pytest.raises(CheckpointError, match=rf"{first.place} head \d+: q·k of"):
            network.prove((site, *sites[1:]), *stored_of(model))


def test_names_are_those_that_the_checkpoint_stores(tmp_path):
    """ViT is stored under other names than its class has."""
    model = make("vit")
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    assert not any("q_proj" in name for name in tensors)
    network = Network.of_config(model.config.to_dict(), tmp_path)
    stored = {name: one.shape for name, one in tensors.items()}
    sites = network.inventory(stored).sites
    assert all(name in tensors for site in sites for one in site.expressions().values() for name in one.tensors())
    assert network.prove(sites, stored, tensors.__getitem__) == sites
    swapped = {**tensors, sites[0].query.name: tensors[sites[0].key.name]}
    assert network.prove(sites, stored, swapped.__getitem__) == sites  # other weights are no less the model's own
    missing = {name: shape for name, shape in stored.items() if name != sites[1].query.name}
    with pytest.raises(CheckpointError, match="no stored tensor belongs to"):
        network.inventory(missing)


class Own(nn.Module):
    """Attention with weights (head, d_model, d_head), as TransformerLens keeps them."""

    def __init__(self, mixed: bool = False, doubled: bool = False, d_in: int = 20, d_out: int = 20) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(3, d_in, 7)) for _ in range(3))
        self.W_O = nn.Parameter(torch.randn(3, 7, d_out))
        self.mixed, self.doubled = mixed, doubled

    def forward(self, x):
        q, k, v = (torch.einsum("bsd,hde->bshe", x, w) for w in (self.W_Q, self.W_K, self.W_V))
        if self.mixed:
            k = (k + k.roll(1, 1)) / 2
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / 7**0.5
        if self.doubled:
            scores = scores + torch.einsum("bqhe,bkhe->bhqk", q, v)
        result = torch.einsum("bhqk,bkhe->bqhe", scores.softmax(-1), v)
        return result.flatten(2) @ self.W_O.flatten(0, 1)


def test_a_module_of_ones_own_is_read_in_place():
    torch.manual_seed(3)
    module = Own().train()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    network = Network.of_module(module, {"x": torch.randn(2, 5, 20)})
    (site,) = network.inventory().sites
    assert (site.n_heads, site.d_head, site.d_query, site.logit_scale) == (3, 7, 20, pytest.approx(7**-0.5))
    _, read = stored_of(module)
    np.testing.assert_array_equal(site.query.evaluate(read).reshape(3, 7, 20), read("W_Q").swapaxes(1, 2))
    assert site.output == Tensor("W_O", transposed=True, n_inputs=2)
    np.testing.assert_array_equal(site.output.evaluate(read), read("W_O").reshape(21, 20).T)
    assert network.prove((site,), *stored_of(module)) == (site,)
    weight, default = module.W_Q, torch.get_default_dtype()
    with pytest.raises(CheckpointError, match="does not run on noise"):
        Network.of_module(module, {"x": torch.randn(2, 5, 21)}).inventory()
    assert module.W_Q is weight and module.training and torch.get_default_dtype() == default
    assert module(torch.randn(1, 4, 20)).shape == (1, 4, 20)
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())


def test_what_is_no_product_of_stored_queries_and_keys_is_refused_with_the_reason(monkeypatch):
    inputs = {"x": torch.randn(2, 5, 20)}
    with pytest.raises(CheckpointError, match="mixed over tokens"):
        Network.of_module(Own(mixed=True), inputs).inventory()
    with pytest.raises(CheckpointError, match="made of 2 products"):
        Network.of_module(Own(doubled=True), inputs).inventory()
    monkeypatch.setattr(_probe_forward, "_MOST", 2 * 3 * 5 * 5 - 1)  # numbers in a product
    with pytest.raises(CheckpointError, match=r"a product of shape \(6, 5, 5\), too large to be run"):
        Network.of_module(Own(), inputs).inventory()


def test_rows_of_scores_that_are_masked_whole_do_not_count():
    scores = torch.tensor([[0.0, 1.0, -3e38], [2.0, 0.5, -3e38], [-3e38, -3e38, -3e38]])
    step = torch.tensor([[0.25, 0.25, 0.0], [0.75, 0.75, 0.0], [0.0, 0.0, 0.0]])
    for along, keys_right in ((step, True), (torch.tensor([[0.25, 0.75, 0.0]]), False)):
        plain, tagged = (SimpleNamespace(scores=one, axis=-1) for one in (scores, scores + along))
        assert scale_of(plain, tagged) == (0.25, keys_right)


class Rescaled(Own):
    """Queries through a latent that is multiplied by a number, as dots3 does."""

    def __init__(self) -> None:
        super().__init__(d_in=9)
        self.down = nn.Linear(20, 9, bias=False)
        self.W_K, self.W_V = (nn.Parameter(torch.randn(3, 20, 7)) for _ in range(2))

    def forward(self, x):
        queries = torch.einsum("bsd,hde->bshe", self.down(x) * 1.7, self.W_Q)
        k, v = (torch.einsum("bsd,hde->bshe", x, w) for w in (self.W_K, self.W_V))
        weights = torch.einsum("bqhe,bkhe->bhqk", queries, k).softmax(-1)
        return torch.einsum("bhqk,bkhe->bqhe", weights, v).flatten(2) @ self.W_O.flatten(0, 1)


def test_a_number_between_the_factors_of_queries_is_in_their_matrix():
    torch.manual_seed(3)
    module = nn.Sequential(Rescaled())
    network = Network.of_module(module, {"input": torch.randn(2, 5, 20)})
    (site,) = network.inventory().sites
    weights, read = stored_of(module)
    expected = 1.7 * read("0.W_Q").swapaxes(1, 2) @ read("0.down.weight")
    np.testing.assert_allclose(site.query.evaluate(read), expected.reshape(21, 20), rtol=1e-11)
    assert network.prove((site,), weights, read) == (site,)
    with pytest.raises(CheckpointError, match=r"head \d: q·k of"):
        network.prove((replace(site, query=Scaled(site.query, 1 / 1.7)),), weights, read)


class Layers(nn.Module):
    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Own(d_in=one, d_out=other) for one, other in pairwise(widths))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize(("widths", "products"), [((20, 20, 20, 20), {0, 2}), ((20, 20, 30, 30), {0, 1, 2})])
def test_a_proof_runs_the_layers_of_its_sites_and_all_where_these_do_not_run_alone(widths, products):
    torch.manual_seed(3)
    module = Layers(*widths)
    network = Network.of_module(module, {"x": torch.randn(2, 5, 20)})
    first, _, last = network.inventory().sites
    weights, read = stored_of(module)
    ran = set()
    for number, layer in enumerate(module.layers):
        layer.register_forward_pre_hook(lambda layer, _, n=number: None if "forward" in vars(layer) else ran.add(n))
    assert network.prove((first, last), weights, read) == (first, last)
    assert ran == products
    assert not any("forward" in vars(layer) for layer in module.layers)
    wrong = replace(last, query=last.key, key=last.query)
    with pytest.raises(CheckpointError, match=r"layer 2 head \d: q·k of"):
        network.prove((first, wrong), weights, read)


def test_code_of_the_checkpoint_is_never_run():
    config = {"model_type": "own", "auto_map": {"AutoModel": "modeling_own.Own"}}
    with pytest.raises(CheckpointError, match="brings its own code"):
        Network.of_config(config, Path("checkpoint"))
    with pytest.raises(UnknownArchitectureError):
        Network.of_config({"model_type": "own"}, Path("checkpoint"))


def test_what_a_pass_changes_in_a_live_module_is_put_back():
    """What a hook leaves behind, and chunks of state-space mixers, which are small while a network runs."""
    module = Layers(20, 20, 20)
    module.seen = 0
    module.register_forward_pre_hook(lambda one, _: setattr(one, "seen", one.seen + 1))
    assert len(Network.of_module(module, {"x": torch.randn(2, 5, 20)}).inventory().sites) == 2
    assert module.seen == 0
    config = transformers.GraniteMoeHybridConfig(
        layer_types=["mamba", "attention"], num_hidden_layers=2, hidden_size=48, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=60, intermediate_size=20, shared_intermediate_size=24, num_local_experts=3,
        num_experts_per_tok=2, mamba_n_heads=6, mamba_d_head=16, mamba_d_state=8, mamba_chunk_size=256,
    )  # fmt: skip
    module = transformers.GraniteMoeHybridModel(config)
    mixer = next(one for one in module.modules() if "A_log" in one._parameters)
    seen = []
    mixer.register_forward_pre_hook(lambda one, _: seen.append(one.chunk_size))
    (site,) = Network.of_module(module).inventory().sites
    assert (site.place.layer, site.n_heads, site.n_key_heads, site.d_head) == (1, 4, 2, 12)
    assert set(seen) == {16}
    assert mixer.chunk_size == 256


OTHERWISE = {
    "layers that attend to images alone": ("mllama_text_model", {"n_layers": 5}, {}, 4),
    "experts in some layers of the encoder": ("nllb-moe", {"n_layers": 4}, {}, 4 + 5 + 5),
    "a text of another type": ("llava", {}, {"text_config": "olmo2"}, 6),
}


@pytest.mark.parametrize("case", mostly_exhaustive(OTHERWISE, always=1))
def test_what_the_table_has_otherwise_is_read_by_running_it(case, tmp_path, monkeypatch):
    model_type, sizes, parts, n_sites = OTHERWISE[case]
    monkeypatch.setenv("RMTBASE_PROOF", "1")
    profile = replace(PROFILES[0], **sizes)
    nested = {
        key: {**tiny_models.sized(tiny_models.default_config(name), profile.nested(1)), "model_type": name}
        for key, name in parts.items()
    }
    tiny_models.make_model(model_type, profile, **nested).save_pretrained(tmp_path)
    model = open_model(tmp_path).prove()
    assert len(model.sites) == n_sites
    assert model.notes[-1].startswith("proved against")
    monkeypatch.setattr(_torch_route, "version", Mock(side_effect=PackageNotFoundError))
    with pytest.raises((MissingTensorError, UnprovedConfigurationError)):
        open_model(tmp_path)


def test_a_tensor_that_is_not_there_is_missing_however_the_model_is_read(tmp_path):
    model = tiny_models.make_model("gpt2")
    model.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    (gone,) = (name for name in weights if name.endswith("h.1.attn.c_attn.weight"))
    del weights[gone]
    save_file(weights, tmp_path / "model.safetensors")
    with pytest.raises(MissingTensorError, match=r"h\.1\.attn\.c_attn\.weight"):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"n_layer": 10**9}, "n_layer = 1000000000; expected no more than 10,000"),
        ({"hidden_size": 4 * 10**6, "n_inner": 64}, "parameters, where .* are stored"),
    ],
)
def test_a_network_that_cannot_be_the_checkpoints_is_not_run(changed, message, tmp_path):
    tiny_models.make_model("decision_transformer").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | changed
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        open_model(tmp_path)


PASSES = 3  # of one reading, where the first is enough
OF_DEEP = ENDS | {"vocab_size": 40, "hidden_size": 48, "intermediate_size": 56, "num_attention_heads": 6}
GROUPED_DEEP = OF_DEEP | {"num_key_value_heads": 2, "head_dim": 10}
SHARED_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 20, "shared_expert_intermediate_size": 12}
DEEP = {
    "qwen3": transformers.Qwen3Config(**GROUPED_DEEP, num_hidden_layers=5),
    "gemma2": transformers.Gemma2Config(**GROUPED_DEEP, num_hidden_layers=6),  # windows in every second layer
    "qwen3_next": transformers.Qwen3NextConfig(
        **GROUPED_DEEP, **SHARED_EXPERTS, num_experts=4, linear_num_key_heads=2, linear_num_value_heads=2,
        num_hidden_layers=6, layer_types=["linear_attention", "full_attention"] * 3,
    ),
    "deepseek_v3": transformers.DeepseekV3Config(
        **OF_DEEP, num_key_value_heads=6, num_hidden_layers=7, q_lora_rank=14, kv_lora_rank=18, qk_nope_head_dim=8,
        qk_rope_head_dim=4, v_head_dim=10, moe_intermediate_size=20, n_routed_experts=4, num_experts_per_tok=2,
        n_group=1, topk_group=1, first_k_dense_replace=3,
    ),
    "t5": transformers.T5Config(vocab_size=40, d_model=48, d_kv=10, num_heads=6, num_layers=5, d_ff=56, **ENDS),
    "vit": transformers.ViTConfig(
        hidden_size=48, num_attention_heads=6, num_hidden_layers=4, intermediate_size=56, image_size=16, patch_size=8
    ),
    "bert": transformers.BertConfig(**OF_DEEP, num_hidden_layers=4),
    "gpt2": transformers.GPT2Config(
        n_embd=48, n_head=6, n_layer=4, n_positions=32, vocab_size=40, scale_attn_by_inverse_layer_idx=True, **ENDS
    ),
}  # fmt: skip
# Attention modules of each pass. Of T5 those of the first layer have positions, and no others; the norm before
# a layer of BERT is the layer's before it, and before the first that of the embeddings; scores of GPT-2 are divided by
# the layer's number.
RUNNING = {"qwen3": 2, "gemma2": 4, "qwen3_next": 2, "deepseek_v3": 4, "t5": 9, "vit": 2, "bert": 4, "gpt2": 4}


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
    calls = counted(module)
    inventory = Network.of_module(module, inputs).inventory()
    return inventory, len(calls) / PASSES


def made_unlike(module):
    for stack in [one for one in module.modules() if isinstance(one, nn.ModuleList)]:
        for layer in stack:
            layer.own = object()
    return module


@pytest.mark.parametrize("name", mostly_exhaustive(DEEP, always=1))
def test_two_layers_of_a_kind_show_what_all_do(name):
    models = []
    for _ in range(2):
        torch.manual_seed(7)
        models.append(transformers.AutoModel.from_config(DEEP[name]).double().eval())
    found, running = read(models[0])
    expected, all_running = read(made_unlike(models[1]))
    assert found == expected
    assert found.notes == ()
    assert running == RUNNING[name] or (running > all_running == RUNNING[name])  # begun, and then with all
    assert all_running == len(found.sites)


def test_layers_that_did_not_run_are_proved_with_their_own_weights():
    torch.manual_seed(7)
    model = transformers.AutoModel.from_config(DEEP["qwen3"]).double().eval()
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
