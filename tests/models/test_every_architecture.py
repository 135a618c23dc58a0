"""Entries of the table of architectures, proved on tiny random models: q·k of the module is xᵀ W_QK x′.

A spread over every order of rows and every kind of stack; ``python sims/make_architectures.py --check`` proves all.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from prove_architectures import either_way, prove
from tiny_models import PROFILES, make_model

from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, MissingTensorError, UnknownArchitectureError
from rmtbase.models import Checkpoint, open_model
from rmtbase.models.layouts._architectures import find_inventory
from rmtbase.models.layouts._sites import NORMS

SPREAD = [
    ("albert", {}),
    ("bart", {}),
    ("bert", {}),
    ("bert", {"add_cross_attention": True}),
    ("bloom", {}),
    ("clip", {}),
    ("codegen", {}),
    ("deepseek_v3", {}),
    ("falcon", {}),
    ("falcon", {"multi_query": False, "num_kv_heads": 4}),
    ("falcon", {"new_decoder_architecture": True}),
    ("gemma2", {}),
    ("glm4_moe", {"head_dim": 40}),
    ("gpt2", {"add_cross_attention": True}),
    ("gpt_bigcode", {"multi_query": False, "num_key_value_heads": 4}),
    ("phi3", {"head_dim": 40}),
    *((name, {}) for name in ("gpt_bigcode", "gpt_neox", "gptj", "jamba", "llama", "llava", "mpt", "nemotron_h")),
    *((name, {}) for name in ("olmo2", "opt", "phi3", "qwen3_next", "t5", "vit")),
]
OF_TWO = {"encoder", "decoder", "cross"}
STACKS = {"bart": OF_TWO, "t5": OF_TWO, "clip": {"text", "vision"}, "llava": {"text", "vision"}}


def read(model: torch.nn.Module, **changed):
    """The inventory that the table gives a model whose configuration is changed so."""
    config = json.loads(model.config.to_json_string(use_diff=False)) | changed
    checkpoint = Checkpoint.of_tensors(model.state_dict(), "tiny")
    return find_inventory(config, checkpoint, Path("config.json"), config["model_type"])


@pytest.mark.parametrize(("model_type", "options"), mostly_exhaustive(SPREAD, always=12))
def test_q_dot_k_is_that_of_the_module(model_type, options):
    errors = prove(make_model(model_type, PROFILES[0], **options))
    assert set(errors) == STACKS.get(model_type, {"", "cross"} if "add_cross_attention" in options else {""})
    assert max(errors.values()) < 1e-6


HYBRID = replace(PROFILES[0], n_layers=4)
LINEAR, FULL = "linear_attention", "full_attention"
EITHER_WAY = [
    ("nemotron_h", {"layers_block_type": ["mlp", FULL, LINEAR, FULL]}),
    ("cohere_asr", {}),
    ("vit", {}),
    ("big_bird", {"add_cross_attention": True}),
    ("jamba", {"attn_layer_period": 9, "attn_layer_offset": 8}),
    ("bailing_hybrid", {"layer_types": [LINEAR, FULL, FULL, LINEAR]}),
    ("bamba", {"attn_layer_indices": [1, 3]}),
    ("bamba", {"attn_layer_indices": None}),
    ("bert", {"add_cross_attention": True}),
    ("diffusion_gemma", {}),  # whose encoder and decoder share their weights
    ("exaone", {}),
    ("mimi", {}),
    ("granitemoehybrid", {"layer_types": [LINEAR, FULL, FULL, LINEAR]}),
    ("kimi_linear", {"layer_types": [LINEAR] * 4}),
    ("lfm2", {"layer_types": ["conv", FULL, FULL, "conv"]}),
    ("minimax", {"layer_types": [LINEAR] * 4}),
    ("nemotron_h", {"layers_block_type": [LINEAR, "mlp"] * 2}),
    ("qwen3_next", {"layer_types": [LINEAR, FULL, FULL, LINEAR]}),
    ("recurrent_gemma", {"block_types": ["recurrent"] * 4}),
    ("zamba2", {}),
    *(
        (name, {})
        for name in ("beit", "deit", "dinov2", "longformer", "mixtral", "llava", "squeezebert", "t5", "yolos")
    ),
]


@pytest.mark.parametrize(("model_type", "options"), mostly_exhaustive(EITHER_WAY, always=5, weekly=True))
def test_memory_and_folder_give_the_same_sites_names_and_bits_or_the_same_refusal(model_type, options):
    """All types: ``python sims/make_architectures.py --check --either``."""
    assert not either_way(make_model(model_type, HYBRID, **options))


@pytest.mark.parametrize(
    "model_type", mostly_exhaustive(["big_bird", "decision_transformer", "kosmos_2_text_model"], 1)
)
def test_keys_of_cross_attention_are_its_own_and_not_those_of_a_cache(model_type):
    """BigBird keeps one cache for both; in this version of it both attend to the encoder's states."""
    sites = open_model(make_model(model_type, PROFILES[0], add_cross_attention=True)).sites
    for site in sites:
        query, key = (next(one.tensors()).rpartition(".")[0].rpartition(".")[0] for one in (site.query, site.key))
        assert query == key
    crossed = [next(site.key.tensors()) for site in sites if site.place.stack == "cross"]
    assert any("crossattention" in name or "encoder_attn" in name for name in crossed)


def test_what_the_configuration_of_a_part_leaves_out_is_what_its_class_says():
    model = make_model("llava", PROFILES[0], text_config={"head_dim": None})
    whole = json.loads(model.config.to_json_string(use_diff=False))["text_config"]
    text = {key: value for key, value in whole.items() if key != "head_dim"}
    assert read(model, text_config=text).sites == read(model).sites
    with pytest.raises(MissingTensorError, match="32 layers, but tensors of only"):
        read(model, text_config={key: value for key, value in text.items() if key != "num_hidden_layers"})
    model = make_model("gemma3", PROFILES[0])
    text = json.loads(model.config.to_json_string(use_diff=False))["text_config"]
    sites = read(model, text_config=without(text, "query_pre_attn_scalar")).sites
    assert {site.logit_scale for site in sites if site.place.stack == "text"} == {256**-0.5}


def without(config, *keys, **more):
    return {key: value for key, value in config.items() if key not in keys} | more


OLDER_WORDS = {
    "every so many": ("qwen3_next", {}, lambda config: without(config, "layer_types", full_attention_interval=2)),
    "these layers attend": ("lfm2", {}, lambda config: without(config, "layer_types", full_attn_idxs=[0])),
    "these layers attend, counted from one": (
        "kimi_linear", {}, lambda config: without(config, "layer_types", linear_attn_config={"full_attn_layers": [1]}),
    ),
    "a letter for each layer": (
        "nemotron_h", {},
        lambda config: without(config, "layers_block_type", hybrid_override_pattern="-*", num_hidden_layers=2),
    ),
    "kinds of layers as they were called": (
        "granitemoehybrid", {}, lambda config: config | {"layer_types": ["attention", "mamba"]},
    ),
    "kinds of layers that come again": (
        "recurrent_gemma", {}, lambda config: config | {"block_types": config["block_types"][:2]},
    ),
    "the width of the MLP is null": (
        "gpt_neo", {"intermediate_size": 4 * 64}, lambda config: config | {"intermediate_size": None},
    ),
    "n_embed": ("bloom", {}, lambda config: without(config, "hidden_size", n_embed=config["hidden_size"])),
    "the sizes of the text beside the images": (
        "qwen2_vl", {}, lambda config: without(config["text_config"] | config, "text_config", "model_type"),
    ),
}  # fmt: skip
"""Words of published configurations that the classes understand and do not write themselves."""


@pytest.mark.parametrize("words", OLDER_WORDS)
def test_older_words_of_a_configuration_say_the_same(words):
    model_type, options, older = OLDER_WORDS[words]
    model = make_model(model_type, PROFILES[0], **options)
    config = json.loads(model.config.to_json_string(use_diff=False))
    checkpoint = Checkpoint.of_tensors(model.state_dict(), "tiny")
    expected = find_inventory(config, checkpoint, Path("config.json"), model_type)
    assert find_inventory(older(config), checkpoint, Path("config.json"), model_type).sites == expected.sites
    assert expected.sites


def test_layers_that_are_not_rotated_or_do_not_attend_are_told_from_the_others():
    profile = replace(PROFILES[0], n_layers=5)
    model = make_model("smollm3", profile)
    assert [site.rotated for site in read(model).sites] == [16, 16, 16, 0, 16]
    assert [site.rotated for site in read(model, no_rope_layers=None).sites] == [None] * 5
    model = make_model("cohere2", profile, layer_types=["sliding_attention", "full_attention"] * 2 + ["full_attention"])
    assert [bool(site.rotated) for site in read(model).sites] == [True, False, True, False, False]
    older = {"layer_types": None, "sliding_window_pattern": 4}
    assert [bool(site.rotated) for site in read(model, **older).sites] == [True, True, True, False, True]
    model = make_model("qwen3_next", profile)
    sites, kinds = read(model).sites, model.config.layer_types
    assert {site.rotated for site in sites} == {model.config.head_dim // 4}
    assert [site.place.layer for site in sites] == [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    assert len(sites) < len(kinds)  # those without attention are no sites


@pytest.mark.parametrize(
    ("model_type", "option", "value"),
    [
        ("gpt2", "scale_attn_weights", False),
        ("gpt2", "scale_attn_by_inverse_layer_idx", True),
        ("gpt_bigcode", "scale_attn_weights", False),
    ],
)
def test_a_logit_scale_that_an_option_changes_is_not_said(model_type, option, value):
    model = make_model(model_type, PROFILES[0])
    assert {site.logit_scale for site in read(model).sites} == {16**-0.5}
    assert {site.logit_scale for site in read(model, **{option: value}).sites} == {None}
    prove(make_model(model_type, PROFILES[0], **{option: value}))


def test_norms_of_each_head_are_noted_whatever_the_number_of_heads():
    model = make_model("stablelm", replace(PROFILES[0], n_heads=8, n_key_heads=8), qk_layernorm=True)
    assert NORMS in read(model).notes
    assert NORMS not in read(make_model("stablelm", PROFILES[0])).notes


def test_an_unknown_type_and_an_unproved_variant_are_refused():
    model = make_model("falcon", PROFILES[0])
    with pytest.raises(UnknownArchitectureError, match="unknown architecture 'falcon-next'"):
        read(model, model_type="falcon-next")
    with pytest.raises(CheckpointError, match=r"a falcon model with multi_query = None.*expected one that was proved"):
        read(model, multi_query=None)
    with pytest.raises(CheckpointError, match="text_config of type 'mamba'; expected one that was proved"):
        read(make_model("llava", PROFILES[0]), text_config={"model_type": "mamba"})


def test_latent_keys_are_products_of_their_factors():
    model = make_model("deepseek_v3", PROFILES[0])
    (site, *_) = read(model).sites
    stored = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    key = site.key.evaluate(stored.__getitem__)
    config = model.config
    nope, rope, rank = config.qk_nope_head_dim, config.qk_rope_head_dim, config.kv_lora_rank
    assert key.shape == (site.n_heads * (nope + rope), config.hidden_size)
    down = stored["layers.0.self_attn.kv_a_proj_with_mqa.weight"]
    up = stored["layers.0.self_attn.kv_b_proj.weight"].reshape(site.n_heads, -1, rank)
    for head, rows in enumerate(key.reshape(site.n_heads, nope + rope, -1)):
        np.testing.assert_allclose(rows[:nope], up[head, :nope] @ down[:rank], atol=1e-12)
        np.testing.assert_array_equal(rows[nope:], down[rank:])
