"""Element statistics and entropies, against their formulas; after rounding; and where none is.

False failures: comparisons with a law are tested at five standard errors (6e-7); every seed is fixed.
"""

import math
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from scipy import integrate, special, stats

from exhaustive import mostly_exhaustive
from rmtbase import laws, statistics
from rmtbase.errors import FitError, ParameterError
from rmtbase.reasons import Reason
from rmtbase.statistics import (
    ELEMENT_STATISTICS,
    MOMENT_STATISTICS,
    element_sketch,
    element_statistics,
    histogram_entropy,
    histogram_kl,
    nearest_neighbour_entropy,
    nearest_neighbour_kl,
    reason_against,
)

LAWS = {
    "normal": stats.norm(0.001, 0.02), "uniform": stats.uniform(-0.03, 0.06), "cauchy": stats.cauchy(0.0, 0.01),
    "student": stats.t(3, 0.002, 0.02), "skewed": stats.gamma(2.0, -0.02, 0.01), "far": stats.norm(0.5, 0.02),
}  # fmt: skip
HALF = (np.float16, ml_dtypes.bfloat16)
ENTROPIES = tuple(name for name in ELEMENT_STATISTICS if "entropy" in name or "kl_" in name)


@cache
def sample(name, n, seed=1):
    return LAWS[name].rvs(size=n, random_state=np.random.default_rng(seed))


@cache
def normal(n, seed=1):
    return np.random.default_rng(seed).standard_normal(n) * 0.02


def table(numbers, names=tuple(ELEMENT_STATISTICS)):
    return dict(zip(names, element_statistics(element_sketch([numbers]), names), strict=True))


def of_order(x):
    n, s, magnitude = x.size, x.std(ddof=1), np.sort(np.abs(x))
    i = np.arange(1, n + 1)
    p = (i - 0.5) / n
    kept = (p >= 0.1 - 1e-12) & (p <= 0.9 + 1e-12)
    return {
        "mean": x.mean() / s, "skewness": stats.skew(x), "excess_kurtosis": stats.kurtosis(x),
        "largest_magnitude": np.abs(x - x.mean()).max() / s, "l_scale": stats.lmoment(x, order=2) / s,
        "l_skewness": stats.lmoment(x, order=3), "l_kurtosis": stats.lmoment(x, order=4),
        "core_sigma": stats.linregress(special.ndtri(p[kept]), np.sort(x)[kept]).slope / s,
        "max_to_q99": magnitude[-1] / np.quantile(magnitude, 0.99),
        "gini": (2 * i - n - 1) @ magnitude / (n * (n - 1) * magnitude.mean()),
    }  # fmt: skip


def of_weibull(x):
    n, rms, magnitude = x.size, math.sqrt(np.mean(x * x)), np.sort(np.abs(x))
    body, whole = statistics.weibull_fit(x), statistics.weibull_fit(x, 0.0)
    law = stats.weibull_min(body.shape, scale=body.scale)
    likeliest = statistics.weibull_likelihood_fit(x)
    return {
        "q90_to_q10": np.quantile(magnitude, 0.9) / np.quantile(magnitude, 0.1),
        "log10_tail_probability": math.log10(n) + law.logsf(magnitude[-1]) / math.log(10),
        "weibull_shape": body.shape, "weibull_scale": body.scale / rms, "weibull_r_squared": body.r_squared,
        "weibull_closure": law.std() / magnitude.std() - 1, "body_tail_gap": body.shape - whole.shape,
        "weibull_shape_ml": likeliest.shape, "weibull_scale_ml": likeliest.scale / rms,
    }  # fmt: skip


def test_the_registry_is_in_its_order_and_says_what_each_is():
    assert tuple(ELEMENT_STATISTICS)[:4] == MOMENT_STATISTICS
    assert set(MOMENT_STATISTICS) <= set(statistics.ElementMoments.__dataclass_fields__)
    for name, one in ELEMENT_STATISTICS.items():
        assert one.name == name
        assert one.long_name and one.symbol and one.formula
    with pytest.raises(ParameterError, match="statistic = 'median': expected one of mean, skewness"):
        reason_against(element_sketch([normal(200)]), "median")


@pytest.mark.parametrize("n", [100, 3000, 40_000])
@pytest.mark.parametrize("law", LAWS)
def test_statistics_are_those_of_the_sorted_numbers(law, n):
    x = sample(law, n)
    expected = of_order(x) | of_weibull(x)
    assert set(expected) == set(ELEMENT_STATISTICS) - set(ENTROPIES)
    found = table(x)
    for name, value in expected.items():
        # Where the numbers of a bin lie is open: quantiles to its width, all else to far less than a standard error.
        tolerance = 3e-4 if "q9" in name else (1e-2 if law == "far" else 5e-4) / math.sqrt(n)
        assert found[name] == pytest.approx(value, rel=tolerance, abs=tolerance), name


def test_numbers_on_levels_and_moved_numbers_keep_their_statistics():
    x = np.round(np.random.default_rng(3).standard_normal(50_000) * 40) * 0.0007123
    expected = of_order(x)
    found = table(x)
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name
    assert np.isnan([found[name] for name in ELEMENT_STATISTICS if name not in expected]).all()
    x = sample("student", 20_000)
    plain = table(x, ENTROPIES)
    for moved in (x * 1e-12, 37.1 * x):
        assert table(moved, ENTROPIES) == pytest.approx(plain, abs=5e-4)
    assert table(x + 0.2, ENTROPIES) == pytest.approx(plain, abs=1e-3)
    magnitude = np.abs(sample("student", 30_000))
    k = statistics.weibull_likelihood_fit(magnitude).shape
    log, power = np.log(magnitude), magnitude**k
    assert 1 / k == pytest.approx(power @ log / power.sum() - log.mean(), rel=1e-11)


@pytest.mark.parametrize("law", LAWS)
def test_the_histogram_way_is_that_of_a_hundred_bins_and_the_kernel_way_scipys(law):
    x = sample(law, 40_000)
    matched = 0.5 * math.log(2 * math.pi * math.e * x.var(ddof=1))
    expected = statistics.histogram_entropy(x, 100, (x.min(), x.max())) - matched
    found = table(x, ("histogram_entropy_residual",))["histogram_entropy_residual"]
    assert found == pytest.approx(expected, abs=1e-4)
    if law not in ("normal", "uniform", "skewed"):
        return
    x = sample(law, 1500)
    matched = 0.5 * math.log(2 * math.pi * math.e * x.var(ddof=1))
    density = stats.gaussian_kde(x)
    reach = 10 * density.factor * x.std()
    grid = np.linspace(x.min() - reach, x.max() + reach, 4001)
    expected = float(integrate.simpson(special.entr(density(grid)), x=grid)) - matched
    assert table(x, ("kde_entropy_residual",))["kde_entropy_residual"] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("n", mostly_exhaustive([200, 2000, 20_000], always=1))
def test_entropy_and_divergence_of_normal_numbers_have_no_bias_to_speak_of(n):
    # The spread of 300 samples is 12/n at most; five standard errors of their mean are 3.5/n.
    names = ("entropy_residual", "kl_matched_normal", "kl_core_normal")
    found = n * np.array([element_statistics(element_sketch([normal(n, seed)]), names) for seed in range(300)])
    spread = found.std(axis=0, ddof=1)
    assert (np.abs(found.mean(axis=0)) < 1.0 + 5.0 * spread / math.sqrt(300)).all()
    np.testing.assert_allclose(spread, spread[1], rtol=0.1)
    assert 2.0 < spread[1] < 12.0


@pytest.mark.parametrize(("law", "bias"), [("student", 3e-3), ("skewed", 2e-3), ("uniform", 2e-4), ("cauchy", 1e-3)])
def test_entropy_is_that_of_the_law(law, bias):
    # Five standard errors of -ln p, and the bias of cells of a sixteenth of a spread where the density is not smooth.
    x, true = sample(law, 200_000), LAWS[law]
    error = np.std(true.logpdf(x)) / math.sqrt(x.size)
    assert element_sketch([x]).entropy() == pytest.approx(float(true.entropy()), abs=5 * error + bias)


@pytest.mark.parametrize("outliers", [[50.0], [1e6], [1e12], [1e6, -3e5, 7e4]])
def test_entropy_is_that_of_the_core_whatever_a_few_numbers_are(outliers):
    # Each adds -p ln p of its share, 1e-4, and 1/256 of an octave of its cell.
    core = normal(100_000) / 0.02
    alone, together = (element_sketch([x]).entropy() for x in (core, np.append(core, outliers)))
    assert together == pytest.approx(alone, abs=0.01)


@pytest.mark.parametrize(("location", "scale"), [(0.0, 0.02), (0.01, 0.02), (-0.005, 0.03), (0.0, 0.015)])
def test_the_divergence_from_a_normal_law_is_that_of_two_normal_laws(location, scale):
    x = normal(200_000)
    true = float(laws.normal_kl(0.02, scale, 0.0, location))
    influence = stats.norm(0.0, 0.02).logpdf(x) - stats.norm(location, scale).logpdf(x)
    error = 5.0 * (np.std(influence) / math.sqrt(x.size) + 12.0 / x.size)
    # The width of the cells, a sixteenth of a spread, takes off some of a relative Fisher information.
    lost = (0.02 / 16) ** 2 / 24 * np.mean(((x - location) / scale**2 - x / 0.02**2) ** 2)
    assert element_sketch([x]).kl_to_normal(location, scale) == pytest.approx(true - lost, abs=error)


@pytest.mark.parametrize("dtype", mostly_exhaustive([np.float32, *HALF], always=1))
def test_rounding_moves_no_statistic_by_its_standard_error(dtype):
    # Standard errors under the normal law from 12 samples; the shift is the mean over three of them, of which the
    # entropies, whose cells are others, are a third of a standard error apart. At a million numbers.
    x = [normal(10**6, seed) for seed in range(8)]
    plain = np.array([list(table(one).values()) for one in x])
    shift = np.array([list(table(one.astype(dtype)).values()) for one in x[:3]]) - plain[:3]
    worst = np.abs(shift.mean(axis=0)) / plain.std(axis=0, ddof=1)
    for name, ratio in zip(ELEMENT_STATISTICS, worst, strict=True):
        assert ratio < (1.0 if name in ENTROPIES else 0.1), name


@pytest.mark.parametrize("sigma", [1e-3, 0.02, 1.0])
@pytest.mark.parametrize("dtype", [np.float32, *HALF])
def test_rounded_normal_weights_are_suitable_for_every_statistic(dtype, sigma):
    for n in (100, 3000, 100_000):
        sketch = element_sketch([(normal(n) / 0.02 * sigma).astype(dtype)])
        assert not any(reason_against(sketch, name) for name in ELEMENT_STATISTICS)


def reasons(numbers):
    sketch = element_sketch([numbers])
    found = {name: reason_against(sketch, name) for name in ELEMENT_STATISTICS}
    values = element_statistics(sketch)
    np.testing.assert_array_equal(np.isnan(values), [bool(reason) for reason in found.values()])
    return found


def test_few_equal_tied_or_clipped_numbers_leave_what_can_be_said():
    assert set(reasons(normal(99)).values()) == {Reason("few_numbers", {"count": 99, "fewest": 100})}
    for value in (0.0, 0.3):
        assert set(reasons(np.full((20, 30), value)).values()) == {Reason("all_equal")}
    w = normal(64 * 64).reshape(64, 64).copy()
    w[5] = 0.0
    for dtype in (np.float64, np.float32, *HALF):
        found = reasons(w.astype(dtype))
        assert found["weibull_shape"] == found["entropy_residual"] == Reason("zeros", {"zeros": 64, "count": 4096})
        assert not any(found[name] for name in of_order(w.ravel()))
    four_bits = reasons((np.round(normal(20_000) / 0.02 * 2.5) * 0.01234567).astype(np.float32))
    assert [name for name, reason in four_bits.items() if not reason] == list(MOMENT_STATISTICS)
    clipped = reasons(normal(20_000).clip(-9.0, 0.02))
    assert clipped["weibull_shape"].code == "equal_numbers" and not clipped["gini"]
    far = reasons(1.0 + normal(20_000) * 1e-3)  # a spread that the bins do not resolve
    assert not far["mean"] and far["gini"].code == "tied"


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("spread", "left"), [(0.7, MOMENT_STATISTICS), (30.0, tuple(of_order(np.arange(200.0))))])
def test_integers_leave_what_can_be_said_of_them(spread, left, dtype):
    found = reasons(np.round(normal(20_000) / 0.02 * spread).clip(-127, 127).astype(dtype))
    assert [name for name, reason in found.items() if not reason] == list(left)
    assert (found["weibull_shape"].code, found["weibull_shape"].details["needed"]) == ("tied", 64)


@pytest.mark.parametrize("law", ["normal", "student", "skewed"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
def test_the_likeliest_weibull_law_is_scipys(law, dtype):
    x = sample(law, 5000).astype(dtype)
    magnitude = np.abs(x.astype(np.float64))
    shape, _, scale = stats.weibull_min.fit(magnitude, floc=0.0)
    fit = statistics.weibull_likelihood_fit(x)
    assert (fit.shape, fit.scale, fit.number) == pytest.approx((shape, scale, 5000), rel=1e-4)
    log_likelihood = stats.weibull_min(fit.shape, scale=fit.scale).logpdf(magnitude)
    assert fit.log_likelihood == pytest.approx(log_likelihood.sum(), rel=1e-12)
    for factor in (0.999, 1.001):
        assert stats.weibull_min(fit.shape * factor, scale=fit.scale).logpdf(magnitude).sum() < fit.log_likelihood
        assert stats.weibull_min(fit.shape, scale=fit.scale * factor).logpdf(magnitude).sum() < fit.log_likelihood
    assert element_sketch([x]).weibull_likelihood_fit == pytest.approx(fit, rel=1e-7)


@pytest.mark.parametrize("bad", [[0.0, 1.0, 2.0], [3.0, -3.0, 3.0], [1.0], [1.0, math.inf, 2.0], [math.nan, 1.0, 2.0]])
def test_no_likeliest_law_is_given_of_what_has_none(bad):
    with pytest.raises((ParameterError, FitError), match="sample"):
        statistics.weibull_likelihood_fit(bad)


ODD = {
    "of many scales": lambda rng, n: rng.standard_normal(n) * 10.0 ** rng.uniform(-30, 5, n),
    "log-normal": lambda rng, n: rng.lognormal(0.0, 20.0, n),
    "without a mean": lambda rng, n: rng.pareto(0.3, n),
    "nearly all in one place": lambda rng, n: rng.standard_normal(n) * np.where(rng.random(n) < 0.9, 1e-6, 1.0),
    "in two places": lambda rng, n: rng.choice([-1.0, 1.0], n) + 0.01 * rng.standard_normal(n),
    "of two values": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "all equal but one": lambda rng, n: np.append(np.full(n - 1, 0.1), 0.2),
    "one far from all": lambda rng, n: np.append(rng.standard_normal(n - 1), 1e15),
    "in four copies": lambda rng, n: np.repeat(rng.standard_normal(n), 4)[:n],
    "half zeros": lambda rng, n: np.append(np.zeros(n // 2), rng.standard_normal(n - n // 2)),
    "of one sign": lambda rng, n: -rng.exponential(1e-9, n),
    "evenly spaced": lambda rng, n: np.linspace(-1.0, 1.0, n),
    "whole": lambda rng, n: rng.integers(-(10**6), 10**6, n),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("n", [1, 2, 101, 2000])
def test_odd_numbers_have_statistics_or_reasons_and_give_no_warning(name, n):
    x = ODD[name](np.random.default_rng(6), n)[:n]
    for numbers in (x, x.astype(np.float32)):
        reasons(numbers)
        assert element_sketch([numbers]).histogram(np.linspace(-2e6, 2e6, 9)).sum() <= n


SAMPLE = np.random.default_rng(1).standard_normal((40, 50))


def test_histograms_and_neighbours_have_their_own_formulas():
    density, edges = np.histogram(SAMPLE, 25, (-2.5, 3.0), density=True)
    expected = np.sum(special.entr(density)) * (edges[1] - edges[0])
    assert histogram_entropy(SAMPLE, 25, (-2.5, 3.0)) == pytest.approx(expected, rel=1e-13)
    counts, edges = np.histogram(SAMPLE, 12, (-2.0, 2.5))
    for sigma in (None, 0.8):
        mass = np.diff(stats.norm.cdf(edges, scale=sigma or np.sqrt(np.mean(SAMPLE**2))))
        expected = stats.entropy(counts, mass)
        assert histogram_kl(SAMPLE, 12, (-2.0, 2.5), sigma) == pytest.approx(expected, rel=1e-12)
    x, sigma = SAMPLE.ravel(), 1.3
    cross = -np.mean(stats.norm.logpdf(x, scale=sigma))
    assert nearest_neighbour_kl(x, 4, sigma) == pytest.approx(cross - nearest_neighbour_entropy(x, 4), rel=1e-12)
    x = np.random.default_rng(4).gamma(3.0, size=500)
    entropy = nearest_neighbour_entropy(x, 2)
    assert nearest_neighbour_entropy(3.0 * x - 7.0, 2) == pytest.approx(entropy + math.log(3.0), abs=1e-10)
    assert nearest_neighbour_kl(5.0 * x, 2) == pytest.approx(nearest_neighbour_kl(x, 2), abs=1e-12)
    assert histogram_kl(4.0 * x, 9, (0.0, 40.0)) == pytest.approx(histogram_kl(x, 9, (0.0, 10.0)), rel=1e-12)
    far = np.append(np.random.default_rng(5).standard_normal(1000), [90.0, -80.0])
    assert np.isfinite(histogram_kl(far, 200, (-100, 100), 1.0))
    coinciding = np.array([1.0, 1.0, 2.0, 3.5])  # they have no density
    assert nearest_neighbour_entropy(coinciding) == -math.inf
    assert math.isfinite(nearest_neighbour_entropy(coinciding, 2))
    assert nearest_neighbour_kl(coinciding) == math.inf
    small = SAMPLE.astype(ml_dtypes.bfloat16)
    assert histogram_kl(small, 10, (-3, 3)) == histogram_kl(small.astype(np.float64).ravel(), 10, (-3, 3))


@pytest.mark.parametrize("k", [1, 2, 3, 7, 50])
def test_neighbours_are_those_of_all_pairs(k):
    x = np.random.default_rng(k).standard_t(3, 120)
    distance = np.sort(np.abs(x[:, None] - x), axis=1)[:, k]  # column 0 is the point itself
    expected = np.mean(np.log(2 * distance)) + special.digamma(120) - special.digamma(k)
    assert nearest_neighbour_entropy(x, k) == pytest.approx(expected, rel=1e-13)


def test_estimates_find_the_entropy_of_known_laws():
    # 200 000 numbers: standard errors below 0.004.
    rng = np.random.default_rng(2)
    for sample, law in (
        (rng.uniform(-2, 2, 200_000), stats.uniform(-2, 4)),
        (rng.normal(0, 3, 200_000), stats.norm(0, 3)),
        (rng.laplace(0, 2, 200_000), stats.laplace(0, 2)),
    ):
        assert nearest_neighbour_entropy(sample, 3) == pytest.approx(law.entropy(), abs=0.02)
        assert histogram_entropy(sample, 400, (-40, 40)) == pytest.approx(law.entropy(), abs=0.02)


def test_divergence_of_normal_numbers_is_the_bias_alone():
    # (bins - 1)/(2n), and one degree of freedom less with a fitted sigma: 2n times it is χ². 4.5 standard errors of the
    # average, and 0.25 for the terms of order 1/n² and for what the range does not hold.
    rng, n, bins = np.random.default_rng(3), 2000, 12
    samples = rng.standard_normal((2000, n))
    for sigma, freedom in ((1.0, bins - 1), (None, bins - 2)):
        values = 2 * n * np.array([histogram_kl(x, bins, (-2.5, 2.5), sigma) for x in samples])
        assert values.min() >= 0.0
        assert values.mean() == pytest.approx(freedom, abs=4.5 * math.sqrt(2 * freedom / 2000) + 0.25)


REFUSED = [
    (lambda: histogram_entropy([], 10, (-3, 3)), "sample"),
    (lambda: histogram_kl([np.inf, 0.0], 10, (-3, 3)), "sample"),
    (lambda: nearest_neighbour_entropy([1.0, np.nan]), "sample"),
    (lambda: histogram_kl(np.zeros(20), 10, (-1, 1)), "sample"),
    (lambda: nearest_neighbour_kl(np.zeros(20)), "sample"),
    (lambda: histogram_entropy(SAMPLE, 10, (3, -3)), "range"),
    (lambda: histogram_entropy(SAMPLE, 10, (50, 60)), "range = .* holds some of the sample"),
    (lambda: histogram_kl(SAMPLE, 0, (-3, 3)), "bins"),
    (lambda: nearest_neighbour_kl(SAMPLE, 1, -1.0), "sigma"),
    (lambda: nearest_neighbour_entropy(SAMPLE, 2000), "k"),
]


@pytest.mark.parametrize(("call", "culprit"), REFUSED)
def test_what_has_no_estimate_is_refused(call, culprit):
    with pytest.raises(ParameterError, match=culprit):
        call()
