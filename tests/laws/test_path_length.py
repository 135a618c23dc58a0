"""How the norm of a residual path is shared among its paths of each length."""

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from rmtbase.laws import PathLength, ResidualPath


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


def test_values_outside_the_domain():
    law = PathLength(4, 0.5)
    np.testing.assert_array_equal(law.pmf([-1, 0.5, 5, np.inf]), 0.0)
    np.testing.assert_array_equal(law.cdf([-0.1, 4.0, np.inf, -np.inf]), [0, 1, 1, 0])
    np.testing.assert_array_equal(law.sf([-0.1, 4.0]), [1, 0])
    assert np.isnan(law.pmf(np.nan)) and np.isnan(law.cdf(np.nan)) and np.isnan(law.sf(np.nan))
    assert law.pmf(np.ones((2, 3))).shape == (2, 3)


def test_squared_norms_add_up_to_that_of_the_path():
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
