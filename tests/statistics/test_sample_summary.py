"""Means, spreads, standard errors and quantiles of a sample."""

import numpy as np
import pytest
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import PROBABILITIES
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


LEVELS = np.array([0.001, 0.01, 0.05, 0.25, 0.5, 0.9, 0.99, 0.999])


def test_quantile_errors_are_half_the_binomial_interval_in_units_of_its_normal_quantile():
    x = np.random.default_rng(3).gumbel(size=2_000)
    got, ordered, n = summarize(x, LEVELS), np.sort(x), x.size
    for p, error in zip(LEVELS, got.quantile_standard_error, strict=True):
        ranks = (n - 1) * p + stats.norm.ppf([0.025, 0.975]) * stats.binom(n, p).std()
        if n * min(p, 1 - p) < 10:
            assert np.isnan(error)
            continue
        low, high = np.interp(ranks, np.arange(n), ordered)
        assert error == pytest.approx((high - low) / (2 * stats.norm.ppf(0.975)), rel=1e-9)
    assert np.isnan(got.quantile_standard_error).tolist() == [True, *[False] * 6, True]


@pytest.mark.parametrize("law", [stats.norm(), stats.expon(), stats.gumbel_r()], ids=lambda law: law.dist.name)
def test_quantile_errors_are_the_spread_over_repeated_samples(law):
    # The spread of 4 000 estimates is known to 1.1 % (1.6 % in exponential tails), coverage to 0.4 points. The mean
    # error is within 2 % of it where 50 draws or more are expected beyond, and from 5 % too small to 13 % too large
    # where 10 are; coverage is 93 to 95 %. The limits are five standard deviations away: under 1e-5 of seeds fail.
    samples = law.rvs(size=(1_000, 4_000), random_state=np.random.default_rng(4))
    got = summarize(samples, LEVELS)
    for place, p in enumerate(LEVELS):
        values, errors = got.quantile[:, place], got.quantile_standard_error[:, place]
        expected = 1_000 * min(p, 1 - p)
        if expected < 10:
            assert np.isnan(errors).all()
            continue
        low, high = (0.88, 1.21) if expected < 50 else (0.92, 1.08)
        assert low < errors.mean() / values.std() < high, p
        assert 0.91 < np.mean(np.abs(values - law.ppf(p)) < 1.959964 * errors) < 0.97, p


def test_a_quantile_that_the_draws_do_not_tell_has_no_error():
    levels = np.array([0.0, *PROBABILITIES, 1.0])
    for n, least in ((2, 1.0), (19, 1.0), (20, 0.5), (100, 0.16), (1_000, 0.01), (10_000, 0.001)):
        got = summarize(np.random.default_rng(5).standard_normal(n), levels)
        known = (levels >= least) & (levels <= 1 - least)
        np.testing.assert_array_equal(np.isfinite(got.quantile_standard_error), known, err_msg=f"{n} draws")
        assert np.isfinite(got.quantile).all()


def test_equal_draws_have_quantiles_without_error_and_others_keep_theirs():
    x = np.sort(np.random.default_rng(6).standard_normal(1_000))
    x[:400] = x[400]  # a value with a probability of 40 %
    got = summarize(x[::-1], [0.05, 0.2, 0.3, 0.4, 0.5])
    assert got.quantile_standard_error[:3].tolist() == [0.0, 0.0, 0.0]
    assert (got.quantile_standard_error[3:] > 0).all()


def test_a_constant_sample_has_no_spread_and_no_warning():
    got = summarize(np.full((5, 2), 3.0), [0.5])
    for value in (got.std, got.standard_error, got.std_standard_error, summarize(np.full(50, 3.0), [0.5])[-1]):
        np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(got.quantile, 3.0)


@pytest.mark.parametrize("draws", [0, 1])
def test_fewer_than_two_draws_are_refused(draws):
    with pytest.raises(ParameterError, match=f"draws = {draws}: expected at least 2"):
        summarize(np.zeros((draws, 3)), [0.5])
