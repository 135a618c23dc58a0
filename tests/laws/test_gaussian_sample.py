"""Nulls of element-wise statistics: SciPy's tests, exact laws, and simulation of small and of matrix-sized samples."""

import numpy as np
import pytest
from scipy import special, stats

from rmtbase.laws import element_null, gaussian_sample_statistic

STATISTICS = ("mean", "skewness", "excess_kurtosis", "largest_magnitude")


def statistics_of(x):
    """The four statistics of each row."""
    mean, std = x.mean(axis=1), x.std(axis=1, ddof=1)
    return {
        "mean": mean / std,
        "skewness": stats.skew(x, axis=1),
        "excess_kurtosis": stats.kurtosis(x, axis=1),
        "largest_magnitude": np.abs(x - mean[:, None]).max(axis=1) / std,
    }


@pytest.fixture(scope="module")
def of_small_samples():
    """The statistics of rows of 20, 50 and 200 normal numbers, at a spread of their own; the mean from the true one."""
    rng, found = np.random.default_rng(1), {}
    for n in (20, 50, 200):
        samples = rng.normal(3.0, 0.02, size=(40_000, n))
        mean = (samples.mean(axis=1) - 3.0) / samples.std(axis=1, ddof=1)
        found[n] = statistics_of(samples) | {"mean": mean}
    return found


@pytest.mark.parametrize("law", [stats.norm(), stats.t(4), stats.expon(), stats.uniform()], ids=lambda x: x.dist.name)
@pytest.mark.parametrize("n", [20, 100, 10_000])
def test_skewness_and_kurtosis_are_tested_as_scipy_tests_them(law, n):
    x = law.rvs(size=(6, n), random_state=np.random.default_rng(2))
    for name, test, statistic in (
        ("skewness", stats.skewtest, stats.skew),
        ("excess_kurtosis", stats.kurtosistest, stats.kurtosis),
    ):
        got = gaussian_sample_statistic(name, n).p_value(statistic(x, axis=1))
        expected = test(x, axis=1).pvalue
        # The z-scores agree to 1e-9; p-values, whose relative error is |z| times that, are compared through them.
        np.testing.assert_allclose(special.ndtri(got / 2), special.ndtri(expected / 2), rtol=1e-9)


@pytest.mark.parametrize("n", [20, 300])
def test_the_mean_is_tested_by_students_t(n):
    x = np.random.default_rng(3).normal(0.1, 1.0, size=(5, n))
    got = gaussian_sample_statistic("mean", n).p_value(x.mean(axis=1) / x.std(axis=1, ddof=1))
    np.testing.assert_allclose(got, stats.ttest_1samp(x, 0.0, axis=1).pvalue, rtol=1e-10)


def test_one_standardised_deviation_has_thompsons_law():
    # The law of max |w - w̄| / s is that of one deviation to the power n; the tail at a single n tells the exponent,
    # and (w_1 - w̄) / s √(n/(n-1)) / √(n-1) is the cosine of a random direction in n - 1 dimensions: Beta in its square.
    n, x = 30, np.array([2.0, 2.7, 3.5, 4.4])
    tail = stats.beta(0.5, 0.5 * (n - 2)).sf(x**2 * n / (n - 1) ** 2)
    above = -np.expm1(n * np.log1p(-tail))
    expected = np.minimum(1.0, 2 * np.minimum(above, 1 - above))
    np.testing.assert_allclose(gaussian_sample_statistic("largest_magnitude", n).p_value(x), expected, rtol=1e-9)


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("name", ["mean", "skewness", "excess_kurtosis"])
def test_mean_and_std_of_the_moments_are_exact(of_small_samples, name, n):
    # Means within 5 standard errors; the spread of 40 000 samples is known to 1 % where the kurtosis is most uneven.
    law, value = gaussian_sample_statistic(name, n), of_small_samples[n][name]
    assert abs(value.mean() - law.mean()) < 5 * law.std() / np.sqrt(len(value))
    assert value.std() == pytest.approx(law.std(), rel=0.06)


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize("name", ["skewness", "excess_kurtosis"])
def test_levels_hold_in_small_samples(of_small_samples, name, n):
    # Of 40 000 samples the share under 0.05 has a standard error of 0.0011, the one under 0.01 of 0.0005; the
    # transforms to normality are off by a few times that.
    p = gaussian_sample_statistic(name, n).p_value(of_small_samples[n][name])
    assert (p < 0.05).mean() == pytest.approx(0.05, abs=0.006)
    assert (p < 0.01).mean() == pytest.approx(0.01, abs=0.003)


@pytest.mark.parametrize("n", [20, 50, 200])
def test_largest_magnitude_is_exact_in_its_upper_tail_and_conservative_in_its_lower_one(of_small_samples, n):
    # All the deviations share one scale, which keeps their maximum from being small: of order (ln n)²/n. Standard
    # errors of the shares: 0.0008.
    value = of_small_samples[n]["largest_magnitude"]
    law = gaussian_sample_statistic("largest_magnitude", n)
    extreme, above = law.p_value(value) < 0.05, value > law.mean()
    assert (extreme & above).mean() == pytest.approx(0.025, abs=0.004)
    assert (extreme & ~above).mean() < 0.025
    assert abs(value.mean() - law.mean()) < np.log(n) ** 2 / n * law.std()
    assert abs(value.std() / law.std() - 1) < np.log(n) ** 2 / n


@pytest.mark.parametrize("name", STATISTICS)
def test_p_values_are_between_zero_and_one_over_the_whole_range(name):
    n = 400
    furthest = (n - 1) / np.sqrt(n)  # a single number away from all the others, which are equal
    value = {
        "mean": np.linspace(-30, 30, 201),
        "skewness": np.linspace(-19, 19, 201),
        "excess_kurtosis": np.linspace(-2, 390, 201),
        "largest_magnitude": np.linspace(1.0, furthest, 201),
    }[name]
    p = gaussian_sample_statistic(name, n).p_value(value)
    assert ((p >= 0) & (p <= 1)).all()
    assert p[[0, -1]].max() < 1e-6


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", [20, 144, 400])
def test_both_tails_of_the_kurtosis_null_hold_their_level(n):
    # Anscombe and Glynn's transform gives 2.7 times as many low values at 0.001 for n = 144. Shares of 200 000 samples;
    # five standard errors, 12 comparisons: one seed in 100 000 fails.
    rng, parts = np.random.default_rng([6, n]), []
    for _ in range(40):
        w = rng.standard_normal((5_000, n))
        w -= w.mean(axis=1, keepdims=True)
        w *= w
        parts.append((w * w).mean(axis=1) / w.mean(axis=1) ** 2 - 3)
    value, null = np.concatenate(parts), element_null("excess_kurtosis", n).distribution
    for tail in (null.cdf(value), null.sf(value)):
        for level in (0.01, 0.001):
            assert abs((tail < level).mean() - level) < 5 * np.sqrt(level / value.size), level
