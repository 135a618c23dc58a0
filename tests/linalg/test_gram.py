"""Gram matrices keep the digits or leave the matrix to the SVD; numerical settings hold where they are asked for."""

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest

import rmtbase
from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import (
    GRAM_CONDITION,
    HOST_SOLVERS,
    extreme_eigenvalues,
    gram_singular_values,
    loses_digits,
    reproducible_jax,
    singular_values,
    symmetric_singular_values,
)
from rmtbase.montecarlo import draw_spectra

DIGITS = 50


def exact_singular_values(matrix):
    with mpmath.workdps(DIGITS):
        exact = mpmath.matrix(matrix.tolist())
        eigenvalues = mpmath.eigsy(exact * exact.T, eigvals_only=True)
        return np.array([float(mpmath.sqrt(value)) for value in sorted(eigenvalues, reverse=True)])


def matrices(condition, rows=8, columns=12, count=4):
    rng = np.random.default_rng(11)
    left = np.linalg.qr(rng.standard_normal((count, rows, rows)))[0]
    right = np.linalg.qr(rng.standard_normal((count, columns, rows)))[0]
    return left * np.geomspace(1.0, condition**-0.5, rows) @ np.swapaxes(right, -1, -2)


@pytest.mark.parametrize("solver", HOST_SOLVERS)
@pytest.mark.parametrize(("condition", "error"), [(5.0, 1e-14), (1e4, 1e-12), (1e8, 1e-11), (1e16, 1e-7)])
def test_solvers_agree_with_fifty_digits(solver, condition, error):
    # Of an SVD in float64 the error of s_h is some ε s_1; a Gram matrix alone would lose all digits at 1e16.
    stack = matrices(condition)
    exact = np.array([exact_singular_values(matrix) for matrix in stack])
    np.testing.assert_allclose(HOST_SOLVERS[solver](stack, None), exact, rtol=error)


def test_ill_conditioned_and_structurally_singular_matrices_keep_their_digits():
    stack = np.concatenate([matrices(5.0, count=2), matrices(1e6, count=1), np.zeros((1, 8, 12))])
    values, by_svd = gram_singular_values(stack), singular_values(stack)
    assert loses_digits(by_svd, "float64").tolist() == [False, False, True, False]
    np.testing.assert_array_equal(values[2:], by_svd[2:])
    assert (values[:2] != by_svd[:2]).any()
    assert by_svd[0, 0] ** 2 / by_svd[0, -1] ** 2 < GRAM_CONDITION["float64"]
    stack = np.swapaxes(matrices(5.0, 3, 9), -1, -2) @ matrices(5.0, 3, 9)
    for solver in HOST_SOLVERS.values():
        assert solver(stack, 3).shape == (4, 3)
    np.testing.assert_allclose(gram_singular_values(stack, 3), singular_values(stack, 3), rtol=1e-13)
    with reproducible_jax():
        values = np.asarray(symmetric_singular_values(np.ones((2, 5, 5))))
    np.testing.assert_allclose(values, [[5.0, 0.0, 0.0, 0.0, 0.0]] * 2, atol=1e-14)
    assert (values >= 0.0).all()
    assert (np.diff(values) <= 0.0).all()
    for stack in (matrices(5.0), np.swapaxes(matrices(5.0), -1, -2)):  # by the smaller of the two Gram matrices
        values = gram_singular_values(stack)
        assert values.shape == (4, 8)
        np.testing.assert_allclose(values, singular_values(stack), rtol=1e-14)


@pytest.mark.parametrize("solver", HOST_SOLVERS)
def test_matrices_are_solved_alone_and_in_double(solver):
    stack = matrices(5.0).astype(np.float32)
    values = HOST_SOLVERS[solver](stack, None)
    assert values.dtype == np.float64
    np.testing.assert_array_equal(values, HOST_SOLVERS[solver](stack.astype(np.float64), None))
    stack = matrices(5.0, 16, 16, count=5)
    together = HOST_SOLVERS[solver](stack, None)
    for place in range(5):
        np.testing.assert_array_equal(HOST_SOLVERS[solver](stack[place : place + 1], None), together[place : place + 1])
    assert HOST_SOLVERS[solver](np.empty((0, 4, 3)), 2).shape == (0, 2)


@pytest.mark.parametrize("size", [1, 2, 12])
def test_extreme_eigenvalues_are_those_of_the_whole_tridiagonal_matrix(size):
    rng = np.random.default_rng(8)
    main, off = rng.standard_normal((5, size)), rng.standard_normal((5, size - 1))
    largest, smallest = extreme_eigenvalues(main, off)
    for place in range(5):
        matrix = np.diag(main[place]) + np.diag(off[place], 1) + np.diag(off[place], -1)
        values = np.linalg.eigvalsh(matrix)
        np.testing.assert_allclose([smallest[place], largest[place]], values[[0, -1]], atol=1e-12)


@pytest.mark.parametrize("shape", [(1, 1), (8, 8), (12, 5), (5, 12)])
def test_symmetric_singular_values_are_those_of_the_svd_however_small_they_are(shape):
    matrices = np.random.default_rng(7).standard_normal((6, *shape)) @ np.diag(np.geomspace(1.0, 1e-9, shape[1]))
    with reproducible_jax():
        values = np.asarray(symmetric_singular_values(matrices))
    expected = singular_values(matrices)
    assert values.shape == expected.shape
    assert np.abs(values - expected).max() < 1e-14 * expected.max()


def test_double_precision_holds_inside_and_settings_come_back_after_an_error():
    before = jnp.ones(2).dtype
    with pytest.raises(KeyError), reproducible_jax():
        assert jnp.ones(2).dtype == np.float64
        raise KeyError
    assert jnp.ones(2).dtype == before


def test_a_table_leaves_the_callers_settings_alone_and_is_the_same_whatever_they_are():
    precision, state = jax.config.jax_default_matmul_precision, np.random.get_state()[1].copy()  # noqa: NPY002
    usual = rmtbase.baseline(16, 4, draws=10)
    assert jnp.ones(2).dtype == jnp.float32
    assert jax.config.jax_default_matmul_precision == precision
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    run = draw_spectra(low_rank_product(9, 4), 16, 0, batch=7)
    next(run)
    assert jnp.ones(1).dtype == jnp.float32  # also between the batches of a run
    run.close()
    threefry = jax.threefry_partitionable(not jax.config.jax_threefry_partitionable)
    with jax.enable_x64(True), jax.default_matmul_precision("bfloat16"), threefry:
        other = rmtbase.baseline(16, 4, draws=10)
    assert usual.identical(other)
