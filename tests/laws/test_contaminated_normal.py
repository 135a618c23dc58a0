"""The contaminated normal law."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad

from rmtbase.laws import ContaminatedNormal, normal_entropy, pearson_bound

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


def test_a_point_mass_is_the_limit_of_a_narrow_spike():
    narrow = ContaminatedNormal(0.2, 1.0, 0.5, 1e-9)
    for name in ("mean", "var", "skewness", "kurtosis"):
        assert getattr(ATOM, name)() == pytest.approx(getattr(narrow, name)(), rel=1e-12)
    assert ATOM.atom_mass == 0.2 and narrow.atom_mass == 0.0
    assert ATOM.cdf(1.0) - ATOM.cdf(np.nextafter(1.0, 0.0)) == pytest.approx(0.2, abs=1e-12)
    assert quad(ATOM.pdf, -10, 10, points=[0])[0] == pytest.approx(0.8, rel=1e-10)
    assert ATOM.entropy() == -math.inf
    levels = float(ATOM.cdf(np.nextafter(1.0, 0.0))) + np.array([0.01, 0.1, 0.19])
    np.testing.assert_allclose(ATOM.ppf(levels), 1.0, rtol=1e-14)


def test_the_tail_is_relative():
    with mpmath.workdps(40):
        expected = 0.95 * mpmath.ncdf(-30) + mpmath.mpf(0.05) * mpmath.ncdf(-10)
    assert TUKEY.sf(30.0) == pytest.approx(float(expected), rel=1e-13)
    assert TUKEY.cdf(-30.0) == pytest.approx(float(expected), rel=1e-13)


def test_entropy_and_its_shortfall():
    assert ContaminatedNormal(0.0, 5.0, 0.3, 0.1).entropy() == pytest.approx(normal_entropy(0.3), abs=1e-10)
    assert ContaminatedNormal(1.0, 5.0, 0.3, 0.1).entropy() == pytest.approx(normal_entropy(0.1), abs=1e-10)
    apart = ContaminatedNormal(0.3, 1e3, 1.0, 2.0)
    separate = 0.7 * normal_entropy(1.0) + 0.3 * normal_entropy(2.0) - 0.7 * math.log(0.7) - 0.3 * math.log(0.3)
    assert apart.entropy() == pytest.approx(separate, abs=1e-9)
    for law in (TUKEY, BUMP):
        value, _ = quad(lambda x, law=law: -law.pdf(x) * math.log(law.pdf(x)), -25, 25, points=[-3, 0, 2.5], limit=400)
        assert law.entropy() == pytest.approx(value, abs=1e-8)
        assert law.entropy() < normal_entropy(law.std())


def test_a_vanishing_bulk_reaches_pearsons_bound():
    wide, thin = (ContaminatedNormal(0.05, 1.0, sigma) for sigma in (0.3, 1e-4))
    assert thin.kurtosis() - pearson_bound(thin.skewness()) < 1e-4
    assert wide.kurtosis() - pearson_bound(wide.skewness()) > 1.0
