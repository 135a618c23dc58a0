"""Sketches of a matrix that passes by in blocks, and moments, against functions that hold the whole of it."""

import dataclasses
import functools
import math
from dataclasses import astuple

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from rmtbase import statistics
from rmtbase.errors import ParameterError
from rmtbase.statistics import ElementMoments, ElementSketch, element_moments, element_sketch

SHIFTED = stats.norm(0.4, 0.9)
WEIBULL = 1e-7  # relative; 5e-8 is the largest difference that was found from 1000 numbers on
DTYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]


def sample(size, law=SHIFTED, seed=1):
    return law.rvs(size=size, random_state=np.random.default_rng(seed))


def sketch(*blocks):
    return element_sketch(blocks)


def numbers(sketched):
    moments = dataclasses.astuple(sketched.moments())
    return (*moments, *sketched.weibull_fit(), *statistics.element_statistics(sketched))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(40, 70), (300, 400)])
def test_a_sketch_is_as_the_whole_matrix(dtype, size):
    matrix = sample(size).astype(dtype)
    sketched = element_sketch(matrix)
    assert sketched.moments() == statistics.element_moments(matrix)
    for trim in (0.1, 0.05, 0.25):
        np.testing.assert_allclose(sketched.weibull_fit(trim), statistics.weibull_fit(matrix, trim), rtol=WEIBULL)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_histogram_is_numpys_but_for_the_numbers_of_the_bins_that_an_edge_cuts(dtype):
    x = sample(60_000).astype(dtype)
    edges = np.linspace(-2.6, 3.3, 60)
    found, exact = sketch(x).histogram(edges), np.histogram(x.astype(np.float64), edges)[0]
    # An edge has some 60 numbers of its bin on either side, or in half precision some 500 of its value.
    np.testing.assert_allclose(found, exact, atol=8.0 if dtype in (np.float64, np.float32) else 600.0)
    assert found.sum() == pytest.approx(exact.sum(), abs=300)
    whole = np.append(np.append(-9.0, edges), 9.0)
    assert sketch(x).histogram(whole).sum() == pytest.approx(x.size, rel=1e-12)
    assert sketch([0.0, 0.1, 1.0, 1.0, 2.0]).histogram([0.0, 1.0, 2.0]).tolist() == [2.0, 3.0]  # with its upper edge
    few = sample(50).astype(np.float32)
    np.testing.assert_array_equal(sketch(few).histogram(edges), np.histogram(few, edges)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_half_precision_leaves_no_comb_in_a_histogram(dtype):
    # Bins of a tenth of the spread, of which two to four have one value of bfloat16 more than their neighbours.
    x = sample(400_000, stats.norm)
    edges = np.linspace(-3, 3, 61)
    expected = x.size * np.diff(stats.norm.cdf(edges))
    off = (sketch(x.astype(dtype)).histogram(edges) - expected) / np.sqrt(expected)
    assert np.abs(off).max() < 5


@pytest.mark.parametrize(
    "law", [stats.cauchy, stats.norm(3, 0.5), stats.uniform(-1, 3)], ids=["cauchy", "normal", "uniform"]
)
def test_quantiles_are_numpys(law):
    p = np.array([0.0, 0.001, 0.1, 0.25, 0.5, 0.77, 0.99, 1.0])
    for n, rtol in ((101, 2e-5), (1000, 2e-4), (200_000, 2e-4)):
        x = sample(n, law)
        np.testing.assert_allclose(sketch(x).quantile(p), np.quantile(x, p), rtol=rtol)
        np.testing.assert_allclose(sketch(x).magnitude_quantile(p), np.quantile(abs(x), p), rtol=rtol)


@pytest.mark.parametrize("factor", [1e-70, 1e-30, 1e30, 1e70])
def test_no_scale_need_be_known(factor):
    x = sample(3000, stats.norm)
    shapes = statistics.weibull_fit(x)._replace(scale=1.0, rms=1.0)
    found = sketch(x * factor).weibull_fit()
    np.testing.assert_allclose(found._replace(scale=1.0, rms=1.0), shapes, rtol=WEIBULL)
    assert found.scale == pytest.approx(statistics.weibull_fit(x).scale * factor, rel=WEIBULL)
    assert sketch(x * factor).quantile(0.7) == pytest.approx(np.quantile(x, 0.7) * factor, rel=2e-4)


def test_numbers_of_any_kind_order_and_block_are_counted_as_what_they_are():
    x = np.array([-0.0, 0.0, 1e-40, -1e-40, 1.0], dtype=np.float32)
    bins = sketch(x).bins
    assert bins.count.tolist() == [1, 2, 1, 1]
    np.testing.assert_allclose(bins.mean, [-1e-40, 0.0, 1e-40, 1.0], rtol=1e-5)
    whole = np.array([-3, 0, 5, 5, 127], dtype=np.int8)
    assert sketch(whole).bins.mean.tolist() == [-3.0, 0.0, 5.0, 127.0]
    assert sketch(whole).bins.count.tolist() == [1, 1, 2, 1]
    x = sample((1 << 21) + 12_345).astype(np.float32)
    whole = numbers(sketch(x))
    rng = np.random.default_rng(2)
    for pieces in (3, 100):
        cuts = np.sort(rng.integers(0, x.size, pieces))
        assert numbers(sketch(*np.split(x, cuts))) == whole
    assert numbers(sketch(x[: 5 * 413_000].reshape(5, 7, -1), x[5 * 413_000 :])) == whole
    x = sample(5000)
    whole, parts = sketch(x), [sketch(part) for part in np.split(x, [10, 1200, 4000])]
    for order in ((0, 1, 2, 3), (3, 1, 0, 2)):
        merged = functools.reduce(ElementSketch.merged, [parts[place] for place in order])
        for name in ("number", "count", "distance", "distance_squared"):
            np.testing.assert_array_equal(getattr(merged.bins, name), getattr(whole.bins, name))
        np.testing.assert_allclose(numbers(merged), numbers(whole), rtol=1e-9, atol=1e-12)
        # All but the root mean square, which comes from the sums, is of integers: the same in any order.
        assert merged.weibull_fit()[:3] == whole.weibull_fit()[:3]
    for value in (0.0, 0.1):
        constant = sketch(np.full(7, value)).merged(sketch(np.full(1000, value))).moments()
        assert (constant.count, constant.std) == (1007, 0.0) and constant.mean == pytest.approx(value)
        assert np.isnan([constant.skewness, constant.excess_kurtosis, constant.largest_magnitude]).all()

    def blocks():
        shared = np.empty(700)
        for part in np.split(sample(3500), 5):
            shared[:] = part
            yield shared

    assert numbers(element_sketch(blocks())) == numbers(sketch(sample(3500)))
    x = sample(3000).astype(ml_dtypes.bfloat16)
    mixed = sketch(x[:1000].astype(np.float32), x[1000:1700], x[1700:].astype(np.float64))
    np.testing.assert_allclose(numbers(mixed), numbers(sketch(x)), rtol=1e-12)
    for dtype in ("f2", "f4", "f8", "i2"):
        x = (100 * sample(2000)).astype(f"<{dtype}")
        assert numbers(sketch(x.astype(f">{dtype}"))) == pytest.approx(numbers(sketch(x)), rel=1e-12, nan_ok=True)
        if dtype != "i2":
            assert statistics.weibull_fit(x.astype(f">{dtype}")) == pytest.approx(statistics.weibull_fit(x), rel=1e-12)
    x = sample(100_000, stats.norm)
    merged = sketch(x[:777] + 1e6).merged(sketch(x[777:] + 1e6)).moments()
    plain = statistics.element_moments(x)
    assert merged.std == pytest.approx(plain.std, rel=1e-9)
    assert merged.excess_kurtosis == pytest.approx(plain.excess_kurtosis, abs=1e-8)


def quantised(levels):
    return np.round(sample(50_000, stats.norm) * levels) * 0.7123 + np.where(sample(50_000, seed=2) > 0, 0.3, -0.3)


FITTED = {
    "cauchy": (sample(20_000, stats.cauchy()), WEIBULL),
    "uniform": (sample(20_000, stats.uniform(-1, 3)), WEIBULL),
    "t": (sample(20_000, stats.t(3)), WEIBULL),
    "expon": (sample(20_000, stats.expon()), WEIBULL),
    **{f"{levels} levels": (quantised(levels), WEIBULL) for levels in (1, 7, 127)},
    **{f"{n} numbers": (sample(n), 1e-6) for n in (8, 20, 100, 1000)},
}


@pytest.mark.parametrize("name", FITTED)
def test_far_from_normal_quantised_or_few_numbers_are_fitted_as_by_the_whole(name):
    x, tolerance = FITTED[name]
    for trim in (0.1, 0.2, 0) if x.size <= 1000 else (0.1,):
        np.testing.assert_allclose(sketch(x).weibull_fit(trim), statistics.weibull_fit(x, trim), rtol=tolerance)


REFUSED = [
    (lambda: sketch(sample(50), [1.0, math.nan]), r"blocks = '1 numbers that are not finite'"),
    (lambda: sketch(sample(50), [1.0, -math.inf]), r"blocks = '1 numbers that are not finite'"),
    (lambda: sketch(), r"blocks = 'no number'"),
    (lambda: sketch(np.zeros((0, 4))), r"blocks = 'no number'"),
    (lambda: sketch(np.ones(3) * 1j), r"blocks = .*: expected real numbers"),
    (lambda: sketch(sample(100)).quantile([0.5, 2.0]), "probability"),
    (lambda: sketch(sample(100)).histogram([1.0]), "edges"),
    (lambda: sketch(sample(100)).histogram([2.0, 1.0]), "edges"),
    (lambda: sketch(sample(100)).histogram([[0.0, 1.0]]), "edges"),
    (lambda: sketch(sample(100)).weibull_fit(0.5), "trim"),
    *((lambda scale=scale: sketch(sample(500)).kl_to_normal(0.0, scale), "scale") for scale in (0.0, -1.0, math.inf)),
    (lambda: sketch(sample(500)).kl_to_normal(math.nan, 1.0), "location"),
    (lambda: sketch(np.zeros(50)).weibull_fit(), "of zero"),
    (lambda: sketch(np.append(np.zeros(6), np.arange(1, 50))).weibull_fit(), "of zero"),
    (lambda: sketch(np.full(50, 1e9)).weibull_fit(), "one magnitude"),
    (lambda: sketch(np.ones(1)).weibull_fit(), "1 weights"),
    (lambda: sketch(np.full(500, 0.3)).entropy(), "all equal"),
    (lambda: sketch(np.full(500, 0.3)).histogram_entropy(), "all equal"),
    (lambda: sketch(np.full(500, 0.3)).kernel_entropy(), "all equal"),
    (lambda: sketch(np.full(500, 0.3)).kl_to_normal(0.0, 1.0), "all equal"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_what_is_no_sample_and_no_question_is_refused(call, message):
    with pytest.raises(ParameterError, match=message):
        call()


def test_magnitudes_outside_the_bins_and_too_few_numbers_are_refused():
    for n, ask in ((3, "l_moments"), (3, "magnitude_l_moments"), (5, "core")):
        with pytest.raises(ParameterError, match=f"sample = '{n} numbers'"):
            getattr(sketch(sample(n)), ask)
        assert np.isfinite(getattr(sketch(sample(n + 1)), ask)).all()
    x = np.abs(sample(1000, stats.norm))
    for values, found in ((1e-20, "of zero"), (1e9, r"from 2\^24 on")):
        for share, fitted in ((0.05, True), (0.3, False)):
            some = x.copy()
            some[: int(share * x.size)] = values
            place, distance = statistics.magnitude_bins(some.view(np.int64))
            sums = (np.bincount(place, distance**power, statistics.MAGNITUDE_BINS).astype(int) for power in range(3))
            bins = statistics.SignedBins.of_magnitudes(*sums)
            if fitted:
                found_fit = statistics.weibull_fit_of_bins(bins, 1.0)
                np.testing.assert_allclose(found_fit[:3], statistics.weibull_fit(some)[:3], rtol=1e-6)
            else:
                with pytest.raises(ParameterError, match=found):
                    statistics.weibull_fit_of_bins(bins, 1.0)


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
