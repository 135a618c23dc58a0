"""Logistic and Student-t matrices: the exact law of the elements, the way from a fit to a null, and what is refused.

False failures: Kolmogorov–Smirnov tests at 1e-6 each, estimates at five standard errors; fewer than one seed in 20 000.
"""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from rmtbase.ensembles import logistic_matrix, student_t_matrix
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax
from rmtbase.statistics import fit_logistic, fit_student_t

LEVEL = 1e-6
SHAPE = (160, 250)


def matrix_of(ensemble, seed=0):
    with reproducible_jax():
        return np.asarray(ensemble.rows(jax.random.key(seed), 0, ensemble.n_rows))


CASES = [
    (logistic_matrix(*SHAPE, 0.02), stats.logistic(0, 0.02)),
    (logistic_matrix(*SHAPE, 3, -1), stats.logistic(-1, 3)),
    *((student_t_matrix(*SHAPE, df, 0.02, 0.1), stats.t(df, 0.1, 0.02)) for df in (0.2, 1, 2, 3.3, 8, 100, 1e9)),
    (student_t_matrix(*SHAPE, math.inf, 0.02, 0.1), stats.norm(0.1, 0.02)),
]


@pytest.mark.parametrize(("ensemble", "law"), CASES, ids=[ensemble.name for ensemble, _ in CASES])
def test_elements_have_the_law_that_is_stated_with_its_exact_deviation(ensemble, law):
    elements = matrix_of(ensemble).ravel()
    assert np.isfinite(elements).all()
    assert stats.kstest(elements, law.cdf).pvalue > LEVEL
    # The tails by themselves, where a test of the whole law sees little: magnitudes beyond the 99 % point.
    distance = np.abs(elements - law.median())
    beyond = distance[distance > law.ppf(0.995) - law.median()]
    tail = stats.kstest(beyond, lambda x: 1 - law.sf(law.median() + x) / 0.005)
    assert tail.pvalue > LEVEL
    assert abs(beyond.size - 0.01 * elements.size) < 5 * math.sqrt(0.01 * elements.size)
    expected = law.std() if law.std() == law.std() else math.inf  # scipy has nan below df = 1
    assert ensemble.law.std == pytest.approx(expected, rel=1e-9)


def test_fits_have_nulls_and_wrong_degrees_of_freedom_are_caught():
    # Two elements of one polar pair would share a radius: the draw uses one element of each.
    z = student_t_matrix(*SHAPE, 3, 1.0)
    z = matrix_of(z)
    for values in (np.sign(z), np.log(np.abs(z))):
        centred = (values - values.mean()) / values.std()
        for pairs in (centred[:, 1:] * centred[:, :-1], centred[1:] * centred[:-1]):
            assert abs(pairs.mean()) < 5 / math.sqrt(pairs.size)
    elements = matrix_of(student_t_matrix(*SHAPE, 3, 1.0)).ravel()
    assert stats.kstest(elements, stats.t(4).cdf).pvalue < LEVEL
    trained = stats.t(4.5, 0.001, 0.02).rvs((200, 300), random_state=np.random.default_rng(0)).astype(np.float32)
    fit = fit_student_t(trained)
    null = student_t_matrix(*trained.shape, fit.df, fit.scale, fit.location)
    again = fit_student_t(matrix_of(null))
    assert abs(1 / again.df - 1 / fit.df) < 5 * fit.inverse_df_standard_error
    assert abs(again.scale - fit.scale) < 5 * fit.scale_standard_error
    fit = fit_logistic(trained)
    null = logistic_matrix(*trained.shape, fit.scale, fit.location)
    again = fit_logistic(matrix_of(null))
    assert abs(again.scale - fit.scale) < 5 * fit.scale_standard_error
    assert abs(again.location - fit.location) < 5 * fit.location_standard_error
    fit = fit_student_t(stats.norm.ppf((np.arange(5_000) + 0.5) / 5_000))
    assert fit.status == "normal"
    elements = matrix_of(student_t_matrix(*SHAPE, fit.df, fit.scale, fit.location)).ravel()
    assert stats.kstest(elements, stats.norm(fit.location, fit.scale).cdf).pvalue > LEVEL
    assert logistic_matrix(64, 256, 0.02).name == "logistic_matrix 64x256 scale=0.02 location=0.0"
    assert student_t_matrix(64, 256, 4, 1).name == "student_t_matrix 64x256 df=4.0 scale=1.0 location=0.0"


@pytest.mark.parametrize("df", [0.1, -math.inf, math.nan])
def test_too_few_degrees_of_freedom_are_refused(df):
    with pytest.raises(ParameterError, match=r"^df = .*: expected"):
        student_t_matrix(3, 4, df, 1.0)
