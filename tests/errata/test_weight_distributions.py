"""Errata of "Weight Distributions in Transformer Attention Heads" (post 1) and its draft: docs/errata.md, 1 to 3.

Each test holds the published formula, as it is written, against the right one; an oracle that shares no code with
rmtbase (quadrature or simulation) decides.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from rmtbase.laws import (
    ContaminatedNormal,
    largest_eigenvalue,
    low_rank_product,
    marchenko_pastur,
    normal_entropy,
    normal_kl,
)


def published_kl(sigma, sigma0):
    """Draft, section "Analysis", last equation: ln(sigma/sigma_0) + sigma^2/sigma_0^2 - 1/2."""
    return math.log(sigma / sigma0) + sigma**2 / sigma0**2 - 0.5


@pytest.mark.parametrize(("sigma", "published"), [(0.5, -0.9431), (1.0, 0.5), (2.0, 4.1931)])
def test_divergence_of_two_normal_laws(sigma, published):
    assert published_kl(sigma, 1.0) == pytest.approx(published, abs=5e-5)

    def integrand(x):
        return stats.norm.pdf(x, scale=sigma) * (stats.norm.logpdf(x, scale=sigma) - stats.norm.logpdf(x))

    integral = quad(integrand, -30, 30, points=[-5, 0, 5], epsabs=1e-12, limit=200)[0]
    assert normal_kl(sigma, 1.0) == pytest.approx(integral, abs=1e-10)
    assert abs(published_kl(sigma, 1.0) - integral) > 0.49


def test_a_divergence_is_zero_at_equality_and_never_negative():
    assert normal_kl(0.7, 0.7) == 0.0 and published_kl(0.7, 0.7) == 0.5
    ratios = np.geomspace(0.1, 10, 101)
    assert (normal_kl(ratios, 1.0) >= 0).all()
    assert min(published_kl(ratio, 1.0) for ratio in ratios) < -2.5


@pytest.mark.parametrize("sigma", [0.1, 0.2887, 3.0])
def test_the_sign_of_the_entropy(sigma):
    # Draft, section "Analysis": S = <ln P> = sum P ln P, and later S = <ln P> = ln(2 pi e / n)/2, which is -<ln P>.
    mean_log = quad(
        lambda x: stats.norm.pdf(x, scale=sigma) * stats.norm.logpdf(x, scale=sigma), -12 * sigma, 12 * sigma
    )[0]
    assert normal_entropy(sigma) == pytest.approx(-mean_log, abs=1e-9)
    assert abs(normal_entropy(sigma) - mean_log) > 0.3


def published_edges(d_model, d_head):
    """Post 1, before Fig. 3 (and the draft): lambda_+- = sqrt(d_h) (1 +- sqrt(d/d_h))."""
    return tuple(math.sqrt(d_head) * (1 + sign * math.sqrt(d_model / d_head)) for sign in (-1, 1))


@pytest.mark.parametrize(("d_model", "d_head"), [(768, 64), (1000, 500), (300, 300)])
def test_the_published_edges_are_those_of_one_factor(d_model, d_head):
    low, high = marchenko_pastur(d_head, d_model).support
    lower, upper = published_edges(d_model, d_head)
    assert upper == pytest.approx(math.sqrt(high), rel=1e-12)
    assert -lower == pytest.approx(math.sqrt(low), rel=1e-12, abs=1e-6)


@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(768, 64, 10), (200, 200, 20)])
def test_edges_of_the_product(d_model, d_head, draws):
    rng = np.random.default_rng([2, d_model])
    largest = np.empty(draws)
    for draw in range(draws):
        w_q, w_k = rng.standard_normal((2, d_head, d_model))
        core = np.linalg.qr(w_q.T, mode="r") @ np.linalg.qr(w_k.T, mode="r").T
        largest[draw] = np.linalg.svd(core, compute_uv=False)[0] / math.sqrt(d_model)
    law = largest_eigenvalue((d_model, d_head, d_model), normalization="sqrt_d")
    # The standard deviation of s = sqrt(lambda) is half that of lambda, relative; five errors of the mean.
    error = 5 * 0.5 * law.std() / math.sqrt(law.mean() * draws)
    assert largest.mean() == pytest.approx(math.sqrt(law.mean()), abs=error + 0.003 * largest.mean())
    published = published_edges(d_model, d_head)[1]
    assert largest.mean() - published > 10 * error / 5
    assert largest.min() > published


def test_reference_values_of_the_edges():
    right = np.sqrt(low_rank_product(768, 64).support)
    np.testing.assert_allclose(right, (17.0423, 39.5503), atol=5e-5)
    np.testing.assert_allclose(published_edges(768, 64), (-19.7128, 35.7128), atol=5e-5)
    square = math.sqrt(low_rank_product(1000, 1000).support[1] / 1000)
    assert square == pytest.approx(math.sqrt(27 / 4), rel=1e-12)
    assert published_edges(1000, 1000)[1] / math.sqrt(1000) == pytest.approx(2.0, rel=1e-12)


P, A, SIGMA0 = 0.1, 2.0, 1.0  # spike weight, its location, width of the bulk


def mixture_sample(spike_weight):
    rng = np.random.default_rng(31)
    bulk = rng.normal(0.0, SIGMA0, 400_000)
    return np.where(rng.random(bulk.size) < spike_weight, A, bulk)


def test_the_weight_changes_its_owner():
    # Post 1, "Correlations Among Per-Head Statistics": "N(0, sigma_0) with weight p and an additional localized
    # component at a with weight 1 - p", then mu = p a and sigma^2 = (1 - p) sigma_0^2 + p a^2.
    as_the_words_say, as_the_formulas_say = (mixture_sample(weight).mean() for weight in (1 - P, P))
    assert as_the_formulas_say == pytest.approx(P * A, abs=0.01)  # five standard errors: 0.009
    assert as_the_words_say == pytest.approx((1 - P) * A, abs=0.01)
    assert ContaminatedNormal(P, A, SIGMA0).mean() == pytest.approx(P * A, rel=1e-15)


def test_moments_of_the_mixture():
    sample, law = mixture_sample(P), ContaminatedNormal(P, A, SIGMA0)
    assert sample.var() == pytest.approx(law.var(), rel=0.012)  # five standard errors: 0.011
    assert stats.skew(sample) == pytest.approx(law.skewness(), abs=0.025)
    assert stats.kurtosis(sample, fisher=False) == pytest.approx(law.kurtosis(), abs=0.05)
    # sigma^2 without the term -mu^2.
    assert (1 - P) * SIGMA0**2 + P * A**2 - law.var() == pytest.approx((P * A) ** 2, rel=1e-12)


def test_skewness_and_kurtosis_are_not_proportional_to_powers_of_the_distance():
    # "gamma ~ p a^3/sigma^3, kappa ~ p a^4/sigma^4": from a = 2 to 4 the factors change twelvefold and threefold.
    laws = {a: ContaminatedNormal(P, a, SIGMA0) for a in (2.0, 4.0)}
    third, fourth = (
        {a: statistic(law) / (P * a**k / law.std() ** k) for a, law in laws.items()}
        for k, statistic in ((3, ContaminatedNormal.skewness), (4, ContaminatedNormal.kurtosis))
    )
    assert third[4.0] > 12 * third[2.0]
    assert fourth[2.0] > 3 * fourth[4.0]


def test_the_published_limits_of_sigma_exclude_the_mixture_itself():
    sample = mixture_sample(P)
    mean, std, skewness = sample.mean(), sample.std(), stats.skew(sample)
    # sigma(mu) >~ sqrt((mu^2 + (1-p)/p sigma_0^2)/p); right, and an equality: sqrt((1-p) (sigma_0^2 + mu^2/p)).
    published = math.sqrt((mean**2 + (1 - P) / P * SIGMA0**2) / P)
    right = math.sqrt((1 - P) * (SIGMA0**2 + mean**2 / P))
    assert std == pytest.approx(right, rel=0.01)
    assert published > 8 * std
    # sigma(gamma) >~ sqrt((1-p)/p) sigma_0 / sqrt(1 - (p gamma)^(2/3)).
    assert math.sqrt((1 - P) / P) * SIGMA0 / math.sqrt(1 - (P * skewness) ** (2 / 3)) > 2.5 * std


def test_the_limit_by_skewness_follows_from_its_own_premises_with_other_powers_of_p():
    # gamma = p a^3/sigma^3 and sigma^2 = (1-p) sigma_0^2 + p a^2 together give
    # sigma = sqrt(1-p) sigma_0 / sqrt(1 - (sqrt(p) gamma)^(2/3)).
    sigma = math.sqrt((1 - P) * SIGMA0**2 + P * A**2)
    gamma = P * A**3 / sigma**3
    derived = math.sqrt(1 - P) * SIGMA0 / math.sqrt(1 - (math.sqrt(P) * gamma) ** (2 / 3))
    published = math.sqrt((1 - P) / P) * SIGMA0 / math.sqrt(1 - (P * gamma) ** (2 / 3))
    assert derived == pytest.approx(sigma, rel=1e-12)
    assert published > 2.5 * sigma
