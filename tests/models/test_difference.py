"""The difference of two models, matrix by matrix."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import rmtbase
from rmtbase.errors import ParameterError
from rmtbase.models import difference, open_model

D_MODEL, N_HEADS, N_KEY_HEADS, D_HEAD, N_LAYERS = 64, 4, 2, 8, 2
SIZES = {"num_hidden_layers": N_LAYERS, "num_attention_heads": N_HEADS, "num_key_value_heads": N_KEY_HEADS}
CONFIG = {"model_type": "llama", "hidden_size": D_MODEL, "head_dim": D_HEAD} | SIZES


def name(layer, part):
    return f"model.layers.{layer}.self_attn.{part}_proj.weight"


def weights(seed):
    rng = np.random.default_rng(seed)
    return {
        name(layer, part): 0.02 * rng.standard_normal((heads * D_HEAD, D_MODEL))
        for layer in range(N_LAYERS)
        for part, heads in {"q": N_HEADS, "k": N_KEY_HEADS}.items()
    }


def write(folder, tensors, dtype=np.float32, **config):
    folder.mkdir()
    save_file({key: value.astype(dtype) for key, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    return open_model(folder)


def moved(scale, seed=2):
    return {key: value + scale * weights(seed)[key] for key, value in weights(1).items()}


def test_each_matrix_is_the_difference_of_the_two(tmp_path):
    one, other = write(tmp_path / "one", weights(1)), write(tmp_path / "other", weights(2))
    model = difference(one, other)
    assert model.name == "one - other"
    for layer in range(N_LAYERS):
        found = model.matrix(layer, "attention_query")
        assert found.dtype == np.float64 and not found.flags.writeable
        expected = one.matrix(layer, "attention_query").astype(float) - other.matrix(layer, "attention_query")
        np.testing.assert_array_equal(found, expected)
        assert model.keys(layer).shape == (N_KEY_HEADS, D_HEAD, D_MODEL)
    assert len({model.fingerprint(), difference(other, one).fingerprint(), one.fingerprint()}) == 3
    assert "not the difference of the two W_QK" in model.notes[0]
    assert set(model.files) == {tmp_path / "one" / "model.safetensors", tmp_path / "other" / "model.safetensors"}


@pytest.mark.exhaustive
def test_what_is_folded_into_one_is_folded_into_both(tmp_path, run):
    gains = [
        {f"model.layers.{n}.input_layernorm.weight": np.full(D_MODEL, gain) for n in range(N_LAYERS)} for gain in (2, 3)
    ]
    one, other = (write(tmp_path / str(seed), weights(seed) | gains[seed - 1]) for seed in (1, 2))
    model = difference(one.fold("norms"), other.fold("norms"))
    expected = 2 * one.matrix(0, "attention_query").astype(float) - 3 * other.matrix(0, "attention_query")
    np.testing.assert_allclose(model.matrix(0, "attention_query"), expected, atol=2e-8)  # folded in float32
    with pytest.raises(ParameterError, match="2, with nothing folded in': expected norms, as in 1"):
        difference(one.fold("norms"), other)
    run("score", tmp_path / "1", "--minus", tmp_path / "2", "--fold", "norms", "-o", tmp_path / "scores.nc")
    tree = rmtbase.open_table(tmp_path / "scores.nc")
    assert json.loads(tree.attrs["folded"]) == ["norms"]
    sigmas = np.sqrt(np.mean(expected.reshape(N_HEADS, -1) ** 2, axis=1))
    np.testing.assert_allclose(tree["heads"]["sigma_q"].sel(layer=0), sigmas, rtol=1e-6)


def test_a_random_update_is_told_to_be_random_and_a_direction_is_found(tmp_path):
    tuned = moved(1e-3)
    tuned[name(1, "q")][:D_HEAD] += 1e-3 * np.outer(np.ones(D_HEAD), np.ones(D_MODEL)) * 0.2
    model = difference(write(tmp_path / "tuned", tuned), write(tmp_path / "base", weights(1)))
    heads = rmtbase.score(model, "analytic", matrices="none")["heads"].to_dataset()
    q_values = heads["omnibus_q_value"].values
    assert q_values[1, 0] < 1e-6
    assert (np.delete(q_values.ravel(), N_HEADS) > 0.01).all()


def test_what_is_the_same_in_both_is_zero_and_said_to_be(tmp_path):
    tuned = moved(0.1) | {name(0, "k"): weights(1)[name(0, "k")]}
    model = difference(write(tmp_path / "tuned", tuned), write(tmp_path / "base", weights(1)))
    tree = rmtbase.score(model, "analytic", matrices="none")
    warnings = json.loads(tree.attrs["warnings"])
    (line,) = (line for line in warnings if "W_K is zeros" in line)
    assert line.count("layer 0 head") == N_HEADS
    assert np.isnan(tree["heads"]["omnibus_p_value"].values[0]).all()
    assert np.isfinite(tree["heads"]["omnibus_p_value"].values[1]).all()


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_the_scale_of_rounding_is_that_of_the_stored_type(dtype, tmp_path):
    one, other = weights(1), moved(0.3)
    model = difference(write(tmp_path / "one", one, dtype), write(tmp_path / "other", other, dtype))
    for component, part in (("attention_query", "q"), ("attention_key", "k")):
        exact = one[name(1, part)] - other[name(1, part)]
        found = np.sqrt(np.mean((model.matrix(1, component) - exact) ** 2))
        assert model.rounding(1, component) == pytest.approx(found, rel=0.1)  # of 1 024 elements; three standard errors


@pytest.mark.parametrize(("scale", "counts"), [(0.5, False), (0.01, True)])
def test_it_is_said_where_the_rounding_of_bfloat16_counts(scale, counts, tmp_path):
    one = write(tmp_path / "one", weights(1), ml_dtypes.bfloat16)
    model = difference(write(tmp_path / "other", moved(scale), ml_dtypes.bfloat16), one)
    lines = [line for line in model.warnings if "rounding" in line]
    assert len(lines) == (2 if counts else 0)
    assert not counts or lines[0].startswith("attention_query of layer 0, layer 1: the rounding of the stored weights")


OF_HEADS = {"head_dim": 4, "num_attention_heads": 8, "num_key_value_heads": 4}


@pytest.mark.parametrize(
    ("config", "fragment"),
    [
        ({"model_type": "mistral"}, "a mistral model': expected a llama model as one"),
        ({"num_hidden_layers": 1}, "of 1 layers': expected the 2 layers of one"),
        (OF_HEADS, "with n_heads = 8 in layer 0': expected 4, as of one"),
    ],
)
def test_another_architecture_or_shape_is_refused_by_name(config, fragment, tmp_path):
    one, tensors = write(tmp_path / "one", weights(1)), weights(2)
    if "num_hidden_layers" in config:
        tensors = {key: value for key, value in tensors.items() if ".1." not in key}
    with pytest.raises(ParameterError, match=fragment):
        difference(one, write(tmp_path / "other", tensors, **config))
