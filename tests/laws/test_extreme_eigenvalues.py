"""The second-order laws of the extreme eigenvalues."""

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import digamma, polygamma

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import GaussianChain, TracyWidom, largest_eigenvalue, ordered_eigenvalues, smallest_eigenvalue

NODES, WEIGHTS = np.polynomial.legendre.leggauss(160)
FUNCTIONS = {"upper": largest_eigenvalue, "lower": smallest_eigenvalue}
SHAPES = [(768, 64, 768), (100, 20), (40, 10, 30, 50), (96, 8, 64)]


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("side", FUNCTIONS)
@pytest.mark.parametrize("dims", SHAPES)
def test_an_edge_law_is_one_law(dims, side, own):
    law = FUNCTIONS[side](dims=dims, sigma=0.5, self_normalized=own)
    assert law.side == side and law.support == (0.0, math.inf)
    # In y = ln x the density is smooth and falls faster than any exponential at both ends.
    log_low, log_high = math.log(float(law.ppf(1e-14))), math.log(float(law.isf(1e-16)))
    log_x = 0.5 * (log_low + log_high) + 0.5 * (log_high - log_low) * NODES
    mass = 0.5 * (log_high - log_low) * WEIGHTS * law.pdf(np.exp(log_x)) * np.exp(log_x)
    assert mass.sum() == pytest.approx(1.0, abs=1e-7)
    mean, variance, third = law.log_cumulants()
    assert mass @ log_x == pytest.approx(mean, abs=1e-6 * math.sqrt(variance))
    assert mass @ (log_x - mean) ** 2 == pytest.approx(variance, rel=1e-6)
    assert mass @ (log_x - mean) ** 3 == pytest.approx(third, abs=1e-5 * variance**1.5)
    x = np.exp(log_x)
    assert mass @ x == pytest.approx(law.mean(), rel=1e-8)
    assert mass @ (x - law.mean()) ** 2 == pytest.approx(law.var(), rel=1e-6) == law.std() ** 2
    assert mass @ np.sqrt(x) == pytest.approx(law.expect_power(0.5), rel=1e-8)


@pytest.mark.parametrize("function", [largest_eigenvalue, smallest_eigenvalue])
@pytest.mark.parametrize("dims", [(64, 3, 64), (50, 2), (9, 1, 9), (30, 3, 20, 40)])
def test_expansions_refuse_three_eigenvalues_or_fewer(function, dims):
    for own in (False, True):
        with pytest.raises(ParameterError, match="rank of at least 4"):
            function(dims=dims, self_normalized=own)
    assert function(dims=tuple(n + 4 for n in dims)).std() > 0.0


@pytest.mark.exhaustive
@pytest.mark.parametrize("dims", [(16, 8, 16), (65, 64, 65), (10**6, 4, 10**6), (10**12, 16, 10**12), (8,) * 5, (9, 8)])
def test_extreme_dimensions_stay_one_law(dims):
    for side, function in FUNCTIONS.items():
        if side == "lower" and len(set(dims)) == 1:
            continue
        law = function(dims=dims, normalization="none")
        x = law.ppf(np.linspace(0.02, 0.98, 49))
        np.testing.assert_allclose(law.cdf(x), np.linspace(0.02, 0.98, 49), rtol=1e-7)
        assert (np.diff(x) > 0.0).all() and (law.pdf(x) > 0.0).all()
        assert 0.0 < law.std() < 2.0 * law.mean()


def test_the_smallest_eigenvalue_is_positive_and_has_a_power_law_tail():
    law = smallest_eigenvalue((84, 64, 98), normalization="none")
    x = np.exp(np.array([-60.0, -40.0]))
    # (n - r)/2 = 10; the factors beside the power differ by Airy's own powers of ln x.
    assert np.diff(np.log(law.cdf(x)))[0] / 20.0 == pytest.approx(10.0, rel=0.05)
    assert float(law.ppf(1e-200)) > 0.0
    # E lambda^-p exists for p < 10.
    assert math.isinf(law.expect_power(-10.0)) and math.isinf(law.expect_power(-12.5))
    grid = np.linspace(-60.0, math.log(float(law.isf(1e-16))), 20_001)
    for power in (-1.0, -5.0, -8.0):
        weight = (grid[1] - grid[0]) * law.pdf(np.exp(grid)) * np.exp(grid)
        assert law.expect_power(power) == pytest.approx(weight @ np.exp(power * grid), rel=1e-6)


def _log_scale_cumulants(dims):
    """Of the logarithm of the product of chi-square variables over their degrees of freedom, one for each factor."""
    halves = 0.5 * np.array([m * n for m, n in pairwise(dims)])
    return (digamma(halves) - np.log(halves)).sum(), polygamma(1, halves).sum(), polygamma(2, halves).sum()


@pytest.mark.parametrize(
    ("dims", "side"), [*((dims, side) for dims in SHAPES for side in FUNCTIONS), ((64, 64, 64), "upper")]
)
def test_self_normalization_subtracts_the_cumulants_of_the_factors_own_scale(dims, side):
    raw, own = (FUNCTIONS[side](dims=dims, self_normalized=own) for own in (False, True))
    size = math.sqrt(own.log_cumulants()[1])
    for order, scale in enumerate(_log_scale_cumulants(dims)):
        expected = raw.log_cumulants()[order] - scale
        assert own.log_cumulants()[order] == pytest.approx(expected, abs=1e-9 * size ** (order + 1))
    again = own.with_log_cumulants(*raw.log_cumulants())
    assert again.linear == pytest.approx(1.0, rel=1e-9) and again.bend == pytest.approx(0.0, abs=1e-7 / size)
    x = raw.ppf([1e-6, 0.5, 1 - 1e-6])
    np.testing.assert_allclose(again.cdf(x), raw.cdf(x), rtol=1e-6)


def _exceedance(sample, law, level):
    """Number of draws beyond the upper quantile, in binomial standard deviations from its expectation."""
    count = (sample > law.isf(level)).sum()
    return (count - level * sample.size) / math.sqrt(level * (1.0 - level) * sample.size)


# The bounds on mean and standard deviation are the bias of the law as documented and five standard errors, those on
# tails five and a bias of 20 % (false-failure rates 6e-7 each, seeded). Of both edges, raw and self-normalised.
@pytest.mark.parametrize(("d_model", "d_head", "draws"), mostly_exhaustive([(64, 8, 40000), (384, 32, 8000)], always=1))
def test_simulated_heads_have_this_law(simulated, d_model, d_head, draws):
    eigenvalues = simulated(d_model, d_head, draws)
    for side, sample in (("upper", eigenvalues[:, 0]), ("lower", eigenvalues[:, -1])):
        law = FUNCTIONS[side](d_model=d_model, d_head=d_head)
        assert abs(sample.mean() - law.mean()) < (0.02 + 5 / math.sqrt(draws)) * law.std()
        assert sample.std() == pytest.approx(law.std(), rel=0.01 + 5 / math.sqrt(1.8 * draws))
        for q in (0.05, 0.5, 0.95):  # 2.2: the largest of (q (1 - q))^(1/2) / (density times std)
            assert abs(np.quantile(sample, q) - law.ppf(q)) < (0.03 + 5 * 2.2 / math.sqrt(draws)) * law.std()
        for level in (0.1, 0.01, 0.001):
            assert abs(_exceedance(sample, law, level)) < 5.0 + 0.2 * math.sqrt(level * draws)


@pytest.mark.parametrize("dims", [(96, 12, 64), (100, 20), (64, 64, 64), (33, 32, 33), (40, 10, 30, 50), (30, 4, 30)])
def test_they_descend_and_add_up_to_the_trace(dims):
    found = ordered_eigenvalues(dims=dims, normalization="none")
    assert found.mean.shape == found.std.shape == (min(dims),)
    assert (np.diff(found.mean) < 0.0).all() and (found.mean > 0.0).all() and (found.std > 0.0).all()
    # E tr M = prod n_l; biases of one sign add up.
    assert found.mean.sum() == pytest.approx(math.prod(dims), rel=0.015)
    law = GaussianChain(dims=dims, normalization="none")
    assert law.support[0] * 0.3 <= found.mean[-1] and found.mean[0] < law.support[1]


def test_the_ends_are_those_of_their_own_laws_and_of_first_order_those_of_the_limit():
    dims = (96, 12, 64)
    found = ordered_eigenvalues(dims=dims, sigmas=(0.3, 2.0), normalization="sqrt_d", self_normalized=True)
    for index, function in ((0, largest_eigenvalue), (-1, smallest_eigenvalue)):
        law = function(dims=dims, sigmas=(0.3, 2.0), self_normalized=True)
        assert (found.mean[index], found.std[index]) == (law.mean(), law.std())
    # Of three eigenvalues at a hard edge the smallest has no law of its own, and still a place.
    assert np.isfinite(ordered_eigenvalues((3, 3, 16), normalization="none").std).all()
    law = largest_eigenvalue((76800, 6400, 76800), normalization="none")
    chain = GaussianChain((76800, 6400, 76800), normalization="none")
    edge, scale = chain.support[1], chain.edge_scale[1]
    assert law.mean() == pytest.approx(edge + scale * TracyWidom(1).mean(), abs=0.05 * scale)
    assert law.std() == pytest.approx(scale * TracyWidom(1).std(), rel=5e-3)
    with pytest.raises(ParameterError, match="the expansion about the Tracy-Widom law fails here"):
        largest_eigenvalue(dims=(4,) * 30)


# Within the bias that is documented, 0.06 and 5 %, and five standard errors (false-failure rate 6e-7 each).
@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(64, 8, 40000), (384, 32, 8000)])
def test_simulated_heads_have_these_eigenvalues(simulated, d_model, d_head, draws):
    sample = simulated(d_model, d_head, draws)
    found = ordered_eigenvalues((d_model, d_head, d_model), normalization="sqrt_d")
    error = 5 / math.sqrt(draws)
    np.testing.assert_array_less(np.abs(sample.mean(axis=0) - found.mean) / found.std, 0.06 + error)
    ratio = sample.std(axis=0) / found.std
    np.testing.assert_allclose(ratio, 1.0, atol=0.05 + error / math.sqrt(1.8))
    # All together, of which a quarter are taken to be independent, within a bias of 0.3/r.
    assert ratio[1:-1].mean() == pytest.approx(1.0, abs=0.3 / d_head + error / math.sqrt(1.8 * d_head / 4))


def test_simulated_chains_have_these_eigenvalues(simulated_chain):
    eigenvalues, own = simulated_chain((40, 10, 30, 50), 4000)
    for self_normalized in (False, True):
        sample = eigenvalues / own[:, None] if self_normalized else eigenvalues
        found = ordered_eigenvalues((40, 10, 30, 50), self_normalized=self_normalized, normalization="none")
        np.testing.assert_array_less(np.abs(sample.mean(axis=0) - found.mean) / found.std, 0.14 + 5 / math.sqrt(4000))
        np.testing.assert_allclose(sample.std(axis=0) / found.std, 1.0, atol=0.07 + 5 / math.sqrt(1.8 * 4000))
