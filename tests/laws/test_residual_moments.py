"""Exact finite-size moments of a residual path."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from oracles import partitions, residual_paths
from scipy import stats

from rmtbase.laws import PathLength, ResidualPath, residual_trace_moments
from rmtbase.laws._residual._residual_moments import _trace_moment as residual_trace_moment


@pytest.mark.parametrize("d_model", [2, 6])
def test_powers_of_the_trace_of_one_block_are_those_of_a_noncentral_chi_square(d_model):
    # d tr P P^T / sigma^2 is chi^2 of n = d^2 degrees of freedom and noncentrality l = d^2 / sigma^2. In its moments
    # all partitions meet, with all generalised binomials: E chi^(2k) = sum_j binom(k, j) l^(k-j) times
    # (n + 2k - 2j) ... (n + 2k - 2), by Laguerre's polynomial.
    sigma, n = Fraction(3, 4), d_model**2
    noncentrality = n / sigma**2
    for k in range(1, 7):
        chi = sum(
            math.comb(k, j) * noncentrality ** (k - j) * math.prod(n + 2 * (k - i) for i in range(1, j + 1))
            for j in range(k + 1)
        )
        assert residual_trace_moment((1,) * k, 1, float(sigma), d_model) == chi * (sigma**2 / d_model) ** k


@pytest.mark.parametrize("k", range(1, 9))
def test_a_path_of_no_strength_has_the_traces_of_the_identity(k):
    for mu in partitions(k):
        assert abs(residual_trace_moment(mu, 1, 1e-100, 5) - 5 ** len(mu)) < Fraction(1, 10**190)


@pytest.mark.parametrize(("depth", "sigma", "d_model"), [(1, 0.5, 1), (3, 0.75, 4), (16, 0.25, 64)])
def test_first_moment_is_the_limits_own(depth, sigma, d_model):
    assert residual_trace_moment((1,), depth, sigma, d_model) == d_model * (1 + Fraction(sigma) ** 2) ** depth


@pytest.mark.parametrize(("depth", "sigma", "d_model"), [(1, 0.5, 1), (1, 1.0, 2), (5, 0.75, 3), (16, 0.25, 64)])
def test_second_moments_follow_the_recursion_of_wick_pairings(depth, sigma, d_model):
    # a = E (tr S)^2 and b = E tr S^2, S -> (I + g) S (I + g)^T with E g_ij^2 = t: by Wick's theorem
    # E (2 tr gS)^2 = 4tb, E (tr gSg^T)^2 = t^2 (d^2 a + 2db), E tr gSgS = tb, E tr (gSg^T)^2 = t^2 (da + (d^2 + d)b).
    t = Fraction(sigma) ** 2 / d_model
    a, b = Fraction(d_model) ** 2, Fraction(d_model)
    for _ in range(depth):
        a, b = (
            a + 2 * t * d_model * a + 4 * t * b + t**2 * (d_model**2 * a + 2 * d_model * b),
            b + 2 * t * a + 2 * t * b + 2 * t * d_model * b + t**2 * (d_model * a + (d_model**2 + d_model) * b),
        )
    assert residual_trace_moment((1, 1), depth, sigma, d_model) == a
    assert residual_trace_moment((2,), depth, sigma, d_model) == b


@pytest.mark.parametrize(("depth", "sigma"), [(1, 0.5), (3, 0.75)])
def test_a_single_dimension_is_a_power_of_normal_moments(depth, sigma):
    # d = 1: P = prod (1 + sigma g), and every partition of k gives E (1 + sigma g)^(2k) to the power L.
    for k in range(1, 6):
        moment = sum(
            math.comb(2 * k, 2 * j) * Fraction(sigma) ** (2 * j) * math.prod(range(1, 2 * j, 2)) for j in range(k + 1)
        )
        for mu in partitions(k):
            assert residual_trace_moment(mu, depth, sigma, 1) == moment**depth


def test_moments_tend_to_the_limiting_law_or_to_infinity():
    for k in range(1, 6):
        limit = ResidualPath(4, 0.5).moment(k)
        near, far = (float(residual_trace_moment((k,), 4, 0.5, d)) / d - limit for d in (10**4, 10**6))
        assert abs(near) < 1e-2 * limit and far == pytest.approx(near / 100, rel=2e-2, abs=1e-12 * limit)
    moments = residual_trace_moments(400, 2.0, 2)
    assert moments.mean_trace == pytest.approx(2 * 5.0**400) and moments.std_trace_of_square == math.inf


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("depth", "sigma", "d_model", "draws"), [(2, 0.75, 4, 20_000), (4, 0.5, 12, 20_000), (3, 0.5, 30, 4_000)]
)
def test_moments_agree_with_simulation(depth, sigma, d_model, draws):
    path = residual_paths(np.random.default_rng([depth, d_model]), depth, sigma, d_model, draws)
    squared = np.linalg.svd(path, compute_uv=False) ** 2
    first, second, third = ((squared**k).sum(axis=1) for k in (1, 2, 3))
    exact = residual_trace_moments(depth, sigma, d_model)
    off_first, off_second = first - exact.mean_trace, second - exact.mean_trace_of_square
    # False failures: 18 comparisons at five standard errors, 1e-5 by the normal law; the seed is fixed.
    for sample, mean in [
        (first, exact.mean_trace),
        (second, exact.mean_trace_of_square),
        (third, float(residual_trace_moment((3,), depth, sigma, d_model))),
        (off_first**2, exact.std_trace**2),
        (off_second**2, exact.std_trace_of_square**2),
        (off_first * off_second, exact.covariance),
    ]:
        assert abs(sample.mean() - mean) < 5.0 * sample.std() / math.sqrt(draws)


@pytest.mark.parametrize(("depth", "sigma"), [(1, 1.0), (16, 0.3), (16, 3.0), (1000, 0.03), (5, 1e-100), (5, 1e100)])
def test_weights_are_binomial(depth, sigma):
    law = PathLength(depth, sigma)
    # scipy, too, rounds a probability near one: count the blocks passed by where that is the small one.
    passed = stats.binom(depth, 1.0 / (1.0 + sigma**2)) if sigma > 1.0 else None
    oracle = stats.binom(depth, 1.0 / (1.0 + 1.0 / sigma**2))
    k = np.arange(-1, depth + 2)
    with np.errstate(under="ignore"):
        pmf, cdf, sf = oracle.pmf(k), oracle.cdf(k), oracle.sf(k)
        if passed is not None:
            pmf, cdf, sf = passed.pmf(depth - k), passed.sf(depth - k - 1), passed.cdf(depth - k - 1)
    np.testing.assert_allclose(law.pmf(k), pmf, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(law.cdf(k + 0.5), cdf, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(law.sf(k), sf, rtol=1e-10, atol=1e-300)
    assert law.pmf(k).sum() == pytest.approx(1.0, abs=1e-11)
    assert law.mean() == pytest.approx(oracle.mean(), rel=1e-12)
    assert law.var() == pytest.approx(law.mean() / (1.0 + sigma**2), rel=1e-12)
    assert law.std() == math.sqrt(law.var())
    assert law.support == (0, depth)


def test_path_lengths_outside_the_domain_and_their_norms():
    law = PathLength(4, 0.5)
    np.testing.assert_array_equal(law.pmf([-1, 0.5, 5, np.inf]), 0.0)
    np.testing.assert_array_equal(law.cdf([-0.1, 4.0, np.inf, -np.inf]), [0, 1, 1, 0])
    np.testing.assert_array_equal(law.sf([-0.1, 4.0]), [1, 0])
    assert np.isnan(law.pmf(np.nan)) and np.isnan(law.cdf(np.nan)) and np.isnan(law.sf(np.nan))
    assert law.pmf(np.ones((2, 3))).shape == (2, 3)
    law = PathLength(16, 0.3)
    norms = [law.squared_norm(k) for k in range(17)]
    assert sum(norms) == pytest.approx(ResidualPath(16, 0.3).mean(), rel=1e-14)
    np.testing.assert_allclose(np.array(norms) / sum(norms), law.pmf(np.arange(17)), rtol=1e-12)


def _paths(rng, depth, sigma, d_model):
    """All 2^L products, by the set of blocks they pass."""
    blocks = sigma / math.sqrt(d_model) * rng.standard_normal((depth, d_model, d_model))
    subsets = [s for k in range(depth + 1) for s in combinations(range(depth), k)]
    products = []
    for subset in subsets:
        path = np.eye(d_model)
        for block in subset:
            path = path @ blocks[block]
        products.append(path)
    return subsets, np.array(products)


def test_paths_through_different_blocks_are_orthogonal_in_expectation():
    depth, sigma, d_model, draws = 3, 0.8, 4, 4000
    rng = np.random.default_rng(5)
    overlaps = []
    for _ in range(draws):
        subsets, paths = _paths(rng, depth, sigma, d_model)
        overlaps.append(np.einsum("aij,bij->ab", paths, paths) / d_model)
    overlaps = np.array(overlaps)
    expected = np.diag([sigma ** (2 * len(subset)) for subset in subsets])
    error = overlaps.std(axis=0) / math.sqrt(draws)
    # 64 comparisons (36 different ones) at five standard errors: false failures 2e-5; the seed is fixed.
    assert (np.abs(overlaps.mean(axis=0) - expected) <= 5.0 * error + 1e-15).all()
