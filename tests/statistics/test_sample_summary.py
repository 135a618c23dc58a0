"""Means, spreads, standard errors and quantiles of a sample, held in memory or read in blocks."""

import tracemalloc

import numpy as np
import pytest
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import PROBABILITIES
from rmtbase.statistics import summarize, summarize_stream


def test_moments_and_quantiles_are_numpys_and_errors_are_known_where_draws_tell():
    x = np.random.default_rng(1).gamma(2.0, size=(400, 3, 2))
    got = summarize(x, [0.05, 0.5, 0.95])
    np.testing.assert_allclose(got.mean, x.mean(axis=0))
    np.testing.assert_allclose(got.std, x.std(axis=0, ddof=1))
    np.testing.assert_allclose(got.standard_error, stats.sem(x, axis=0))
    assert got.quantile.shape == (3, 2, 3)
    np.testing.assert_allclose(got.quantile[1, 0], np.quantile(x[:, 1, 0], [0.05, 0.5, 0.95]))
    levels = np.array([0.0, *PROBABILITIES, 1.0])
    for n, least in ((2, 1.0), (19, 1.0), (20, 0.5), (100, 0.16), (1_000, 0.01), (10_000, 0.001)):
        got = summarize(np.random.default_rng(5).standard_normal(n), levels)
        known = (levels >= least) & (levels <= 1 - least)
        np.testing.assert_array_equal(np.isfinite(got.quantile_standard_error), known, err_msg=f"{n} draws")
        assert np.isfinite(got.quantile).all()
    x = np.sort(np.random.default_rng(6).standard_normal(1_000))
    x[:400] = x[400]  # a value with a probability of 40 %
    got = summarize(x[::-1], [0.05, 0.2, 0.3, 0.4, 0.5])
    assert got.quantile_standard_error[:3].tolist() == [0.0, 0.0, 0.0]
    assert (got.quantile_standard_error[3:] > 0).all()
    got = summarize(np.full((5, 2), 3.0), [0.5])
    for value in (got.std, got.standard_error, got.std_standard_error, summarize(np.full(50, 3.0), [0.5])[-1]):
        np.testing.assert_array_equal(value, 0.0)
    np.testing.assert_array_equal(got.quantile, 3.0)
    sample = samples(40_000)[[0, 1, 2, 3, 4, 5, 8, 9]]
    found, held = summarize_stream(blocks_of(sample, 1 << 14), STREAMED), summarize(sample.T, STREAMED)
    atol = 1e-13 * held.std.max(where=held.std < 2, initial=0)
    np.testing.assert_allclose(found.mean, held.mean, rtol=1e-12, atol=atol)
    np.testing.assert_allclose(found.std, held.std, rtol=1e-9)
    np.testing.assert_allclose(found.standard_error, held.standard_error, rtol=1e-9)
    np.testing.assert_allclose(found.std_standard_error, held.std_standard_error, rtol=1e-6)


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


STREAMED = (0.0, 0.001, 0.05, 0.16, 0.25, 0.5, 0.75, 0.975, 0.999, 1.0)


def blocks_of(sample, size):
    return lambda: (sample[:, first : first + size] for first in range(0, sample.shape[1], size))


def samples(draws):
    rng = np.random.default_rng(draws)
    normal = rng.standard_normal(draws)
    return np.stack([
        normal,
        1e3 + 1e-6 * normal,
        np.exp(20 * normal),
        -np.exp(20 * normal),
        np.round(normal, 1),
        np.full(draws, 3.25),
        np.where(np.arange(draws) % 5 == 0, 0.0, -0.0),
        np.where(normal > 1, 1e300, 1e-300 * normal),
        rng.standard_cauchy(draws),
        np.sort(normal),
        np.where(np.arange(draws) == draws // 2, 1e200, 1.0 + 1e-12 * normal),
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("draws", "size"), [(2, 1), (3, 2), (10, 10), (4_097, 500), (40_000, 1 << 14), (300_000, 1 << 14)]
)
def test_quantiles_of_blocks_are_numpys_to_the_bit(draws, size):
    sample = samples(draws)
    with np.errstate(over="ignore", invalid="ignore"):
        found, held = summarize_stream(blocks_of(sample, size), STREAMED), summarize(sample.T, STREAMED)
    np.testing.assert_array_equal(found.quantile, np.quantile(sample, STREAMED, axis=1).T)
    np.testing.assert_array_equal(found.quantile_standard_error, held.quantile_standard_error)
    assert summarize_stream(blocks_of(samples(10), 4), []).quantile.shape == (11, 0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_visible(bad):
    sample = np.random.default_rng(0).standard_normal((2, 9_000))
    sample[1, 7_000] = bad
    found = summarize_stream(blocks_of(sample, 1_000), (0.0, 0.5, 1.0))
    with np.errstate(invalid="ignore"):
        held = np.quantile(sample, (0.0, 0.5, 1.0), axis=1).T
    np.testing.assert_array_equal(found.quantile, held)
    assert np.isfinite(found.mean[0])
    assert not np.isfinite(found.mean[1])
    assert np.isnan(found.std[1])


@pytest.mark.parametrize("draws", [0, 1])
def test_fewer_than_two_draws_are_refused(draws):
    for call in (
        lambda: summarize(np.zeros((draws, 3)), [0.5]),
        lambda: summarize_stream(blocks_of(np.zeros((3, draws)), 1), STREAMED),
    ):
        with pytest.raises(ParameterError, match=f"draws = {draws}: expected at least 2"):
            call()


@pytest.mark.exhaustive
def test_memory_is_that_of_a_few_rows():
    # 400 MiB of numbers, made anew for each reading, in less than 256 MiB: one row of 12.5 million at a time.
    tracemalloc.start()
    summarize_stream(lambda: (np.random.default_rng(seed).random((4, 1 << 15)) for seed in range(400)), (0.1, 0.5))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 256 * 2**20
