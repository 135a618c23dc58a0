"""Elements of matrices and of heads in the scores: what is scored, of which numbers, and why some are missing."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from element_models import D_MODEL, GPT2_CONFIG, N_HEADS, gpt2, gpt_neox, score

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase import statistics
from rmtbase.models import open_model
from rmtbase.nulls import Analytic
from rmtbase.reasons import Reason
from rmtbase.results import open_table
from rmtbase.results.scores._element_summary import summarize_elements
from rmtbase.results.scores._matrices import matrix_p_value_floors
from rmtbase.statistics import ELEMENT_STATISTICS, MOMENT_STATISTICS, benjamini_hochberg
from rmtbase.tables import write_table

D_HEAD = D_MODEL // N_HEADS
FUSED = "attention_query_key_value"


MODELS = {
    "gpt2": lambda: gpt2(2, np.random.default_rng(1)),
    "gpt_neox": lambda: gpt_neox(2, 0.02, 0.01, np.random.default_rng(2)),
}


@pytest.fixture(scope="module", params=MODELS)
def scored(request):
    """A model with fused queries, keys and values, with the scores of all its elements."""
    tensors = MODELS[request.param]()
    return tensors, score(tensors, elements="heads")


def stored_in_one(tensors, layer):
    """Queries, keys and values of a layer as they are stored, rows outputs."""
    if "h.0.attn.c_attn.weight" in tensors:
        return tensors[f"h.{layer}.attn.c_attn.weight"].T
    return tensors[f"gpt_neox.layers.{layer}.attention.query_key_value.weight"]


def head_matrices(tensors, layer, head):
    """W_Q, W_K and W_V of a head."""
    fused = stored_in_one(tensors, layer)
    if "h.0.attn.c_attn.weight" in tensors:
        return fused.reshape(3, N_HEADS, D_HEAD, D_MODEL)[:, head]
    return fused.reshape(N_HEADS, 3, D_HEAD, D_MODEL)[head]


def test_fused_matrices_are_scored_as_they_are_stored_and_change_no_q_value_of_their_parts(scored):
    tensors, tree = scored
    matrices = tree["matrices"].to_dataset()
    kept = [name for name in matrices["component"].values if name != FUSED]
    assert {"attention_query", "attention_key", "attention_value"} < set(kept) != set(matrices["component"].values)
    for layer in range(2):
        one = matrices.sel(layer=layer, component=FUSED)
        assert (one["n_rows"], one["n_columns"]) == (3 * D_MODEL, D_MODEL)
        expected = statistics.element_statistics(statistics.element_sketch([stored_in_one(tensors, layer)]))
        held = one["observed"].sel(statistic=list(ELEMENT_STATISTICS))
        np.testing.assert_allclose(held, expected, rtol=1e-9, atol=1e-12)
    for components in (kept, [FUSED]):
        for name in ELEMENT_STATISTICS:
            one = matrices.sel(component=components, statistic=name)
            np.testing.assert_array_equal(one["q_value"].values, benjamini_hochberg(one["p_value"].values))
    assert summarize_elements(tree).n_matrices == 2 * len(kept)
    assert set(ELEMENT_STATISTICS) <= set(matrix_p_value_floors(matrices))


def test_heads_have_the_elements_of_their_own_matrices_and_of_their_product_and_a_file_keeps_them(scored, tmp_path):
    tensors, tree = scored
    elements = tree["heads/elements"].to_dataset()
    sizes = {"layer": 2, "head": N_HEADS, "component": 5, "element_statistic": len(ELEMENT_STATISTICS)}
    assert sizes.items() <= dict(elements.sizes).items()
    w_q, w_k, w_v = head_matrices(tensors, 1, 2)
    expected = {"W_Q": w_q, "W_K": w_k, "W_V": w_v, "W_QK": w_q.astype(np.float64).T @ w_k.astype(np.float64)}
    for symbol, matrix in expected.items():
        one = elements.sel(layer=1, head=2, component=symbol)
        assert (one["n_rows"], one["n_columns"]) == matrix.shape
        assert one["sigma"] == pytest.approx(matrix.std(ddof=1), rel=1e-6)
        observed, error = one["observed"].values, one["null_std"].values
        of_matrix = statistics.element_statistics(statistics.element_sketch([matrix]))
        # What float32 does to a product is far below the statistics' own standard errors.
        assert np.nanmax(np.abs(observed - of_matrix) / np.where(error > 0, error, np.nan), initial=0.0) < 0.01, symbol
        np.testing.assert_allclose(observed, of_matrix, rtol=1e-3, atol=1e-4, err_msg=symbol)
    opened = open_table(write_table(tree, tmp_path / "scores.nc"), "scores")
    assert opened["heads/elements"].to_dataset().identical(elements)
    header, *rows = (line.split(",") for line in rmtbase.export(opened, group="matrices").decode().splitlines())
    assert {row[header.index("statistic")] for row in rows} == set(ELEMENT_STATISTICS)
    assert {"z_score", "reason"} < set(header)


def test_histograms_are_densities_of_the_elements(scored):
    tensors, tree = scored
    matrices, w = tree["matrices"].to_dataset(), stored_in_one(tensors, 0).astype(np.float64)
    for name, numbers, dim, first in (
        ("histogram", (w - w.mean()) / w.std(ddof=1), "bin", -7.95),
        ("log_magnitude_histogram", np.log10(np.abs(w)), "magnitude_bin", -11.95),
    ):
        one, centre = matrices[name].sel(layer=0, component=FUSED), matrices[dim].values
        assert (centre.size, centre[0]) == (160, first)
        assert 0.1 * float(one.sum()) == pytest.approx(1.0, abs=1e-6)
        expected, _ = np.histogram(numbers, np.append(centre - 0.05, centre[-1] + 0.05), density=True)
        np.testing.assert_allclose(one, expected, atol=0.02)
    assert bool((matrices["histogram"].isnull().all("bin") == matrices["n_rows"].isnull()).all())


def test_what_is_not_asked_for_is_not_there_and_fused_matrices_are_a_part_of_their_own():
    tensors = MODELS["gpt2"]()
    whole, factors = score(tensors), score(tensors, elements="factors", matrices="none")
    assert "elements" not in whole["heads"].children
    assert {"matrices", "super_weights"}.isdisjoint(factors.children)
    assert factors["heads/elements"]["component"].values.tolist() == ["W_Q", "W_K", "W_V", "W_O"]
    assert summarize_elements(factors) is None
    model = open_model(MODELS["gpt2"](), family="gpt2", config=GPT2_CONFIG)
    assert [str(name) for name in model.parts["fused"]] == [f"layer {layer} {FUSED}" for layer in range(2)]
    assert FUSED not in model.components
    (name, _) = model.parts["fused"]
    assert model.shape(name) == (3 * D_MODEL, D_MODEL) and model.is_transposed(name)
    assert "fused" not in model.fold("biases").parts if model.notes else True


def test_the_demo_model_is_random_at_step_0_by_every_statistic_and_keys_and_values_are_those_of_key_heads():
    """96 matrices of heads, each a test at level 0.05: more than 15 by chance in one run of 15 000 for a statistic."""
    tree = rmtbase.score(open_model("demo", "step-0", proof=False), "analytic", elements="heads")
    per_head = tree["heads/elements"]["sigma"].notnull().all("layer").sum("head")
    expected = {"W_Q": 8, "W_K": 4, "W_V": 4, "W_O": 8, "W_QK": 8}
    assert dict(zip(per_head["component"].values, per_head.values, strict=True)) == expected
    p_value = tree["heads/elements"]["p_value"].drop_sel(component="W_QK")
    small = (p_value < 0.05).sum(("layer", "head", "component"))
    assert int(p_value.notnull().isel(element_statistic=0).sum()) == 96
    assert small.where(small > 15, drop=True)["element_statistic"].values.tolist() == []
    assert tree["super_weights"].sizes["super_weight"] == 0
    assert json.loads(tree.attrs["warnings"]) == []


def test_elements_of_a_trained_model_differ_and_those_of_a_random_one_are_said_to_be_like_draws():
    trained = summarize_elements(rmtbase.score(open_model("demo", proof=False), "analytic"))
    factors = np.random.default_rng(12).standard_normal((2, 2, 4, 16, 64))
    random = summarize_elements(rmtbase.score_heads(*factors, "analytic", matrices="elements"))
    assert trained.n_differing >= 10 and random.n_differing == 0
    for summary, words in (
        (trained, f"in {trained.n_differing} of 28 weight matrices they differ from independent normal draws"),
        (random, "no weight matrix of 4 can be told from independent normal draws"),
    ):
        for line in (summary.sentences()[0], summary.answer()):
            assert line.startswith(f"Elements: {words}")


@pytest.mark.exhaustive
@pytest.mark.parametrize("law", mostly_exhaustive(["uniform", "normal"], always=1))
def test_the_null_is_that_of_the_initialisation_that_is_named(law):
    rng = np.random.default_rng(3)
    w_q, w_k = rng.uniform(-1, 1, (2, 2, 4, 16, 64)) if law == "uniform" else rng.standard_normal((2, 2, 4, 16, 64))
    for named in ("normal", "uniform"):
        tree = rmtbase.score_heads(w_q, w_k, Analytic(initialization=named), matrices="elements", elements="heads")
        assert tree.attrs["initialization"] == named
        p_value = tree["matrices"]["p_value"].sel(statistic=["excess_kurtosis", "l_kurtosis", "weibull_shape"])
        assert bool((p_value > 1e-4).all()) == (named == law)
        assert f"independent {named} draws" in summarize_elements(tree).sentences()[0]


HOSTILE = {
    "constant": (lambda w: 0.0 * w + 0.5, "constant"),
    "integers": (lambda w: np.round(w * 100), "different values"),
    "zero rows": (lambda w: np.where(np.arange(len(w))[:, None] < 20, 0.0, w), "numbers are zero"),
    "few levels": (lambda w: np.sign(w) * 0.02, "different values"),
}


@pytest.mark.parametrize("damage", HOSTILE)
def test_a_number_that_is_missing_has_its_reason(damage, tmp_path):
    tensors, (change, words) = MODELS["gpt_neox"](), HOSTILE[damage]
    w = tensors["gpt_neox.layers.1.mlp.dense_h_to_4h.weight"]
    w[:] = change(w)
    tree = open_table(write_table(score(tensors), tmp_path / "scores.nc"), "scores")
    matrices = tree["matrices"].to_dataset()
    lacking = matrices["observed"].isnull().any("statistic") & matrices["n_rows"].notnull()
    np.testing.assert_array_equal(lacking.values, (matrices["reason"] != "").values)
    assert [str(one) for one in matrices["reason"].values[lacking.values]] == [
        matrices["reason"].sel(layer=1, component="mlp_in").item()
    ]
    (line,) = (one for one in json.loads(tree.attrs["warnings"]) if one.startswith("layer 1 mlp_in: "))
    assert words in line
    missing = int(matrices["observed"].sel(layer=1, component="mlp_in").isnull().sum())
    told = [group.replace(" and ", ", ").split(", ") for group in re.findall(": no ([^;]*)", line)]
    number = sum(int(one.split()[0]) if one.endswith(" more") else 1 for group in told for one in group)
    assert (number, missing) == (0, len(ELEMENT_STATISTICS)) if damage == "constant" else number == missing > 0


def test_of_few_numbers_only_moments_are_known_and_of_a_small_product_no_null():
    w_q, w_k = np.random.default_rng(4).normal(size=(2, 1, 1, 8, 12))
    tree = rmtbase.score_heads(w_q, w_k, "analytic", matrices="elements", elements="heads")
    matrices = tree["matrices"].to_dataset()
    there = matrices["p_value"].notnull().all(("layer", "component"))
    assert matrices["statistic"].values[there.values].tolist() == list(MOMENT_STATISTICS)
    (reason,) = {Reason.read(text) for text in matrices["reason"].values.ravel()}
    assert (reason.code, reason.details["count"], reason.details["fewest"]) == ("few_numbers", 96, 100)
    product = tree["heads/elements"].to_dataset().sel(component="W_QK")
    assert bool(product["observed"].notnull().all()) and bool(product["p_value"].isnull().all())
    assert "d_query = 12: expected at least 32" in Reason.read(product["reason"].item()).words
    lines = json.loads(tree.attrs["warnings"])
    assert [line.partition(":")[0] for line in lines] == [
        "layer 0 attention_query and 1 more",
        "layer 0 head 0, W_Q and 1 more",
        "layer 0 head 0, W_QK",
    ]


def test_a_stored_file_says_what_it_said():
    opened = open_table(Path(__file__).parents[1] / "data" / "scores.nc", "scores")
    found, elements = opened["super_weights"].to_dataset().isel(super_weight=0), opened["heads/elements"]
    assert (found["layer"], found["component"], found["row"], found["column"]) == (1, "mlp_out", 7, 200)
    assert elements["component"].values.tolist() == ["W_Q", "W_K", "W_V", "W_O", "W_QK"]
    assert set(ELEMENT_STATISTICS) <= set(elements["element_statistic"].values)
    assert opened["matrices"]["reason"].sel(layer=0, component="mlp_in").item() == "constant"
    summary = summarize_elements(opened)
    assert (summary.n_matrices, len(summary.super_weights)) == (11, 1)
    assert found["log10_pooled_tail_probability"] < -100  # a constant matrix is in no pool
