"""Maximum likelihood: closed forms, SciPy's optimiser; and the noise along the Weibull plot."""

import math

import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import brentq, minimize

from rmtbase.laws import parents, weibull_maximum_likelihood, weibull_noise_optimum, weibull_quantile_noise


def test_maximum_likelihood_at_the_half_normal_law_solves_its_closed_equation():
    # ln E|w|^s = (s/2) ln 2 + ln Γ((s+1)/2) − ln(π)/2, E ln|w| = −(γ + ln 2)/2.
    def score(k):
        return math.log(2) / 2 + special.digamma((k + 1) / 2) / 2 - 1 / k + (np.euler_gamma + math.log(2)) / 2

    k = brentq(score, 1, 2, xtol=1e-15)
    found = weibull_maximum_likelihood()
    assert found.shape == pytest.approx(k, rel=1e-13)
    scale = (2 ** (k / 2) * math.gamma((k + 1) / 2) / math.sqrt(math.pi)) ** (1 / k)
    assert found.scale == pytest.approx(scale, rel=1e-13)
    assert (found.shape, found.scale) == pytest.approx((1.262757, 0.855417), abs=5e-7)


def test_the_uniform_law_projects_to_the_golden_ratio():
    # E|w|^k ∝ 1/(k+1): the score is 1 − 1/(k+1) − 1/k, so k² = k + 1.
    golden = (1 + math.sqrt(5)) / 2
    found = weibull_maximum_likelihood("uniform")
    assert found.shape == pytest.approx(golden, rel=1e-13)
    assert found.scale == pytest.approx(math.sqrt(3) * (golden + 1) ** (-1 / golden), rel=1e-13)


def test_cauchys_law_projects_although_it_has_no_mean():
    # E|w|^k = 1/cos(πk/2), E ln|w| = 0: (π/2) tan(πk/2) = 1/k.
    k = brentq(lambda k: math.pi / 2 * math.tan(math.pi * k / 2) - 1 / k, 0.1, 0.9, xtol=1e-15)
    found = weibull_maximum_likelihood(parents.StudentT(df=1))
    assert found.shape == pytest.approx(k, rel=1e-12)
    assert found.scale == pytest.approx(math.cos(math.pi * k / 2) ** (-1 / k), rel=1e-12)


@pytest.mark.parametrize("parent", [parents.Laplace(3.0), parents.VarianceGamma(3.0, h=2)], ids=str)
def test_a_weibull_parent_projects_to_itself(parent):
    found = weibull_maximum_likelihood(parent)
    assert (found.shape, found.scale) == pytest.approx((1.0, 3.0 / math.sqrt(2)), rel=1e-13)


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("normal", stats.halfnorm()),
        ("truncated_normal", stats.truncnorm(0, 2)),
        ("uniform", stats.uniform(0, math.sqrt(3))),
    ],
)
def test_maximum_likelihood_is_the_least_divergence(name, law):
    node, weight = np.polynomial.legendre.leggauss(200)
    x = 0.5 * min(law.support()[1], 12.0) * (1 + np.sin(0.5 * math.pi * node))  # grades the nodes towards both ends
    mass = weight * 0.25 * math.pi * min(law.support()[1], 12.0) * np.cos(0.5 * math.pi * node) * law.pdf(x)
    log_density = law.logpdf(x)

    def divergence(parameters):
        k, log_scale = np.exp(parameters[0]), parameters[1]
        reduced = k * (np.log(x) - log_scale)
        return float(mass @ (log_density - np.log(k) - reduced + np.log(x) + np.exp(reduced)))

    found = weibull_maximum_likelihood(name)
    least = minimize(divergence, (0.1, 0.0), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    assert np.exp(least.x) == pytest.approx([found.shape, found.scale], rel=1e-4)


def weibull_plot_noise(p):
    """N Var(Y) of an order statistic at p, with Y = ln(−ln(1 − F))."""
    return p / ((1 - p) * np.log1p(-p) ** 2)


def test_the_noise_optimum_has_its_digits():
    optimum = weibull_noise_optimum(20)
    assert optimum.decimals[0] == "0.79681213002002004616"
    assert optimum.decimals[1].startswith("1.54413865237")
    p = optimum.probability
    assert p == pytest.approx(1 - math.exp(-2 * p), rel=1e-15)
    assert optimum.noise == pytest.approx(float(weibull_plot_noise(p)), rel=1e-14)
    assert weibull_plot_noise(0.1) / optimum.noise == pytest.approx(6.48209544, abs=5e-9)


def test_the_optimum_is_the_minimum():
    p = np.linspace(0.01, 0.99, 9_801)
    assert abs(p[weibull_plot_noise(p).argmin()] - weibull_noise_optimum().probability) < 1e-4


def test_the_noise_of_the_abscissa_is_that_of_the_plot_for_a_weibull_parent():
    p = np.array([[0.001, 0.1], [0.797, 0.999]])
    np.testing.assert_allclose(weibull_quantile_noise(p, "laplace"), weibull_plot_noise(p), rtol=1e-12)


def test_the_noise_of_the_half_normal_abscissa_is_least_elsewhere():
    p = np.linspace(0.5, 0.99, 4_901)
    assert p[weibull_quantile_noise(p).argmin()] == pytest.approx(0.862, abs=1e-3)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.862])
def test_the_noise_is_that_of_simulated_order_statistics(p):
    n, draws = 1_000, 4_000
    sample = np.abs(np.random.default_rng(8).standard_normal((draws, n)))
    found = np.log(np.partition(sample, int(n * p), axis=1)[:, int(n * p)]).var() * n
    # 4.5 standard errors of a variance, sqrt(2/draws), false failure 7e-6, and the neglected O(1/(N p)).
    assert found == pytest.approx(float(weibull_quantile_noise(p)), rel=4.5 * math.sqrt(2 / draws) + 2 / (n * p))


def test_noise_outside_its_domain():
    assert np.isnan(weibull_quantile_noise([-0.1, 0.0, 1.0, np.nan])).all()
