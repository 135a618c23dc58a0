"""Fused weights cut into heads, against the forward passes of the models that fuse so."""

import os

import jax
import numpy as np
import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import transformers

from rmtbase.errors import ParameterError
from rmtbase.models import open_model, split_qkv

N_HEADS, D_HEAD, D_MODEL = 6, 8, 48


def fused(n_key_heads=N_HEADS):
    rows = (N_HEADS + 2 * n_key_heads) * D_HEAD
    return np.random.default_rng(0).standard_normal((rows, D_MODEL))


def assert_parts(parts, expected):
    for part, one in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(np.asarray(part), one)


@pytest.mark.parametrize("n_key_heads", [6, 2, 1])
def test_parts_are_cut_as_forward_passes_cut_them(n_key_heads):
    weight, rows = fused(n_key_heads), N_HEADS * D_HEAD
    expected = [one.reshape(-1, D_HEAD, D_MODEL) for one in np.split(weight, [rows, rows + n_key_heads * D_HEAD])]
    assert_parts(split_qkv(weight, N_HEADS, "concatenated", n_key_heads=n_key_heads), expected)
    assert_parts(split_qkv(weight.T, N_HEADS, "concatenated", n_key_heads=n_key_heads, transposed=True), expected)
    # Interleaved, as Falcon's own _split_heads cuts what its linear map gives.
    x = np.random.default_rng(1).standard_normal((5, D_MODEL))
    made = (x @ weight.T).reshape(5, n_key_heads, N_HEADS // n_key_heads + 2, D_HEAD)
    expected = made[:, :, :-2].reshape(5, N_HEADS, D_HEAD), made[:, :, -2], made[:, :, -1]
    parts = split_qkv(weight, N_HEADS, "interleaved", n_key_heads=n_key_heads)
    for part, one in zip(parts, expected, strict=True):
        np.testing.assert_allclose(np.einsum("pd,hid->phi", x, part), one, rtol=1e-12)


SIZES = {"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 1, "intermediate_size": 64, "vocab_size": 8}
OF_GPT2 = {"n_embd": 48, "n_head": 6, "n_layer": 1, "vocab_size": 8, "bos_token_id": 0, "eos_token_id": 0}
IN_GPT2 = {"kind": "concatenated", "transposed": True}


@pytest.mark.parametrize(
    ("name", "config", "weight", "options"),
    [
        ("gpt2", OF_GPT2, "h.0.attn.c_attn.weight", IN_GPT2),
        ("gpt_neox", SIZES, "layers.0.attention.query_key_value.weight", {"kind": "interleaved"}),
    ],
)
def test_the_heads_are_those_that_the_layouts_read(name, config, weight, options):
    module = transformers.AutoModel.from_config(transformers.AutoConfig.for_model(name, **config))
    model = open_model(module)
    q, k, v = split_qkv(module.state_dict()[weight], N_HEADS, **options)
    assert_parts((q, k), (model.queries(0), model.keys(0)))
    np.testing.assert_array_equal(v.reshape(48, 48), model.matrix(0, "attention_value"))


def test_arrays_come_back_as_what_they_were():
    weight = torch.from_numpy(fused()).bfloat16().requires_grad_()
    for part in split_qkv(weight, N_HEADS, "interleaved"):
        assert part.dtype == torch.bfloat16
        assert part.shape == (N_HEADS, D_HEAD, D_MODEL)
    assert isinstance(split_qkv(jax.numpy.asarray(fused()), N_HEADS, "concatenated")[0], jax.Array)
    assert_parts(split_qkv(fused().tolist(), N_HEADS, "concatenated"), split_qkv(fused(), N_HEADS, "concatenated"))


@pytest.mark.parametrize(
    ("shape", "options", "fragments"),
    [
        ((144, 48), {"kind": "separate"}, ["kind = 'separate'", "'concatenated' or 'interleaved'"]),
        ((144, 48), {"kind": "fused"}, ["kind = 'fused'"]),
        ((48, 144), {}, ["(48, 144)", "transposed=True would fit"]),
        ((144, 48), {"transposed": True}, ["transposed=False would fit"]),
        ((143, 48), {}, ["18 · d_head rows for 6 heads on 6 key heads"]),
        ((144, 48), {"n_key_heads": 4}, ["n_key_heads = 4", "a divisor of the 6 heads"]),
        ((144, 48), {"n_heads": 0}, ["n_heads = 0", "positive integer"]),
        ((144,), {}, ["(144,)", "a matrix"]),
        ((144, 48, 1), {}, ["a matrix"]),
        ((144, 48), {"transposed": 1}, ["True or False"]),
    ],
)
def test_weights_that_do_not_fit_are_refused(shape, options, fragments):
    with pytest.raises(ParameterError) as caught:
        split_qkv(np.ones(shape), **{"n_heads": N_HEADS, "kind": "concatenated"} | options)
    for fragment in fragments:
        assert fragment in str(caught.value)
