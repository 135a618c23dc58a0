"""The sampling law of the Weibull fit: closed forms at the Laplace law, the Brownian bridge, simulation at three N."""

import math

import numpy as np
import pytest
from oracles import weibull_plots
from scipy import special, stats

from rmtbase import laws, statistics
from rmtbase.errors import ParameterError
from rmtbase.laws import LargeSampleLaw, parents, weibull_anchor, weibull_body_tail_gap, weibull_closure, weibull_null
from rmtbase.statistics import weibull_fit

ZETA_3 = special.zeta(3)


def test_the_fit_does_not_depend_on_order_and_takes_zeros_outside_the_trims():
    rng = np.random.default_rng(1)
    sample = rng.standard_normal((40, 50)).astype(np.float32)
    fit = weibull_fit(sample)
    assert weibull_fit(np.abs(rng.permutation(sample.ravel()))) == fit
    tiny = weibull_fit(sample.astype(np.float64) * 2.0**-600)
    assert tiny.shape == pytest.approx(fit.shape, rel=1e-13)
    assert tiny.rms == fit.rms * 2.0**-600
    sample = np.random.default_rng(2).standard_normal(100)
    sample[:9] = 0.0
    assert weibull_fit(sample, 0.1).shape > 0
    with pytest.raises(ParameterError, match="between the trims"):
        weibull_fit(sample, 0.05)


def test_a_large_sample_converges_to_the_anchor():
    for name, draw in (("normal", "standard_normal"), ("laplace", "laplace"), ("logistic", "logistic")):
        sample = getattr(np.random.default_rng(3), draw)(size=400_000)
        null, fit = weibull_null(0.1, type(weibull_anchor(0.1, name).parent)(sample.std())), weibull_fit(sample)
        assert abs(null.shape.z_score(fit.shape, fit.number)) < 4.5  # false failure: 7e-6 each
        assert abs(null.scale_to_rms.z_score(fit.scale / fit.rms, fit.number)) < 4.5


def test_the_covariance_at_the_laplace_law_has_its_closed_form():
    # |w| is exponential and X = Y + ln λ: IF_k = −((X − ⟨X⟩)²/V − 1)/2 and IF_ln λ = X − ⟨X⟩ − γ IF_k, with Gumbel's
    # moments V = π²/6, μ_3 = −2 ζ(3), μ_4 = 3π⁴/20.
    variance, third, fourth = math.pi**2 / 6, -2 * ZETA_3, 3 * math.pi**4 / 20
    shape = (fourth / variance**2 - 1) / 4
    cross = -third / (2 * variance)
    log_scale = variance - 2 * np.euler_gamma * cross + np.euler_gamma**2 * shape
    null = weibull_null(0.0, "laplace")
    assert shape == pytest.approx(1.1, rel=1e-15)
    assert null.shape.spread == pytest.approx(math.sqrt(1.1), rel=1e-12)
    assert null.scale.spread == pytest.approx(math.sqrt(log_scale / 2), rel=1e-12)
    assert null.covariance[0, 1] == pytest.approx((cross - np.euler_gamma * shape) / math.sqrt(2), rel=1e-11)
    assert math.isnan(null.r_squared.spread)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("normal", stats.halfnorm()),
        ("uniform", stats.uniform(0, math.sqrt(3))),
        ("logistic", stats.halflogistic(scale=math.sqrt(3) / math.pi)),
    ],
)
def test_the_covariance_is_that_of_a_brownian_bridge(name, law):
    # The definition: the double integral of a(p) a(q) X'(p) X'(q) (min(p, q) − pq), by the midpoint rule.
    count = 2_000
    p = 0.1 + 0.8 * (np.arange(count) + 0.5) / count
    quantile = law.ppf(p)
    x, y = np.log(quantile), np.log(-np.log1p(-p))
    x_centred, y_centred = x - x.mean(), y - y.mean()
    k = np.mean(x_centred * y_centred) / np.mean(x_centred**2)
    by_shape = (y_centred - 2 * k * x_centred) / np.mean(x_centred**2)
    by_scale = math.exp(x.mean() - y.mean() / k) * (1 + y.mean() / k**2 * by_shape)
    by_r_squared = 2 * k / np.mean(y_centred**2) * (y_centred - k * x_centred)
    weights = np.stack([by_shape, by_scale, by_r_squared]) / (count * law.pdf(quantile) * quantile)
    bridge = np.minimum.outer(p, p) - np.multiply.outer(p, p)
    np.testing.assert_allclose(weibull_null(0.1, name).covariance, weights @ bridge @ weights.T, rtol=2e-5)


@pytest.fixture(scope="module")
def half_normal_fits():
    """(k, λ, R²) at t = 0.1 and k at t = 0 of half-normal samples, for three N."""
    rng = np.random.default_rng(4)
    fits = {}
    for n, draws, batch in ((200, 12_000, 2_000), (2_000, 3_000, 500), (20_000, 600, 50)):
        rows = []
        for _ in range(draws // batch):
            x = rng.standard_normal((batch, n))
            rows.append(np.vstack([weibull_plots(x), weibull_plots(x, 0.0)[0], np.sqrt(np.mean(x**2, axis=1))]))
        fits[n] = np.concatenate(rows, axis=1)
    return fits


@pytest.mark.exhaustive
@pytest.mark.parametrize("n", [200, 2_000, 20_000])
def test_spreads_correlation_and_z_scores_are_those_of_simulated_samples(half_normal_fits, n):
    k, scale, r_squared, _, rms = half_normal_fits[n]
    null, draws = weibull_null(), k.size
    # 4.5 standard errors of a standard deviation, 1/sqrt(2 draws), false failure 7e-6 each, and the neglected O(1/N).
    tolerance = 4.5 / math.sqrt(2 * draws) + 3 / n
    assert k.std() == pytest.approx(null.shape.std(n), rel=tolerance)
    assert scale.std() == pytest.approx(null.scale.std(n), rel=tolerance)
    assert (scale / rms).std() == pytest.approx(null.scale_to_rms.std(n), rel=tolerance)
    assert np.corrcoef(k, scale)[0, 1] == pytest.approx(null.correlation, abs=4.5 / math.sqrt(draws) + 3 / n)
    for law, values in ((null.shape, k), (null.scale, scale), (null.r_squared, r_squared)):
        # The mean is neglected at O(N^(-3/2)), the z-score's at O(1/N).
        assert abs(law.z_score(values, n).mean()) < 4.5 / math.sqrt(draws) + 20 / n
    if n >= 2_000:  # the p-values of R² become uniform only slowly
        assert stats.kstest(null.shape.p_value(k, n), "uniform").pvalue > 1e-5
        assert stats.kstest(null.scale.p_value(scale, n), "uniform").pvalue > 1e-5


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["normal", "uniform", "laplace"])
def test_biases_of_order_one_over_n_are_those_of_simulated_samples(name):
    draw = {
        "normal": lambda rng, size: rng.standard_normal(size),
        "uniform": lambda rng, size: rng.uniform(0.0, math.sqrt(3), size),
        "laplace": lambda rng, size: rng.exponential(math.sqrt(0.5), size),
    }[name]
    n, draws = 100, 60_000
    fits = weibull_plots(draw(np.random.default_rng(5), (draws, n)))
    null = weibull_null(0.1, name)
    for law, values in zip((null.shape, null.scale, null.r_squared), fits, strict=True):
        # 4.5 standard errors, false failure 7e-6 each, and what is left out, at most 5/N of the bias's scale of one.
        error = 4.5 * n * values.std() / math.sqrt(draws) + 5 / n
        assert n * (values.mean() - law.limit) == pytest.approx(law.drift, abs=error)


def test_limits_are_those_of_the_anchor():
    for trim in (0.1, 0.0):
        null, anchor = weibull_null(trim, "uniform"), weibull_anchor(trim, "uniform")
        for name in ("shape", "scale", "r_squared"):
            assert getattr(null, name).limit == pytest.approx(getattr(anchor, name), rel=1e-14)
    null = weibull_null(0.0)
    assert math.isnan(null.shape.drift) and null.shape.mean(100) == null.shape.limit
    closure = weibull_closure()
    k, scale = weibull_anchor().shape, weibull_anchor().scale
    assert closure.mean.limit == pytest.approx(scale * math.gamma(1 + 1 / k) / math.sqrt(2 / math.pi), rel=1e-13)
    assert closure.rms.limit == pytest.approx(scale * math.sqrt(math.gamma(1 + 2 / k)), rel=1e-13)
    for name, law in vars(weibull_closure(0.1, "laplace")).items():
        assert law.limit == pytest.approx(math.sqrt(0.5) if name == "std_to_rms" else 1.0, rel=1e-13)
    assert weibull_body_tail_gap("laplace").limit == pytest.approx(0.0, abs=1e-13)


@pytest.mark.parametrize(
    ("df", "limit_is_zero", "spread_is_nan"), [(2, True, True), (4, False, True), (5, False, False)]
)
def test_moments_that_a_parent_lacks_are_named_nan(df, limit_is_zero, spread_is_nan):
    law = weibull_null(0.1, parents.StudentT(df=df)).scale_to_rms
    closure = weibull_closure(0.1, parents.StudentT(df=df))
    assert (law.limit == 0, math.isnan(law.spread)) == (limit_is_zero, spread_is_nan)
    assert (closure.rms.limit == 0, math.isnan(closure.rms.spread)) == (limit_is_zero, spread_is_nan)
    assert math.isfinite(closure.trimmed_rms.spread)


def test_the_moments_of_a_heavy_tail_are_followed_to_their_end():
    # E t² = df/(df − 2), although S falls as slowly as x^(-2.2).
    law = weibull_null(0.1, parents.StudentT(df=2.2))
    assert law.scale.limit / law.scale_to_rms.limit == pytest.approx(math.sqrt(2.2 / 0.2), rel=1e-10)


def test_the_body_tail_gap_is_that_of_simulated_samples(half_normal_fits):
    gap = weibull_body_tail_gap()
    assert gap.limit == pytest.approx(0.0543677, abs=5e-8)
    k, _, _, untrimmed, _ = half_normal_fits[20_000]
    found, draws = k - untrimmed, k.size
    assert found.mean() == pytest.approx(gap.limit, abs=4.5 * gap.std(20_000) / math.sqrt(draws))  # 7e-6
    assert found.std() == pytest.approx(gap.std(20_000), rel=4.5 / math.sqrt(2 * draws))  # 7e-6


def test_the_closure_is_that_of_simulated_samples():
    n, draws = 2_000, 1_500
    x = np.abs(np.random.default_rng(7).standard_normal((draws, n)))
    k, scale, _ = weibull_plots(x)
    mean, square = scale * special.gamma(1 + 1 / k), scale**2 * special.gamma(1 + 2 / k)
    body = np.sort(x, axis=1)[:, n // 10 : n - n // 10]
    node, weight = np.polynomial.legendre.leggauss(40)
    fitted = scale[:, None] * (-np.log1p(-(0.5 + 0.4 * node))) ** (1 / k[:, None])
    fitted_mean, fitted_square = fitted @ weight / 2, fitted**2 @ weight / 2
    found = {
        "mean": mean / x.mean(axis=1),
        "rms": np.sqrt(square / np.mean(x**2, axis=1)),
        "std": np.sqrt(square - mean**2) / x.std(axis=1),
        "std_to_rms": np.sqrt((square - mean**2) / np.mean(x**2, axis=1)),
        "trimmed_mean": fitted_mean / body.mean(axis=1),
        "trimmed_rms": np.sqrt(fitted_square / np.mean(body**2, axis=1)),
        "trimmed_std": np.sqrt(fitted_square - fitted_mean**2) / body.std(axis=1),
    }
    closure = vars(weibull_closure())
    assert closure.keys() == found.keys()
    for name, values in found.items():
        law = closure[name]
        # 4.5 standard errors, false failure 7e-6 each, and the neglected O(1/N).
        assert values.mean() == pytest.approx(law.limit, abs=4.5 * law.std(n) / math.sqrt(draws) + 2 / n)
        assert values.std() == pytest.approx(law.std(n), rel=4.5 / math.sqrt(2 * draws) + 10 / n)


def test_z_scores_keep_the_shape_and_nan_and_do_not_ask_for_sigma():
    law = LargeSampleLaw(1.0, 2.0, 10.0)
    assert law.mean(100) == 1.1 and law.std(100) == 0.2
    observed = np.array([[1.1, 1.3], [0.9, np.nan]])
    np.testing.assert_allclose(law.z_score(observed, 100), [[0.0, 1.0], [-1.0, np.nan]], atol=1e-14)
    np.testing.assert_allclose(law.p_value(observed, 100), [[1.0, 0.317310507863], [0.317310507863, np.nan]], rtol=1e-9)
    sample = np.random.default_rng(6).standard_normal(10_000)
    null, fits = weibull_null(), [weibull_fit(sample), weibull_fit(0.02 * sample)]
    plain, scaled = (null.scale_to_rms.z_score(fit.scale / fit.rms, fit.number) for fit in fits)
    assert plain == pytest.approx(scaled, rel=1e-9)
    assert abs(plain) < 4.5 < abs(null.scale.z_score(fits[1].scale, fits[1].number))  # false failure 7e-6


D_MODEL, D_HEAD, DRAWS = 120, 12, 400


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(DRAWS):
        w = rng.standard_normal((D_MODEL, D_HEAD)) @ rng.standard_normal((D_HEAD, D_MODEL)) / math.sqrt(D_MODEL)
        draws.append(statistics.weibull_fit(w)[:3])
    return np.array(draws)


def test_means_and_spreads_are_those_of_simulated_matrices(fits):
    # 4.5 standard errors, of spreads from the sample's own fourth moment: one seed in 25 000. And 2 % of a spread for
    # terms of higher order, 0.08 standard deviations of one matrix for the bias that is stated as left out.
    null = laws.weibull_product_null(D_MODEL, D_HEAD)
    for column, law in zip(fits.T, null, strict=True):
        kurtosis = np.mean((column - column.mean()) ** 4) / column.var() ** 2
        error = math.sqrt((kurtosis - 1) / (4 * DRAWS)) + 0.02
        assert column.std(ddof=1) == pytest.approx(law.std, rel=4.5 * error)
        assert abs(column.mean() - law.mean) < (4.5 / math.sqrt(DRAWS) + 0.08) * law.std


def test_the_scale_spreads_as_the_size_of_the_matrix_and_the_shape_as_independent_elements():
    d, h = 1000, 64
    null = laws.weibull_product_null(d, h, normalization="none")
    independent = laws.weibull_null(0.1, laws.parents.VarianceGamma(math.sqrt(h), h))
    assert null.scale.std > 4 * independent.scale.std(d * d)
    assert independent.shape.std(d * d) < null.shape.std < 1.05 * independent.shape.std(d * d)
    assert null.shape.mean == independent.shape.mean(d * d)
    # w is normal then; the mean square of one matrix, and so λ̂², varies by a relative 4 d/(h N) more than that of
    # independent elements.
    h = 100_000
    null, independent = laws.weibull_product_null(h, h), laws.weibull_null()
    assert null.shape.std * h == pytest.approx(independent.shape.spread, rel=1e-3)
    expected = math.hypot(independent.scale.spread, independent.scale.limit)
    assert null.scale.std * h == pytest.approx(expected, rel=1e-3)
    plain = laws.weibull_product_null(90, 9)
    scaled = laws.weibull_product_null(90, 9, 0.1, sigma_q=3.0, sigma_k=0.5, normalization="none")
    factor = 1.5 * math.sqrt(90)
    for name, unit in (("shape", 1.0), ("scale", factor), ("r_squared", 1.0)):
        for field in ("mean", "std"):
            value = getattr(getattr(scaled, name), field)
            assert value == pytest.approx(unit * getattr(getattr(plain, name), field), rel=1e-10)
