"""Element-wise moments against SciPy's, whatever the precision and the size."""

from dataclasses import astuple

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from rmtbase.statistics import ElementMoments, element_moments


def reference(matrix):
    x = np.asarray(matrix, dtype=np.float64).ravel()
    std = x.std(ddof=1)
    largest = np.abs(x - x.mean()).max() / std
    return ElementMoments(x.size, x.mean(), std, float(stats.skew(x)), float(stats.kurtosis(x)), largest)


def assert_same(got, expected):
    assert got.count == expected.count
    np.testing.assert_allclose(astuple(got)[1:], astuple(expected)[1:], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("law", [stats.norm(0.3, 0.02), stats.expon(scale=2.0), stats.t(5)], ids=lambda x: x.dist.name)
def test_moments_are_scipys_of_the_stored_numbers(law, dtype):
    matrix = law.rvs(size=(40, 70), random_state=np.random.default_rng(1)).astype(dtype)
    assert_same(element_moments(matrix), reference(matrix))
    assert_same(element_moments(matrix[::2, ::3].T), reference(matrix[::2, ::3]))  # not contiguous


def test_half_precision_constants_shifts_and_scales_have_their_moments():
    matrix = np.full((300, 400), 60_000, dtype=np.float16)
    matrix[::2] = -60_000
    got = element_moments(matrix)
    assert got.mean == 0.0
    assert got.std == pytest.approx(60_000 * np.sqrt(120_000 / 119_999), rel=1e-3)
    assert got.excess_kurtosis == pytest.approx(-2.0)
    for value in (0.0, 1.5):
        got = element_moments(np.full((4, 5), value, dtype=np.float32))
        assert (got.count, got.mean, got.std) == (20, value, 0.0)
        assert np.isnan([got.skewness, got.excess_kurtosis, got.largest_magnitude]).all()
    x = np.random.default_rng(4).gamma(3.0, size=(20, 20))
    plain, moved = element_moments(x), element_moments(-2.0 * x + 7.0)
    assert moved.mean == pytest.approx(-2.0 * plain.mean + 7.0)
    assert moved.std == pytest.approx(2.0 * plain.std)
    assert moved.skewness == pytest.approx(-plain.skewness)
    assert moved.excess_kurtosis == pytest.approx(plain.excess_kurtosis)
    assert moved.largest_magnitude == pytest.approx(plain.largest_magnitude)


@pytest.mark.parametrize("extra", [-1, 0, 1, 12_345])
def test_a_matrix_of_several_blocks_is_as_one(extra):
    x = np.random.default_rng(2).standard_normal(2 * (1 << 20) + extra, dtype=np.float32) + np.float32(5.0)
    assert_same(element_moments(x[None, :]), reference(x))
