"""Spectra of stacks: exact, and the same whatever the stack and the cores."""

import numpy as np
import pytest

from rmtbase.linalg import extreme_eigenvalues, reproducible_jax, singular_values, symmetric_singular_values


def stack(n, rows, columns):
    return np.random.default_rng(7).standard_normal((n, rows, columns))


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
    matrices = stack(6, *shape) @ np.diag(np.geomspace(1.0, 1e-9, shape[1]))
    with reproducible_jax():
        values = np.asarray(symmetric_singular_values(matrices))
    expected = singular_values(matrices)
    assert values.shape == expected.shape
    assert np.abs(values - expected).max() < 1e-14 * expected.max()


def test_symmetric_singular_values_of_a_singular_matrix_are_not_negative_and_in_order():
    with reproducible_jax():
        values = np.asarray(symmetric_singular_values(np.ones((2, 5, 5))))
    np.testing.assert_allclose(values, [[5.0, 0.0, 0.0, 0.0, 0.0]] * 2, atol=1e-14)
    assert (values >= 0.0).all()
    assert (np.diff(values) <= 0.0).all()
