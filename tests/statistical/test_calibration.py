"""On models that have learned nothing, p-values are uniform and false discoveries as rare as promised.

One hundred random checkpoints of grouped-query Llamas, scored from file to q-value, with q and k of different spread.
Heads that share a key are not independent, so the claims about heads are made of one head per key group: 2 400.

False failures: the whole file is allowed one seed in 1 000, shared evenly by all its comparisons (Bonferroni). The
seeds are fixed.
"""

import json
from functools import cache

import numpy as np
import pytest
import xarray as xr
from harness import uniform
from safetensors.numpy import save_file
from scipy import stats

import rmtbase
from rmtbase.nulls import GaussianNull, Table
from rmtbase.statistics import ELEMENT_STATISTICS, SPECTRAL_STATISTICS, benjamini_hochberg
from rmtbase.tables import write_table

pytestmark = pytest.mark.exhaustive
MODELS, LAYERS, HEADS, KEY_HEADS = 100, 3, 16, 8
D_MODEL, D_HEAD, D_MLP = 32, 8, 64
NULL_DRAWS = 20_000
MATRIX_NULL_DRAWS = 5_000  # the default for so small a model
SIGMA = {
    "q_proj": 0.02, "k_proj": 0.7, "v_proj": 0.1, "o_proj": 3.0, "gate_proj": 0.02, "up_proj": 0.5, "down_proj": 1.0,
}  # fmt: skip
SHAPE = {
    "q_proj": (HEADS * D_HEAD, D_MODEL), "k_proj": (KEY_HEADS * D_HEAD, D_MODEL),
    "v_proj": (KEY_HEADS * D_HEAD, D_MODEL), "o_proj": (D_MODEL, HEADS * D_HEAD), "gate_proj": (D_MLP, D_MODEL),
    "up_proj": (D_MLP, D_MODEL), "down_proj": (D_MODEL, D_MLP),
}  # fmt: skip
OF_MATRICES = len(ELEMENT_STATISTICS) + 7
COMPARISONS = 3 * (len(SPECTRAL_STATISTICS) + 1) + 2 * OF_MATRICES
LEVEL = 1e-3 / COMPARISONS


def write_random_llama(folder, rng):
    folder.mkdir()
    config = {
        "model_type": "llama", "hidden_size": D_MODEL, "head_dim": D_HEAD, "intermediate_size": D_MLP,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}
    for layer in range(LAYERS):
        for name, sigma in SIGMA.items():
            room = "self_attn" if name in ("q_proj", "k_proj", "v_proj", "o_proj") else "mlp"
            weight = sigma * rng.standard_normal(SHAPE[name], dtype=np.float32)
            tensors[f"model.layers.{layer}.{room}.{name}.weight"] = weight
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def table():
    return rmtbase.baseline(D_MODEL, D_HEAD, draws=NULL_DRAWS, seed=5)


@pytest.fixture(scope="module")
def models(table, tmp_path_factory):
    rng, work = np.random.default_rng(6), tmp_path_factory.mktemp("models")
    null = write_table(table, work / "null.nc")  # of a file, which is read once
    trees = [
        rmtbase.score(write_random_llama(work / str(k), rng), Table(null), matrices="spectra") for k in range(MODELS)
    ]
    return tuple(xr.concat([tree[room].to_dataset() for tree in trees], dim="model") for room in ("heads", "matrices"))


@pytest.fixture(scope="module")
def heads(models):
    return models[0].isel(head=slice(None, None, HEADS // KEY_HEADS))


def test_heads_are_one_per_key_group_and_every_matrix_statistic_is_reported(heads, models):
    np.testing.assert_array_equal(heads["key_head"][0, 0], np.arange(KEY_HEADS))
    assert heads["omnibus_p_value"].size == 2_400
    assert float(heads["sigma_q"].mean()) == pytest.approx(SIGMA["q_proj"], rel=1e-2)
    assert float(heads["sigma_k"].mean()) == pytest.approx(SIGMA["k_proj"], rel=1e-2)
    names = models[1]["statistic"].values.tolist()
    assert len(names) == OF_MATRICES
    assert set(ELEMENT_STATISTICS) < set(names)
    assert set(names) - set(ELEMENT_STATISTICS) < set(SPECTRAL_STATISTICS)
    # One head in a thousand on each side: of 2 400, at most 12 but for one seed in 10 000.
    for side in ("outliers_above", "outliers_below"):
        assert int((heads[side] > 0).sum()) <= 12
    assert compatible_with_five_percent(5)
    assert not compatible_with_five_percent(20)


@pytest.mark.parametrize("place", range(OF_MATRICES))
def test_p_values_of_matrices_are_uniform_and_one_model_in_twenty_has_any_flagged(models, place):
    # 2 100 matrices. The element-wise laws at 2 048 elements and more; each spectral null has 5 000 draws.
    one = models[1].isel(statistic=place)
    on_elements = str(one["statistic"].values) in ELEMENT_STATISTICS
    assert one["p_value"].size == MODELS * LAYERS * len(SIGMA)
    assert uniform(one["p_value"], None if on_elements else MATRIX_NULL_DRAWS) > LEVEL
    assert compatible_with_five_percent(flagged(one["q_value"].values))


def flagged(q_values):
    return int((q_values.reshape(len(q_values), -1) < 0.05).any(axis=1).sum())


def compatible_with_five_percent(count):
    return stats.binomtest(count, MODELS, 0.05).pvalue > LEVEL


@pytest.mark.parametrize("statistic", [*SPECTRAL_STATISTICS, "omnibus"])
def test_p_values_of_heads_are_uniform_and_one_model_in_twenty_has_any_flagged(heads, models, statistic):
    if statistic == "omnibus":
        p, q_of_all = heads["omnibus_p_value"], models[0]["omnibus_q_value"]
    else:
        p = heads["p_value"].sel(statistic=statistic)
        q_of_all = models[0]["q_value"].sel(statistic=statistic)
    assert uniform(p, NULL_DRAWS) > LEVEL
    q = np.stack([benjamini_hochberg(one) for one in p.values.reshape(MODELS, -1)])
    assert compatible_with_five_percent(flagged(q))
    # P-values of heads that share keys depend on each other positively, so that five percent is an upper bound.
    assert stats.binomtest(flagged(q_of_all.values), MODELS, 0.05, alternative="greater").pvalue > LEVEL


@pytest.mark.parametrize("statistic", ["trace", "largest_eigenvalue", "log_determinant"])
def test_a_null_at_the_true_sigma_would_not_be_calibrated(heads, table, statistic):
    # The estimate takes the fluctuation of the scale out of the heads, and must take it out of the null as well.
    true_sigma = table.copy()
    for name in ("sigma_q_estimate", "sigma_k_estimate"):
        true_sigma[name] = xr.ones_like(table[name])
    assert refused(true_sigma, D_HEAD, heads, statistic)


@pytest.mark.parametrize("neighbour", [D_HEAD - 1, D_HEAD + 1])
@pytest.mark.parametrize("statistic", ["trace", "participation_ratio", "smallest_eigenvalue"])
def test_a_null_of_the_neighbouring_d_head_would_not_be_calibrated(heads, neighbour, statistic):
    assert refused(table_of(neighbour), neighbour, heads, statistic)


@cache
def table_of(d_head):
    return rmtbase.baseline(D_MODEL, d_head, draws=NULL_DRAWS)


def refused(table, d_head, heads, statistic):
    null = GaussianNull.from_baseline(table, D_MODEL, d_head, "a wrong one")
    assert null is not None
    scale = (heads["sigma_q"] * heads["sigma_k"]) ** 2
    standard = [
        one.rescale(heads["observed"].sel(statistic=name), 1 / scale, D_HEAD)
        for name, one in SPECTRAL_STATISTICS.items()
    ]
    p = null.p_value(np.stack(standard, axis=-1))[..., list(SPECTRAL_STATISTICS).index(statistic)]
    return uniform(p, null.draws) < LEVEL
