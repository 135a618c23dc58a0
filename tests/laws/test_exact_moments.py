"""Exact finite-size moments, against Wick's theorem by brute force and against simulation."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.laws import (
    log_determinant,
    normalized_participation_ratio,
    participation_ratio,
    trace_moment,
    trace_moments,
)
from rmtbase.laws._partitions import partitions
from rmtbase.laws._zonal import hook_product, power_sum_in_zonals, zonal_at_identity, zonal_in_monomials


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (trace_moment, ((0,), (3, 3)), "partition"),
        (trace_moment, ((1.5,), (3, 3)), "partition"),
        (trace_moment, ((1,), (3,)), "dims"),
        (trace_moment, ((1,), (3, -3)), "dims"),
        (trace_moments, (8, 9), "d_head"),
        (trace_moments, (8, 4, -1.0), "sigma_q"),
        (trace_moments, (8, 4, 1.0, 1.0, "d"), "normalization"),
        (participation_ratio, (8, 9), "d_head"),
        (normalized_participation_ratio, (8, 0), "d_head"),
        (log_determinant, (8, 9), "d_head"),
        (log_determinant, (8, 4, 1.0, 0.0), "sigma_k"),
    ],
)
def test_bad_parameters_are_named(function, arguments, name):
    with pytest.raises(ParameterError, match=name):
        function(*arguments)


def _pairings(items: list[int]):
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for index, other in enumerate(rest):
        for remaining in _pairings(rest[:index] + rest[index + 1 :]):
            yield [(first, other), *remaining]


def _wick(mu: tuple[int, ...], dims: tuple[int, ...]) -> int:
    """E prod tr (W^T W)^m by summing over all pairings of the entries of each factor and counting free indices."""
    factors = len(dims) - 1
    entries: list[list[tuple[int, int]]] = [[] for _ in range(factors)]  # per factor: (row index, column index)
    levels: list[int] = []

    def new_index(level: int) -> int:
        levels.append(level)
        return len(levels) - 1

    for m in mu:
        first = current = new_index(factors)
        for repeat in range(m):
            for level in range(factors - 1, -1, -1):  # W^T = X_L^T ... X_1^T
                following = new_index(level)
                entries[level].append((following, current))
                current = following
            for level in range(1, factors + 1):  # W = X_1 ... X_L
                last = level == factors and repeat == m - 1
                following = first if last else new_index(level)
                entries[level - 1].append((current, following))
                current = following
    total = 0
    for choice in product(*(list(_pairings(list(range(len(e))))) for e in entries)):
        parent = list(range(len(levels)))

        def root(i: int, parent: list[int] = parent) -> int:
            while parent[i] != i:
                i = parent[i]
            return i

        for factor, pairs in enumerate(choice):
            for a, b in pairs:
                for side in (0, 1):
                    parent[root(entries[factor][a][side])] = root(entries[factor][b][side])
        total += math.prod(dims[levels[i]] for i in range(len(levels)) if parent[i] == i)
    return total


@pytest.mark.parametrize("dims", [(5, 3), (2, 7), (5, 3, 5), (4, 2, 3), (1, 6, 2)])
@pytest.mark.parametrize("mu", [mu for k in (1, 2, 3) for mu in partitions(k)])
def test_trace_moments_are_wicks(mu, dims):
    assert trace_moment(mu, dims) == _wick(mu, dims)


@pytest.mark.parametrize("mu", [(1,), (2,), (1, 1)])
def test_trace_moments_of_three_factors_are_wicks(mu):
    assert trace_moment(mu, (4, 2, 3, 5)) == _wick(mu, (4, 2, 3, 5))


@pytest.mark.parametrize("mu", partitions(4))
def test_fourth_degree_of_one_factor_is_wicks(mu):
    assert trace_moment(mu, (5, 3)) == _wick(mu, (5, 3))


@pytest.mark.parametrize("k", range(1, 9))
def test_rank_one_gives_the_moments_of_chi_square(k):
    chi_square = [math.prod(n + 2 * i for i in range(k)) for n in (5, 7)]
    for mu in partitions(k):
        assert trace_moment(mu, (5, 1)) == chi_square[0]
        assert trace_moment(mu, (5, 1, 7)) == math.prod(chi_square)


@pytest.mark.parametrize("k", range(1, 9))
def test_zonal_polynomials_have_their_known_values_at_the_identity(k):
    for kappa in partitions(k):
        # The coefficient of m_(1^k) in J is k!, and J(1^n) is a product over boxes.
        assert zonal_in_monomials(kappa)[(1,) * k] * hook_product(kappa) == math.factorial(k)
    for mu in partitions(k):
        value = sum((a * zonal_at_identity(kappa, 5) for kappa, a in power_sum_in_zonals(mu).items()), Fraction(0))
        assert value == 5 ** len(mu)


def test_the_empty_moment_and_the_order_of_exponents():
    assert trace_moment((), (3, 2)) == 1
    assert trace_moment((1, 3, 2), (3, 2)) == trace_moment((3, 2, 1), (3, 2))


def test_mean_of_the_trace_of_the_square_has_its_closed_form():
    for d, h in [(768, 64), (7, 3), (5, 5), (9, 1)]:
        assert trace_moment((2,), (d, h, d)) == d * d * h * (d * d + 2 * d * h + 2 * d + h + 3)


def test_trace_moments_have_their_reference_values():
    moments = trace_moments(768, 64)
    assert moments.mean_trace == 49152.0
    assert moments.std_trace == pytest.approx(452.68974, abs=5e-6)
    assert moments.mean_trace_of_square == 44142784.0
    assert moments.std_trace_of_square == pytest.approx(866074.17, abs=5e-3)


def test_trace_moments_scale_exactly():
    raw, scaled = trace_moments(24, 6, normalization="none"), trace_moments(24, 6, 0.5, 3.0, "sqrt_d")
    factor = 0.25 * 9.0 / 24
    assert scaled.mean_trace == pytest.approx(factor * raw.mean_trace, rel=1e-15)
    assert scaled.std_trace == pytest.approx(factor * raw.std_trace, rel=1e-15)
    assert scaled.mean_trace_of_square == pytest.approx(factor**2 * raw.mean_trace_of_square, rel=1e-15)
    assert scaled.std_trace_of_square == pytest.approx(factor**2 * raw.std_trace_of_square, rel=1e-15)
    assert scaled.covariance == pytest.approx(factor**3 * raw.covariance, rel=1e-15)


def test_participation_ratio_has_its_reference_values():
    moments = normalized_participation_ratio(768, 64)
    assert moments.mean == pytest.approx(0.8552522, abs=5e-8)
    assert moments.std == pytest.approx(0.0040127, abs=5e-8)
    assert 0 < moments.error < 1e-6 and 0 < moments.std_error < 1e-5
    assert participation_ratio(768, 64).mean == pytest.approx(64 * moments.mean, rel=1e-15)


def test_a_single_eigenvalue_has_participation_ratio_one():
    assert participation_ratio(50, 1).mean == 1.0
    assert participation_ratio(50, 1).std == participation_ratio(50, 1).error == 0.0


# Means within 5 standard errors and spreads within 5 of theirs: each comparison fails by chance at 6e-7, seeded.
@pytest.mark.parametrize(
    ("d_model", "d_head", "draws"), [(384, 32, 8000), (64, 64, 2000), (48, 6, 20000), (12, 2, 20000)]
)
def test_simulated_draws_have_the_stated_moments(simulated, d_model, d_head, draws):
    eigenvalues = simulated(d_model, d_head, draws)
    trace, square = eigenvalues.sum(axis=1), (eigenvalues**2).sum(axis=1)
    moments, ratio = trace_moments(d_model, d_head), participation_ratio(d_model, d_head)
    logarithm = log_determinant(d_model, d_head)
    for sample, mean, std, error, std_error in [
        (trace, moments.mean_trace, moments.std_trace, 0.0, 0.0),
        (square, moments.mean_trace_of_square, moments.std_trace_of_square, 0.0, 0.0),
        (trace**2 / square, ratio.mean, ratio.std, ratio.error, ratio.std_error),
        (np.log(eigenvalues).sum(axis=1), logarithm.mean, logarithm.std, 0.0, 0.0),
    ]:
        assert abs(sample.mean() - mean) < 5 * std / math.sqrt(draws) + 3 * error
        excess = np.mean(((sample - sample.mean()) / sample.std()) ** 4) - 1.0
        assert abs(sample.std() - std) < 5 * std * math.sqrt(excess / draws) / 2 + 3 * std_error
    covariance = np.cov(trace, square)[0, 1]
    spread = ((trace - trace.mean()) * (square - square.mean())).std() / math.sqrt(draws)
    assert abs(covariance - moments.covariance) < 5 * spread


def test_log_determinant_has_its_reference_value_and_scales():
    raw = log_determinant(768, 64, normalization="none")
    assert raw.mean == pytest.approx(844.830, abs=5e-4) and raw.method == "exact"
    scaled = log_determinant(768, 64, 0.5, 3.0, "sqrt_d")
    assert scaled.mean == pytest.approx(raw.mean + 64 * math.log(0.25 * 9.0 / 768), rel=1e-13)
    assert scaled.std == raw.std
