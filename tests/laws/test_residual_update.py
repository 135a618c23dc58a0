"""The limiting law of a residual path without its direct path."""

import math
from itertools import product

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.laws import GaussianChain, ResidualPath, ResidualUpdate

UPDATES = [
    (1, 1e-7), (1, 0.7), (1, 2.0), (3, 0.6), (2, 10.0), (4, 1.2), (16, 0.25), (16, 1.0), (10, 1e-3), (100, 0.1),
    (1000, 1e-4), (1000, 0.03), (1000, 0.1), (5, 1.8294203676493124),
]  # fmt: skip
PROBABILITIES = np.concatenate([[1e-60, 1e-12, 1e-6], np.linspace(0.001, 0.999, 21), [1 - 1e-6]])


@pytest.mark.parametrize(("depth", "sigma"), mostly_exhaustive(UPDATES, always=4))
def test_pdf_cdf_quantiles_and_moments_are_of_one_law(depth, sigma):
    law = ResidualUpdate(depth, sigma)
    log = law.log_eigenvalue
    assert law.expect(np.ones_like) == pytest.approx(1.0, abs=1e-13)
    assert law.expect(lambda x: x) == pytest.approx(law.moment(1), rel=1e-12)
    assert law.expect(lambda x: x**2) == pytest.approx(law.moment(2), rel=1e-12)
    assert law.var() == pytest.approx(law.moment(2) - law.mean() ** 2, rel=1e-12)
    assert law.moment(3) == pytest.approx(law.expect(lambda x: x**3), rel=1e-12) and law.moment(0) == 1.0
    np.testing.assert_allclose(law.cdf(law.ppf(PROBABILITIES)), PROBABILITIES, rtol=1e-7, atol=1e-13)
    np.testing.assert_allclose(log.sf(log.isf(PROBABILITIES)), PROBABILITIES, rtol=1e-13, atol=1e-13)
    # The closed-form cdf against the density: a Gauss rule from the median up, the root taken out of the edge.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    t, span = 0.5 * (nodes + 1.0), log.support[1] - log.ppf(0.5)
    assert np.sum(weights * log.pdf(log.support[1] - span * t**2) * span * t) == pytest.approx(0.5, abs=1e-12)


@pytest.mark.parametrize("sigma", [0.01, 0.7, 2.0, 5.0])
def test_a_single_block_is_marchenko_pastur(sigma):
    law, chain = ResidualUpdate(1, sigma), GaussianChain(dims=(1, 1), sigmas=(sigma,), normalization="none")
    np.testing.assert_allclose(law.support, chain.support, rtol=1e-11)
    x = chain.ppf([0.01, 0.3, 0.7, 0.99])
    np.testing.assert_allclose(law.pdf(x), chain.pdf(x), rtol=1e-10)
    np.testing.assert_allclose(law.cdf(x), chain.cdf(x), rtol=1e-10)
    assert law.pdf_singular_values(0.0) == pytest.approx(chain.pdf_singular_values(0.0), rel=1e-7)


def test_weak_blocks_add_up_and_a_large_product_has_no_direct_path():
    # P - I = sigma sum G_l to first order in sigma.
    law = ResidualUpdate(1000, 1e-6)
    chain = GaussianChain(dims=(1, 1), sigmas=(1e-6 * math.sqrt(1000),), normalization="none")
    q = np.linspace(0.05, 0.95, 7)
    np.testing.assert_allclose(law.ppf(q), chain.ppf(q), rtol=1e-3)
    q = np.linspace(0.5, 0.99, 9)
    np.testing.assert_allclose(ResidualUpdate(2, 20.0).ppf(q), ResidualPath(2, 20.0).ppf(q), rtol=0.01)
    law = ResidualUpdate(3, 0.6)
    assert law.has_hard_edge and law.support[0] == 0.0 and law.pdf(0.0) == math.inf
    s = np.array([1e-3, 1e-5, 1e-8, 1e-12, 1e-60])
    np.testing.assert_allclose(law.pdf_singular_values(s), law.pdf_singular_values(0.0), rtol=1e-4)


def _star_moment(word, depth, variance):
    """Limit of E tr of a word in P and P^T over d, by layers and noncrossing pairings of the last block's G and G^T.

    ``word`` is a string of P and Q = P^T. The last block enters on the left of P and on the right of P^T. In the word
    below, lower case marks a factor whose block is done.
    """
    if depth == 0:
        return 1.0

    def expand(letters):
        index = next((i for i, letter in enumerate(letters) if letter in "PQ"), None)
        if index is None:
            return _star_moment(letters.upper(), depth - 1, variance) if letters else 1.0
        first = letters[index]
        total = expand(letters[:index] + first.lower() + letters[index + 1 :])
        for j in range(index + 1, len(letters)):
            # G P ... P^T G^T: what lies between the two G closes a trace, and so does what lies outside.
            if (first, letters[j]) == ("P", "Q"):
                total += (
                    variance * expand("p" + letters[index + 1 : j] + "q") * expand(letters[:index] + letters[j + 1 :])
                )
            if (first, letters[j]) == ("Q", "P"):
                total += (
                    variance * expand(letters[index + 1 : j]) * expand(letters[:index] + "q" + "p" + letters[j + 1 :])
                )
        return total

    return expand(word)


@pytest.mark.parametrize(("depth", "sigma"), [(1, 0.5), (2, 0.75), (3, 0.5), (4, 0.25)])
def test_moments_count_noncrossing_pairings(depth, sigma):
    for k in (1, 2, 3):
        expected = 0.0
        for choice in product("01", repeat=2 * k):
            word = "".join("PQ"[i % 2] for i, taken in enumerate(choice) if taken == "1")
            expected += (-1) ** (2 * k - len(word)) * (_star_moment(word, depth, sigma**2) if word else 1.0)
        assert ResidualUpdate(depth, sigma).moment(k) == pytest.approx(expected, rel=1e-11)
