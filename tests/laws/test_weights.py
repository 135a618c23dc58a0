"""Laws of weights: contaminated and two-point laws, entropies and divergences, and the scale under AdamW."""

import math

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.stats import norm

from rmtbase.laws import AdamWNoise, ContaminatedNormal, TwoPoint, normal_entropy, normal_kl, pearson_bound

TUKEY = ContaminatedNormal(0.05, sigma_spike=3.0)
BUMP = ContaminatedNormal(0.1, mean_spike=2.5, sigma_bulk=0.7, sigma_spike=0.2, mean_bulk=-0.3)
ATOM = ContaminatedNormal(0.2, mean_spike=1.0, sigma_bulk=0.5)


@pytest.mark.parametrize("law", [TUKEY, BUMP])
def test_moments_are_integrals_of_the_density(law):
    def integral(f):
        return quad(lambda x: f(x) * law.pdf(x), -40, 40, points=[-3, -1, 0, 1, 2, 3], epsabs=1e-13, limit=400)[0]

    for k in range(7):
        assert law.moment(k) == pytest.approx(integral(lambda x, k=k: x**k), rel=1e-9, abs=1e-10)
    mean, var = law.mean(), law.var()
    assert mean == pytest.approx(integral(lambda x: x), abs=1e-10) and law.std() == math.sqrt(var)
    assert var == pytest.approx(integral(lambda x: (x - mean) ** 2), rel=1e-9)
    third, fourth = (integral(lambda x, k=k: ((x - mean) / law.std()) ** k) for k in (3, 4))
    assert law.skewness() == pytest.approx(third, rel=1e-8, abs=1e-10)
    assert law.kurtosis() == pytest.approx(fourth, rel=1e-8)


def test_the_tail_of_a_contaminated_normal_is_relative_and_a_point_mass_its_limit():
    narrow = ContaminatedNormal(0.2, 1.0, 0.5, 1e-9)
    for name in ("mean", "var", "skewness", "kurtosis"):
        assert getattr(ATOM, name)() == pytest.approx(getattr(narrow, name)(), rel=1e-12)
    assert ATOM.atom_mass == 0.2 and narrow.atom_mass == 0.0
    assert ATOM.cdf(1.0) - ATOM.cdf(np.nextafter(1.0, 0.0)) == pytest.approx(0.2, abs=1e-12)
    assert quad(ATOM.pdf, -10, 10, points=[0])[0] == pytest.approx(0.8, rel=1e-10)
    assert ATOM.entropy() == -math.inf
    levels = float(ATOM.cdf(np.nextafter(1.0, 0.0))) + np.array([0.01, 0.1, 0.19])
    np.testing.assert_allclose(ATOM.ppf(levels), 1.0, rtol=1e-14)
    with mpmath.workdps(40):
        expected = 0.95 * mpmath.ncdf(-30) + mpmath.mpf(0.05) * mpmath.ncdf(-10)
    assert TUKEY.sf(30.0) == pytest.approx(float(expected), rel=1e-13)
    assert TUKEY.cdf(-30.0) == pytest.approx(float(expected), rel=1e-13)


def test_entropy_and_its_shortfall():
    np.testing.assert_allclose(normal_entropy([[1e-3, 0.02], [1.0, 7.0]]), norm.entropy(scale=[[1e-3, 0.02], [1, 7]]))
    assert ContaminatedNormal(0.0, 5.0, 0.3, 0.1).entropy() == pytest.approx(normal_entropy(0.3), abs=1e-10)
    assert ContaminatedNormal(1.0, 5.0, 0.3, 0.1).entropy() == pytest.approx(normal_entropy(0.1), abs=1e-10)
    apart = ContaminatedNormal(0.3, 1e3, 1.0, 2.0)
    separate = 0.7 * normal_entropy(1.0) + 0.3 * normal_entropy(2.0) - 0.7 * math.log(0.7) - 0.3 * math.log(0.3)
    assert apart.entropy() == pytest.approx(separate, abs=1e-9)
    for law in (TUKEY, BUMP):
        value, _ = quad(lambda x, law=law: -law.pdf(x) * math.log(law.pdf(x)), -25, 25, points=[-3, 0, 2.5], limit=400)
        assert law.entropy() == pytest.approx(value, abs=1e-8)
        assert law.entropy() < normal_entropy(law.std())


@pytest.mark.parametrize("skewness", [-30.0, -1.0, 0.0, 1e-9, 0.5, 4.0, 1e4])
def test_the_two_point_law_saturates_the_bound(skewness):
    law = TwoPoint(skewness)
    low, high = law.support
    assert low < high and sum(law.weights) == pytest.approx(1.0, abs=1e-15)
    assert law.moment(0) == pytest.approx(1.0) and abs(law.moment(1)) < 1e-12
    assert law.moment(2) == pytest.approx(1.0, rel=1e-12)
    assert law.moment(3) == pytest.approx(skewness, rel=1e-9, abs=1e-12)
    assert law.moment(4) == pytest.approx(pearson_bound(skewness), rel=1e-9)
    assert law.kurtosis() == pearson_bound(skewness)
    assert law.weights[1] == pytest.approx(0.5 * (1 - skewness / math.hypot(skewness, 2)), rel=1e-6)


def test_location_and_scale_move_the_points():
    law = TwoPoint(0.7, center=3.0, scale=0.2)
    np.testing.assert_allclose(law.support, 3.0 + 0.2 * np.array(TwoPoint(0.7).support), rtol=1e-14)
    assert law.weights == TwoPoint(0.7).weights
    assert (law.mean(), law.std()) == (3.0, 0.2)
    assert law.var() == pytest.approx(law.moment(2) - law.moment(1) ** 2, rel=1e-12)


def test_a_vanishing_bulk_and_two_points_reach_pearsons_bound():
    rng = np.random.default_rng(4)
    samples = rng.standard_t(2, size=(200, 30)) + 3 * (rng.random((200, 30)) < 0.1)
    skewness, kurtosis = stats.skew(samples, axis=1), stats.kurtosis(samples, axis=1, fisher=False)
    assert (kurtosis > pearson_bound(skewness) + 1e-3).all()
    two = np.repeat([1.0, 5.0], [3, 17])
    assert stats.kurtosis(two, fisher=False) == pytest.approx(pearson_bound(stats.skew(two)), rel=1e-12)
    wide, thin = (ContaminatedNormal(0.05, 1.0, sigma) for sigma in (0.3, 1e-4))
    assert thin.kurtosis() - pearson_bound(thin.skewness()) < 1e-4
    assert wide.kurtosis() - pearson_bound(wide.skewness()) > 1.0
    assert np.isnan(pearson_bound(math.nan))


@pytest.mark.parametrize(
    ("sigma", "sigma0", "mean", "mean0"), [(0.5, 1.0, 0.0, 0.0), (2.0, 1.0, 0.0, 0.0), (0.7, 1.3, -0.4, 1.1)]
)
def test_divergence_is_its_integral(sigma, sigma0, mean, mean0):
    def integrand(x):
        p, p0 = norm.logpdf(x, mean, sigma), norm.logpdf(x, mean0, sigma0)
        return math.exp(p) * (p - p0)

    value, _ = quad(integrand, mean - 12 * sigma, mean + 12 * sigma, epsabs=1e-13, epsrel=1e-13, limit=200)
    assert normal_kl(sigma, sigma0, mean, mean0) == pytest.approx(value, rel=1e-11)


@pytest.mark.parametrize("sigma", [1e-9, 0.01, 0.5, 0.9, 0.95, 0.999, 1 + 1e-6, 1 + 1e-12, 1.05, 1.1, 3.0, 1e6])
def test_divergence_has_all_its_digits(sigma):
    with mpmath.workdps(50):
        ratio = mpmath.mpf(sigma) / 3
        expected = ratio**2 / 2 - mpmath.log(ratio) - mpmath.mpf(1) / 2
        near = mpmath.mpf(3.0 * sigma) / 3
        close = near**2 / 2 - mpmath.log(near) - mpmath.mpf(1) / 2
    assert normal_kl(sigma, 3.0) == pytest.approx(float(expected), rel=1e-14)
    assert normal_kl(3.0 * sigma, 3.0) == pytest.approx(float(close), rel=1e-14)


def test_divergence_broadcasts_vanishes_only_at_equality_and_is_not_symmetric():
    sigma = np.array([0.5, 1.0, 2.0])
    table = normal_kl(sigma[:, None], sigma)
    assert table.shape == (3, 3)
    np.testing.assert_array_equal(np.diag(table), 0.0)
    assert (table[~np.eye(3, dtype=bool)] > 0).all()
    assert abs(table[0, 2] - table[2, 0]) > 0.5
    assert normal_kl(1.0, 1.0, 0.3, -0.1) == pytest.approx(0.08, rel=1e-14)


@pytest.mark.parametrize("beta1", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(("eta", "decay"), [(1e-3, 0.1), (0.01, 4.0)])
def test_the_variance_is_that_of_the_recursion(eta, decay, beta1):
    # The covariance of (w, m), step by step.
    law = AdamWNoise(eta, decay, beta1)
    keep = 1 - eta * decay
    step = np.array([[keep, -eta * beta1], [0.0, beta1]])
    kick = (1 - beta1) * np.array([-eta, 1.0])
    covariance = np.diag([0.03**2, 0.0])
    steps, expected = np.arange(400), np.empty(400)
    for t in steps:
        expected[t] = math.sqrt(covariance[0, 0])
        covariance = step @ covariance @ step.T + np.outer(kick, kick)
    np.testing.assert_allclose(law.std_after(steps, 0.03), expected, rtol=1e-9)


@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_equilibrium_is_the_limit_and_is_approached_in_half_a_relaxation_time(beta1):
    law = AdamWNoise(1e-3, 0.1, beta1)
    assert law.std_after(10**7) == pytest.approx(law.std(), rel=1e-12)
    assert law.var() == law.std() ** 2
    assert law.relaxation_time == pytest.approx(1e4, rel=1e-4)
    missing = 1 - (law.std_after(np.array([10_000, 20_000])) / law.std()) ** 2
    np.testing.assert_allclose(missing, np.exp([-2.0, -4.0]), rtol=3e-3)


def test_adamw_noise_has_its_scale():
    for eta, decay in ((1e-4, 0.01), (3e-4, 0.1), (1e-3, 0.1)):
        law = AdamWNoise(eta, decay)
        assert law.std() == pytest.approx(math.sqrt(eta / decay / 2), rel=5 * eta * decay)
    assert AdamWNoise(4e-4, 0.01).std() / AdamWNoise(1e-4, 0.01).std() == pytest.approx(2.0, rel=1e-4)
    eta, decay, beta1, beta2, weights, steps = 0.01, 0.4, 0.9, 0.999, 4000, 700
    rng = np.random.default_rng(5)
    w = np.zeros(weights)
    m, v = np.zeros((2, weights))
    for t in range(1, steps + 1):
        gradient = 7.0 * rng.standard_normal(weights)
        m, v = beta1 * m + (1 - beta1) * gradient, beta2 * v + (1 - beta2) * gradient**2
        w = (1 - eta * decay) * w - eta * (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + 1e-8)
    # Monte Carlo error 1.1 % (four of them), and the denominator's fluctuations, 0.5 %.
    assert w.std() == pytest.approx(AdamWNoise(eta, decay, beta1).std_after(steps), rel=0.05)
