"""Estimates from the dependent elements of one W_QK, against exact traces and simulation of the matrices themselves."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import special

from exhaustive import mostly_exhaustive
from rmtbase import laws, statistics

DRAWS = 1000


def calls(d_model, d_head):
    """The function of each estimate, and what it takes beside matrices or their dimensions."""
    sigma = math.sqrt(d_head / d_model)
    given, cells = {"reference_sigma": sigma}, (40, (-4.5 * sigma, 4.5 * sigma))
    return {
        **{name: (f"histogram_{name}", cells, {}) for name in ("entropy", "kl")},
        **{f"neighbour_{name}": (f"nearest_neighbour_{name}", (3,), {}) for name in ("entropy", "kl")},
        "kl_given": ("histogram_kl", cells, given),
        "neighbour_kl_given": ("nearest_neighbour_kl", (3,), given),
    }


@cache
def simulated(d_model, d_head):
    """Estimates from DRAWS matrices W_QK at sigma = 1, normalization sqrt_d."""
    rng, how, rows = np.random.default_rng([d_model, d_head]), calls(d_model, d_head), []
    for _ in range(DRAWS):
        w = rng.standard_normal((d_model, d_head)) @ rng.standard_normal((d_head, d_model)) / math.sqrt(d_model)
        found = (getattr(statistics, name)(w, *given, **named) for name, given, named in how.values())
        rows.append([np.mean(np.abs(w)), *found])
    return dict(zip(["magnitude", *how], np.array(rows).T, strict=True))


def predicted(d_model, d_head, name):
    if name == "magnitude":
        return laws.element_average(np.abs, d_model, d_head)
    function, arguments, named = calls(d_model, d_head)[name]
    return getattr(laws, function)(d_model, d_head, *arguments, **named)


@pytest.mark.parametrize(("d_model", "d_head"), [(1, 1), (5, 1), (40, 7), (64, 64), (4096, 128)])
def test_average_square_has_the_exact_moments_of_the_trace(d_model, d_head):
    # Σ w² is the trace of W_QKᵀ W_QK, whose moments come from zonal polynomials.
    head = {"d_model": d_model, "d_head": d_head, "sigma_q": 0.7, "sigma_k": 1.3}
    trace, square = laws.trace_cumulants(1, **head), laws.element_average(np.square, **head)
    assert square.mean == pytest.approx(trace.mean / d_model**2, rel=1e-12)
    assert square.std == pytest.approx(trace.std / d_model**2, rel=1e-12)


def test_averages_have_their_closed_forms():
    # Given a row, w has mean zero: the elements are uncorrelated, and Var Σ w = d² h.
    average = laws.element_average(lambda w: w, 30, 5, normalization="none")
    assert average.mean == pytest.approx(0.0, abs=1e-14)
    assert average.std == pytest.approx(math.sqrt(5) / 30, rel=1e-12)
    # E ln w² = ψ(1/2) + ψ(h/2) + 2 ln 2, Var = ψ'(1/2) + ψ'(h/2), and the row's share is ψ'(h/2).
    d, h = 50, 6
    average = laws.element_average(lambda w: np.log(w * w), d, h, normalization="none")
    shared, own = special.polygamma(1, [h / 2, 0.5])
    assert average.mean == pytest.approx(special.digamma([0.5, h / 2]).sum() + 2 * math.log(2), rel=1e-12)
    assert average.std == pytest.approx(math.sqrt(own + shared + 2 * (d - 1) * shared) / d, rel=1e-12)
    law = laws.histogram_kl(100, 10, 1, (-3.0, 3.0))
    assert law.mean == pytest.approx(0.0, abs=1e-15) and law.std == pytest.approx(0.0, abs=1e-9)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive([(60, 8), (30, 30)], always=1))
@pytest.mark.parametrize(
    "name",
    mostly_exhaustive(
        ["magnitude", "entropy", "kl", "kl_given", "neighbour_entropy", "neighbour_kl", "neighbour_kl_given"], always=1
    ),
)
def test_simulated_matrices_have_the_predicted_mean_and_spread(d_model, d_head, name):
    # Each within its stated error and 4.5 standard errors: 28 comparisons, one seed in 5 000 fails.
    value, law = simulated(d_model, d_head)[name], predicted(d_model, d_head, name)
    assert abs(value.mean() - law.mean) < 4.5 * value.std() / math.sqrt(DRAWS) + law.error
    kurtosis = np.mean((value - value.mean()) ** 4) / value.var() ** 2
    assert abs(value.std() - law.std) < 4.5 * value.std() * math.sqrt((kurtosis - 1) / (4 * DRAWS)) + law.std_error


@pytest.mark.exhaustive
def test_independent_elements_would_have_a_several_times_smaller_spread():
    # Of the entropy √(Var ln p / N), near √(1/(2N)), for independent elements; the rows and columns add d/h to the 1/2.
    d, h = 60, 8
    value, law = simulated(d, h)["entropy"], laws.product_element(d, h)
    independent = law.logpdf(law.ppf((np.arange(20_000) + 0.5) / 20_000)).std() / d
    assert independent < 0.3 * value.std()
    assert laws.element_average(law.logpdf, d, h).std == pytest.approx(value.std(), rel=0.1)


def test_the_dependence_biases_a_divergence_at_a_given_sigma_by_one_over_d_h():
    d, h = 1000, 64
    sigma = math.sqrt(h / d)
    given, fitted = (
        laws.histogram_kl(d, h, 60, (-5 * sigma, 5 * sigma), reference_sigma=value) for value in (sigma, None)
    )
    assert given.mean - fitted.mean == pytest.approx(1 / (d * h) + 0.5 / d**2, rel=0.02)
    neighbours = (
        laws.nearest_neighbour_kl(d, h, 1, reference_sigma=sigma).mean - laws.product_element(d, h).kl_to_normal()
    )
    assert neighbours == pytest.approx(1 / (d * h), rel=0.05)


def test_a_fine_histogram_of_many_elements_finds_the_law_in_any_units():
    d, h = 20_000, 40
    law = laws.product_element(d, h)
    interval = (-8 * law.std(), 8 * law.std())
    entropy, divergence = laws.histogram_entropy(d, h, 400, interval), laws.histogram_kl(d, h, 400, interval)
    binning = (16 / 400) ** 2 / 24  # width²/(24 var): the density of a histogram is smoothed over its bins
    assert entropy.mean == pytest.approx(law.entropy() + binning - 1 / (d * h), abs=1e-6)
    assert divergence.mean == pytest.approx(law.kl_to_normal(), rel=2e-2)
    d, h = 100, 10
    plain = laws.histogram_kl(d, h, 30, (-1.2, 1.0), reference_sigma=0.3)
    wide = laws.histogram_kl(
        d, h, 30, (-12.0, 10.0), reference_sigma=3.0, sigma_q=2.0, sigma_k=0.5, normalization="none"
    )
    assert wide.mean == pytest.approx(plain.mean, rel=1e-12) and wide.std == pytest.approx(plain.std, rel=1e-12)
    shifted = laws.nearest_neighbour_entropy(d, h, 2, sigma_q=3.0)
    entropy = laws.nearest_neighbour_entropy(d, h, 2)
    assert shifted.mean == pytest.approx(entropy.mean + math.log(3.0), abs=1e-12)
    assert shifted.std == pytest.approx(entropy.std, rel=1e-12)


def distance_variance(k: int) -> float:
    """What the distances to the k-th neighbour add to the variance of the mean of ln p."""
    law = laws.product_element(4, 3)
    estimate, average = laws.nearest_neighbour_entropy(4, 3, k), laws.element_average(law.logpdf, 4, 3)
    return 16 * (estimate.std**2 - average.std**2)


def test_variance_of_the_distances_is_in_closed_form_for_the_nearest():
    closed = math.pi**2 / 6 - 1 + 4 * (math.pi**2 / 12 + special.spence(1.5))  # spence(1 - z) is Li₂(z)
    assert distance_variance(1) == pytest.approx(closed, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2, 5])
def test_variance_of_the_distances_is_that_of_points_on_a_circle(k):
    # A relative standard error of √(2/2000) = 3.2 %; 4.5 of them, three times: one seed in 50 000.
    rng, n = np.random.default_rng(k), 800
    averages = []
    for _ in range(2000):
        x = np.sort(rng.random(n))
        around = np.concatenate([x[-k:] - 1, x, x[:k] + 1])
        ends = [np.maximum(x - around[k - j : k - j + n], around[2 * k - j : 2 * k - j + n] - x) for j in range(k + 1)]
        averages.append(np.log(np.min(ends, axis=0)).mean())
    assert n * np.var(averages) == pytest.approx(distance_variance(k), rel=0.145)
