"""Every public call that takes numbers: the right number, or a ParameterError that says what was found.

A call is tested by being registered in CALLS; a test fails while a public name is in none of the lists here.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy.optimize import brentq

import rmtbase
from rmtbase import laws, linalg, nulls, statistics
from rmtbase.errors import ParameterError, RmtbaseError
from rmtbase.results.depth import effective_depth
from rmtbase.results.scores._how_much import at_p_value_floor
from rmtbase.results.signal import heavy_tails, learned_part, spectral_signal

P = (0.25, 0.5)
EIGHT = np.array([0.9, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1])
SKETCH = statistics.element_sketch([np.linspace(-1.0, 2.0, 100)])
TRACE = statistics.get_statistic("trace")
MATRIX = np.random.default_rng(1).normal(size=(4, 6))
LARGE = np.random.default_rng(2).normal(size=(20, 30)) + 9.0 * np.outer(np.ones(20), np.ones(30)) / 600**0.5
CHAIN = (24, 8, 24)


def masks(x):
    return isinstance(x, np.ma.MaskedArray)


def of_sixteen(x):
    return x if isinstance(x, list) else np.ma.resize(x, 16) if masks(x) else np.resize(x, 16)


def in_one_row(x):
    return x if isinstance(x, list) else x.reshape(1, -1) if masks(x) else np.reshape(x, (1, -1))


def stacked(x):
    return [x] if isinstance(x, list) else x[None] if masks(x) else np.asarray(x)[None]


def reversed_(x):
    return x[::-1] if np.ndim(np.asanyarray(x, dtype=object)) else x


OF_EIGHT = {
    "statistics.benjamini_hochberg": statistics.benjamini_hochberg,
    "statistics.benjamini_yekutieli": statistics.benjamini_yekutieli,
    "statistics.holm": statistics.holm,
    "statistics.cauchy_combination": statistics.cauchy_combination,
    "statistics.drawn_moments": lambda x: statistics.drawn_moments(x, 1.0, 5.0),
    "statistics.drawn_moments: std": lambda x: statistics.drawn_moments(1.0, x, 5.0),
    "statistics.element_moments": statistics.element_moments,
    "statistics.element_sketch": lambda x: statistics.element_sketch([x]).moments(),
    "statistics.element_statistics": lambda x: statistics.element_statistics(
        statistics.element_sketch([np.tile(x, 16) if isinstance(x, np.ndarray) and type(x) is np.ndarray else x])
    )[:4],
    "statistics.ElementSketch.quantile": SKETCH.quantile,
    "statistics.ElementSketch.histogram": lambda x: SKETCH.histogram(reversed_(x)),
    "statistics.fit_logistic": statistics.fit_logistic,
    "statistics.fit_student_t": statistics.fit_student_t,
    "statistics.histogram_entropy": lambda x: statistics.histogram_entropy(x, 4, (0.0, 1.0)),
    "statistics.histogram_kl": lambda x: statistics.histogram_kl(x, 4, (0.0, 1.0)),
    "statistics.monte_carlo_p_value": lambda x: statistics.monte_carlo_p_value(x, [0.1, 0.2]),
    "statistics.monte_carlo_p_value: null": lambda x: statistics.monte_carlo_p_value(0.5, x),
    "statistics.nearest_neighbour_entropy": statistics.nearest_neighbour_entropy,
    "statistics.nearest_neighbour_kl": statistics.nearest_neighbour_kl,
    "statistics.normal_score": lambda x: statistics.normal_score(x, True),
    "statistics.p_value_among_sorted": lambda x: statistics.p_value_among_sorted(x, [0.1, 0.2]),
    "statistics.p_value_among_sorted: null": lambda x: statistics.p_value_among_sorted(0.5, reversed_(x)),
    "statistics.upper_p_value_among_sorted": lambda x: statistics.upper_p_value_among_sorted(x, [0.1, 0.2]),
    "statistics.upper_p_value_among_sorted: null": lambda x: statistics.upper_p_value_among_sorted(0.5, reversed_(x)),
    "statistics.power_law_fit": statistics.power_law_fit,
    "statistics.power_law_p_value": lambda x: statistics.power_law_p_value(x, draws=3),
    "statistics.on_distance_scale": lambda x: statistics.on_distance_scale(of_sixteen(x)),
    "statistics.from_distance_scale": lambda x: statistics.from_distance_scale(of_sixteen(x)),
    "statistics.spectral_statistics": statistics.spectral_statistics,
    "statistics.Statistic.rescale": lambda x: TRACE.rescale(x, 2.0, 4),
    "statistics.Statistic.rescale: scale": lambda x: TRACE.rescale(1.0, x, 4),
    "statistics.Statistic.rescale_spread": lambda x: TRACE.rescale_spread(x, 2.0),
    "statistics.summarize": lambda x: statistics.summarize(x, P)[:-1],  # its last field is NaN of so few draws
    "statistics.summarize: probabilities": lambda x: statistics.summarize([1.0, 2.0], x)[:-1],
    "statistics.summarize_stream": lambda x: statistics.summarize_stream(lambda: [in_one_row(x)], P)[:-1],
    "statistics.weibull_fit": statistics.weibull_fit,
    "statistics.weibull_likelihood_fit": statistics.weibull_likelihood_fit,
    "linalg.without_noise": linalg.without_noise,
    "linalg.loses_digits": lambda x: linalg.loses_digits(in_one_row(x), "float64"),
    "nulls.angle_statistics": lambda x: nulls.angle_statistics(x, 32),
    "nulls.chain_scale": lambda x: nulls.chain_scale([x, x]),
    "nulls.distance_from_moments": lambda x: nulls.distance_from_moments(True, x, 1.0, 0.5),
    "nulls.distance_from_moments: std": lambda x: nulls.distance_from_moments(True, 1.0, 1.0, x),
    "laws.logarithmic_edges": laws.logarithmic_edges,
    "nulls.mean_kurtosis": lambda x: nulls.mean_kurtosis(CHAIN, [x, x]),
    "nulls.without_kurtosis": lambda x: nulls.without_kurtosis(x, 0.5, CHAIN),
    "nulls.AnalyticNull.score": lambda x: nulls.AnalyticNull(24, 8).score(in_one_row(x), [1.0]),
    "laws.Distribution.cdf": lambda x: laws.TracyWidom(1).cdf(x),
    "laws.Distribution.isf": lambda x: laws.TracyWidom(1).isf(x),
    "laws.Distribution.p_value": lambda x: laws.TracyWidom(1).p_value(x),
    "laws.RankOneSpike.outlier": lambda x: laws.RankOneSpike(24, 8).outlier(x).shrunken,
    "laws.RankOneSpike.eigenvalue": lambda x: laws.RankOneSpike(24, 8).eigenvalue(x),
    "laws.RankOneSpike.strength_limits": lambda x: laws.RankOneSpike(24, 8).strength_limits(x),
    "laws.eigenvalue_displacement": lambda x: laws.eigenvalue_displacement(x, 0.5, dims=CHAIN),
    "laws.eigenvalue_displacement: kurtosis": lambda x: laws.eigenvalue_displacement(0.5, x, dims=CHAIN),
    "laws.normal_entropy": laws.normal_entropy,
    "laws.normal_kl": lambda x: laws.normal_kl(x, 1.0),
    "laws.normal_kl: mean": lambda x: laws.normal_kl(1.0, 1.0, x),
    "laws.pearson_bound": laws.pearson_bound,
    "laws.spiked_tracy_widom_cdf": lambda x: laws.spiked_tracy_widom_cdf(x, 0.5),
    "laws.weibull_quantile_noise": laws.weibull_quantile_noise,
    "at_p_value_floor": lambda x: at_p_value_floor(x, 0.01),
    "statistics.moved_share": lambda x: statistics.moved_share(x, EIGHT),
    "statistics.moved_share: mean": lambda x: statistics.moved_share(EIGHT, x),
    "statistics.moved_parts": lambda x: np.array(statistics.moved_parts(x, EIGHT)),
    "statistics.moved_parts: mean": lambda x: np.array(statistics.moved_parts(EIGHT, x)),
}
"""Calls of eight numbers: a spectrum, p-values, a sample."""

OF_MATRIX = {
    "linalg.singular_values": linalg.singular_values,
    "linalg.gram_singular_values": lambda x: linalg.gram_singular_values(stacked(x)),
    "linalg.matrix_singular_values": linalg.matrix_singular_values,
    "linalg.symmetric_singular_values": linalg.symmetric_singular_values,
    "linalg.device_singular_values": lambda x: linalg.device_singular_values(x, "device_svd"),
    "linalg.device_singular_values: gram": lambda x: linalg.device_singular_values(x, "device_gram"),
    "linalg.core_singular_values": linalg.core_singular_values,
    "linalg.core_of_triangles": lambda x: linalg.core_of_triangles(linalg.triangle(x), linalg.triangle(MATRIX)),
    "linalg.product_singular_values": lambda x: linalg.product_singular_values(MATRIX, x),
    "linalg.product_singular_values: both": lambda x: linalg.product_singular_values(x, x),
    "linalg.triangle": linalg.triangle,
    "linalg.triangles": lambda x: linalg.triangles(x).r,
    "linalg.appended_rows": lambda x: linalg.appended_rows(None, x),
    "linalg.appended_rows: below": lambda x: linalg.appended_rows(np.eye(6), x),
    "linalg.extreme_eigenvalues": lambda x: linalg.extreme_eigenvalues(x, MATRIX[:, :5]),
    "linalg.extreme_eigenvalues: off": lambda x: linalg.extreme_eigenvalues(np.ones((4, 7)), x),
}
"""Calls of a matrix of 4 rows and 6 columns."""

OF_LARGE = {
    "learned_part": lambda x: learned_part(x).signal.n_directions,
    "learned_part: b": lambda x: learned_part(LARGE, x).signal.n_directions,
    "spectral_signal": lambda x: spectral_signal(np.ma.ravel(x)[:20] if masks(x) else x, (20, 30)),
    "effective_depth": lambda x: effective_depth(x, draws=19, depths=(1, 2)).p_value,
    "heavy_tails": lambda x: heavy_tails(x, draws=19).p_value,
    "score_heads": lambda x: rmtbase.score_heads(stacked(x), np.ones((1, 20, 30)), "analytic"),
    "score_heads: w_k": lambda x: rmtbase.score_heads(LARGE[None], stacked(x), "analytic"),
}
"""Calls of a matrix of 20 rows and 30 columns."""

CALLS = [
    (name, call, good)
    for of, good in ((OF_EIGHT, EIGHT), (OF_MATRIX, MATRIX), (OF_LARGE, LARGE))
    for name, call in of.items()
]

UNKNOWN = {
    *(f"statistics.{name}" for name in ("benjamini_hochberg", "benjamini_yekutieli", "holm", "cauchy_combination")),
    *(f"statistics.drawn_moments{what}" for what in ("", ": std")),
    *("statistics.monte_carlo_p_value", "statistics.normal_score", "statistics.p_value_among_sorted"),
    *("statistics.upper_p_value_among_sorted", "statistics.on_distance_scale", "statistics.from_distance_scale"),
    *(f"statistics.Statistic.{name}" for name in ("rescale", "rescale: scale", "rescale_spread")),
    *("statistics.summarize", "statistics.summarize_stream"),
    *("linalg.without_noise", "linalg.loses_digits"),
    *("nulls.angle_statistics", "nulls.chain_scale", "nulls.distance_from_moments", "nulls.distance_from_moments: std"),
    *("laws.logarithmic_edges", "nulls.mean_kurtosis", "nulls.without_kurtosis", "nulls.AnalyticNull.score"),
    *(f"laws.Distribution.{name}" for name in ("cdf", "isf", "p_value")),
    *(f"laws.RankOneSpike.{name}" for name in ("outlier", "eigenvalue", "strength_limits")),
    *("laws.eigenvalue_displacement", "laws.spiked_tracy_widom_cdf"),
    *("laws.pearson_bound", "laws.weibull_quantile_noise", "at_p_value_floor"),
    *("statistics.moved_share", "statistics.moved_share: mean"),
    *("statistics.moved_parts", "statistics.moved_parts: mean"),
}
"""Calls whose documentation says what NaN stands for: a test that was not made, or a number that is not known."""


NO_ARRAYS = {
    "laws": {"linear_statistics", "null"},  # functions, or a name
    "linalg": set(),
    "nulls": set(),
    "results.scores": set(),
    "results.signal": set(),
    "statistics": set(),
}


@pytest.mark.parametrize("room", NO_ARRAYS)
def test_every_public_call_that_takes_numbers_is_asked(room):
    module, asked = import_module(f"rmtbase.{room}"), {name.split(":")[0] for name, _, _ in CALLS}
    for name in module.__all__:
        one = getattr(module, name)
        if not (callable(one) and name[0].islower()):
            continue
        given = " ".join(str(kind) for what, kind in one.__annotations__.items() if what != "return")
        if "Array" in given or "ndarray" in given:
            assert f"{room}.{name}" in asked or name in asked | NO_ARRAYS[room], name


KINDS = {
    "complex": (lambda x: x + 1j, "complex128"),
    "text": (lambda x: x.astype(str), "<U"),
    "objects": (lambda x: x.astype(object), "object"),
    "dates": (lambda x: x.astype(np.int64).astype("M8[s]"), "datetime64"),
    "truth values": (lambda x: x > 0.5, "bool"),
    "a structure": (lambda x: np.ascontiguousarray(x).view([("x", "f8")]), "'x'"),
    "masked": (lambda x: np.ma.masked_array(x, mask=np.arange(x.size).reshape(x.shape) == 3), "masked entries"),
}


BY_NAME = pytest.mark.parametrize(("name", "call", "good"), CALLS, ids=[name for name, _, _ in CALLS])


@BY_NAME
def test_what_is_no_real_number_is_refused_by_name(name, call, good):
    for kind, (make, found) in KINDS.items():
        with pytest.raises(ParameterError) as caught:
            call(make(good))
        assert found in str(caught.value), kind
        assert "real numbers" in str(caught.value), kind


def numbers_of(result: Any) -> Iterator[float]:
    """All numbers of a result, whatever holds them."""
    if hasattr(result, "__dataclass_fields__") and not isinstance(result, type):
        for field in result.__dataclass_fields__:
            yield from numbers_of(getattr(result, field))
    elif isinstance(result, tuple):
        for one in result:
            yield from numbers_of(one)
    elif not isinstance(result, str) and not hasattr(result, "subtree"):
        yield from np.ravel(np.asarray(result, dtype=np.float64)).tolist()


@BY_NAME
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_are_refused_or_stand_for_what_the_documentation_says(name, call, good, bad):
    given = good.copy()
    given.flat[-1 if bad < 0 else 0] = bad
    try:
        found = list(numbers_of(call(given)))
    except ParameterError as error:
        assert str(error)
    else:
        assert name in UNKNOWN | BEYOND, "a call that takes NaN or infinities says what they stand for"
        if np.isnan(bad) and name not in WITHOUT_NAN:
            assert np.isnan(found).any() or not np.isfinite(found).all()


BEYOND = {
    "statistics.monte_carlo_p_value: null", "statistics.p_value_among_sorted: null",
    "statistics.upper_p_value_among_sorted: null",
}  # fmt: skip
"""Calls of a statistic's draws, which may be infinite, as a condition number is."""
WITHOUT_NAN = {
    "statistics.cauchy_combination", "linalg.loses_digits", "laws.logarithmic_edges", "at_p_value_floor",
}  # fmt: skip
"""Calls that answer yes or no, or leave NaN out, as they say."""

AWKWARD = {
    "zeros": lambda x: np.zeros(x.shape),
    "one zero": lambda x: np.where(np.arange(x.size).reshape(x.shape) == x.size - 1, 0.0, x),
    "equal": lambda x: np.ones(x.shape),
    "nearly equal": lambda x: 1.0 + 1e-15 * np.arange(x.size)[::-1].reshape(x.shape),
    "negative": lambda x: -np.abs(x),
    "ascending": lambda x: np.sort(x, axis=-1),
    "shuffled": lambda x: np.random.default_rng(3).permuted(x, axis=-1),
    "integers": lambda x: np.round(8 * x).astype(np.int64),
    "float16": lambda x: x.astype(np.float16),
    "bfloat16": lambda x: x.astype(ml_dtypes.bfloat16),
    "none": lambda x: np.empty(0),
    "no rows": lambda x: x[:0],
    "one number": lambda x: np.array(0.5),
    "a row": lambda x: np.ravel(x)[:8],
    "more axes": lambda x: x[None, None],
    "a ragged list": lambda x: [[1.0, 2.0], [3.0]],
    "nothing": lambda x: None,
    "text": lambda x: "0.5",
    **{f"times {scale:g}": (lambda x, scale=scale: x * scale) for scale in (1e78, 1e-78, 1e82, 1e-82, 1e150, 1e-150)},
    **{f"times {scale:g}": (lambda x, scale=scale: x * scale) for scale in (1e160, 1e-160, 1e300, 1e-300)},
}


@BY_NAME
def test_awkward_numbers_give_numbers_or_an_error_that_names_them(name, call, good, capfd):
    wrong = {}
    for awkward, make in AWKWARD.items():
        try:
            found = np.array(list(numbers_of(call(make(good)))))
            if np.isnan(found).any() and name not in MAY_BE_NAN:
                wrong[awkward] = found
        except RmtbaseError as error:
            assert str(error)
        except Exception as error:
            wrong[awkward] = error
    assert wrong == {}
    assert "DLASCL" not in capfd.readouterr().out, "LAPACK prints what it is not asked before it is called"


MAY_BE_NAN = {
    "statistics.moved_share": "zeros, or another rank",
    "statistics.moved_share: mean": "zeros",
    "statistics.moved_parts": "zeros, or another rank",
    "statistics.moved_parts: mean": "zeros",
    "statistics.cauchy_combination": "no test at all",
    "statistics.element_moments": "a constant matrix",
    "statistics.element_sketch": "a constant matrix",
    "statistics.element_statistics": "fewer than a hundred numbers, or a constant matrix",
    "nulls.chain_scale": "a factor of zeros, or a scale beyond float64",
    "nulls.distance_from_moments: std": "a value at the mean of what does not spread",
    "nulls.AnalyticNull.score": "a head beyond float64",
    "laws.Distribution.isf": "outside [0, 1], as in scipy",
    "laws.weibull_quantile_noise": "outside (0, 1)",
    "learned_part": "a matrix of rank one, which has no noise",
    "learned_part: b": "a matrix of rank one, which has no noise",
}
"""Calls that say in their documentation where a number is not known, and give NaN there."""


SHAPES = [name for name, one in statistics.SPECTRAL_STATISTICS.items() if one.scaling == 0]

SCALE_FREE = {
    "spectral_statistics": (lambda x: statistics.spectral_statistics(x, SHAPES), EIGHT),
    "element_moments": (lambda x: list(numbers_of(statistics.element_moments(x)))[3:], EIGHT),
    "nearest_neighbour_kl": (statistics.nearest_neighbour_kl, EIGHT),
    "power_law_fit": (lambda x: statistics.power_law_fit(x).exponent, EIGHT),
    "weibull_fit": (lambda x: statistics.weibull_fit(x).shape, EIGHT),
    "weibull_likelihood_fit": (lambda x: statistics.weibull_likelihood_fit(x).shape, EIGHT),
    "fit_student_t": (lambda x: statistics.fit_student_t(x).inverse_df_standard_error, EIGHT),
    "effective_depth": (lambda x: effective_depth(x, draws=19, depths=(1, 2)).p_value, LARGE),
    "moved_share": (lambda x: statistics.moved_share(x, EIGHT**2), EIGHT),
}
IN_UNITS = {
    "singular_values": (linalg.singular_values, MATRIX),
    "gram_singular_values": (lambda x: linalg.gram_singular_values(x[None])[0], MATRIX),
    "product_singular_values": (lambda x: linalg.product_singular_values(x, MATRIX), MATRIX),
    "extreme_eigenvalues": (lambda x: np.array(linalg.extreme_eigenvalues(x[:, :4], x[:, :3])), MATRIX),
    "fit_logistic": (lambda x: statistics.fit_logistic(x).scale, EIGHT),
    "summarize": (lambda x: np.array(statistics.summarize(x, P)[:4]), EIGHT),
    "summarize_stream": (lambda x: np.array(statistics.summarize_stream(lambda: [x[None]], P)[:4]), EIGHT),
    "weibull_fit": (lambda x: statistics.weibull_fit(x).scale, EIGHT),
    "weibull_likelihood_fit": (lambda x: statistics.weibull_likelihood_fit(x).scale, EIGHT),
    "power_law_fit": (lambda x: statistics.power_law_fit(x).x_min, EIGHT),
}
POWERS = (-990, -531, -498, -272, -259, 259, 272, 498, 531, 990)  # of two; 1e78 is 2^259, 1e-82 is 2^-272, 1e160 2^531


@pytest.mark.parametrize("name", SCALE_FREE)
def test_what_does_not_depend_on_the_scale_does_not(name):
    call, good = SCALE_FREE[name]
    expected = call(good)
    for power in POWERS:
        np.testing.assert_allclose(call(np.ldexp(good, power)), expected, rtol=1e-12, err_msg=f"2^{power}")


@pytest.mark.parametrize("name", IN_UNITS)
def test_what_has_units_scales_with_them(name):
    call, good = IN_UNITS[name]
    expected = call(good)
    for power in POWERS:
        found = np.ldexp(call(np.ldexp(good, power)), -power)
        np.testing.assert_allclose(found, expected, rtol=1e-12, err_msg=f"2^{power}")


def test_what_is_wrong_with_a_spectrum_is_said():
    for bad, found in (
        ([3.0, np.nan, 1.0], "1 NaN, 0 infinite and 0 negative values among 3"),
        ([np.inf, 1.0], "0 NaN, 1 infinite"),
        ([3.0, 2.0, -1.0], "1 negative values among 3"),
        ([1.0, 3.0, 2.0], "do not descend.*sort them"),
        ([0.0, 0.0], "a spectrum of zeros"),
        ([[1.0, 0.5], [0.0, 0.0]], "1 of 2 spectra of zeros"),
    ):
        with pytest.raises(ParameterError, match=f"singular_values = .*{found}"):
            statistics.spectral_statistics(bad)
    np.testing.assert_array_equal(statistics.spectral_statistics([0.0, 0.0], ["trace", "largest_eigenvalue"]), 0.0)


def test_statistics_beyond_float64_are_rounded_as_it_rounds():
    s = np.array([3.0, 2.0, 1.0])
    large, small = (
        dict(zip(statistics.SPECTRAL_STATISTICS, statistics.spectral_statistics(s * scale), strict=True))
        for scale in (1e160, 1e-170)
    )
    assert large["trace_of_square"] == large["largest_eigenvalue"] == np.inf
    assert small["trace_of_square"] == small["largest_eigenvalue"] == 0.0
    logs = 2.0 * np.log(s).sum()
    assert large["log_determinant"] == pytest.approx(logs + 6 * 160 * np.log(10.0), rel=1e-14)
    assert small["log_determinant"] == pytest.approx(logs - 6 * 170 * np.log(10.0), rel=1e-14)


@pytest.mark.parametrize("bad", [[0.1, 1.2], [0.1, -0.2]])
@pytest.mark.parametrize("call", [statistics.benjamini_hochberg, statistics.benjamini_yekutieli, statistics.holm])
def test_p_values_outside_zero_and_one_are_refused(call, bad):
    with pytest.raises(ParameterError, match=r"p_values = .1 of 2 outside \[0, 1\], such as (1.2|-0.2)"):
        call(bad)
    np.testing.assert_array_equal(call([1.0 + 1e-15, -1e-17]), call([1.0, 0.0]))  # what a law rounds


def test_nearly_equal_magnitudes_have_the_likelihood_fit_of_their_differences():
    # Of magnitudes 1 + ε x, k ε tends to the b of 1/b = Σ x e^{bx}/Σ e^{bx} − mean x as ε → 0.
    x = np.array([0.0, 1.0, 2.0, 3.0, 5.0, 8.0])
    exact = brentq(lambda b: 1.0 / b - np.average(x, weights=np.exp(b * x)) + x.mean(), 0.01, 10.0, xtol=1e-14)
    for step in (2.0**-30, 2.0**-40, 2.0**-52):
        assert statistics.weibull_likelihood_fit(1.0 + step * x).shape * step == pytest.approx(exact, rel=1e-7)
    with pytest.raises(ParameterError, match="1 of 3 weights not finite"):
        statistics.weibull_likelihood_fit([0.3, np.nan, 0.1])


def test_the_product_of_very_large_heads_is_refused_before_lapack_is_asked(capfd):
    w_q, w_k = 1e160 * np.random.default_rng(4).normal(size=(2, 4, 8, 32))
    with pytest.raises(ParameterError, match="over 1e308 in head 0"):
        rmtbase.score_heads(w_q, w_k, "analytic")
    assert capfd.readouterr().out == ""


def test_bits_that_are_no_bits_are_refused():
    for bad in (EIGHT, np.arange(4, dtype=np.int32), np.ma.masked_array(np.arange(4), mask=[0, 0, 0, 1])):
        with pytest.raises(ParameterError, match=r"bits = .*int64, none masked"):
            statistics.magnitude_bins(bad)


def test_masked_arrays_in_a_list_are_refused_too():
    masked = np.ma.masked_array(EIGHT, mask=EIGHT == 0.5)
    with pytest.raises(ParameterError, match="2 masked entries"):
        statistics.spectral_statistics([masked, masked])
