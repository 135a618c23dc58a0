"""How many layers, and how large a head: what the tensors say beside what the configuration says."""

import re

import numpy as np
import pytest

from rmtbase.errors import CheckpointError, MissingTensorError, ShapeError
from rmtbase.models import open_model

LAYER = "model.layers.{}.self_attn."
UNSEEN = "split into heads by the configuration only: no tensor shows the head size"


def array(*shape):
    return np.ones(shape, np.float32)


def gpt2(parts):
    parts.config = {"model_type": "gpt2", "n_embd": 12, "n_layer": 2, "n_head": 4}
    parts.tensors = {f"transformer.h.{layer}.attn.c_attn.weight": array(12, 36) for layer in range(2)}
    # What published checkpoints hold besides: the causal mask, and what stands where it is zero.
    parts.tensors |= {f"transformer.h.{layer}.attn.bias": array(1, 1, 8, 8) for layer in range(2)}
    parts.tensors |= {f"transformer.h.{layer}.attn.masked_bias": array() for layer in range(2)}
    parts.tensors["lm_head.weight"] = array(5, 12)
    return parts


def gpt_neox(parts):
    parts.config = {"model_type": "gpt_neox", "hidden_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
    parts.config |= {"intermediate_size": 100, "rotary_pct": 0.25}
    fused = "gpt_neox.layers.{}.attention.query_key_value.weight"
    parts.tensors = {fused.format(layer): array(288, 96) for layer in range(2)}
    return parts


def bert(parts):
    parts.config = {"model_type": "bert", "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 4}
    query = "bert.encoder.layer.{}.attention.self.{}.weight"
    parts.tensors = {query.format(layer, part): array(12, 12) for layer in range(2) for part in ("query", "key")}
    return parts


def qwen3(parts):
    """Four heads of 3 with two key heads, and the norms of each head's queries and keys."""
    parts.config |= {"model_type": "qwen3", "head_dim": 3}
    for layer in range(2):
        parts.tensors |= {LAYER.format(layer) + norm + ".weight": array(3) for norm in ("q_norm", "k_norm")}
    return parts


@pytest.mark.parametrize("layers", [3, 10**18, 10**99])
def test_layers_that_are_not_there_are_missed_at_once(layers, parts, tmp_path):
    parts.config["num_hidden_layers"] = layers
    with pytest.raises(MissingTensorError) as caught:
        open_model(parts.write(tmp_path))
    assert caught.value.tensor == LAYER.format(2) + "q_proj.weight"
    assert f"config.json: {layers} layers, but tensors of only 2" in str(caught.value)
    parts.config["num_hidden_layers"] = 3  # and there is a gap
    parts.tensors = {name.replace("layers.1.", "layers.2."): weight for name, weight in parts.tensors.items()}
    with pytest.raises(MissingTensorError, match=re.escape(LAYER.format(1) + "q_proj.weight")):
        open_model(parts.write(tmp_path))


@pytest.mark.parametrize("number", ["2", "17", "01", "1" * 30, "٢"])
@pytest.mark.parametrize("tensor", ["mlp.gate.weight", "self_attn.q_proj.weight", "input_layernorm.weight"])
def test_any_tensor_of_a_layer_beyond_the_configuration_is_named(number, tensor, parts, tmp_path):
    name = f"model.layers.{number}.{tensor}"
    parts.tensors[name] = array(12, 12)
    words = f"{re.escape(name)}' is there; expected none beyond the 2 layers"
    with pytest.raises(CheckpointError, match=words) as caught:
        open_model(parts.write(tmp_path))
    assert f"(numbered besides: {number})" in str(caught.value)


@pytest.mark.parametrize(
    ("n_heads", "n_key_heads", "d_head"), [(2, 1, 6), (12, 6, 1)], ids=["fewer and larger", "more and smaller"]
)
def test_heads_exchanged_for_their_size_are_seen_by_the_norms(n_heads, n_key_heads, d_head, parts, tmp_path):
    assert UNSEEN not in open_model(qwen3(parts).write(tmp_path / "sound")).notes
    parts.config |= {"num_attention_heads": n_heads, "num_key_value_heads": n_key_heads, "head_dim": d_head}
    with pytest.raises(ShapeError, match=r"_norm\.weight' has shape \(3,\); expected") as caught:
        open_model(parts.write(tmp_path / "exchanged"))
    assert caught.value.expected == (d_head,)
    del parts.tensors[LAYER.format(1) + "k_norm.weight"]
    parts.config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3}
    with pytest.raises(MissingTensorError, match=re.escape(LAYER.format(1) + "k_norm.weight")):
        open_model(parts.write(tmp_path / "only in some layers"))


@pytest.mark.parametrize(("rotary", "entries"), [({"rotary_pct": 0.25}, 3), ({"rotary_pct": 1}, 12), ({}, 3)])
def test_rotary_frequencies_show_the_head_size(rotary, entries, parts, tmp_path):
    """Heads of 24, of which a part is rotated; an exchange for eight heads of 12 changes no other shape."""
    del gpt_neox(parts).config["rotary_pct"]
    parts.config |= rotary
    for layer in range(2):
        parts.tensors[f"gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq"] = array(entries)
    assert UNSEEN not in open_model(parts.write(tmp_path / "sound")).notes
    parts.config["num_attention_heads"] = 8
    with pytest.raises(ShapeError, match=rf"inv_freq' has shape \({entries},\); expected"):
        open_model(parts.write(tmp_path / "exchanged"))


def test_the_rotated_part_is_a_number_and_that_of_newer_configurations_counts(parts, tmp_path):
    for part in (2, -0.5, "a", True, [1], float("nan")):
        gpt_neox(parts).config["rotary_pct"] = part
        with pytest.raises(CheckpointError, match="expected a number from 0 to 1"):
            open_model(parts.write(tmp_path))
    gpt_neox(parts).config["rope_parameters"] = {"partial_rotary_factor": 0.5}
    for layer in range(2):
        parts.tensors[f"gpt_neox.layers.{layer}.attention.rotary_emb.inv_freq"] = array(6)
    assert open_model(parts.write(tmp_path)).d_head == 24


def test_frequencies_of_a_llama_show_the_head_size(parts, tmp_path):
    parts.config |= {"num_attention_heads": 2, "num_key_value_heads": 1}  # heads of 6
    for layer in range(2):
        parts.tensors[LAYER.format(layer) + "rotary_emb.inv_freq"] = array(3)
    assert UNSEEN not in open_model(parts.write(tmp_path / "sound")).notes
    parts.config |= {"num_attention_heads": 6, "num_key_value_heads": 3}
    with pytest.raises(ShapeError, match=r"inv_freq' has shape \(3,\); expected \(1,\)"):
        open_model(parts.write(tmp_path / "exchanged"))


@pytest.mark.parametrize("make", [gpt2, gpt_neox, bert])
@pytest.mark.parametrize("word", ["head_dim", "head_size", "attention_head_size", "num_key_value_heads"])
def test_a_head_size_other_than_by_definition_is_refused(make, word, parts, tmp_path):
    model = open_model(make(parts).write(tmp_path / "sound"))
    assert UNSEEN in model.notes
    size = model.n_heads if word == "num_key_value_heads" else model.d_head
    parts.config[word] = size
    assert open_model(parts.write(tmp_path / "said again")).d_head == model.d_head
    parts.config[word] = 2 * size
    with pytest.raises(CheckpointError, match=rf"config\.json: {word} = {2 * size} beside .*; expected {size}"):
        open_model(parts.write(tmp_path / "otherwise"))


@pytest.mark.parametrize(
    ("word", "expected"), [("num_attention_heads", 4), ("hidden_size", 12), ("num_hidden_layers", 2)]
)
def test_two_words_for_one_size_agree(word, expected, parts, tmp_path):
    gpt2(parts).config[word] = expected
    assert open_model(parts.write(tmp_path / "same")).n_heads == 4
    parts.config[word] = 2 * expected
    with pytest.raises(CheckpointError, match=rf"{word} = {2 * expected} beside n_layer = 2, .*; expected {expected}"):
        open_model(parts.write(tmp_path / "other"))


def test_a_bias_has_one_number_for_each_output(parts, tmp_path):
    name = LAYER.format(1) + "k_proj.bias"
    parts.tensors[name] = array(6)
    assert "biases present: recorded, not folded in" in open_model(parts.write(tmp_path / "sound")).notes
    parts.tensors[name] = array(12)
    with pytest.raises(ShapeError, match=rf"{re.escape(name)}' has shape \(12,\); expected \(6,\)"):
        open_model(parts.write(tmp_path / "other"))
