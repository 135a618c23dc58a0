"""Zero points whose version the settings get wrong, and groups of inputs that are not consecutive."""

import numpy as np
import pytest
import torch
from quantised_examples import D_IN, D_OUT, EXAMPLES, gptq
from test_quantised import LAYER, Q, made, refused, same_bits, written

from exhaustive import mostly_exhaustive
from rmtbase.models import open_model


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("bits", mostly_exhaustive([4, 3, 2, 8], always=2))
def test_symmetric_zero_points_show_their_version_whatever_the_settings_say(bits, version, tmp_path):
    example = gptq(bits, 32, version=version, sym=True)
    tensors, references = made(example)
    plain = open_model(written(tmp_path / "plain", references))
    other = {"checkpoint_format": "gptq_v2" if version == 1 else "gptq"}
    for settings in (example.config, example.config | other):
        model = open_model(written(tmp_path / "quantised", tensors, settings))
        assert same_bits(model, plain)
        (note,) = [note for note in model.notes if note.startswith("quantised")]
        told = f"; zero points are all {2 ** (bits - 1) - (version == 1)}: version {version}, though the settings say"
        assert (told in note) == (settings is not example.config)


def test_zero_points_that_differ_are_read_as_the_settings_say_which_is_noted(tmp_path):
    example = gptq(4, 32)
    tensors, references = made(example)
    plain = open_model(written(tmp_path / "plain", references))
    for symmetric in ({}, {"sym": True}, {"sym": None}):
        model = open_model(written(tmp_path / "quantised", tensors, example.config | symmetric))
        assert same_bits(model, plain)
        assert any(note.endswith("of version 1, which they do not show") for note in model.notes)
    shifted = open_model(written(tmp_path / "shifted", tensors, example.config | {"checkpoint_format": "gptq_v2"}))
    assert any(note.endswith("of version 2, which they do not show") for note in shifted.notes)
    assert not same_bits(shifted, plain)


def test_equal_zero_points_of_asymmetric_codes_are_read_as_the_settings_say(tmp_path):
    tensors, references = made(gptq(4, 32, version=2, sym=True))
    settings = gptq(4, 32).config
    model = open_model(written(tmp_path / "quantised", tensors, settings))
    step = tensors[f"{Q}.scales"].float().repeat_interleave(32, 0).T.numpy()
    expected = references[f"{Q}.weight"].numpy().astype(np.float32) - step
    assert np.abs(model.matrix(0, "attention_query") - expected).max() < step.max() * 2**-6
    assert any(note.endswith("of version 1, which they do not show") for note in model.notes)


def test_an_index_of_zeros_alone_is_of_consecutive_groups(tmp_path):
    """GPTQ-for-LLaMa wrote it so where it had not ordered the inputs."""
    tensors, references = made(EXAMPLES["gptq"])
    zeros = {name: torch.zeros_like(tensor) for name, tensor in tensors.items() if name.endswith("g_idx")}
    model = open_model(written(tmp_path / "quantised", tensors | zeros, EXAMPLES["gptq"].config))
    assert same_bits(model, open_model(written(tmp_path / "plain", references)))
    settings = EXAMPLES["gptq"].config | {"desc_act": True}
    refused(tmp_path / "ordered", tensors | zeros, settings, "holds groups from 0 to 0; expected 0 to 1", reading=True)


def test_an_order_without_its_index_is_refused_by_name(tmp_path):
    tensors, _ = made(EXAMPLES["gptq by order"])
    without = {name: tensor for name, tensor in tensors.items() if not name.endswith("g_idx")}
    refused(tmp_path, without, EXAMPLES["gptq by order"].config, "desc_act = True; expected a g_idx beside", ".qweight")
    tensors, _ = made(EXAMPLES["pack-quantized in act-order"])
    without = {name: tensor for name, tensor in tensors.items() if not name.endswith("g_idx")}
    fragments = ("in act-order (actorder); expected weight_g_idx beside it", "k_proj.weight_packed'")
    refused(tmp_path, without, EXAMPLES["pack-quantized in act-order"].config, *fragments)


def with_index(tensors, index):
    bases = [f"{LAYER.format(layer)}{part}" for layer in range(2) for part in ("q_proj", "k_proj")]
    return tensors | {f"{base}.weight_g_idx": index.clone() for base in bases}


def test_an_index_beside_packed_codes_counts_unless_it_was_never_set(tmp_path):
    for name in ("pack-quantized", "pack-quantized with zeros"):
        tensors, references = made(EXAMPLES[name])
        plain = open_model(written(tmp_path / "plain", references))
        for index in (torch.full((D_IN,), -1), torch.arange(D_IN) // 32):
            folder = written(tmp_path / "quantised", with_index(tensors, index.int()), EXAMPLES[name].config)
            assert same_bits(open_model(folder), plain)
        turned = with_index(tensors, torch.arange(D_IN).flip(0).int() // 32)
        assert not same_bits(open_model(written(tmp_path / "quantised", turned, EXAMPLES[name].config)), plain)


@pytest.mark.parametrize(
    ("name", "index", "fragment", "reading"),
    [
        ("pack-quantized", torch.zeros(D_IN), "holds groups from 0 to 0; expected 0 to 1, all of them", True),
        ("pack-quantized", torch.arange(D_IN) // 16, "holds groups from 0 to 3; expected 0 to 1", True),
        ("pack-quantized", torch.zeros(D_OUT), "weight_g_idx' has shape (96,); expected (64,)", False),
        ("pack-quantized by outputs", torch.zeros(D_IN), "act-order (actorder); expected scales of groups", False),
    ],
)
def test_an_index_that_does_not_fit_is_named(name, index, fragment, reading, tmp_path):
    tensors, _ = made(EXAMPLES[name])
    refused(tmp_path, with_index(tensors, index.int()), EXAMPLES[name].config, fragment, reading=reading)
