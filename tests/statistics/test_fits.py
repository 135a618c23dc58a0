"""Laws fitted to elements: scipy's own optimum, exact information, degenerate matrices, and what is refused.

False failures: pulls and coverage are tested at five standard errors (6e-7); every seed is fixed.
"""

import math
import warnings

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.errors import FitError, ParameterError
from rmtbase.statistics import fit_logistic, fit_student_t

FITS = {"logistic": fit_logistic, "student_t": fit_student_t}
every_fit = pytest.mark.parametrize("fit", FITS.values(), ids=FITS)


def sample(law, size, seed=0):
    return law.rvs(size=size, random_state=np.random.default_rng(seed))


SAMPLES = {
    "logistic": stats.logistic(0.003, 0.02),
    "normal": stats.norm(0.003, 0.02),
    "t4": stats.t(4, 0.003, 0.02),
    "uniform": stats.uniform(-1, 2),
    "exponential": stats.expon(scale=0.02),
}


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


@pytest.mark.parametrize(
    ("fit", "law", "parameters"),
    mostly_exhaustive(
        [
            (fit_logistic, stats.logistic, {"location": 0.3, "scale": 0.02}),
            (fit_student_t, stats.t, {"df": 0.7, "location": 0.3, "scale": 0.02}),
            (fit_student_t, stats.t, {"df": 3.3, "location": 0.3, "scale": 0.02}),
            (fit_student_t, stats.t, {"df": 12.0, "location": 0.3, "scale": 0.02}),
        ],
        always=1,
    ),
)
def test_standard_errors_are_the_spread_of_the_estimates(fit, law, parameters):
    rng = np.random.default_rng(2)
    fits = [fit(law(*parameters.values()).rvs(size=2_500, random_state=rng)) for _ in range(200)]
    for name, value in parameters.items():
        # 1/df is the parameter whose estimate is normal; its pull is df's with the sign changed.
        pulls = np.array(
            [
                (1 / f.df - 1 / value) / f.inverse_df_standard_error
                if name == "df"
                else (getattr(f, name) - value) / getattr(f, f"{name}_standard_error")
                for f in fits
            ]
        )
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
    found = (
        fit.location_standard_error / fit.scale,
        fit.scale_standard_error / fit.scale,
        fit.inverse_df_standard_error,
    )
    np.testing.assert_allclose(found, exact, rtol=2e-3)


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


def test_tails_heavier_than_any_that_can_be_drawn_are_an_error():
    with pytest.raises(FitError):
        fit_student_t(sample(stats.t(0.12), 20_000))


@pytest.mark.parametrize("w", [sparse(0.6), sparse(0.9), np.eye(60), np.eye(400)])
def test_a_likelihood_without_maximum_is_an_error_and_no_number(w):
    # Every zero adds -ln s to the likelihood, every other element ν ln s: as s falls, it grows without bound.
    with pytest.raises(FitError, match=r"cannot fit the Student-t law: .* too many elements are equal") as caught:
        fit_student_t(w)
    assert caught.value.law == "Student-t"
    assert np.isfinite(fit_logistic(w).scale)


@every_fit
@pytest.mark.parametrize("outlier", [1e6, 1e30])
def test_a_single_outlier_of_any_size_is_survived(fit, outlier):
    w = np.append(sample(stats.norm(), 5_000), outlier)
    found = fit(w)
    assert np.isfinite([found.location, found.scale, found.log_likelihood]).all()
    if fit is fit_student_t:
        assert abs(found.location) < 0.1 and 0.5 < found.scale < 1


@every_fit
@pytest.mark.parametrize("w", [[0.0, 1.0], [[0.0], [1.0], [5.0]], [1e-310, 2e-310, 4e-310], [-3, 1, 2]])
def test_a_few_elements_are_enough(fit, w):
    found = fit(w)
    assert np.min(w) <= found.location <= np.max(w)
    assert found.scale > 0
    assert found.count == np.size(w)


NORMAL = sample(stats.norm(), (8, 8))
BAD = {
    "empty": (np.ones((0, 4)), r"shape \(0, 4\)"),
    "one element": ([[2.0]], "1 elements, all 2"),
    "constant": (np.full((3, 3), 0.25, np.float32), "9 elements, all 0.25"),
    "nan": (np.where(NORMAL > 1, np.nan, NORMAL), "of 64 elements not finite"),
    "inf": (np.where(NORMAL > 1, -np.inf, NORMAL), "of 64 elements not finite"),
    "all nan": (np.full((3, 3), np.nan), "9 of 9 elements not finite"),
    "bool": (NORMAL > 0, "dtype bool"),
    "complex": (NORMAL + 1j, "dtype complex128"),
    "text": ([["a", "b"]], "dtype <U1"),
    "too wide": (np.append(NORMAL, 1e60), "1e[+]60"),
}


@every_fit
@pytest.mark.parametrize("bad", BAD)
def test_a_matrix_that_cannot_be_fitted_is_named(fit, bad):
    matrix, message = BAD[bad]
    with warnings.catch_warnings(), pytest.raises(ParameterError, match=f"^matrix = .*{message}"):
        warnings.simplefilter("error")
        fit(matrix)
