"""The least-squares Weibull fit of all order statistics: against its formula, against the anchor it converges to."""

import math

import ml_dtypes
import numpy as np
import pytest
from scipy import special, stats

from rmtbase import laws, statistics
from rmtbase.errors import ParameterError
from rmtbase.statistics import element_sketch, weibull_fit


def formula(x, trim):
    magnitude = np.sort(np.abs(np.asarray(x, dtype=np.float64)).ravel())
    p = (np.arange(magnitude.size) + 0.5) / magnitude.size
    kept = (p >= trim - 1e-12) & (p <= 1 - trim + 1e-12)
    line = stats.linregress(np.log(magnitude[kept]), np.log(-np.log1p(-p[kept])))
    rms = math.sqrt(np.mean(magnitude**2))
    return line.slope, math.exp(-line.intercept / line.slope), line.rvalue**2, rms, magnitude.size


@pytest.mark.parametrize("n", [10, 11, 14, 15, 16, 24, 25, 26, 1000, 200_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_the_fit_is_the_line_through_the_plot(n, dtype):
    x = (np.random.default_rng(4).standard_normal(n) * 0.7 + 0.1).astype(dtype)
    x[x == 0] = 0.01
    for trim in (0.1, 0.0):
        np.testing.assert_allclose(weibull_fit(x, trim), formula(x, trim), rtol=1e-10)


def test_integers_and_parts_are_fitted_the_sample_is_left_and_no_plot_is_refused():
    x = np.random.default_rng(4).standard_normal((1 << 21) + 5).astype(np.float32)
    np.testing.assert_allclose(weibull_fit(x), formula(x, 0.1), rtol=1e-10)
    x = np.array([-128, 127, 3, -5, 60, 33, 12, -90, 7, 1], dtype=np.int8)
    np.testing.assert_allclose(weibull_fit(x), formula(x.astype(int), 0.1), rtol=1e-12)
    for dtype in (np.float64, np.float32, np.float16):
        x = np.random.default_rng(5).standard_normal((30, 40)).astype(dtype)
        before = x.copy()
        weibull_fit(x)
        weibull_fit(x[::2, 1::3])
        np.testing.assert_array_equal(x, before)
    for bad, found in (([], "0 weights"), ([1.0], "1 weights"), (np.ones(9), "from 1.0 to 1.0"), (np.eye(9), "from 0")):
        with pytest.raises(ParameterError, match=f"sample = .*{found}"):
            statistics.weibull_fit(bad)


@pytest.mark.parametrize("trim", [0.1, 0.05])
def test_quantiles_of_the_half_normal_law_give_the_anchor_but_for_a_rest_that_falls_as_the_square_of_their_number(trim):
    # The plot's sums are the midpoint rule for the anchor's integrals, whose ends the trims put on the rule's edges:
    # what is left is c/N², c below 1, 1e-14 at N = 10⁷ (benchmarks/weibull_peers.py).
    anchor = laws.weibull_anchor(trim)

    def rest(n):
        quantiles = special.ndtri(0.5 + 0.5 * (np.arange(n) + 0.5) / n)
        fit, streamed = weibull_fit(quantiles, trim), element_sketch([quantiles]).weibull_fit(trim)
        assert streamed[:3] == pytest.approx(fit[:3], rel=1e-8)
        return np.array(fit[:3]) - [float(anchor.shape), float(anchor.scale), float(anchor.r_squared)]

    scaled = {n: n**2 * rest(n) for n in (1000, 10_000, 100_000)}
    assert (np.abs(scaled[1000]) < 1.0).all()
    np.testing.assert_allclose(scaled[10_000], scaled[1000], rtol=1e-3)
    np.testing.assert_allclose(scaled[100_000], scaled[1000], rtol=2e-3)
    assert (np.abs(scaled[100_000]) / 100_000**2 < 1e-10).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_weights_that_are_not_finite_are_counted(dtype):
    x = np.ones(50, dtype=dtype)
    x[[3, 9, 11]] = math.nan, math.inf, -math.inf
    with pytest.raises(ParameterError, match="sample = '3 of 50 not finite': expected finite weights"):
        weibull_fit(x)
