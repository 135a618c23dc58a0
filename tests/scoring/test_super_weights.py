"""Elements that stand apart are found where they are, and a heavy tail, ties or pooling do not make any."""

import json
from functools import reduce

import numpy as np
import pytest
from element_models import gpt2, gpt_neox, score
from scipy.special import logsumexp
from scipy.stats import norm

from exhaustive import mostly_exhaustive
from rmtbase.laws import parents
from rmtbase.models import MatrixName, Place
from rmtbase.nulls import find_null
from rmtbase.results import open_table
from rmtbase.results.scores._element_scores import LargestElements, largest_elements
from rmtbase.results.scores._element_summary import summarize_elements
from rmtbase.results.scores._matrices import MatrixScorer
from rmtbase.results.scores._super_weights import search
from rmtbase.results.scores.schema import SUPER_WEIGHTS_SCHEMA
from rmtbase.tables import write_table

RECIPE_A = {"70m": (6, 512, 1.08), "410m": (24, 1024, 3.47)}
"""Layers, width, and the excess kurtosis of W_O and MLPs pooled at step 0."""


def sigmas_of(n_layers, d_model):
    """σ of input and of output sides by recipe A."""
    return (2 / (5 * d_model)) ** 0.5, 2 / (n_layers * d_model**0.5)


def test_planted_elements_are_found_where_they_are_in_the_order_of_their_probability(tmp_path):
    tensors = gpt2(2, np.random.default_rng(1))
    tensors["h.1.mlp.c_proj.weight"][200, 7] = -1.0  # (inputs, outputs)
    tensors["h.0.attn.c_attn.weight"][5, 100] = 0.5  # output 100 is key 36
    tree = score(tensors)
    found = tree["super_weights"].to_dataset()
    columns = [found[name].values.tolist() for name in ("layer", "component", "row", "column")]
    assert list(zip(*columns, strict=True)) == [(1, "mlp_out", 7, 200), (0, "attention_key", 36, 5)]
    np.testing.assert_allclose(found["value"], [-1.0, 0.5])
    np.testing.assert_allclose(found["magnitude_over_core"], [50, 25], rtol=0.05)
    assert (np.diff(found["log10_tail_probability"]) > 0).all()
    assert (found["isolation_p_value"] < 0.05 / 12).all()
    opened = open_table(write_table(tree, tmp_path / "scores.nc"), "scores")
    assert opened["super_weights"].to_dataset().identical(found)
    assert set(SUPER_WEIGHTS_SCHEMA) == set(found.variables)
    assert "2 elements stand apart" in summarize_elements(opened).sentences()[-1]


@pytest.mark.parametrize("size", RECIPE_A)
def test_pooling_alone_gives_the_excess_kurtosis_of_step_0_and_no_super_weight(size):
    """A super-weight by chance in one run of 20; none of this seed."""
    n_layers, d_model, expected = RECIPE_A[size]
    sigmas = dict(zip(("in", "out"), sigmas_of(n_layers, d_model), strict=True))
    mixture = parents.Mixture((parents.Normal(sigmas["in"]), parents.Normal(sigmas["out"])), (4, 5))
    fourth, second = (4 * s**k + 5 * t**k for k in (4, 2) for s, t in [tuple(sigmas.values())])
    assert 3 * 9 * fourth / second**2 - 3 == pytest.approx(expected, abs=0.005)
    tensors = gpt_neox(n_layers=12, sigma_in=sigmas["in"], sigma_out=sigmas["out"], rng=np.random.default_rng(8))
    tree = score({name: one for name, one in tensors.items() if name.startswith("gpt_neox.layers.0.")})
    assert tree["super_weights"].sizes["super_weight"] == 0
    pooled = np.concatenate([one.ravel() for name, one in tensors.items() if "query_key_value" not in name])
    assert (pooled**4).mean() / (pooled**2).mean() ** 2 - 3 == pytest.approx(expected, abs=0.05)
    largest = np.abs(pooled).max()
    assert pooled.size * norm.sf(largest, scale=pooled.std()) * 2 < 0.005  # beyond one normal law's tail
    assert pooled.size * float(mixture.sf(largest)) > 0.05  # and not beyond that of the mixture


def test_what_is_improbable_in_its_own_matrix_can_be_usual_in_its_pool():
    sigma_in, sigma_out = sigmas_of(24, 1024)
    tensors = gpt_neox(2, sigma_in, sigma_out, np.random.default_rng(3))
    tensors["gpt_neox.layers.1.attention.dense.weight"][3, 4] = 3 * sigma_in
    tree = score(tensors)
    found = tree["super_weights"].to_dataset().isel(super_weight=0)
    assert (found["component"], found["pool"]) == ("attention_output", "transmission")
    matrices = tree["matrices"].to_dataset().sel(component=["attention_output", "mlp_in", "mlp_out"])
    count = matrices["n_rows"] * matrices["n_columns"]
    core = matrices["observed"].sel(statistic="core_sigma") * matrices["sigma"]
    own = core.sel(layer=1, component="attention_output").item()
    expected = np.log(4096) + np.log(2) + norm.logsf(3 * sigma_in / own)
    assert found["log10_core_tail_probability"].item() == pytest.approx(expected / np.log(10), rel=1e-6)
    terms = np.log(count / count.sum()) + np.log(2) + norm.logsf(3 * sigma_in / core)
    any_of_pool = -np.expm1(float(count.sum()) * np.log1p(-np.exp(logsumexp(terms))))
    assert found["log10_pooled_tail_probability"].item() == pytest.approx(np.log10(any_of_pool), abs=1e-9)
    assert found["log10_pooled_tail_probability"] > -0.01


def test_an_element_that_is_improbable_under_its_body_is_listed():
    """15 models of 16 384 elements and one of 7 to 12 σ: a gap tells of 1 to 13 of them, its probability of all."""
    for far in (7, 9, 12):
        for seed in range(15):
            matrix = np.random.default_rng(seed).normal(size=(128, 128))
            matrix[7, 100] = -far
            found, heavy, _ = search(tails_of(matrix))
            assert [found[name].values.tolist() for name in ("row", "column", "value")] == [[7], [100], [-far]]
            assert not heavy


def tails_of(matrix):
    scorer = MatrixScorer([], False, find_null("analytic"))
    scorer.add(MatrixName(Place("", 0), "attention_output", None), [matrix.astype(np.float32)], matrix.shape)
    return scorer.tails


TAILS = {
    "normal": lambda rng, size: rng.normal(size=size),
    "Cauchy": lambda rng, size: rng.standard_cauchy(size),
    "Student": lambda rng, size: rng.standard_t(3, size),
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
    "Laplace": lambda rng, size: rng.laplace(size=size),
    "rounded": lambda rng, size: np.round(rng.normal(size=size) * 4) / 4,
    "half precision": lambda rng, size: rng.normal(size=size).astype(np.float16),
}
BODIES = {"normal": (0.0, 0.1), "uniform": (0.0, 0.0), "Laplace": (1.0, 1.0), "Student": (1.0, 1.0)}
"""Least and largest share of matrices of a law whose tail is too heavy to decide."""


@pytest.mark.parametrize("body", mostly_exhaustive(BODIES, always=2))
def test_of_a_heavy_tail_it_cannot_be_told_by_probability_and_of_others_none_is_listed(body):
    """60 matrices at level 0.05: of normal ones more than 10 listed by chance in one run of 1 000."""
    least, most = BODIES[body]
    rng = np.random.default_rng(3)
    searches = [search(tails_of(TAILS[body](rng, (64, 64)))) for _ in range(60)]
    assert sum(found.sizes["super_weight"] > 0 for found, *_ in searches) <= 10
    assert least <= sum(bool(heavy) for _, heavy, _ in searches) / 60 <= most


def test_where_it_cannot_be_told_the_summary_says_so():
    tensors = gpt2(2, np.random.default_rng(1))
    tensors["h.1.mlp.c_proj.weight"] = np.random.default_rng(2).laplace(size=(256, 64)).astype(np.float32)
    tree = score(tensors)
    (note,) = (one for one in json.loads(tree.attrs["notes"]) if "super-weights" in one)
    assert note.startswith("super-weights: cannot tell by probability in 1 of 12 matrices")
    assert "cannot tell by probability in 1 of 12 matrices" in summarize_elements(tree).sentences()[-1]


@pytest.mark.parametrize("tail", TAILS)
def test_a_tail_of_its_own_is_not_isolated(tail):
    """300 samples at level 0.05: more than 30 by chance in one run of 300 000."""
    rng = np.random.default_rng(4)
    p_value = [largest_elements(TAILS[tail](rng, 5000)).isolation().min(initial=1.0) for _ in range(300)]
    assert np.mean(np.array(p_value) < 0.05) < 0.1


def test_a_group_that_stands_apart_is_found_whole_and_the_largest_elements_do_not_depend_on_the_cut():
    numbers = np.random.default_rng(5).normal(size=20_000)
    numbers[[10, 20, 30]] = 60.0, -50.0, 40.0
    largest = largest_elements(numbers)
    assert largest.place[:3].tolist() == [10, 20, 30]
    assert np.flatnonzero(largest.isolation() < 1e-6).max() == 2
    numbers = np.random.default_rng(6).normal(size=30_000).astype(np.float32)
    numbers[::100] = 3.0  # ties, of which the first count
    parts = [largest_elements(numbers[first : first + 7000]) for first in range(0, 30_000, 7000)]
    order = np.argsort(-np.abs(numbers.astype(float)), kind="stable")[:65]
    for one in (largest_elements(numbers), reduce(LargestElements.merged, parts)):
        np.testing.assert_array_equal(one.place, order)
        np.testing.assert_array_equal(one.value, numbers[order])


def test_one_element_beside_a_constant_does_no_harm():
    tensors = gpt2(2, np.random.default_rng(7))
    tensors["h.0.mlp.c_fc.weight"][:] = 0.25
    for element in (0.0, 3.4e38, 1e-30):
        tensors["h.0.mlp.c_fc.weight"][0, 0] = element
        tree = score(tensors)
        assert "mlp_in" not in tree["super_weights"]["component"].values
        assert any(line.startswith("layer 0 mlp_in") for line in json.loads(tree.attrs["warnings"]))


def test_an_extreme_as_improbable_as_one_in_ten_to_the_seventeen_is_named():
    """There 1 - p is 1 in float64, and N p is not so small yet that it is all that is left of 1 - (1 - p)^N."""
    tensors = gpt2(1, np.random.default_rng(3))
    tensors["h.0.mlp.c_proj.weight"][5, 7] = 8.5 * 0.02
    found = score(tensors)["super_weights"].to_dataset()
    assert found["component"].values.tolist() == ["mlp_out"]
    p, n = 2.0 * norm.sf(found["magnitude_over_core"].item()), 64 * 256
    assert 1.0 - p == 1.0 and n * p > np.exp(-30.0)
    np.testing.assert_allclose(found["log10_core_tail_probability"], np.log10(n * p), rtol=1e-6)
