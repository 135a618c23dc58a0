"""Means, spreads, standard errors and quantiles of a sample."""

import numpy as np
import pytest
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.statistics import summarize


def test_moments_and_quantiles_are_numpys():
    x = np.random.default_rng(1).gamma(2.0, size=(400, 3, 2))
    got = summarize(x, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(got.mean, x.mean(axis=0))
    np.testing.assert_allclose(got.std, x.std(axis=0, ddof=1))
    np.testing.assert_allclose(got.standard_error, stats.sem(x, axis=0))
    assert got.quantile.shape == (3, 2, 3)
    np.testing.assert_allclose(got.quantile[1, 0], np.quantile(x[:, 1, 0], [0.05, 0.5, 0.95]))


@pytest.mark.parametrize(
    "law", mostly_exhaustive([stats.norm(), stats.expon(), stats.uniform()], always=1), ids=lambda law: law.dist.name
)
def test_standard_errors_are_the_spread_over_repeated_samples(law):
    # The spread of 4 000 estimates is known to 1.1 % (3 % for the exponential's heavy fourth moment): 8 % is beyond
    # five standard deviations for each, a false failure in under 1e-5 of seeds.
    samples = law.rvs(size=(500, 4_000), random_state=np.random.default_rng(2))
    got = summarize(samples, [0.5])
    assert np.mean(got.standard_error) == pytest.approx(got.mean.std(), rel=0.08)
    assert np.mean(got.std_standard_error) == pytest.approx(got.std.std(), rel=0.08)


def test_a_constant_sample_has_no_spread_and_no_warning():
    got = summarize(np.full((5, 2), 3.0), [0.5])
    for value in (got.std, got.standard_error, got.std_standard_error):
        np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(got.quantile, 3.0)


def test_two_draws_suffice():
    got = summarize([1.0, 3.0], [0.5])
    assert (got.mean, got.std, got.standard_error) == (2.0, pytest.approx(np.sqrt(2)), pytest.approx(1.0))
    assert np.isfinite(got.std_standard_error)


@pytest.mark.parametrize("draws", [0, 1])
def test_fewer_than_two_draws_are_refused(draws):
    with pytest.raises(ParameterError, match=f"draws = {draws}: expected at least 2"):
        summarize(np.zeros((draws, 3)), [0.5])
