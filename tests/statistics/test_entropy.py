"""Entropy and divergence of a sample: NumPy's histogram, brute-force neighbours, and known laws."""

import math

import ml_dtypes
import numpy as np
import pytest
from scipy import special, stats

from rmtbase.errors import ParameterError
from rmtbase.statistics import histogram_entropy, histogram_kl, nearest_neighbour_entropy, nearest_neighbour_kl

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
