"""Entries of the table of architectures, proved on tiny random models: q·k of the module is xᵀ W_QK x′.

A spread over every order of rows and every kind of stack; ``python sims/make_architectures.py --check`` proves all.
"""

import json
from dataclasses import replace
from math import log, sqrt
from pathlib import Path

import pytest
import torch
from observe_norms import inventories
from prove_architectures import either_way, prove
from tiny_models import PROFILES, key_head_options, make_model

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
    ("granitemoehybrid", {"layer_types": [LINEAR, FULL, FULL, LINEAR]}),
    ("kimi_linear", {"layer_types": [LINEAR] * 4}),
    ("lfm2", {"layer_types": ["conv", FULL, FULL, "conv"]}),
    ("minimax", {"layer_types": [LINEAR] * 4}),
    ("nemotron_h", {"layers_block_type": [LINEAR, "mlp"] * 2}),
    ("qwen3_next", {"layer_types": [LINEAR, FULL, FULL, LINEAR]}),
    ("recurrent_gemma", {"block_types": ["recurrent"] * 4}),
    *((name, {}) for name in ("beit", "deit", "dinov2", "exaone", "llava", "longformer", "mimi", "mixtral")),
    *((name, {}) for name in ("squeezebert", "t5", "yolos", "zamba2")),
]


@pytest.mark.parametrize(("model_type", "options"), mostly_exhaustive(EITHER_WAY, always=5, weekly=True))
def test_memory_and_folder_give_the_same_sites_names_and_bits_or_the_same_refusal(model_type, options):
    """All types: ``python sims/make_architectures.py --check --either``."""
    assert not either_way(make_model(model_type, HYBRID, **options))


CROSSING = ["big_bird", "decision_transformer", "kosmos_2_text_model"]


@pytest.mark.parametrize("model_type", mostly_exhaustive(CROSSING, always=1))
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


@pytest.mark.parametrize("model_type", ["gpt2", "gpt_bigcode"])
def test_a_logit_scale_that_an_option_changes_is_not_said(model_type):
    model = make_model(model_type, PROFILES[0])
    assert {site.logit_scale for site in read(model).sites} == {16**-0.5}
    of_gpt2 = {"scale_attn_by_inverse_layer_idx": True} if model_type == "gpt2" else {}
    for option, value in {"scale_attn_weights": False, **of_gpt2}.items():
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


YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
SCALES = [
    ("falcon_h1", {"key_multiplier": 0.37, "attention_in_multiplier": 0.8}),
    ("mpt", {"attn_config": {"softmax_scale": 0.31}}),
    ("deberta", {"pos_att_type": "c2p|p2c"}),
    ("hyperclovax", {"attention_multiplier": ...}),
    ("gpt_oss", {"rope_parameters": YARN}),
    ("deberta", {"pos_att_type": ["c2p"]}),
    ("falcon", {"alibi": True}),
    ("falcon", {"alibi": True, "new_decoder_architecture": True}),
    ("gemma2", {"query_pre_attn_scalar": 31}),
    ("granite", {"attention_multiplier": 0.2, "residual_multiplier": 0.3, "logits_scaling": 4.0}),
    ("granitemoehybrid", {"attention_multiplier": 0.2}),
    ("hyperclovax", {"attention_multiplier": 0.4}),
    ("llama", {"rope_parameters": YARN | {"attention_factor": 1.7}}),
    ("ministral3", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}}),
    *((name, {"qk_scale_factor": 2.5}) for name in ("muse_glimmer_text", "muse_spark_text")),
    ("openai_privacy_filter", {"rope_parameters": YARN}),
    ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 16}),
    ("qwen2", {"rope_parameters": YARN | {"mscale": 2.0, "mscale_all_dim": 1.0}}),
    ("sew-d", {"pos_att_type": ["c2p"]}),
    ("t5gemma2_text", {"query_pre_attn_scalar": 31}),
    *((name, {}) for name in ("bloom", "deberta-v2", "deepseek_ocr2_sam_vision_model", "eomt", "falcon_h1", "flint")),
    *((name, {}) for name in ("got_ocr2_vision", "gpt_neox_japanese", "gpt_oss", "hy_v4", "layoutlmv3", "mpt")),
    *((name, {}) for name in ("sam_vision_model", "sew-d", "unlimited_ocr_sam_vision_model", "vits")),
]


def made(model_type, options):
    """A tiny model, with as many key heads as heads where its class has no others."""
    errors = []
    for more in key_head_options(model_type, PROFILES[0]):
        try:
            return make_model(model_type, PROFILES[0], **{**more, **options})
        except Exception as error:
            errors.append(error)
    raise errors[0]


@pytest.mark.parametrize(("model_type", "options"), mostly_exhaustive(SCALES, always=5, weekly=True))
def test_the_logit_scale_of_the_table_is_that_of_the_forward_pass(model_type, options):
    table, forward = inventories(made(model_type, options))
    scales = [{(site.place, site.n_heads): site.logit_scale for site in one.sites} for one in (table, forward)]
    assert scales[0] == pytest.approx(scales[1], rel=1e-7)
    assert scales[0]


def test_a_factor_of_the_rotation_is_in_the_scale_unless_only_a_part_of_a_head_has_it():
    """Queries and keys are each multiplied by 1 + log(8)/10."""
    for inventory in inventories(made("qwen3", {"rope_parameters": YARN})):
        for site in inventory.sites:
            assert site.logit_scale == pytest.approx((1 + log(8) / 10) ** 2 / sqrt(site.d_head))
    for model_type, more in (("stablelm", {"partial_rotary_factor": 0.5}), ("deepseek_v3", {"mscale_all_dim": 1.0})):
        table, _ = inventories(made(model_type, {"rope_parameters": YARN | more}))
        assert {site.logit_scale for site in table.sites} == {None}


def test_multipliers_that_are_left_out_or_null_are_those_of_the_class(tmp_path):
    made("falcon_h1", {"key_multiplier": 0.37}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for words, factor in (({"key_multiplier": 0.5}, 0.5), ({"key_multiplier": None}, 1.0), ({}, 1.0)):
        less = {key: value for key, value in config.items() if key != "key_multiplier"} | words
        (tmp_path / "config.json").write_text(json.dumps(less))
        assert {site.logit_scale for site in open_model(tmp_path).sites} == {0.25 * factor}


NOTES = [
    ("falcon_h1", {"attention_in_multiplier": 0.8}, "attention_in_multiplier = 0.8 (multiplies the input of queries"),
    ("falcon_h1", {"attention_out_multiplier": 1.3}, "attention_out_multiplier = 1.3 (multiplies the output"),
    ("granite", {"residual_multiplier": 0.3}, "residual_multiplier = 0.3 (multiplies what a layer adds"),
    ("granite", {"logits_scaling": 8.0}, "logits_scaling = 8.0 (divides the logits of tokens)"),
    ("mpt", {"attn_config": {"clip_qkv": 6.0}}, "attn_config.clip_qkv = 6.0 (where queries, keys"),
    ("gemma2", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0 (where q·k is capped)"),
    ("ministral3", {}, "rope_parameters.llama_4_scaling_beta = 0.1 (queries at far positions"),
    ("bart", {"scale_embedding": True}, "scale_embedding = True (√d multiplies the embeddings)"),
    *((model_type, {}, "") for model_type in ("falcon_h1", "granite", "llama")),  # multipliers of one
    ("mimo_v2_flash", {}, "attention_value_scale = 0.707 (multiplies values)"),
]  # fmt: skip


@pytest.mark.parametrize(("model_type", "options", "words"), mostly_exhaustive(NOTES, always=5))
def test_multipliers_that_are_in_no_matrix_are_noted(model_type, options, words):
    notes = [one for one in open_model(made(model_type, options)).notes if one.startswith("in no matrix that is read")]
    assert words in " ".join(notes)
    assert len(notes) == (words != "")
