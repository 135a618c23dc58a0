"""The Weibull anchor: against published digits, mpmath's own quadrature, SciPy's laws, and laws that are Weibull."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import special, stats
from scipy.optimize import brentq, minimize

from exhaustive import mostly_exhaustive
from rmtbase.laws import (
    ProductElement,
    parents,
    weibull_anchor,
    weibull_maximum_likelihood,
    weibull_noise_optimum,
    weibull_quantile_noise,
)

# Digits of an independent evaluation; those of the project's reference tables, but for R² whose last digit they round.
HALF_NORMAL = {
    0.1: ("1.205434319017451087", "0.887487039832266288", "0.99774036723265152617"),
    0.05: ("1.190922610383650000", "0.880887883490032409", "0.99665513412134920265"),
    0.0: ("1.15106659071825", "0.874835116855485", "0.99371572220080982865"),
}
PARENTS = [
    parents.Normal(), parents.Uniform(), parents.TruncatedNormal(), parents.Laplace(), parents.Logistic(),
    parents.StudentT(df=1), parents.StudentT(df=4.5), parents.VarianceGamma(h=64),
    parents.Mixture((parents.Normal(), parents.Normal(0.1)), (1, 2)),
    parents.Mixture((parents.Uniform(), parents.TruncatedNormal(0.5)), (1, 3)),
]  # fmt: skip
SCIPY = [
    (parents.Normal(0.02), stats.halfnorm(scale=0.02)),
    (parents.Uniform(), stats.uniform(0, math.sqrt(3))),
    (parents.TruncatedNormal(2.0, bound=1.5), stats.truncnorm(0, 1.5, scale=2.0)),
    (parents.Laplace(), stats.expon(scale=math.sqrt(0.5))),
    (parents.Logistic(), stats.halflogistic(scale=math.sqrt(3) / math.pi)),
]


def names(values):
    return [str(value) for value in values]


@pytest.mark.parametrize("trim", HALF_NORMAL)
def test_the_half_normal_anchor_has_its_published_digits(trim):
    shape, scale, r_squared = HALF_NORMAL[trim]
    decimals = weibull_anchor(trim, digits=40).decimals
    assert decimals.shape.startswith(shape[:-1])
    assert decimals.scale.startswith(scale[:-1])
    assert decimals.r_squared.startswith(r_squared[:-1])
    fast = weibull_anchor(trim)
    for found, digits in zip((fast.shape, fast.scale, fast.r_squared), decimals, strict=True):
        assert found == pytest.approx(float(digits), rel=1e-14)


def test_the_anchor_agrees_with_mpmath_over_the_quantile_function():
    # ∫ dF with the inverse error function by mpmath's Gauss–Legendre rule; the package integrates over x.
    with mpmath.workdps(30):
        ends = [mpmath.mpf(1) / 10, mpmath.mpf(1) / 2, mpmath.mpf(9) / 10]

        def mean(function):
            return mpmath.quad(function, ends, method="gauss-legendre") / (ends[2] - ends[0])

        def x(p):
            return mpmath.log(mpmath.sqrt(2) * mpmath.erfinv(p))

        def y(p):
            return mpmath.log(-mpmath.log1p(-p))

        x_mean, y_mean = mean(x), mean(y)
        covariance = mean(lambda p: (x(p) - x_mean) * (y(p) - y_mean))
        shape = covariance / mean(lambda p: (x(p) - x_mean) ** 2)
        scale = mpmath.exp(x_mean - y_mean / shape)
        decimals = weibull_anchor(digits=20).decimals
        assert decimals.shape == mpmath.nstr(shape, 20, strip_zeros=False)
        assert decimals.scale == mpmath.nstr(scale, 20, strip_zeros=False)


@pytest.mark.parametrize("trim", mostly_exhaustive([0.1, 0], always=1))
@pytest.mark.parametrize("parent", PARENTS, ids=names(PARENTS))
def test_double_precision_agrees_with_mpmath(parent, trim):
    fast, exact = weibull_anchor(trim, parent), weibull_anchor(trim, parent, digits=16)
    assert fast.shape == pytest.approx(exact.shape, rel=1e-14)
    assert fast.scale == pytest.approx(exact.scale, rel=1e-14)
    assert fast.r_squared == pytest.approx(exact.r_squared, rel=1e-14)


@pytest.mark.parametrize(("parent", "law"), SCIPY, ids=names(parent for parent, _ in SCIPY))
def test_the_anchor_agrees_with_scipys_quantiles(parent, law):
    node, weight = np.polynomial.legendre.leggauss(200)
    p, weight = 0.5 + 0.4 * node, weight / 2
    x, y = np.log(law.ppf(p)), np.log(-np.log1p(-p))
    covariance = np.cov(x, y, aweights=weight, bias=True)
    shape = covariance[0, 1] / covariance[0, 0]
    anchor = weibull_anchor(0.1, parent)
    assert anchor.shape == pytest.approx(shape, rel=1e-12)
    assert anchor.scale == pytest.approx(math.exp(weight @ x - weight @ y / shape), rel=1e-12)
    assert anchor.r_squared == pytest.approx(shape * covariance[0, 1] / covariance[1, 1], rel=1e-12)


@pytest.mark.parametrize("trim", mostly_exhaustive([0.1, 0], always=1))
@pytest.mark.parametrize("parent", [parents.Laplace(), parents.VarianceGamma(h=2)], ids=str)
def test_a_parent_that_is_weibull_is_its_own_anchor(parent, trim):
    anchor = weibull_anchor(trim, parent, digits=30)
    assert anchor.decimals.shape == "1." + 29 * "0"
    assert anchor.decimals.scale == mpmath.nstr(mpmath.sqrt(0.5), 15)[:15] + anchor.decimals.scale[15:]
    assert anchor.decimals.r_squared == "1." + 29 * "0"


@pytest.mark.parametrize(("h", "shape"), [(50, 1.199959), (16, 1.187015)])
def test_the_anchor_of_one_element_of_w_qk(h, shape):
    assert weibull_anchor(0.1, parents.VarianceGamma(h=h)).shape == pytest.approx(shape, abs=5e-7)


def test_one_element_of_w_qk_becomes_normal_at_large_h():
    gaps = [weibull_anchor().shape - weibull_anchor(0.1, parents.VarianceGamma(h=h)).shape for h in (1_000, 10_000)]
    assert gaps[1] == pytest.approx(gaps[0] / 10, rel=3e-3) and gaps[1] > 0  # 0.26377/h + O(1/h^2)


@pytest.mark.parametrize("h", [1, 3, 64, 257, 1000])
def test_one_element_of_w_qk_has_the_same_law_in_both_arithmetics(h):
    # Struve functions up to h = 256 and a mean over chi-square in 40 digits, against a mean over chi-square in double.
    x = np.array([0.01, 0.1, 1.0, 4.0])
    found = np.transpose(parents.VarianceGamma(h=h).law(x, parents.FLOAT))
    with mpmath.workdps(40):
        exact = [parents.VarianceGamma(h=h).law(mpmath.mpf(float(value)), parents.multiprecision()) for value in x]
        np.testing.assert_allclose(found, np.array(exact, dtype=float), rtol=2e-14)


@pytest.mark.parametrize("h", [1, 2, 16, 500])
def test_the_variance_gamma_parent_is_the_product_element(h):
    parent, element = parents.VarianceGamma(0.7, h=h), ProductElement(h, 0.7 / math.sqrt(h))
    p = np.array([0.01, 0.1, 0.5, 0.9, 0.9999])
    np.testing.assert_allclose(parent.ppf(p), element.isf((1 - p) / 2), rtol=1e-12)


@pytest.mark.parametrize("name", ["normal", "uniform", "truncated_normal", "laplace", "logistic"])
def test_the_scale_is_in_units_of_sigma_and_the_shape_has_none(name):
    unit = weibull_anchor(0.1, name)
    small = weibull_anchor(0.1, type(unit.parent)(sigma=0.02))
    assert small.scale == pytest.approx(0.02 * unit.scale, rel=1e-14)
    assert small.shape == pytest.approx(unit.shape, rel=1e-14)


def test_parameters_mean_what_is_written_and_digits_continue():
    assert weibull_anchor(0.1, digits=30).decimals == weibull_anchor(Fraction(1, 10), digits=30).decimals
    nearest_double = Fraction(0.1)
    assert weibull_anchor(0.1, digits=30).decimals != weibull_anchor(nearest_double, digits=30).decimals
    few, many = weibull_anchor(0.1, "logistic", 20).decimals, weibull_anchor(0.1, "logistic", 80).decimals
    for short, long in zip(few, many, strict=True):
        assert len(long.lstrip("0.").replace(".", "")) == 80
        assert long.startswith(short[:-1])
    mixture = parents.Mixture((parents.Logistic(), parents.Logistic()), (1, 3))
    assert weibull_anchor(0.05, mixture).shape == pytest.approx(weibull_anchor(0.05, "logistic").shape, rel=1e-14)


def test_maximum_likelihood_solves_its_closed_equations():
    # ln E|w|^s = (s/2) ln 2 + ln Γ((s+1)/2) − ln(π)/2, E ln|w| = −(γ + ln 2)/2.
    def score(k):
        return math.log(2) / 2 + special.digamma((k + 1) / 2) / 2 - 1 / k + (np.euler_gamma + math.log(2)) / 2

    k = brentq(score, 1, 2, xtol=1e-15)
    found = weibull_maximum_likelihood()
    assert found.shape == pytest.approx(k, rel=1e-13)
    scale = (2 ** (k / 2) * math.gamma((k + 1) / 2) / math.sqrt(math.pi)) ** (1 / k)
    assert found.scale == pytest.approx(scale, rel=1e-13)
    assert (found.shape, found.scale) == pytest.approx((1.262757, 0.855417), abs=5e-7)
    # E|w|^k ∝ 1/(k+1): the score is 1 − 1/(k+1) − 1/k, so k² = k + 1.
    golden = (1 + math.sqrt(5)) / 2
    found = weibull_maximum_likelihood("uniform")
    assert found.shape == pytest.approx(golden, rel=1e-13)
    assert found.scale == pytest.approx(math.sqrt(3) * (golden + 1) ** (-1 / golden), rel=1e-13)
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


def test_the_noise_has_its_digits_and_its_optimum():
    optimum = weibull_noise_optimum(20)
    assert optimum.decimals[0] == "0.79681213002002004616"
    assert optimum.decimals[1].startswith("1.54413865237")
    p = optimum.probability
    assert p == pytest.approx(1 - math.exp(-2 * p), rel=1e-15)
    assert optimum.noise == pytest.approx(float(weibull_plot_noise(p)), rel=1e-14)
    assert weibull_plot_noise(0.1) / optimum.noise == pytest.approx(6.48209544, abs=5e-9)
    p = np.linspace(0.01, 0.99, 9_801)
    assert abs(p[weibull_plot_noise(p).argmin()] - weibull_noise_optimum().probability) < 1e-4
    p = np.array([[0.001, 0.1], [0.797, 0.999]])
    np.testing.assert_allclose(weibull_quantile_noise(p, "laplace"), weibull_plot_noise(p), rtol=1e-12)
    p = np.linspace(0.5, 0.99, 4_901)
    assert p[weibull_quantile_noise(p).argmin()] == pytest.approx(0.862, abs=1e-3)
    assert np.isnan(weibull_quantile_noise([-0.1, 0.0, 1.0, np.nan])).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.862])
def test_the_noise_is_that_of_simulated_order_statistics(p):
    n, draws = 1_000, 4_000
    sample = np.abs(np.random.default_rng(8).standard_normal((draws, n)))
    found = np.log(np.partition(sample, int(n * p), axis=1)[:, int(n * p)]).var() * n
    # 4.5 standard errors of a variance, sqrt(2/draws), false failure 7e-6, and the neglected O(1/(N p)).
    assert found == pytest.approx(float(weibull_quantile_noise(p)), rel=4.5 * math.sqrt(2 / draws) + 2 / (n * p))
