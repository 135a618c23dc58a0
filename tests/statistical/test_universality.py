"""Which initialisers a spectrum tells from Gaussian ones, and how: the bulk is Marchenko and Pastur's, or it is not.

For independent elements with a finite fourth moment the bulk and its edges depend on their standard deviation alone
(Marchenko and Pastur 1967; Bai, Silverstein and Yin 1988). The singular values of an orthogonal matrix are one point.
Elements with an infinite fourth moment put outliers as large as the largest of them on a bulk that is still Marchenko
and Pastur's where the variance is finite (Auffinger, Ben Arous and Péché 2009).

False failures: one spectrum of 300 values is rigid. Over 400 seeds its distance from the limiting distribution function
had mean 0.0095, standard deviation 0.0013 and maximum 0.0142; the bound is 0.02. The largest eigenvalue may lie six
standard deviations of its Gaussian law away, which that law itself does with probability 3e-6. The seeds are fixed.
"""

import math

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import initialized_matrix, logistic_matrix, student_t_matrix
from rmtbase.laws import largest_eigenvalue, marchenko_pastur
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import case_key

N_ROWS, N_COLUMNS = 300, 500
SAME_BULK = {
    "normal": initialized_matrix(N_ROWS, N_COLUMNS, "normal", std=0.02),
    "truncated_normal": initialized_matrix(N_ROWS, N_COLUMNS, "truncated_normal", std=0.02),
    "uniform": initialized_matrix(N_ROWS, N_COLUMNS, "uniform", bound=0.3),
    "xavier_uniform": initialized_matrix(N_ROWS, N_COLUMNS, "xavier_uniform"),
    "xavier_normal": initialized_matrix(N_ROWS, N_COLUMNS, "xavier_normal"),
    "kaiming_uniform": initialized_matrix(N_ROWS, N_COLUMNS, "kaiming_uniform"),
    "kaiming_normal": initialized_matrix(N_ROWS, N_COLUMNS, "kaiming_normal", mode="fan_out"),
    "torch_linear": initialized_matrix(N_ROWS, N_COLUMNS, "torch_linear"),
    "small_init": initialized_matrix(N_ROWS, N_COLUMNS, "small_init", d_model=500),
    "wang_init": initialized_matrix(N_ROWS, N_COLUMNS, "wang_init", n_layers=6, d_model=500),
    "scaled_normal": initialized_matrix(N_ROWS, N_COLUMNS, "scaled_normal", n_layers=6),
    "logistic": logistic_matrix(N_ROWS, N_COLUMNS, 0.02),
    "student_t": student_t_matrix(N_ROWS, N_COLUMNS, 30, 0.02),
}


def matrix_of(ensemble, seed):
    with reproducible_jax():
        context = ensemble.row_context(case_key(seed, ensemble.name))
        return np.asarray(ensemble.rows(context, 0, N_ROWS))


def singular_values(ensemble, seed=0):
    return np.linalg.svd(matrix_of(ensemble, seed), compute_uv=False)


LAW = marchenko_pastur(N_ROWS, N_COLUMNS)
EDGE = largest_eigenvalue(dims=(N_ROWS, N_COLUMNS), normalization="none")
BEYOND = math.sqrt(EDGE.mean() + 6 * EDGE.std())  # six standard deviations above the edge, as a singular value


def distance(s):
    below = LAW.cdf(np.sort(s**2))
    ranks = np.arange(s.size)
    return max((below - ranks / s.size).max(), ((ranks + 1) / s.size - below).max())


@pytest.mark.parametrize("name", mostly_exhaustive(SAME_BULK, always=1))
def test_the_bulk_is_that_of_a_gaussian_matrix_of_the_same_deviation(name):
    s = singular_values(SAME_BULK[name]) / SAME_BULK[name].law.std
    assert distance(s) < 0.02
    assert abs(s[0] ** 2 - EDGE.mean()) < 6 * EDGE.std()


def test_deviations_orthogonal_spectra_and_infinite_variances_are_seen():
    s = singular_values(SAME_BULK["torch_linear"]) / SAME_BULK["torch_linear"].law.std
    assert min(distance(0.97 * s), distance(1.03 * s)) > 0.02
    s = singular_values(initialized_matrix(N_ROWS, N_COLUMNS, "orthogonal", gain=0.7))
    np.testing.assert_allclose(s, 0.7, rtol=1e-13)
    assert distance(s / (0.7 / math.sqrt(N_COLUMNS))) > 0.5
    ensemble = student_t_matrix(N_ROWS, N_COLUMNS, 1.0, 0.02)
    s = singular_values(ensemble)
    assert ensemble.law.std == math.inf
    assert distance(s * math.sqrt(N_COLUMNS / np.mean(s**2))) > 0.5


@pytest.mark.exhaustive
def test_heavy_tails_put_outliers_on_the_same_bulk():
    # Measured: 5.8 outliers per matrix at this shape, so that five matrices have at least five but for 1e-8.
    ensemble = student_t_matrix(N_ROWS, N_COLUMNS, 2.5, 0.02)
    outliers = 0
    for seed in range(5):
        matrix = matrix_of(ensemble, seed) / ensemble.law.std
        s = np.linalg.svd(matrix, compute_uv=False)
        largest = np.abs(matrix).max()
        assert largest <= s[0] < math.hypot(largest, BEYOND)  # an element on the bulk, and no more
        assert distance(s) < 0.15
        outliers += np.count_nonzero(s > BEYOND)
    assert outliers >= 5
