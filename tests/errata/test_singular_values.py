"""Errata of "Singular Value Structure of Transformer Attention Heads" (post 2): docs/errata.md, 4, 5, 8, 16, 31 and 32.

Each test holds what is written against what is right; an oracle that shares no code with rmtbase decides.
"""

import math
import re

import numpy as np
import pytest

from rmtbase.laws import GaussianChain, low_rank_product, normalized_participation_ratio, null
from rmtbase.linalg import product_singular_values
from rmtbase.models import known_models

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
    # code around it follows that for the null and uses sigma_k for the trained heads (31).
    squared, plain = statistic(null_singular_values**2), statistic(null_singular_values)
    for sample, value in ((squared, on_eigenvalues), (plain, on_singular_values)):
        error = sample.std() / math.sqrt(sample.size)
        assert sample.mean() == pytest.approx(value, abs=5 * error + 0.005 * value)
    # One cannot stand in for the other: the means are more than eight standard deviations of one head apart.
    assert abs(squared.mean() - plain.mean()) > 8 * max(squared.std(), plain.std())
    dims = (D_MODEL, D_HEAD, D_MODEL)
    assert null(name, dims=dims, normalization="none").mean() == pytest.approx(on_eigenvalues, rel=0.001)
    assert null(f"{name}_singular", dims=dims, normalization="none").mean() == pytest.approx(
        on_singular_values, rel=0.001
    )


def test_the_mix_flips_the_conclusion(null_singular_values):
    # Post 2, "Condition Number": typical values of GPT-2 are "on the order of 4". Above every random head if they are
    # ratios of singular values, below nearly every one if they are ratios of eigenvalues.
    assert kappa(null_singular_values).max() < 4.0
    assert (kappa(null_singular_values**2) > 4.0).mean() > 0.9


def test_the_scaling_with_sigma_is_that_of_singular_values():
    # Post 2, Fig. 12: against the element-wise sigma "Top right: sum lambda_k (linear). Bottom left: sum lambda_k^2
    # (quadratic, tightest relationship)", and "sum lambda_k^2 = |W_QK|_F^2". With lambda_k = sigma_k^2 the sum is
    # quadratic, the sum of squares goes with the fourth power, and |W_QK|_F^2 is the former.
    rng = np.random.default_rng(12)
    sigmas, sums = [], []
    for scale in (0.02, 0.05, 0.1, 0.3):
        w_q, w_k = scale * rng.standard_normal((2, 16, 128))
        w = w_q.T @ w_k
        s = np.linalg.svd(w, compute_uv=False)[:16]
        sigmas.append(w.std())
        sums.append([s.sum(), (s**2).sum(), (s**4).sum()])
        assert (s**2).sum() == pytest.approx(np.linalg.norm(w) ** 2, rel=1e-12)
        assert (s**2).sum() == pytest.approx(128**2 * np.mean(w**2), rel=1e-12)  # an identity, hence "tightest"
        assert (s**4).sum() < 0.5 * np.linalg.norm(w) ** 2 or (s**4).sum() > 2 * np.linalg.norm(w) ** 2
    slopes = [np.polyfit(np.log(sigmas), np.log(column), 1)[0] for column in np.transpose(sums)]
    assert slopes == pytest.approx([1.0, 2.0, 4.0], abs=0.05)


def test_condition_numbers_in_the_millions_are_rounding_noise():
    # Post 2, "Cross-Model Comparison": kappa "reaches into the millions", left open. A full SVD in float32 of a random
    # head, whose kappa is below 5, counts hundreds of noise values as nonzero by an absolute cutoff.
    d_model, d_head = 256, 16
    w_q, w_k = (0.02 * np.random.default_rng(9).standard_normal((2, d_head, d_model))).astype(np.float32)
    full = np.linalg.svd(w_q.T @ w_k, compute_uv=False)
    kept = full[full > 1e-10]
    assert full.dtype == np.float32 and kept.size == pytest.approx(246, abs=5)  # of 256; rounding decides
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

    right, with_zeros = (low_rank_product(D_MODEL, D_HEAD), GaussianChain(d_model=768, d_head=64, atom=True))
    assert eigenvalues.mean() == pytest.approx(right.mean(), rel=0.01)
    assert padded.mean() == pytest.approx(with_zeros.mean(), rel=0.01)
    assert with_zeros.mean() / right.mean() == pytest.approx(gamma, rel=1e-12)
    relative = [law.var() / law.mean() ** 2 for law in (right, with_zeros)]
    assert relative[0] == pytest.approx(2 * gamma, rel=1e-12)
    assert relative[1] == pytest.approx((1 + 2 * gamma) / gamma - 1, rel=1e-12)
    assert eigenvalues.var() / eigenvalues.mean() ** 2 == pytest.approx(relative[0], rel=0.05)
    assert padded.var() / padded.mean() ** 2 == pytest.approx(relative[1], rel=0.05)
    assert relative[1] > 70 * relative[0]


# Post 2, the text below Fig. 1 and the caption of Fig. 2.
TEXT = "The blue head shows a clear excess at low index"
CAPTION = "The MP-like head (L7 H6, blue) closely follows the random-matrix baseline; the outlier head (L1 H0, red)"


def test_text_and_caption_give_the_outliers_to_different_heads():
    (in_text,) = re.findall(r"The (\w+) head shows a clear excess", TEXT)
    (in_caption,) = re.findall(r"the outlier head \(L1 H0, (\w+)\)", CAPTION)
    assert {in_text, in_caption} == {"blue", "red"}


def test_gpt2_has_no_layer_18():
    # Post 2, "Leading Eigenvalue": "approximately the first half of the network (~layer 18 for this model)", which is
    # GPT-2 with d = 768.
    layers = {model.name: model.n_layers for model in known_models() if model.name.startswith("gpt2")}
    assert layers["gpt2"] == 12
    assert [name for name, count in layers.items() if count // 2 == 18] == ["gpt2-large"]
