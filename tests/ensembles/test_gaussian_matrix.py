"""The bidiagonal stand-in of a Gaussian matrix: shapes, degrees of freedom, and what is refused."""

import jax
import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import gaussian_matrix
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
