"""Monte Carlo p-values, their combination and q-values against SciPy's own, and at their edges."""

import numpy as np
import pytest
from scipy import stats

from rmtbase.errors import ParameterError
from rmtbase.statistics import (
    benjamini_hochberg,
    benjamini_yekutieli,
    cauchy_combination,
    holm,
    monte_carlo_p_value,
    normal_score,
    upper_p_value_among_sorted,
)

ADJUSTMENTS = pytest.mark.parametrize("adjusted", [benjamini_hochberg, benjamini_yekutieli, holm])


def test_p_value_is_that_of_scipys_monte_carlo_test():
    null = np.random.default_rng(1).standard_normal(199)

    def replay(size):  # the "random" draws are the null sample itself, one per resample
        assert size == (199, 1)
        return null[:, None]

    for observed in (-3.1, -0.4, 0.0, 0.7, 2.2, null[5], null.max(), null.min(), 99.0):
        expected = stats.monte_carlo_test(
            np.array([observed]), replay, lambda x, axis: x[..., 0], n_resamples=199, alternative="two-sided"
        ).pvalue
        assert monte_carlo_p_value(observed, null) == pytest.approx(expected, rel=1e-14)


def test_p_values_count_by_the_rule_with_ties_on_both_sides():
    null = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
    # Folded b + 1 of n + 1 = 10, doubled and capped at one.
    found = monte_carlo_p_value([0.0, 1.5, 2.5, 5.5, 4.5, 8.5, 10.0], null)
    np.testing.assert_allclose(found, [0.2, 0.4, 0.6, 1.0, 1.0, 0.4, 0.2])
    # 2 is not below 4 of the 5 draws and not above 4: p = min(1, 2 · 5 / 6).
    np.testing.assert_allclose(monte_carlo_p_value([2.0, 1.0, 3.0], [1.0, 2.0, 2.0, 2.0, 3.0]), [1.0, 4 / 6, 4 / 6])
    np.testing.assert_allclose(monte_carlo_p_value(1.0, [1.0] * 50), 1.0)
    # Infinities are as extreme as can be, and tie with their equals; NaN stays.
    p = monte_carlo_p_value([np.inf, -np.inf, np.nan, 0.0], np.random.default_rng(2).permutation(np.arange(-9.0, 10.0)))
    np.testing.assert_allclose(p, [0.1, 0.1, np.nan, 1.0])
    assert monte_carlo_p_value(np.inf, [0.0, 1.0, np.inf, np.inf, 2.0]) == 1.0
    assert monte_carlo_p_value(np.zeros((2, 0, 3)), [1.0]).shape == (2, 0, 3)
    upper = upper_p_value_among_sorted([-1.0, 1.0, 1.5, 2.0, 3.0, np.nan], np.array([0.0, 1.0, 1.0, 2.0]))
    np.testing.assert_array_equal(upper, [1.0, 0.8, 0.4, 0.4, 0.2, np.nan])
    for no_sample in ([], [1.0, np.nan], [[1.0, 2.0]], 3.0):
        with pytest.raises(ParameterError, match=r"null_sample .*non-empty one-dimensional array without NaN"):
            monte_carlo_p_value(0.0, no_sample)


def test_levels_are_kept_and_scores_are_those_of_a_normal_law():
    # P(p ≤ α) ≤ α exactly, for every α on the grid 2k/(n+1), when observed and null draws are exchangeable:
    # with n = 19 the rank of the observation among the 20 is uniform.
    sample = np.arange(20.0)
    p = np.array([monte_carlo_p_value(sample[k], np.delete(sample, k)) for k in range(20)])
    for k in range(1, 11):
        assert (p <= 2 * k / 20 + 1e-12).mean() == pytest.approx(2 * k / 20)
    # Simes' identity: P(any q < α) = α for independent uniform p-values, whatever their number. 5 000 trials:
    # |share - 0.05| < 4.5 standard errors fails for one seed in 100 000.
    rng = np.random.default_rng(4)
    flagged = np.mean([(benjamini_hochberg(p) < 0.05).any() for p in rng.random((5_000, 12))])
    assert abs(flagged - 0.05) < 4.5 * np.sqrt(0.05 * 0.95 / 5_000)
    p = np.array([1.0, 0.31731050786291415, 1e-3, 1e-300, 0.0, np.nan])
    np.testing.assert_allclose(2.0 * stats.norm.sf(normal_score(p, True)[:4]), p[:4], rtol=1e-12)
    assert normal_score(p, True)[1] == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_array_equal(normal_score(p, False), -normal_score(p, True))
    assert (normal_score(0.0, False), np.signbit(normal_score(1.0, False))) == (-np.inf, False)


def test_combination_is_that_of_its_formula_and_hides_no_tiny_p_value():
    p = np.random.default_rng(5).random((7, 3, 4))
    for axis in (-1, 0, 1):
        expected = stats.cauchy.sf(stats.cauchy.isf(p).mean(axis=axis))
        np.testing.assert_allclose(cauchy_combination(p, axis=axis), expected, rtol=1e-12)
    for tiny in (1e-12, 1e-16, 1e-100, 1e-290):
        assert cauchy_combination([tiny, 0.2, 0.5, 0.9]) == pytest.approx(4 * tiny, rel=1e-6)
    assert cauchy_combination([1e-20, 1.0]) == pytest.approx(2e-20, rel=1e-3)
    p = np.array([[0.01, np.nan, 0.2], [np.nan, np.nan, np.nan], [np.nan, 0.3, np.nan]])
    np.testing.assert_allclose(cauchy_combination(p), [cauchy_combination([0.01, 0.2]), np.nan, 0.3], rtol=1e-12)
    assert np.isnan(cauchy_combination([]))
    assert cauchy_combination(np.empty((2, 0))).shape == (2,)
    for p in (0.0, 1e-300, 1e-17, 1e-15, 1e-9, 0.03, 0.5, 0.97, 1.0 - 1e-9):  # many that agree give it back
        for count in (1, 2, 16, 1000):
            assert cauchy_combination(np.full(count, p)) == pytest.approx(max(p, np.finfo(float).tiny), rel=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.95, 1.0])
def test_combination_of_correlated_tests_has_its_level(correlation):
    # Eight normal tests. At independence and at identity the combination is uniform; between, its size is above a
    # small level (by 16 % at 0.01 and 10 % at 0.001 for the worst correlation, by 4 000 000 draws) and tends to it. The
    # margin on top is 4.5 standard errors, one seed in 100 000.
    rng, n = np.random.default_rng(6), 200_000
    z = np.sqrt(1 - correlation) * rng.standard_normal((8, n)) + np.sqrt(correlation) * rng.standard_normal(n)
    p = cauchy_combination(2 * stats.norm.sf(np.abs(z)), axis=0)
    for level, most in ((0.01, 1.16), (0.001, 1.10)):
        error = 4.5 * np.sqrt(level / n)
        assert level - error < (p <= level).mean() < (most if 0 < correlation < 1 else 1.0) * level + error


def test_q_values_and_holms_p_values_are_those_of_their_formulas():
    # Their own formula, spelled out: q_(k) = min over j ≥ k of m p_(j) / j.
    p = np.array([0.01, 0.04, 0.03, 0.005, 0.9, 0.04])
    ordered = np.sort(p)
    stepped = [min(min(1.0, 6 * ordered[j] / (j + 1)) for j in range(k, 6)) for k in range(6)]
    expected = np.array(stepped)[np.searchsorted(ordered, p)]
    np.testing.assert_allclose(benjamini_hochberg(p), expected, rtol=1e-14)
    p = np.random.default_rng(7).random(50) ** 3
    np.testing.assert_allclose(benjamini_yekutieli(p), stats.false_discovery_control(p, method="by"), rtol=1e-13)
    # At level a, go up from the smallest and stop at the first p_(k) > a / (n + 1 - k): called is what came before.
    p = np.array([0.01, 0.04, 0.03, 0.005, 0.9, 0.04])
    for level in np.linspace(0.001, 1.0, 997):
        ordered, called = np.sort(p), 0
        while called < 6 and ordered[called] * (6 - called) <= level:
            called += 1
        np.testing.assert_array_equal(holm(p) <= level, np.isin(p, ordered[:called]))
    rows = np.random.default_rng(9).random((5, 6))
    rows[1, 2:] = np.nan
    np.testing.assert_array_equal(holm(rows, axis=1), [holm(row) for row in rows])


@ADJUSTMENTS
def test_nan_marks_a_test_that_was_not_made_and_one_is_its_own_correction(adjusted):
    p = np.array([[0.01, np.nan, 0.2], [np.nan, 0.03, 0.04]])
    q = adjusted(p)
    made = ~np.isnan(p)
    assert q.shape == p.shape
    np.testing.assert_array_equal(np.isnan(q), ~made)
    np.testing.assert_allclose(q[made], adjusted(p[made]))
    if adjusted is benjamini_hochberg:
        np.testing.assert_allclose(q[made], stats.false_discovery_control(p[made]))
    assert np.isnan(adjusted([np.nan, np.nan])).all()
    assert adjusted(np.empty((0, 3))).shape == (0, 3)
    assert adjusted(0.03) == adjusted([0.03])[0] == 0.03
