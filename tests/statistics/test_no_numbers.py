"""What no statistic is of: complex numbers, text, objects, and arrays some of whose entries are masked."""

import ml_dtypes
import numpy as np
import pytest

import rmtbase
from rmtbase import statistics
from rmtbase.errors import ParameterError

P = (0.25, 0.5)
SKETCH = statistics.element_sketch([np.linspace(-1.0, 2.0, 100)])
TRACE = statistics.get_statistic("trace")

CALLS = {
    "benjamini_hochberg": lambda x: statistics.benjamini_hochberg(x),
    "benjamini_yekutieli": lambda x: statistics.benjamini_yekutieli(x),
    "holm": lambda x: statistics.holm(x),
    "cauchy_combination": lambda x: statistics.cauchy_combination(x),
    "drawn_moments": lambda x: statistics.drawn_moments(x, 1.0, 5.0),
    "drawn_moments: std": lambda x: statistics.drawn_moments(1.0, x, 5.0),
    "element_moments": lambda x: statistics.element_moments(x),
    "element_sums": lambda x: statistics.element_sums(x),
    "element_sketch": lambda x: statistics.element_sketch([x]),
    "ElementSketch.quantile": lambda x: SKETCH.quantile(x),
    "ElementSketch.histogram": lambda x: SKETCH.histogram(x[::-1] if isinstance(x, np.ndarray) else x),
    "fit_logistic": lambda x: statistics.fit_logistic(x),
    "fit_normal": lambda x: statistics.fit_normal(x),
    "fit_student_t": lambda x: statistics.fit_student_t(x),
    "hill_exponent": lambda x: statistics.hill_exponent(x, 2),
    "histogram_entropy": lambda x: statistics.histogram_entropy(x, 4, (0.0, 1.0)),
    "histogram_kl": lambda x: statistics.histogram_kl(x, 4, (0.0, 1.0)),
    "monte_carlo_p_value": lambda x: statistics.monte_carlo_p_value(x, [0.1, 0.2]),
    "monte_carlo_p_value: null": lambda x: statistics.monte_carlo_p_value(0.5, x),
    "nearest_neighbour_entropy": lambda x: statistics.nearest_neighbour_entropy(x),
    "nearest_neighbour_kl": lambda x: statistics.nearest_neighbour_kl(x),
    "normal_score": lambda x: statistics.normal_score(x, True),
    "p_value_among_sorted": lambda x: statistics.p_value_among_sorted(x, np.array([0.1, 0.2])),
    "upper_p_value_among_sorted": lambda x: statistics.upper_p_value_among_sorted(x, np.array([0.1, 0.2])),
    "power_law_fit": lambda x: statistics.power_law_fit(x),
    "power_law_p_value": lambda x: statistics.power_law_p_value(x, draws=3),
    "on_distance_scale": lambda x: statistics.on_distance_scale(np.resize(x, 16)),
    "from_distance_scale": lambda x: statistics.from_distance_scale(np.resize(x, 16)),
    "spectral_statistics": lambda x: statistics.spectral_statistics(x),
    "Statistic.rescale": lambda x: TRACE.rescale(x, 2.0, 4),
    "Statistic.rescale: scale": lambda x: TRACE.rescale(1.0, x, 4),
    "Statistic.rescale_spread": lambda x: TRACE.rescale_spread(x, 2.0),
    "summarize": lambda x: statistics.summarize(x, P),
    "summarize: probabilities": lambda x: statistics.summarize([1.0, 2.0], x),
    "weibull_fit": lambda x: statistics.weibull_fit(x),
    "weibull_likelihood_fit": lambda x: statistics.weibull_likelihood_fit(x),
    "summarize_stream": lambda x: statistics.summarize_stream(lambda: [np.resize(x, (1, 8))], P),
    "quantiles_of_stream": lambda x: statistics.quantiles_of_stream(lambda: [np.resize(x, (1, 8))], P),
    "score_heads": lambda x: rmtbase.score_heads(np.resize(x, (2, 2, 4)), np.ones((2, 2, 4))),
}
"""Every public call that takes numbers; each is asked with eight of them."""

NO_NUMBERS = (
    "eigenvalue_moment_orders", "element_statistics", "entropy_of_counts", "get_element_statistic", "get_statistic",
    "inverse_moment_order", "kl_of_counts", "magnitude_bins", "missing_moment", "moment_order", "weibull_fit_of_bins",
)  # fmt: skip
"""Calls of a name, of dimensions, of bits, and of what has been counted."""

GOOD = np.array([0.9, 0.8, 0.65, 0.5, 0.4, 0.3, 0.2, 0.1])
BAD = {
    "complex": (GOOD + 0j, "complex128"),
    "complex with an imaginary part": (GOOD + 1j, "complex128"),
    "text": (GOOD.astype(str), "<U"),
    "objects": (GOOD.astype(object), "object"),
    "dates": (np.arange(8).astype("M8[s]"), "datetime64"),
    "truth values": (GOOD > 0.5, "bool"),
    "a structure": (GOOD.view([("x", "f8")]), "'x'"),
}


def test_every_public_call_is_asked():
    called = {name for name in statistics.__all__ if callable(getattr(statistics, name)) and name.islower()}
    assert called == {name.split(":")[0] for name in CALLS if name[0].islower()} - {"score_heads"} | set(NO_NUMBERS)


def test_the_eight_numbers_themselves_are_taken():
    for name, call in CALLS.items():
        if name != "score_heads":
            call(GOOD)
            call(np.ma.masked_array(GOOD, mask=False))
            call(GOOD.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("name", CALLS)
def test_what_is_no_real_number_is_refused_by_name(name, bad):
    numbers, found = BAD[bad]
    with pytest.raises(ParameterError) as caught:
        CALLS[name](numbers)
    assert found in str(caught.value)
    assert "real numbers" in str(caught.value)


def masked():
    array = np.ma.masked_array(GOOD, mask=False)
    array[3] = np.ma.masked
    return array


def resized(shape):
    """Of ``numpy.resize`` the mask would be lost."""
    return np.ma.resize(masked(), shape)


MASKED = CALLS | {
    "p_value_among_sorted": lambda x: statistics.p_value_among_sorted(x, np.array([0.1, 0.2])),
    "upper_p_value_among_sorted": lambda x: statistics.upper_p_value_among_sorted(x, np.array([0.1, 0.2])),
    "on_distance_scale": lambda x: statistics.on_distance_scale(resized(16)),
    "from_distance_scale": lambda x: statistics.from_distance_scale(resized(16)),
    "summarize_stream": lambda x: statistics.summarize_stream(lambda: [resized((1, 8))], P),
    "quantiles_of_stream": lambda x: statistics.quantiles_of_stream(lambda: [resized((1, 8))], P),
    "score_heads": lambda x: rmtbase.score_heads(resized((2, 2, 4)), np.ones((2, 2, 4))),
}


@pytest.mark.parametrize("name", MASKED)
def test_masked_entries_are_refused_and_counted(name):
    with pytest.raises(ParameterError, match=r"[12] masked entries.*without masked ones"):
        MASKED[name](masked())


def test_masked_arrays_in_a_list_are_refused_too():
    with pytest.raises(ParameterError, match="2 masked entries"):
        statistics.spectral_statistics([masked(), masked()])
    with pytest.raises(ParameterError, match="1 masked entries"):
        statistics.fit_normal([1.0, 2.0, np.ma.masked])


def test_ragged_lists_and_no_values_at_all_are_refused():
    with pytest.raises(ParameterError, match="singular_values = 'list': expected real numbers"):
        statistics.spectral_statistics([[1.0, 2.0], [3.0]])
    for empty in ([], np.empty((3, 0)), 2.0):
        with pytest.raises(ParameterError, match="singular_values = "):
            statistics.spectral_statistics(empty)
    with pytest.raises(ParameterError, match="matrix = 'no element'"):
        statistics.element_moments(np.empty((0, 4)))
    with pytest.raises(ParameterError, match="draws = 1"):
        statistics.summarize(3.0, P)


def test_bits_that_are_no_bits_are_refused():
    for bad in (GOOD, np.arange(4, dtype=np.int32), np.ma.masked_array(np.arange(4), mask=[0, 0, 0, 1])):
        with pytest.raises(ParameterError, match=r"bits = .*int64, none masked"):
            statistics.magnitude_bins(bad)
