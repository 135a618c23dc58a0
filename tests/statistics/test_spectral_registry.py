"""Registered spectral statistics against their definitions, in another arithmetic; and their moments, against draws."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.statistics import (
    SPECTRAL_STATISTICS,
    ExtremeMoments,
    drawn_moments,
    eigenvalue_moment_orders,
    get_statistic,
    inverse_moment_order,
    moment_order,
    spectral_statistics,
    summarize,
)

NAMES = (
    "largest_eigenvalue", "smallest_eigenvalue", "trace", "trace_of_square", "participation_ratio",
    "normalized_participation_ratio", "spectral_entropy", "condition_number", "stable_rank", "log_determinant",
    "effective_rank", "participation_ratio_singular", "normalized_participation_ratio_singular",
    "spectral_entropy_singular", "condition_number_singular", "stable_rank_singular",
)  # fmt: skip
SPECTRUM = np.array([7.5, 4.0, 3.25, 1.5, 0.125])

spectra = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(lambda s: np.array(sorted(s, reverse=True)))
every_statistic = pytest.mark.parametrize("statistic", SPECTRAL_STATISTICS.values(), ids=lambda one: one.name)


@mpmath.workdps(30)
def by_definition(s):
    s = [mpmath.mpf(float(x)) for x in s]
    eigenvalues = [x**2 for x in s]

    def participation(x):
        return sum(x) ** 2 / sum(v**2 for v in x)

    def entropy(x):
        return -sum(v / sum(x) * mpmath.log(v / sum(x)) for v in x)

    values = {
        "largest_eigenvalue": max(eigenvalues),
        "smallest_eigenvalue": min(eigenvalues),
        "trace": sum(eigenvalues),
        "trace_of_square": sum(v**2 for v in eigenvalues),
        "log_determinant": sum(mpmath.log(v) for v in eigenvalues),
        "effective_rank": mpmath.exp(entropy(s)),
    }
    for x, ending in ((eigenvalues, ""), (s, "_singular")):
        values |= {
            f"participation_ratio{ending}": participation(x),
            f"normalized_participation_ratio{ending}": participation(x) / len(x),
            f"spectral_entropy{ending}": entropy(x),
            f"condition_number{ending}": max(x) / min(x),
            f"stable_rank{ending}": sum(x) / max(x),
        }
    return {name: float(value) for name, value in values.items()}


def bound(words, rank):
    return {"-inf": -np.inf, "0": 0.0, "1": 1.0, "1/h": 1 / rank, "h": rank, "ln h": np.log(rank), "inf": np.inf}[words]


def test_the_registry_is_in_the_order_of_tables_and_many_spectra_are_each_alone():
    assert tuple(SPECTRAL_STATISTICS) == NAMES
    for name, one in SPECTRAL_STATISTICS.items():
        assert name == one.name and one.long_name and one.symbol and one.formula
        assert (r"\lambda" in one.formula) == (one.convention == "eigenvalue")
        assert one.on_log_scale == (one.lower in ("0", "1") and one.upper == "inf")
    s = np.sort(np.random.default_rng(2).random((4, 3, 6)), axis=-1)[..., ::-1]
    together = spectral_statistics(s)
    assert together.shape == (4, 3, len(NAMES))
    np.testing.assert_allclose(together[2, 1], spectral_statistics(s[2, 1]), rtol=1e-14)
    names = ["stable_rank", "trace"]
    chosen = spectral_statistics(SPECTRUM, names)
    np.testing.assert_array_equal(chosen, [spectral_statistics(SPECTRUM, [name])[0] for name in names])
    assert spectral_statistics(SPECTRUM, iter(names)).shape == (2,)
    single = spectral_statistics(SPECTRUM.astype(np.float32))
    assert single.dtype == np.float64
    np.testing.assert_array_equal(single, spectral_statistics(SPECTRUM.astype(np.float32).astype(np.float64)))
    of = dict(zip(NAMES, spectral_statistics([2.0, 1.0, 0.0]), strict=True))
    assert of["log_determinant"] == -np.inf
    assert of["condition_number"] == of["condition_number_singular"] == np.inf
    assert of["smallest_eigenvalue"] == 0.0
    assert of["participation_ratio"] == pytest.approx(25 / 17)
    assert of["spectral_entropy"] == pytest.approx(-(0.8 * np.log(0.8) + 0.2 * np.log(0.2)))


@pytest.mark.parametrize("s", [SPECTRUM, SPECTRUM[:1], np.full(6, 0.3), np.geomspace(1e4, 1e-4, 40)])
@every_statistic
def test_value_is_that_of_the_definition(statistic, s):
    (value,) = spectral_statistics(s, [statistic.name])
    assert value == pytest.approx(by_definition(s)[statistic.name], rel=2e-14, abs=1e-12)


@every_statistic
@given(s=spectra, factor=st.floats(1e-2, 1e2))
@settings(max_examples=100, deadline=None)
def test_values_stay_in_the_stated_range_and_are_rescaled_by_the_stated_exponent(statistic, s, factor):
    (before,) = spectral_statistics(s, [statistic.name])
    slack = 1e-12 * len(s)
    assert bound(statistic.lower, len(s)) - slack <= before <= bound(statistic.upper, len(s)) + slack
    (after,) = spectral_statistics(np.sqrt(factor) * s, [statistic.name])
    assert after == pytest.approx(statistic.rescale(before, factor, len(s)), rel=1e-11, abs=1e-11)
    if statistic.scaling == "additive":
        assert after - before == pytest.approx(len(s) * np.log(factor), abs=1e-10)
    else:
        assert after == pytest.approx(before * factor**statistic.scaling, rel=1e-11, abs=1e-11)


BOUNDED = [one for one in SPECTRAL_STATISTICS.values() if one.scaling == 0 and one.upper != "inf"]


@pytest.mark.parametrize("statistic", BOUNDED, ids=lambda one: one.name)
def test_bounded_statistics_reach_their_bounds_at_flat_and_at_single_spectra(statistic):
    (flat,) = spectral_statistics(np.ones(5), [statistic.name])
    (spike,) = spectral_statistics(np.array([1.0, 1e-12, 1e-12, 1e-12, 1e-12]), [statistic.name])
    assert flat == pytest.approx(bound(statistic.upper, 5), rel=1e-14)
    assert spike == pytest.approx(bound(statistic.lower, 5), abs=1e-9)


@pytest.mark.parametrize("call", [get_statistic, lambda name: spectral_statistics(SPECTRUM, ["trace", name])])
def test_an_unknown_name_is_refused_with_the_names_there_are(call):
    with pytest.raises(ParameterError, match=r"(statistic|names) = 'rank': expected one of largest_eig.*stable_rank"):
        call("rank")


DRAWS, SMALLEST = 200_000, 1_000


def smallest_eigenvalues(dims, rng):
    product = rng.standard_normal((DRAWS, dims[0], dims[1]))
    for shape in itertools.pairwise(dims[1:]):
        product = product @ rng.standard_normal((DRAWS, *shape))
    return np.linalg.svd(product, compute_uv=False)[:, min(dims) - 1] ** 2


def tail_exponent(values):
    logs = np.log(np.sort(values)[: SMALLEST + 1])
    return SMALLEST / (logs[-1] - logs[:-1]).sum()


WITHOUT_TIES = [(2, 2), (2, 3), (2, 4), (3, 4), (3, 2, 6), (6, 2, 4), (2, 3, 5), (2, 5, 3, 6)]
WITH_TIES = [(2, 2, 2), (3, 2, 3), (4, 2, 4), (2, 2, 2, 2)]


@pytest.mark.parametrize("dims", mostly_exhaustive(zip(WITHOUT_TIES, strict=True), always=3))
def test_tail_of_the_smallest_eigenvalue_has_the_exponent_of_the_nearest_dimensions(dims):
    # 5 standard deviations, and as much for the next term of the tail; fails by chance once in 10^6.
    found = tail_exponent(smallest_eigenvalues(dims, np.random.default_rng(0)))
    assert found == pytest.approx(inverse_moment_order(dims), rel=0.3)
    others = {inverse_moment_order((2, 2 + gap)) for gap in range(5)} - {inverse_moment_order(dims)}
    assert all(abs(math.log(found / other)) > abs(math.log(found / inverse_moment_order(dims))) for other in others)


@pytest.mark.parametrize("dims", mostly_exhaustive(zip(WITH_TIES, strict=True), always=1))
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
    for name, one in SPECTRAL_STATISTICS.items():
        near, nearer = spectral_statistics([[3.0, 2.0, 1e-6], [3.0, 2.0, 1e-8]], [name])[:, 0]
        grows = 0.0 if one.scaling == "additive" else math.log(nearer / near) / math.log(1e4)
        assert max(grows, 0.0) == pytest.approx(one.inverse_power, abs=1e-6)
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
        "largest_eigenvalue": 1.5, "smallest_eigenvalue": 6.0, "trace": 1.5, "trace_of_square": 0.75,
        "condition_number": 1.5, "condition_number_singular": 3.0,
    }  # fmt: skip
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
