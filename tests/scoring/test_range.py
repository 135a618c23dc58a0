"""Weights near the ends of their number format: the conclusion of the same weights at scale one, or a refusal."""

import json
import shutil

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models import open_model
from rmtbase.nulls import AnalyticNull, Axes
from rmtbase.results.scores import summarize_scores
from rmtbase.statistics import SPECTRAL_STATISTICS


@pytest.fixture
def untrained(tmp_path):
    """Write the first layer of the bundled model, before any training, at another scale and in another type."""

    def write(scale, dtype, only=""):
        source = open_model("demo", "step-0").path
        config = json.loads((source / "config.json").read_text()) | {"num_hidden_layers": 1}
        (tmp_path / "config.json").write_text(json.dumps(config))
        with np.errstate(over="ignore", under="ignore"):
            tensors = {
                name: (weight.astype(np.float64) * (scale if only in name else 1.0)).astype(dtype)
                for name, weight in load_file(source / "model.safetensors").items()
                if ".layers." not in name or ".layers.0." in name
            }
        save_file(tensors, tmp_path / "model.safetensors")
        return tmp_path

    yield write
    shutil.rmtree(tmp_path)


def test_untrained_weights_are_random_at_every_scale_and_a_few_values_too_small_for_float32_change_nothing(untrained):
    folder = untrained(1.0, np.float64)
    tree = rmtbase.score(folder, "analytic")
    assert summarize_scores(tree).findings == ()
    assert max(summarize_scores(tree).flagged.values()) == 0
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if "q_proj.weight" in name)
    tensors[name][0, :6] = [1e-300, 1e-46, 0.0, 1e-45, -1e-40, 1e-38]
    save_file(tensors, path)
    after = rmtbase.score(folder, "analytic")["heads"]
    np.testing.assert_allclose(tree["heads"]["z_score"].values, after["z_score"].values, atol=0.3)
    for scale in (1e-25, 1e25):
        other = rmtbase.score(untrained(scale, np.float64), "analytic")["heads"]
        for name in ("p_value", "omnibus_p_value", "z_score"):
            np.testing.assert_allclose(tree["heads"][name].values, other[name].values, rtol=1e-3, atol=1e-4)


NORMS = r"layer 0 head 0 has ‖W_Q‖ ‖W_K‖ = "


@pytest.mark.parametrize(
    ("scale", "dtype", "only", "fragment"),
    [
        (1e-38, np.float64, "", NORMS),
        (1e-44, np.float64, "", "where float32 has steps of 1.4e-45: its digits are lost"),
        (1e-300, np.float64, "", "where float32 has steps of 1.4e-45: its digits are lost"),
        (1e-30, np.float64, "", rf"{NORMS}.*between 1e-60 and 1e\+60"),
        (1e38, np.float64, "", NORMS),
        (1e39, np.float64, "", NORMS),
        (1e-38, np.float32, "", NORMS),
        (1e-43, np.float32, "", "where F32 has steps of 1.4e-45: its digits are lost"),
        (1e-38, ml_dtypes.bfloat16, "", "where BF16 has steps of 9.2e-41: its digits are lost"),
        (1e-6, np.float16, "", "where F16 has steps of 6e-08: its digits are lost"),
        (1e-43, np.float64, "q_proj", r"q_proj\.weight'"),
        (1e-43, np.float32, "q_proj", r"q_proj\.weight'"),
    ],
)
def test_a_scale_at_which_digits_are_lost_is_refused_of_one_factor_too(scale, dtype, only, fragment, untrained):
    with pytest.raises(CheckpointError, match=fragment):
        rmtbase.score(untrained(scale, dtype, only), "analytic")


@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_a_head_far_smaller_or_larger_than_the_others_is_scored_as_if_alone(scale, weights, tmp_path):
    usual = rmtbase.score(weights.save(tmp_path / "usual"), "analytic")["heads"]
    weights.queries[1, 2] *= scale
    here = rmtbase.score(weights.save(tmp_path / "scaled"), "analytic")["heads"]
    np.testing.assert_allclose(here["p_value"].values, usual["p_value"].values, rtol=1e-3, atol=1e-5)


def test_arrays_have_the_same_limits_and_a_spectrum_that_leaves_double_precision_has_no_p_value(arrays, score_arrays):
    w_q, w_k = arrays
    for scale in (1e-63, 1e63, 1e-200, 1e200):
        with pytest.raises(ParameterError, match=r"w_q, w_k = .* in head 0.*between 1e-60 and 1e\+60: rescale"):
            score_arrays(scale * w_q, w_k)
    values = np.linalg.svd(w_q[:2] @ np.swapaxes(w_k, 1, 2), compute_uv=False)
    null = AnalyticNull(32, 8)
    assert np.isfinite(null.score(values, np.ones(2)).p_value).all()
    for scale in (1e-90, 1e-80, 1e80, 1e90):
        with np.errstate(all="ignore"):
            far = null.score(scale * values, np.full(2, scale**2))
        assert far.p_value.shape == (2, len(SPECTRAL_STATISTICS))
        assert np.isnan(far.p_value).all() and np.isnan(far.omnibus_p_value).all()


@pytest.mark.parametrize(("dtype", "scale"), [(np.float16, 1e-5), (ml_dtypes.bfloat16, 3e-39), (np.float32, 1e-43)])
@pytest.mark.parametrize("null", mostly_exhaustive(["gaussian", "axes"], always=1))
def test_a_head_of_which_only_rounding_is_left_is_named_and_not_scored(dtype, scale, null, untrained):
    folder = untrained(1.0, np.float64)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    name = next(name for name in tensors if "q_proj.weight" in name)
    d_head = json.loads((folder / "config.json").read_text())["head_dim"]
    tensors[name][d_head : 2 * d_head] *= scale  # the second head of layer 0
    with np.errstate(under="ignore"):
        save_file({name: weight.astype(dtype) for name, weight in tensors.items()}, path)
    tree = rmtbase.score(folder, "analytic" if null == "gaussian" else Axes(draws=499))
    unscored = np.isnan(tree["heads"]["omnibus_p_value"].values)
    np.testing.assert_array_equal(np.argwhere(unscored), [[0, 1]])
    assert "layer 0 head 1: W_Q is zeros, or rounding" in str(tree.attrs["warnings"])
    assert summarize_scores(tree).findings == ()
