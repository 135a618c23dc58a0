"""Entropy of a normal law and the divergence between two."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from rmtbase.laws import normal_entropy, normal_kl


def test_entropy_is_scipys():
    sigma = np.array([[1e-3, 0.02], [1.0, 7.0]])
    np.testing.assert_allclose(normal_entropy(sigma), norm.entropy(scale=sigma), rtol=1e-14)
    assert normal_entropy(1 / math.sqrt(2 * math.pi * math.e)) == pytest.approx(0.0, abs=1e-15)


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
