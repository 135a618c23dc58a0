"""Laws fitted to elements and tails: scipy's own optimum, exact information, and what is refused.

False failures: pulls and coverage are tested at five standard errors (6e-7); every seed is fixed.
"""

import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from scipy import special, stats

from exhaustive import mostly_exhaustive
from rmtbase import laws, statistics
from rmtbase.errors import FitError, ParameterError
from rmtbase.statistics import (
    element_sketch,
    fit_logistic,
    fit_student_t,
    power_law_fit,
    power_law_p_value,
    weibull_fit,
)

FITS = {"logistic": fit_logistic, "student_t": fit_student_t}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)


def sample(law, size, seed=0):
    return law.rvs(size=size, random_state=np.random.default_rng(seed))


SAMPLES = {
    "logistic": stats.logistic(0.003, 0.02), "normal": stats.norm(0.003, 0.02), "t4": stats.t(4, 0.003, 0.02),
    "uniform": stats.uniform(-1, 2), "exponential": stats.expon(scale=0.02),
}  # fmt: skip


@pytest.mark.parametrize("name", SAMPLES)
def test_the_logistic_fit_is_scipys(name):
    w = sample(SAMPLES[name], 2_000)
    fit = fit_logistic(w)
    assert (fit.location, fit.scale) == pytest.approx(stats.logistic.fit(w), rel=1e-6, abs=1e-6 * fit.scale)
    assert fit.log_likelihood == pytest.approx(stats.logistic(fit.location, fit.scale).logpdf(w).sum(), rel=1e-12)
    assert_no_neighbour_is_likelier(stats.logistic, (fit.location, fit.scale), w)


@pytest.mark.parametrize("df", [0.5, 1.0, 3.3, 8.0, 25.0])
def test_no_student_t_is_likelier_than_the_fitted_one(df):
    w = sample(stats.t(df, 0.003, 0.02), 4_000)
    fit = fit_student_t(w)
    assert fit.status == "student_t"
    parameters = (fit.df, fit.location, fit.scale)
    assert fit.log_likelihood == pytest.approx(stats.t(*parameters).logpdf(w).sum(), rel=1e-12)
    assert fit.log_likelihood >= stats.t(*stats.t.fit(w)).logpdf(w).sum() - 1e-6
    assert_no_neighbour_is_likelier(stats.t, parameters, w)


def assert_no_neighbour_is_likelier(law, parameters, w):
    """A step of 1e-3 in any parameter and direction loses likelihood, by as much either way to within 10 %."""
    best = law(*parameters).logpdf(w).sum()
    for index, value in enumerate(parameters):
        step = 1e-3 * (parameters[-1] if index == len(parameters) - 2 else value)  # the location's, in scales
        up, down = (
            best - law(*parameters[:index], value + sign * step, *parameters[index + 1 :]).logpdf(w).sum()
            for sign in (1, -1)
        )
        assert up > 0 and down > 0
        assert up == pytest.approx(down, rel=0.1)


@pytest.mark.parametrize("name", ["uniform", "bounded by the normal"])
def test_tails_no_heavier_than_normal_are_reported_as_normal(name):
    w = sample(SAMPLES["uniform"], 2_000) if name == "uniform" else stats.norm.ppf((np.arange(2_000) + 0.5) / 2_000)
    fit, (location, scale) = fit_student_t(w), stats.norm.fit(w)
    assert (fit.status, fit.df, fit.df_standard_error) == ("normal", math.inf, math.inf)
    assert fit.inverse_df_standard_error == pytest.approx(math.sqrt(2 / 3 / w.size), rel=1e-12)
    found = (fit.location, fit.scale, fit.location_standard_error, fit.scale_standard_error, fit.log_likelihood)
    errors = scale / math.sqrt(w.size), scale / math.sqrt(2 * w.size)
    expected = (location, scale, *errors, stats.norm(location, scale).logpdf(w).sum())
    assert found == pytest.approx(expected, rel=1e-10, abs=1e-14)


def test_a_normal_sample_is_found_normal_half_of_the_time():
    # The slope of the likelihood in 1/ν at the normal law is the sample's excess kurtosis, of median zero to O(n^-1/2).
    rng = np.random.default_rng(1)
    fits = [fit_student_t(rng.standard_normal(10_000)) for _ in range(100)]
    normal = sum(fit.status == "normal" for fit in fits)
    assert abs(normal - 50) < 5 * math.sqrt(100) / 2
    inverse = [0.0 if fit.status == "normal" else 1 / fit.df for fit in fits]
    assert max(inverse) < 5 * fits[0].inverse_df_standard_error


PLACE = {"location": 0.3, "scale": 0.02}
PULLED = [
    (fit_logistic, stats.logistic, PLACE), *((fit_student_t, stats.t, {"df": df} | PLACE) for df in (0.7, 3.3, 12.0)),
]  # fmt: skip


@pytest.mark.parametrize(("fit", "law", "parameters"), mostly_exhaustive(PULLED, always=1))
def test_standard_errors_are_the_spread_of_the_estimates(fit, law, parameters):
    rng = np.random.default_rng(2)
    fits = [fit(law(*parameters.values()).rvs(size=2_500, random_state=rng)) for _ in range(200)]
    for name, value in parameters.items():
        # 1/df is the parameter whose estimate is normal; its pull is df's with the sign changed.
        if name == "df":
            pulls = np.array([(1 / f.df - 1 / value) / f.inverse_df_standard_error for f in fits])
        else:
            pulls = np.array([(getattr(f, name) - value) / getattr(f, f"{name}_standard_error") for f in fits])
        assert abs(pulls.mean()) < 5 / math.sqrt(200)
        assert abs(pulls.std() - 1) < 5 / math.sqrt(400)


@pytest.mark.parametrize("df", [0.3, 1.0, 4.0, 30.0, 40.0, 1e3])
def test_standard_errors_of_student_t_are_the_inverse_of_the_quadrature_of_the_scores(df):
    # Scores of the standard law in (location, ln scale, 1/ν), by central differences of scipy's density.
    at, steps = np.array([0.0, 0.0, 1 / df]), (1e-3, 1e-3, 1e-3 / df)

    def log_density(z, parameters):
        location, log_scale, inverse_df = parameters
        return stats.t.logpdf((z - location) * math.exp(-log_scale), 1 / inverse_df) - log_scale

    # The trapezoidal rule in y, z = sinh(y), in which even the tails of ν = 0.3 are short.
    y = np.linspace(-1, 1, 4_001) * (110 if df < 1 else 50 if df < 10 else 5)
    z, weight = np.sinh(y), np.cosh(y) * (y[1] - y[0])
    shifts = np.diag(steps)
    scores = [(log_density(z, at + shift) - log_density(z, at - shift)) / (2 * shift.max()) for shift in shifts]
    information = np.einsum("iz,jz,z->ij", scores, scores, weight * np.exp(log_density(z, at)))
    exact = np.sqrt(np.diag(np.linalg.inv(information)) / 10_000)
    w = stats.t.ppf((np.arange(10_000) + 0.5) / 10_000, df)
    fit = fit_student_t(w)
    found = (fit.location_standard_error, fit.scale_standard_error, fit.inverse_df_standard_error * fit.scale)
    np.testing.assert_allclose(found, exact * fit.scale, rtol=2e-3)


@every_fit
def test_scale_location_dtype_and_layout_of_the_elements_carry_over(fit):
    w = sample(SAMPLES["t4"], 3_000)
    first = fit(w)
    for factor, shift in ((1e-30, 0.0), (1e30, 0.0), (1.0, 5.0), (-2.0, 1.0)):
        second = fit(factor * w + shift)
        assert second.scale == pytest.approx(abs(factor) * first.scale, rel=1e-8)
        assert second.location == pytest.approx(factor * first.location + shift, rel=1e-8)
        assert second.log_likelihood == pytest.approx(first.log_likelihood - w.size * math.log(abs(factor)), rel=1e-8)
    w = sample(SAMPLES["t4"], 3_000)
    free, fixed = fit(w), fit(w, location=0.0)
    assert (fixed.location, fixed.location_standard_error) == (0.0, 0.0)
    assert fixed.log_likelihood < free.log_likelihood
    same = fit(w, location=free.location)
    assert same.scale == pytest.approx(free.scale, rel=1e-9)
    assert same.log_likelihood == pytest.approx(free.log_likelihood, rel=1e-12)
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.int8):
        w = (20 * sample(stats.t(5), (64, 48))).astype(dtype)
        assert fit(w) == fit(w.astype(np.float64))
    w = sample(SAMPLES["t4"], (300, 500))  # more than are taken for the first steps
    first = fit(w)
    for other in (w.T, w[::-1], np.sort(w, axis=None), np.repeat(w[:, :, None], 2, 2)[:, :, 0]):
        again = fit(other)
        assert (again.location, again.scale) == pytest.approx((first.location, first.scale), rel=1e-8)


@pytest.mark.exhaustive
@every_fit
def test_no_copy_of_a_large_matrix_is_made(fit):
    import tracemalloc

    w = sample(stats.t(5), (1024, 2048)).astype(np.float32)
    tracemalloc.start()
    fit(w)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < w.nbytes / 2


def sparse(zeros):
    w = sample(stats.norm(), (80, 80))
    w.ravel()[: int(zeros * w.size)] = 0
    return w


@pytest.mark.parametrize("w", [sparse(0.6), sparse(0.9), np.eye(60), np.eye(400)])
def test_a_likelihood_without_maximum_is_an_error_and_no_number(w):
    # Every zero adds -ln s to the likelihood, every other element ν ln s: as s falls, it grows without bound.
    with pytest.raises(FitError, match=r"cannot fit the Student-t law: .* too many elements are equal") as caught:
        fit_student_t(w)
    assert caught.value.law == "Student-t"
    with pytest.raises(FitError):  # nor are tails fitted that are heavier than any that can be drawn
        fit_student_t(sample(stats.t(0.12), 20_000))
    assert np.isfinite(fit_logistic(w).scale)


@every_fit
def test_a_single_outlier_of_any_size_is_survived_and_a_few_elements_are_enough(fit):
    for outlier in (1e6, 1e30):
        found = fit(np.append(sample(stats.norm(), 5_000), outlier))
        assert np.isfinite([found.location, found.scale, found.log_likelihood]).all()
        if fit is fit_student_t:
            assert abs(found.location) < 0.1 and 0.5 < found.scale < 1
    for w in ([0.0, 1.0], [[0.0], [1.0], [5.0]], [1e-310, 2e-310, 4e-310], [-3, 1, 2]):
        found = fit(w)
        assert np.min(w) <= found.location <= np.max(w)
        assert found.scale > 0
        assert found.count == np.size(w)


NORMAL = sample(stats.norm(), (8, 8))
BAD = {
    "empty": (np.ones((0, 4)), r"shape \(0, 4\)"), "one element": ([[2.0]], "1 elements, all 2"),
    "constant": (np.full((3, 3), 0.25, np.float32), "9 elements, all 0.25"),
    "nan": (np.where(NORMAL > 1, np.nan, NORMAL), "of 64 elements not finite"),
    "inf": (np.where(NORMAL > 1, -np.inf, NORMAL), "of 64 elements not finite"),
    "all nan": (np.full((3, 3), np.nan), "9 of 9 elements not finite"), "bool": (NORMAL > 0, "dtype bool"),
    "complex": (NORMAL + 1j, "dtype complex128"), "text": ([["a", "b"]], "dtype <U1"),
    "too wide": (np.append(NORMAL, 1e60), "1e[+]60"),
}  # fmt: skip


@every_fit
@pytest.mark.parametrize("bad", BAD)
def test_a_matrix_that_cannot_be_fitted_is_named(fit, bad):
    matrix, message = BAD[bad]
    with warnings.catch_warnings(), pytest.raises(ParameterError, match=f"^matrix = .*{message}"):
        warnings.simplefilter("error")
        fit(matrix)


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
    for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16):
        x = np.random.default_rng(5).standard_normal((30, 40)).astype(dtype)
        before = x.copy()
        weibull_fit(x)
        weibull_fit(x[::2, 1::3])
        np.testing.assert_array_equal(x, before)
        x[0, [3, 9, 11]] = math.nan, math.inf, -math.inf
        with pytest.raises(ParameterError, match="sample = '3 of 1200 not finite': expected finite weights"):
            weibull_fit(x)
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


STEPS = np.arange(1.0, 101.0)


def _tail_on_a_bulk(exponent):
    return np.concatenate([STEPS / 125.0, (1.0 - (STEPS - 0.5) / 100.0) ** (-1.0 / (exponent - 1.0))])


# What the package powerlaw 1.5 finds, where both sides of each step give the same x_min.
@pytest.mark.parametrize(("values", "exponent", "x_min", "tail"), [
    (_tail_on_a_bulk(2.5), 2.5128198030611886, 1.0033472842348656, 100),
    (_tail_on_a_bulk(5.0), 5.034186141496503, 1.0012539209582008, 100),
    (np.arange(1.0, 61.0) ** 2, 4.327368418213396, 2025.0, 16),
])  # fmt: skip
def test_fits_are_those_of_another_program(values, exponent, x_min, tail):
    fit = power_law_fit(np.random.default_rng(1).permutation(values).reshape(2, -1))
    assert (fit.exponent, fit.x_min) == pytest.approx((exponent, x_min), rel=1e-12) and fit.tail == tail
    assert fit.standard_error == pytest.approx((exponent - 1.0) / math.sqrt(tail), rel=1e-12)


def test_a_fit_is_the_maximum_of_the_likelihood_and_its_distance_that_of_kolmogorov():
    x = np.random.default_rng(2).pareto(2.0, 200) + 1.0
    for x_min in (None, 1.5):
        fit = power_law_fit(x, x_min)
        tail = x[x >= fit.x_min]
        assert fit.tail == tail.size and (x_min is None or fit.x_min == x_min)
        assert fit.exponent == pytest.approx(1.0 + stats.pareto.fit(tail, floc=0.0, fscale=fit.x_min)[0], rel=1e-3)
        found = stats.kstest(tail, stats.pareto(fit.exponent - 1.0, scale=fit.x_min).cdf).statistic
        assert fit.distance == pytest.approx(found, abs=1e-12)
    distances = [power_law_fit(x, float(one)).distance for one in np.sort(x)[:-1]]
    assert power_law_fit(x).distance == min(distances)
    # Exponents do not change with the unit and have no upper bound.
    x = _tail_on_a_bulk(40.0)
    fit, scaled = power_law_fit(x), power_law_fit(1e30 * x)
    assert fit.exponent == pytest.approx(40.0, rel=0.02) == pytest.approx(scaled.exponent, rel=0.02)
    assert scaled.x_min == pytest.approx(1e30 * fit.x_min, rel=1e-12)


def test_the_p_value_holds_its_level_and_rules_out_what_is_no_power_law():
    rng = np.random.default_rng(4)
    p = [power_law_p_value(rng.pareto(1.5, 25) + 1.0, draws=19, seed=k) for k in range(40)]
    assert set(np.round(np.multiply(p, 20.0), 9)) <= set(range(1, 21))
    # At 0.1: 4 of 40 expected, at most 14 with probability 1 - 1e-5.
    assert np.sum(np.less_equal(p, 0.1)) <= 14
    # Three values lie in steps that no continuous law has.
    assert power_law_p_value(np.repeat([1.0, 2.0, 3.0], [80, 40, 20]), draws=19) == 0.05
    values = _tail_on_a_bulk(2.5)
    assert power_law_p_value(values, 19, seed=7) == power_law_p_value(values, 19, seed=7)


REFUSED = [
    *((lambda x=x: power_law_fit(x), "values") for x in ([1.0], [2.0, 2.0], [1.0, 0.0], [1.0, math.nan], [])),
    (lambda: power_law_p_value([2.0, 2.0]), "values"),
    *((lambda x_min=x_min: power_law_fit([1.0, 2.0, 3.0], x_min), "x_min") for x_min in (0.0, 3.0, 2.5, math.nan)),
    (lambda: power_law_p_value([1.0, 2.0, 3.0], draws=0), "draws"),
]


@pytest.mark.parametrize(("call", "culprit"), REFUSED)
def test_what_has_no_tail_is_refused(call, culprit):
    with pytest.raises(ParameterError, match=culprit):
        call()
