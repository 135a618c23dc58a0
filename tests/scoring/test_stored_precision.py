"""Weights in half precision are widened where they are used: no number depends on when."""

import ml_dtypes
import numpy as np
import pytest
import xarray as xr

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.models import open_model

D_MODEL, HEADS, KEY_HEADS, D_HEAD = 48, 6, 2, 8
ROWS = {"q": HEADS * D_HEAD, "k": KEY_HEADS * D_HEAD, "v": KEY_HEADS * D_HEAD}
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS, "hidden_size": D_MODEL}
CONFIG |= {"num_hidden_layers": 2}
NAME = "model.layers.{}.self_attn.{}_proj.{}"


def state_dict(dtype, of_biases=None):
    rng = np.random.default_rng(7)
    state = {}
    for layer in range(2):
        for part, rows in ROWS.items():
            state[NAME.format(layer, part, "weight")] = rng.standard_normal((rows, D_MODEL)).astype(dtype)
            if of_biases is not None:
                state[NAME.format(layer, part, "bias")] = rng.standard_normal(rows).astype(of_biases)
        state[NAME.format(layer, "o", "weight")] = rng.standard_normal((D_MODEL, HEADS * D_HEAD)).astype(dtype)
    return state


def in_float32(state):
    return {name: values.astype(np.float32) for name, values in state.items()}


@pytest.mark.parametrize("dtype", mostly_exhaustive([ml_dtypes.bfloat16, np.float16], always=1))
def test_scores_are_those_of_the_same_weights_in_float32_to_the_bit(dtype):
    state = state_dict(dtype)
    opening = {"family": "llama", "config": CONFIG, "name": "model", "proof": False}
    narrow, wide = (
        rmtbase.score(open_model(one, **opening), "analytic", circuits=("ov", "key"))
        for one in (state, in_float32(state))
    )
    for group in ("heads", "matrices", "circuits/ov/heads", "circuits/key/heads"):
        xr.testing.assert_identical(narrow[group].to_dataset(), wide[group].to_dataset())


def test_a_matrix_of_tensors_of_two_types_is_that_of_both_in_float32():
    state = state_dict(ml_dtypes.bfloat16, of_biases=np.float16)
    narrow, wide = (open_model(one, family="qwen2", config=CONFIG, fold="biases") for one in (state, in_float32(state)))
    assert narrow.queries(1).shape == (HEADS, D_HEAD, D_MODEL + 1)
    for component in ("attention_query", "attention_key"):
        np.testing.assert_array_equal(narrow.matrix(1, component), wide.matrix(1, component))
