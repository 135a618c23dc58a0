"""Pearson's bound and the laws that reach it."""

import math

import numpy as np
import pytest
from scipy import stats

from rmtbase.laws import TwoPoint, pearson_bound


@pytest.mark.parametrize("skewness", [-30.0, -1.0, 0.0, 1e-9, 0.5, 4.0, 1e4])
def test_the_two_point_law_saturates_the_bound(skewness):
    law = TwoPoint(skewness)
    low, high = law.support
    assert low < high and sum(law.weights) == pytest.approx(1.0, abs=1e-15)
    assert law.moment(0) == pytest.approx(1.0) and abs(law.moment(1)) < 1e-12
    assert law.moment(2) == pytest.approx(1.0, rel=1e-12)
    assert law.moment(3) == pytest.approx(skewness, rel=1e-9, abs=1e-12)
    assert law.moment(4) == pytest.approx(pearson_bound(skewness), rel=1e-9)
    assert law.kurtosis() == pearson_bound(skewness)
    assert law.weights[1] == pytest.approx(0.5 * (1 - skewness / math.hypot(skewness, 2)), rel=1e-6)


def test_location_and_scale_move_the_points():
    law = TwoPoint(0.7, center=3.0, scale=0.2)
    np.testing.assert_allclose(law.support, 3.0 + 0.2 * np.array(TwoPoint(0.7).support), rtol=1e-14)
    assert law.weights == TwoPoint(0.7).weights
    assert (law.mean(), law.std()) == (3.0, 0.2)
    assert law.var() == pytest.approx(law.moment(2) - law.moment(1) ** 2, rel=1e-12)


def test_every_sample_obeys_the_bound_and_two_values_reach_it():
    rng = np.random.default_rng(4)
    samples = rng.standard_t(2, size=(200, 30)) + 3 * (rng.random((200, 30)) < 0.1)
    skewness, kurtosis = stats.skew(samples, axis=1), stats.kurtosis(samples, axis=1, fisher=False)
    assert (kurtosis > pearson_bound(skewness) + 1e-3).all()
    two = np.repeat([1.0, 5.0], [3, 17])
    assert stats.kurtosis(two, fisher=False) == pytest.approx(pearson_bound(stats.skew(two)), rel=1e-12)


def test_nan_stays_nan():
    assert np.isnan(pearson_bound(math.nan))
