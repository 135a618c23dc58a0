"""Which moments a condition number has: by the tail of the smallest eigenvalue, against draws."""

import itertools
import math

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.statistics import (
    SPECTRAL_STATISTICS,
    ExtremeMoments,
    drawn_moments,
    eigenvalue_moment_orders,
    inverse_moment_order,
    moment_order,
    spectral_statistics,
    summarize,
)

DRAWS, SMALLEST = 200_000, 1_000


def smallest_eigenvalues(dims, rng):
    product = rng.standard_normal((DRAWS, dims[0], dims[1]))
    for shape in itertools.pairwise(dims[1:]):
        product = product @ rng.standard_normal((DRAWS, *shape))
    return np.linalg.svd(product, compute_uv=False)[:, min(dims) - 1] ** 2


def tail_exponent(values):
    logs = np.log(np.sort(values)[: SMALLEST + 1])
    return SMALLEST / (logs[-1] - logs[:-1]).sum()


@pytest.mark.parametrize(
    "dims",
    mostly_exhaustive(
        zip([(2, 2), (2, 3), (2, 4), (3, 4), (3, 2, 6), (6, 2, 4), (2, 3, 5), (2, 5, 3, 6)], strict=True), always=3
    ),
)
def test_tail_of_the_smallest_eigenvalue_has_the_exponent_of_the_nearest_dimensions(dims):
    # 5 standard deviations, and as much for the next term of the tail; fails by chance once in 10^6.
    found = tail_exponent(smallest_eigenvalues(dims, np.random.default_rng(0)))
    assert found == pytest.approx(inverse_moment_order(dims), rel=0.3)
    others = {inverse_moment_order((2, 2 + gap)) for gap in range(5)} - {inverse_moment_order(dims)}
    assert all(abs(math.log(found / other)) > abs(math.log(found / inverse_moment_order(dims))) for other in others)


@pytest.mark.parametrize(
    "dims", mostly_exhaustive(zip([(2, 2, 2), (3, 2, 3), (4, 2, 4), (2, 2, 2, 2)], strict=True), always=1)
)
def test_ties_slow_the_tail_by_logarithms_alone(dims):
    order = inverse_moment_order(dims)
    values = smallest_eigenvalues(dims, np.random.default_rng(1))
    assert tail_exponent(values) < 1.1 * order
    # P(λ < x) ∝ x^a (-ln x)^k: over eleven factors of ten the logarithm is worth less than a quarter of a.
    log = np.log(np.sort(values))
    slope = (math.log(0.1) - math.log(20 / DRAWS)) / (log[DRAWS // 10] - log[20])
    assert 0.5 * order < slope < 1.1 * order


@pytest.mark.parametrize(
    ("gap", "of_eigenvalues", "of_singular_values"),
    [(0, 0.5, 1.0), (1, 1.0, 2.0), (2, 1.5, 3.0), (3, 2.0, 4.0), (4, 2.5, 5.0), (8, 4.5, 9.0)],
)
def test_condition_numbers_of_w_qk_have_these_moments_and_all_else_has_all(gap, of_eigenvalues, of_singular_values):
    extremes = ExtremeMoments(smallest=inverse_moment_order((8 + gap, 8, 8 + gap)))
    orders = {name: moment_order(one, extremes, 8) for name, one in SPECTRAL_STATISTICS.items()}
    assert orders.pop("condition_number") == of_eigenvalues
    assert orders.pop("condition_number_singular") == of_singular_values
    assert set(orders.values()) == {math.inf}


def test_moments_are_kept_where_they_are_finite_and_bounded_statistics_have_all():
    orders = {name: moment_order(one, ExtremeMoments(4.5, 1.5), 4) for name, one in SPECTRAL_STATISTICS.items()}
    finite = {name: order for name, order in orders.items() if math.isfinite(order)}
    single = {moment_order(one, ExtremeMoments(smallest=0.5), 1) for one in SPECTRAL_STATISTICS.values()}
    assert single == {math.inf}  # of a spectrum of one eigenvalue
    assert finite == {
        "largest_eigenvalue": 1.5,
        "smallest_eigenvalue": 6.0,
        "trace": 1.5,
        "trace_of_square": 0.75,
        "condition_number": 1.5,
        "condition_number_singular": 3.0,
    }
    mean, std = drawn_moments(1.0, 2.0, [0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 4.5, math.inf])
    assert np.isnan(mean).tolist() == [True, True] + [False] * 6
    assert np.isnan(std).tolist() == [True] * 6 + [False] * 2
    # Ordered eigenvalues have the moments of as many large elements.
    assert eigenvalue_moment_orders(ExtremeMoments(largest=1.5), 3).tolist() == [1.5, 3.0, 4.5]
    assert eigenvalue_moment_orders(ExtremeMoments(), 2).tolist() == [math.inf] * 2
    whole = summarize(np.random.default_rng(0).standard_normal((50, 4)), [0.5])
    part = whole.of_finite_moments([1.0, 2.0, 4.0, 5.0])
    assert np.isnan(part.mean).tolist() == [True, False, False, False]
    assert np.isnan(part.std).tolist() == np.isnan(part.standard_error).tolist() == [True, True, False, False]
    assert np.isnan(part.std_standard_error).tolist() == [True, True, True, False]
    np.testing.assert_array_equal(part.quantile, whole.quantile)


@pytest.mark.parametrize("name", SPECTRAL_STATISTICS)
def test_inverse_power_is_how_the_statistic_grows(name):
    s = np.array([[3.0, 2.0, 1e-6], [3.0, 2.0, 1e-8]])
    near, nearer = spectral_statistics(s, [name])[:, 0]
    growth = SPECTRAL_STATISTICS[name].inverse_power
    grows = 0.0 if SPECTRAL_STATISTICS[name].scaling == "additive" else math.log(nearer / near) / math.log(1e4)
    assert max(grows, 0.0) == pytest.approx(growth, abs=1e-6)
