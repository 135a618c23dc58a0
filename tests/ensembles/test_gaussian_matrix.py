"""The bidiagonal stand-in of a Gaussian matrix, and the exact χ draws of which it is made.

False failures: a Kolmogorov–Smirnov p-value must exceed 1e-6, and a mean must lie within 5 standard errors; with 20
comparisons a correct sampler fails for one seed in 25 000. The seeds are fixed.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import gaussian_matrix
from rmtbase.ensembles._chi import chi
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import case_key, draw_keys, simulate_gaussian_matrix

DRAWS = 4_000


@jax.jit
def sample_many(ensemble, key, indices):
    return jax.vmap(ensemble.bidiagonal)(draw_keys(key, indices))


def draws(ensemble, seed=0, case="case"):
    with reproducible_jax():
        draw = sample_many(ensemble, case_key(seed, case), np.arange(DRAWS, dtype=np.uint32))
        return jax.tree.map(np.asarray, draw)


@pytest.mark.parametrize(
    ("shape", "rank"), mostly_exhaustive([((1, 1), 1), ((5, 9), 5), ((1, 6), 1), ((5, 5), 5), ((9, 5), 5)], always=2)
)
def test_a_draw_is_a_square_bidiagonal_matrix_of_the_rank(shape, rank):
    ensemble = gaussian_matrix(*shape)
    assert (ensemble.long, ensemble.rank) == (max(shape), rank)
    got = draws(ensemble)
    assert got.diagonal.shape == (DRAWS, rank)
    assert got.below.shape == (DRAWS, rank - 1)
    assert got.diagonal.dtype == got.below.dtype == np.float64
    assert (got.diagonal > 0).all() and (got.below > 0).all()


def test_draws_and_their_statistics_are_those_of_the_bidiagonal_matrix():
    ensemble = gaussian_matrix(9, 5)
    with reproducible_jax():
        key = case_key(0, "case")
        matrix, norm_squared = jax.jit(lambda ensemble, key: ensemble.sample(key))(ensemble, key)
        bidiagonal = jax.jit(lambda ensemble, key: ensemble.bidiagonal(key))(ensemble, key)
    np.testing.assert_array_equal(matrix, np.diag(bidiagonal.diagonal) + np.diag(bidiagonal.below, -1))
    np.testing.assert_allclose(norm_squared, [np.sum(np.square(matrix))], rtol=1e-14)
    assert ensemble.matrix_shape == matrix.shape
    assert ensemble.factor_sizes == (45,)
    got = simulate_gaussian_matrix(7, 5, 6, seed=3)
    draw = draws(gaussian_matrix(7, 5), 3, "gaussian_matrix 7x5")
    for k in range(6):
        matrix = np.diag(draw.diagonal[k]) + np.diag(draw.below[k], -1)
        eigenvalues = np.linalg.svd(matrix, compute_uv=False) ** 2
        assert got.largest_eigenvalue[k] == pytest.approx(eigenvalues[0], rel=1e-13)
        assert got.smallest_eigenvalue[k] == pytest.approx(eigenvalues[-1], abs=1e-12 * eigenvalues[0])
        assert got.trace[k] == pytest.approx(eigenvalues.sum(), rel=1e-13)
        assert got.trace_of_square[k] == pytest.approx((eigenvalues**2).sum(), rel=1e-13)
        assert got.log_determinant[k] == pytest.approx(np.log(eigenvalues).sum(), abs=1e-11)


def test_first_draws_are_those_of_a_shorter_run_and_other_seeds_give_others():
    assert gaussian_matrix(5, 9) == gaussian_matrix(9, 5)
    short, transposed = simulate_gaussian_matrix(9, 5, 6), simulate_gaussian_matrix(5, 9, 6)
    for of_long, of_short, of_transposed in zip(simulate_gaussian_matrix(9, 5, 17), short, transposed, strict=True):
        np.testing.assert_allclose(of_long[:6], of_short, rtol=1e-12)
        np.testing.assert_array_equal(of_transposed, of_short)
    traces = [simulate_gaussian_matrix(9, 5, 6, seed).trace for seed in (0, 1)]
    assert (traces[0] != traces[1]).all()
    assert traces[0].dtype == np.float64
    assert jax.config.jax_enable_x64 is False


LENGTHS = 20_000
DEGREES = np.array([1.0, 2.0, 3.0, 10.0, 1_000.0, 1e6, 1e15])


@jax.jit
def sample_lengths(degrees, indices):
    key = jax.random.key(3, impl="threefry2x32")
    return jax.vmap(lambda index: chi(jax.random.fold_in(key, index), degrees))(indices)


def lengths(degrees, indices=range(LENGTHS)):
    with reproducible_jax():
        return np.asarray(sample_lengths(np.asarray(degrees, dtype=float), np.asarray(indices, dtype=np.uint32)))


@pytest.fixture(scope="module")
def many():
    return lengths(DEGREES)


@pytest.mark.parametrize("place", range(len(DEGREES)))
def test_a_length_has_the_chi_law_and_its_square_the_moments(many, place):
    nu = DEGREES[place]
    # 2 √n (√χ² - …) would do for large ν; the regularised gamma function itself is good to 1e-9 there.
    assert stats.kstest(many[:, place] ** 2, stats.chi2(nu).cdf).pvalue > 1e-6
    nu, square = DEGREES[place], many[:, place] ** 2
    assert abs(square.mean() - nu) < 5 * np.sqrt(2 * nu / LENGTHS)
    # Var (χ² - ν)² = E (χ² - ν)⁴ - (2 ν)² = 8 ν² + 48 ν.
    assert abs(((square - nu) ** 2).mean() - 2 * nu) < 5 * np.sqrt((8 * nu**2 + 48 * nu) / LENGTHS)


def test_lengths_of_one_draw_are_independent_and_none_without_freedom(many):
    correlation = np.corrcoef(many, rowvar=False)[np.triu_indices(len(DEGREES), 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(LENGTHS)
    np.testing.assert_array_equal(lengths([0.0, 0.0], range(5)), 0.0)


@pytest.mark.exhaustive
@pytest.mark.optimized
def test_a_draw_depends_on_its_key_alone():
    # Places with one to five degrees of freedom: about one draw in two has a rejection, some draws several.
    degrees = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], 4)
    together = lengths(degrees, range(2_000))
    np.testing.assert_array_equal(lengths(degrees, [1_000]), together[1_000:1_001])
