"""The study of heads that keep what they have learned: its filters do as they say, its README has its numbers."""

import numpy as np
import pytest
from study_files import STUDIES, held, study_module

results, filters = held("what_was_learned"), study_module("what_was_learned", "filters")


def test_a_filtered_head_has_the_product_that_its_variant_says():
    """Two planted directions: the shrunken product is their estimate, truncated and rest add up to the whole."""
    rng = np.random.default_rng(3)
    w_q, w_k = rng.standard_normal((2, 32, 128))
    w_q[:2] += np.array([[60.0], [40.0]]) * np.eye(128)[:2]
    products = {}
    for variant in filters.VARIANTS:
        q, k, part = filters.filtered(w_q, w_k, variant)
        products[variant] = q.T @ k
    assert part.values.size == 2
    assert products["whole"] == pytest.approx(w_q.T @ w_k, abs=1e-8)
    assert products["truncated"] + products["rest"] == pytest.approx(products["whole"], abs=1e-8)
    assert np.linalg.matrix_rank(products["truncated"], tol=1e-6) == 2
    assert products["shrunken"] == pytest.approx((part.left * part.values) @ part.right, abs=1e-8)
    assert abs(products["nothing"]).max() < 1e-9


def test_readme_has_the_numbers_of_the_results():
    text = (STUDIES / "what_was_learned" / "README.md").read_text(encoding="utf-8")
    for one in results.values():
        for bits in one["bits_per_byte"].values():
            assert f"{bits:.3f}" in text


def test_the_rest_is_worth_nothing_and_the_directions_nearly_all():
    """Of every checkpoint: what is claimed, in bits per byte."""
    for one in results.values():
        bits = one["bits_per_byte"]
        worth = bits["nothing"] - bits["whole"]
        assert 1.8 < worth < 3.7
        assert abs(bits["nothing"] - bits["rest"]) < 0.008
        assert 0.002 < bits["truncated"] - bits["whole"] < 0.015
    heads = results["final"]["each_head"]
    assert np.max(np.abs(np.subtract(heads["rest"], heads["nothing"]))) < 0.001
