"""Errata of "Singular Value Structure of Transformer Attention Heads" (post 2): docs/errata.md, 4, 5 and 8.

Each test holds what is written against what is right; an oracle that shares no code with rmtbase decides.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmtbase.laws import GaussianChain, low_rank_product, normalized_participation_ratio, null
from rmtbase.linalg import product_singular_values

D_MODEL, D_HEAD = 768, 64


@pytest.fixture(scope="module")
def null_singular_values():
    """Singular values of W_QK / sqrt(d) for 60 random heads, from dense factors."""
    rng = np.random.default_rng(8)
    spectra = []
    for _ in range(60):
        w_q, w_k = rng.standard_normal((2, D_HEAD, D_MODEL))
        core = np.linalg.qr(w_q.T, mode="r") @ np.linalg.qr(w_k.T, mode="r").T
        spectra.append(np.linalg.svd(core, compute_uv=False) / math.sqrt(D_MODEL))
    return np.array(spectra)


def npr(values):
    return values.sum(axis=-1) ** 2 / (values**2).sum(axis=-1) / values.shape[-1]


def kappa(values):
    return values.max(axis=-1) / values.min(axis=-1)


@pytest.mark.parametrize(
    ("statistic", "name", "on_eigenvalues", "on_singular_values"),
    [(npr, "normalized_participation_ratio", 0.8552, 0.9582), (kappa, "condition_number", 5.02, 2.24)],
)
def test_eigenvalues_and_singular_values_have_different_nulls(
    null_singular_values, statistic, name, on_eigenvalues, on_singular_values
):
    # Post 2, introduction: "All spectral quantities are expressed in terms of eigenvalues lambda_k = sigma_k^2". The
    # code around it is reported to follow that for the null and to use sigma_k for the trained heads.
    squared, plain = statistic(null_singular_values**2), statistic(null_singular_values)
    for sample, value in ((squared, on_eigenvalues), (plain, on_singular_values)):
        error = sample.std() / math.sqrt(sample.size)
        assert sample.mean() == pytest.approx(value, abs=5 * error + 0.005 * value)
    # One cannot stand in for the other: the means are more than eight standard deviations of one head apart.
    assert abs(squared.mean() - plain.mean()) > 8 * max(squared.std(), plain.std())
    dims = (D_MODEL, D_HEAD, D_MODEL)
    assert null(name, dims).mean() == pytest.approx(on_eigenvalues, rel=0.001)
    assert null(f"{name}_singular", dims).mean() == pytest.approx(on_singular_values, rel=0.001)


def test_the_mix_flips_the_conclusion(null_singular_values):
    # Post 2, "Condition Number": typical values of GPT-2 are "on the order of 4". Above every random head if they are
    # ratios of singular values, below nearly every one if they are ratios of eigenvalues.
    assert kappa(null_singular_values).max() < 4.0
    assert (kappa(null_singular_values**2) > 4.0).mean() > 0.9


def test_condition_numbers_in_the_millions_are_rounding_noise():
    # Post 2, "Cross-Model Comparison": kappa "reaches into the millions", left open. A full SVD in float32 of a random
    # head, whose kappa is below 5, counts hundreds of noise values as nonzero by an absolute cutoff.
    d_model, d_head = 256, 16
    w_q, w_k = (0.02 * np.random.default_rng(9).standard_normal((2, d_head, d_model))).astype(np.float32)
    full = np.linalg.svd(w_q.T @ w_k, compute_uv=False)
    kept = full[full > 1e-10]
    assert full.dtype == np.float32 and kept.size > 10 * d_head
    assert kappa(kept) > 1e6
    thin = product_singular_values(w_q, w_k)
    assert thin.shape == (d_head,) and kappa(thin) < 5
    # The oracle: the same product in float64, and the d_head values that rank allows.
    oracle = np.linalg.svd(w_q.T.astype(np.float64) @ w_k.astype(np.float64), compute_uv=False)[:d_head]
    np.testing.assert_allclose(thin, oracle, rtol=1e-12)


def test_a_condition_number_that_is_truly_in_the_millions_is_resolved():
    rng = np.random.default_rng(10)
    d_model, d_head = 256, 16
    left, right = (np.linalg.qr(rng.standard_normal((d_model, d_head)))[0].T for _ in range(2))
    planted = np.geomspace(1.0, 1e-7, d_head)
    thin = product_singular_values(planted[:, None] * left, right)
    np.testing.assert_allclose(thin, planted, rtol=1e-7)
    full = np.linalg.svd((left.T * planted).astype(np.float32) @ right.astype(np.float32), compute_uv=False)
    assert abs(full[d_head - 1] / planted[-1] - 1) > 0.01 or full[d_head] > 0.01 * planted[-1]


def test_zeros_of_the_full_matrix_are_not_part_of_the_spectrum(null_singular_values):
    # The d x d matrix has d - h zero eigenvalues. NPR divided by d instead of d_h, and moments over all d values,
    # differ by powers of gamma = h/d, which then pass for structure that depends on the number of heads.
    gamma = D_HEAD / D_MODEL
    eigenvalues = null_singular_values**2
    padded = np.concatenate([eigenvalues, np.zeros((len(eigenvalues), D_MODEL - D_HEAD))], axis=1)
    exact = normalized_participation_ratio(D_MODEL, D_HEAD).mean
    assert npr(eigenvalues).mean() == pytest.approx(exact, abs=0.004)
    assert npr(padded).mean() == pytest.approx(gamma * exact, abs=0.0004)

    right, with_zeros = low_rank_product(D_MODEL, D_HEAD), GaussianChain((768, 64, 768), None, "sqrt_d", atom=True)
    assert eigenvalues.mean() == pytest.approx(right.mean(), rel=0.01)
    assert padded.mean() == pytest.approx(with_zeros.mean(), rel=0.01)
    assert with_zeros.mean() / right.mean() == pytest.approx(gamma, rel=1e-12)
    relative = [law.var() / law.mean() ** 2 for law in (right, with_zeros)]
    assert relative[0] == pytest.approx(2 * gamma, rel=1e-12)
    assert relative[1] == pytest.approx((1 + 2 * gamma) / gamma - 1, rel=1e-12)
    assert eigenvalues.var() / eigenvalues.mean() ** 2 == pytest.approx(relative[0], rel=0.05)
    assert padded.var() / padded.mean() ** 2 == pytest.approx(relative[1], rel=0.05)
    assert relative[1] > 70 * relative[0]
