"""The thin samplers have the law of the matrices that they stand for: dense draws are the oracle.

False failures: each comparison is a Kolmogorov–Smirnov test whose p-value must exceed 1e-4 divided by the number of
comparisons in the file (Bonferroni), so that over all of them together a correct sampler fails for at most one seed in
10 000. The seeds are fixed.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from harness import same_law

from rmtbase.ensembles import ProductDraw, ThinLowRankProduct, low_rank_product
from rmtbase.montecarlo import draw_spectra, simulate_gaussian_matrix
from rmtbase.statistics import spectral_statistics

DRAWS = 2_500
PRODUCT_SHAPES = [(1, 1), (40, 1), (16, 4), (24, 24), (96, 32)]
MATRIX_SHAPES = [(1, 1), (1, 7), (6, 6), (40, 12), (12, 40)]
SPECTRAL = (
    "largest_eigenvalue",
    "smallest_eigenvalue",
    "trace",
    "normalized_participation_ratio",
    "spectral_entropy",
    "condition_number",
    "log_determinant",
)
# Of the estimates of σ, and of the spectrum jointly with them: what self-normalised statistics are made of.
WITH_SIGMA = ("sigma_q", "sigma_k", "sigma_q_sigma_k", "own_trace", "own_largest_eigenvalue", "own_log_determinant")
OF_A_MATRIX = ("largest_eigenvalue", "smallest_eigenvalue", "trace", "trace_of_square", "log_determinant")
COMPARISONS = len(PRODUCT_SHAPES) * len(SPECTRAL + WITH_SIGMA) + len(MATRIX_SHAPES) * len(OF_A_MATRIX)
LEVEL = 1e-4 / COMPARISONS


def statistics_of(ensemble, d_model, d_head, seed):
    """Every compared statistic of many draws, by name."""
    spectra, norms_q, norms_k = [], [], []
    for chunk in draw_spectra(ensemble, DRAWS, seed, "thin and dense"):
        spectra.append(chunk.singular_values)
        norms_q.append(chunk.norm_squared_q)
        norms_k.append(chunk.norm_squared_k)
    s = np.concatenate(spectra)
    of = dict(zip(SPECTRAL, spectral_statistics(s, SPECTRAL).T, strict=True))
    of["sigma_q"] = np.sqrt(np.concatenate(norms_q) / (d_model * d_head))
    of["sigma_k"] = np.sqrt(np.concatenate(norms_k) / (d_model * d_head))
    of["sigma_q_sigma_k"] = of["sigma_q"] * of["sigma_k"]
    own = s / of["sigma_q_sigma_k"][:, None]
    for name in ("trace", "largest_eigenvalue", "log_determinant"):
        of[f"own_{name}"] = spectral_statistics(own, [name])[:, 0]
    return of


@pytest.mark.parametrize(("d_model", "d_head"), PRODUCT_SHAPES)
def test_thin_and_dense_products_have_the_same_law(d_model, d_head):
    thin = statistics_of(low_rank_product(d_model, d_head), d_model, d_head, seed=1)
    dense = statistics_of(low_rank_product(d_model, d_head, "dense"), d_model, d_head, seed=2)
    p_values = {name: same_law(thin[name], dense[name]) for name in thin}
    if d_head == 1:  # λ is the product of the two squared norms: at its own scale nothing but rounding is left
        for name, value in (("own_trace", d_model**2), ("own_log_determinant", np.log(d_model**2))):
            np.testing.assert_allclose([thin[name], dense[name]], value, rtol=1e-12, atol=1e-12)
        p_values = {name: p for name, p in p_values.items() if not name.startswith("own_")}
    assert min(p_values.values()) > LEVEL, p_values


@jax.tree_util.register_static
@dataclass(frozen=True)
class EqualDegreesOfFreedom(ThinLowRankProduct):
    """A Bartlett factor gone wrong: χ_d all along the diagonal instead of χ_d, χ_{d-1}, …"""

    def sample(self, key):
        factors = []
        for part in jax.random.split(key):
            below, diagonal = jax.random.split(part)
            chi = jnp.sqrt(jax.random.chisquare(diagonal, self.d_model, (self.d_head,)))
            factors.append(jnp.tril(jax.random.normal(below, self.matrix_shape), -1) + jnp.diag(chi))
        l_q, l_k = factors
        return ProductDraw(l_q.T @ l_k, jnp.sum(l_q**2), jnp.sum(l_k**2))


@pytest.mark.parametrize(
    ("wrong", "caught_by"),
    [
        (ThinLowRankProduct(70, 16), ("trace", "largest_eigenvalue", "sigma_q")),
        (ThinLowRankProduct(70, 16), ("normalized_participation_ratio", "spectral_entropy", "condition_number")),
        (EqualDegreesOfFreedom(64, 16), ("trace", "sigma_q", "normalized_participation_ratio", "log_determinant")),
    ],
    ids=["width 10 % off, by scale", "width 10 % off, by shape", "equal degrees of freedom"],
)
def test_a_wrong_chi_is_caught(wrong, caught_by):
    got = statistics_of(wrong, 64, 16, seed=3)
    right = statistics_of(low_rank_product(64, 16, "dense"), 64, 16, seed=4)
    p_values = {name: same_law(got[name], right[name]) for name in caught_by}
    assert max(p_values.values()) < LEVEL, p_values


@pytest.mark.parametrize("shape", MATRIX_SHAPES)
def test_bidiagonal_and_dense_matrices_have_the_same_law(shape):
    bidiagonal = simulate_gaussian_matrix(*shape, DRAWS, seed=5)
    dense = np.random.default_rng([6, *shape]).standard_normal((DRAWS, *shape))
    oracle = spectral_statistics(np.linalg.svd(dense, compute_uv=False), OF_A_MATRIX).T
    p_values = {name: same_law(getattr(bidiagonal, name), of) for name, of in zip(OF_A_MATRIX, oracle, strict=True)}
    assert min(p_values.values()) > LEVEL, p_values


def test_a_bidiagonal_matrix_of_the_wrong_length_is_caught():
    wrong = simulate_gaussian_matrix(44, 12, DRAWS, seed=7)
    dense = np.random.default_rng(8).standard_normal((DRAWS, 40, 12))
    oracle = spectral_statistics(np.linalg.svd(dense, compute_uv=False), OF_A_MATRIX).T
    p_values = {name: same_law(getattr(wrong, name), of) for name, of in zip(OF_A_MATRIX, oracle, strict=True)}
    assert max(p_values.values()) < LEVEL, p_values
