"""What is kept of a matrix that passes by in blocks, against the functions that hold the whole of it."""

import dataclasses
import math

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from rmtbase import statistics
from rmtbase.errors import ParameterError
from rmtbase.statistics import element_sketch

BINS, RANGE = 40, (-4.0, 4.0)
SHIFTED = stats.norm(0.4, 0.9)
WEIBULL = 1e-7  # relative; 5e-8 is the largest difference that was found from 1000 numbers on


def sample(size, law=SHIFTED, seed=1):
    return law.rvs(size=size, random_state=np.random.default_rng(seed))


def sketch(*blocks):
    return element_sketch(blocks, BINS, RANGE)


def numbers(sketched):
    moments = dataclasses.astuple(sketched.moments())
    return (*moments, sketched.histogram_entropy(), sketched.histogram_kl(), *sketched.weibull_fit())


def assert_is_that_of(sketched, x):
    x = np.asarray(x, dtype=np.float64)
    moments = statistics.element_moments(x)
    np.testing.assert_allclose(
        dataclasses.astuple(sketched.moments()), dataclasses.astuple(moments), rtol=1e-11, atol=1e-13
    )
    assert sketched.histogram_entropy() == pytest.approx(statistics.histogram_entropy(x, BINS, RANGE), rel=1e-13)
    for sigma in (None, 0.7):
        exact = statistics.histogram_kl(x, BINS, RANGE, sigma)
        assert sketched.histogram_kl(sigma) == pytest.approx(exact, rel=1e-11, abs=1e-13)
    for trim in (0.1, 0.05, 0.25):
        np.testing.assert_allclose(sketched.weibull_fit(trim), statistics.weibull_fit(x, trim), rtol=WEIBULL)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [(40, 70), (300, 400)])
def test_a_sketch_is_as_the_whole_matrix(dtype, size):
    matrix = sample(size).astype(dtype)
    assert_is_that_of(element_sketch(matrix, BINS, RANGE), matrix)


@pytest.mark.parametrize(
    "law", [stats.cauchy(), stats.uniform(-1, 3), stats.t(3), stats.expon()], ids=lambda x: x.dist.name
)
def test_a_sketch_is_as_the_whole_matrix_for_laws_far_from_normal(law):
    x = sample(20_000, law)
    np.testing.assert_allclose(sketch(x).weibull_fit(), statistics.weibull_fit(x), rtol=WEIBULL)
    assert sketch(x).histogram_kl(2.0) == pytest.approx(statistics.histogram_kl(x, BINS, RANGE, 2.0), rel=1e-11)


@pytest.mark.parametrize("levels", [1, 7, 127])
def test_quantised_weights_are_fitted_as_exactly(levels):
    x = np.round(sample(50_000, stats.norm) * levels) * 0.7123 + np.where(sample(50_000, seed=2) > 0, 0.3, -0.3)
    np.testing.assert_allclose(sketch(x).weibull_fit(), statistics.weibull_fit(x), rtol=WEIBULL)


@pytest.mark.parametrize("n", [8, 20, 100, 1000])
def test_few_numbers_are_fitted_nearly_as_exactly(n):
    x = sample(n)
    for trim in (0.1, 0.2, 0):
        np.testing.assert_allclose(sketch(x).weibull_fit(trim), statistics.weibull_fit(x, trim), rtol=1e-6)


def test_the_result_is_to_the_bit_that_of_any_cut():
    x = sample((1 << 21) + 12_345).astype(np.float32)
    whole = numbers(sketch(x))
    rng = np.random.default_rng(2)
    for pieces in (3, 100):
        cuts = np.sort(rng.integers(0, x.size, pieces))
        assert numbers(sketch(*np.split(x, cuts))) == whole
    assert numbers(sketch(x[: 5 * 413_000].reshape(5, 7, -1), x[5 * 413_000 :])) == whole


def test_merged_sketches_are_those_of_all_numbers():
    x = sample(5000)
    parts = [sketch(part) for part in np.split(x, [10, 1200, 4000])]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        merged = parts[order[0]]
        for part in order[1:]:
            merged = merged.merged(parts[part])
        np.testing.assert_array_equal(merged.counts, sketch(x).counts)
        np.testing.assert_allclose(numbers(merged), numbers(sketch(x)), rtol=1e-11, atol=1e-14)
        # All but the root mean square, which comes from the sums, is of integers: the same in any order.
        assert merged.weibull_fit()[:3] == sketch(x).weibull_fit()[:3]


def test_a_large_mean_costs_the_moments_few_digits():
    x = sample(100_000, stats.norm)
    merged = sketch(x[:777] + 1e6).merged(sketch(x[777:] + 1e6)).moments()
    plain = statistics.element_moments(x)
    assert merged.std == pytest.approx(plain.std, rel=1e-9)
    assert merged.excess_kurtosis == pytest.approx(plain.excess_kurtosis, abs=1e-8)


def test_a_constant_matrix_has_no_shape_however_it_is_merged():
    for value in (0.0, 0.1):
        moments = sketch(np.full(7, value)).merged(sketch(np.full(1000, value))).moments()
        assert (moments.count, moments.std) == (1007, 0.0)
        assert moments.mean == pytest.approx(value)
        assert np.isnan([moments.skewness, moments.excess_kurtosis, moments.largest_magnitude]).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(bad):
    x = sample(100)
    x[17] = bad
    with pytest.raises(ParameterError, match=r"blocks = '1 numbers that are not finite'"):
        sketch(sample(50), x)


@pytest.mark.parametrize("blocks", [(), (np.zeros((0, 4)),)])
def test_no_number_at_all_is_refused(blocks):
    with pytest.raises(ParameterError, match=r"blocks = 'no number'"):
        sketch(*blocks)


@pytest.mark.parametrize("bad", [np.ones(3, dtype=bool), np.ones(3) * 1j, np.array(["a"])])
def test_numbers_that_are_not_real_are_refused(bad):
    with pytest.raises(ParameterError, match=r"blocks = .*: expected real numbers"):
        sketch(bad)


@pytest.mark.parametrize(
    ("bins", "interval"), [(0, RANGE), (2.5, RANGE), (True, RANGE), (4, (1, 1)), (4, (0, math.nan))]
)
def test_bins_that_are_none_are_refused(bins, interval):
    with pytest.raises(ParameterError, match=r"bins|range"):
        element_sketch([sample(10)], bins, interval)


@pytest.mark.parametrize("trim", [-0.1, 0.5, math.nan, True, "0.1", None])
def test_a_trim_outside_its_domain_is_refused(trim):
    with pytest.raises(ParameterError, match="trim"):
        sketch(sample(100)).weibull_fit(trim)


def test_what_cannot_be_fitted_is_refused():
    for x, found in (
        (np.zeros(50), "below 2\\^-40"),
        (np.full(50, 1e9), "from 2\\^24 on"),
        (np.full(50, 3.0), "one magnitude"),
        (np.ones(1), "1 weights"),
    ):
        with pytest.raises(ParameterError, match=f"sample = .*{found}"):
            sketch(x).weibull_fit()
    with pytest.raises(ParameterError, match="sample = 'zeros'"):
        sketch(np.zeros(5)).histogram_kl()
    with pytest.raises(ParameterError, match="sigma"):
        sketch(sample(5)).histogram_kl(0.0)
    for divergence in (sketch([9.0, 10.0]).histogram_kl, sketch([9.0, 10.0]).histogram_entropy):
        with pytest.raises(ParameterError, match="range"):
            divergence()


def test_sketches_of_other_bins_are_not_merged():
    with pytest.raises(ParameterError, match=r"edges = '41 bins from -4 to 4': expected .* 40 bins"):
        sketch(sample(9)).merged(element_sketch([sample(9)], BINS + 1, RANGE))
