"""Multipliers of a configuration: in the scale of the logits, which the forward pass confirms, or named in a note."""

import json

import pytest
from observe_norms import inventories
from tiny_models import PROFILES, key_head_options, make_model

from exhaustive import mostly_exhaustive
from rmtbase.models import open_model

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 8.0, "original_max_position_embeddings": 16}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
SCALES = [
    ("falcon_h1", {"key_multiplier": 0.37, "attention_in_multiplier": 0.8}),
    ("mpt", {"attn_config": {"softmax_scale": 0.31}}),
    ("deberta", {"pos_att_type": "c2p|p2c"}),
    ("hyperclovax", {"attention_multiplier": ...}),
    ("gpt_oss", {"rope_parameters": YARN}),
    ("bloom", {}),
    ("deberta", {"pos_att_type": ["c2p"]}),
    ("deberta-v2", {}),
    ("deepseek_ocr2_sam_vision_model", {}),
    ("eomt", {}),
    ("falcon", {"alibi": True}),
    ("falcon", {"alibi": True, "new_decoder_architecture": True}),
    ("falcon_h1", {}),
    ("flint", {}),
    ("gemma2", {"query_pre_attn_scalar": 31}),
    ("got_ocr2_vision", {}),
    ("gpt_neox_japanese", {}),
    ("gpt_oss", {}),
    ("granite", {"attention_multiplier": 0.2, "residual_multiplier": 0.3, "logits_scaling": 4.0}),
    ("granitemoehybrid", {"attention_multiplier": 0.2}),
    ("hy_v4", {}),
    ("hyperclovax", {"attention_multiplier": 0.4}),
    ("layoutlmv3", {}),
    ("llama", {"rope_parameters": YARN | {"attention_factor": 1.7}}),
    ("ministral3", {"rope_parameters": YARN | {"llama_4_scaling_beta": 0.1}}),
    ("mpt", {}),
    ("muse_glimmer_text", {"qk_scale_factor": 2.5}),
    ("muse_spark_text", {"qk_scale_factor": 2.5}),
    ("openai_privacy_filter", {"rope_parameters": YARN}),
    ("phi3", {"rope_parameters": LONG, "original_max_position_embeddings": 16}),
    ("qwen2", {"rope_parameters": YARN | {"mscale": 2.0, "mscale_all_dim": 1.0}}),
    ("sam_vision_model", {}),
    ("sew-d", {}),
    ("sew-d", {"pos_att_type": ["c2p"]}),
    ("t5gemma2_text", {"query_pre_attn_scalar": 31}),
    ("unlimited_ocr_sam_vision_model", {}),
    ("vits", {}),
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


def test_a_scale_that_only_a_part_of_a_head_has_is_not_said():
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
