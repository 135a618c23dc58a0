"""Means of scale-free statistics from the limiting law."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.laws import LIMIT_STATISTICS, limit_mean, low_rank_product


def _entropy(values: np.ndarray) -> np.ndarray:
    share = values / values.sum(axis=1, keepdims=True)
    return -(share * np.log(share)).sum(axis=1)


ON_EIGENVALUES = {
    "spectral_entropy": _entropy,
    "spectral_entropy_singular": lambda x: _entropy(np.sqrt(x)),
    "effective_rank": lambda x: np.exp(_entropy(np.sqrt(x))),
    "participation_ratio_singular": lambda x: np.sqrt(x).sum(axis=1) ** 2 / x.sum(axis=1),
    "normalized_participation_ratio_singular": lambda x: np.sqrt(x).sum(axis=1) ** 2 / x.sum(axis=1) / x.shape[1],
    "stable_rank": lambda x: x.sum(axis=1) / x[:, 0],
    "condition_number": lambda x: x[:, 0] / x[:, -1],
    "condition_number_singular": lambda x: np.sqrt(x[:, 0] / x[:, -1]),
}


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("entropy", 8, 4), "statistic"),
        (("stable_rank", 8, 9), "d_head"),
        (("stable_rank", 8, 0), "d_head"),
        (("condition_number", 8, 8), "hard"),
    ],
)
def test_bad_parameters_are_named(arguments, name):
    with pytest.raises(ParameterError, match=name):
        limit_mean(*arguments)


def test_every_statistic_is_compared_with_simulation():
    assert set(LIMIT_STATISTICS) == set(ON_EIGENVALUES)


@pytest.mark.parametrize("statistic", LIMIT_STATISTICS)
@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(384, 32, 8000), (512, 64, 3000)])
def test_the_mean_is_within_a_small_part_of_the_spread(simulated, statistic, d_model, d_head, draws):
    sample = ON_EIGENVALUES[statistic](simulated(d_model, d_head, draws))
    mean = limit_mean(statistic, d_model, d_head).mean
    # Neglected terms: below 0.05 spreads; Monte Carlo error at most 0.018 spreads, so 5 errors (6e-7) make 0.09.
    assert abs(sample.mean() - mean) < 0.14 * sample.std()


def test_reference_value_of_the_participation_ratio_on_singular_values():
    assert limit_mean("normalized_participation_ratio_singular", 768, 64).mean == pytest.approx(0.9582, abs=5e-5)


def test_the_method_states_the_neglected_order():
    for statistic in LIMIT_STATISTICS:
        assert "neglected" in limit_mean(statistic, 64, 8).method


@pytest.mark.parametrize("statistic", LIMIT_STATISTICS)
def test_a_single_eigenvalue_is_exact(statistic):
    value = limit_mean(statistic, 64, 1)
    assert value.method == "exact"
    assert value.mean == pytest.approx(ON_EIGENVALUES[statistic](np.array([[3.0]]))[0], abs=1e-15)


def test_the_square_product_has_its_closed_forms():
    # gamma = 1, where raising the dimensions changes nothing: E s is a Fuss-Catalan number of order 1/2.
    half_moment = math.gamma(2.5) / (math.gamma(2.0) * math.gamma(1.5)) / 2.0
    law = low_rank_product(64, 64)
    assert law.expect(np.sqrt) / 8.0 == pytest.approx(half_moment, rel=1e-10)
    mean = limit_mean("normalized_participation_ratio_singular", 64, 64).mean
    assert mean == pytest.approx(half_moment**2, rel=1e-10)
