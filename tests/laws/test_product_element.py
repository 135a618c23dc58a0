"""The law of one element of W_QK: exact rational sums in mpmath, published digits, and simulation."""

import math
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import stats

from rmtbase.laws import ProductElement, product_element

# P(w > x) at h = 1 and 3: ∫ sech u exp(-x cosh u) du / π and ∫ (x + sech u) exp(-x cosh u) du / π, u > 0, 30 digits.
ODD_TAILS = {
    1: {0.001: 0.49744598094794673, 1: 0.10449683150232616, 6: 3.6980399868032795e-4, 30: 6.6808207801396993e-15},
    3: {0.001: 0.49968169053064411, 1: 0.23851307251932044, 6: 2.7456581564591582e-3, 30: 2.1031742153673480e-13},
}
# D_KL to the matched normal law: from the exact density, 40 digits; h = 1 from K_0.
DIVERGENCES = {
    1: 0.21484010193316944, 2: 0.07236494292470009, 8: 0.007552503664734798, 16: 0.002240251862963073,
    64: 1.683542583293344e-4, 128: 4.379706214949916e-5, 1024: 7.111096701890123e-7, 16384: 2.792945237246617e-9,
}  # fmt: skip


@cache
def even_polynomials(h: int) -> tuple[list[mpmath.mpf], list[mpmath.mpf]]:
    """Coefficients, lowest first, of e^x pdf(x) and e^x sf(x) for x > 0: w = A - B with A, B ~ Gamma(h/2), h even.

    P(A > x + B) = Σ_{k < m} E[e^-(x + B) (x + B)^k / k!], m = h/2, and E[e^-B B^i] = Γ(m + i)/(Γ(m) 2^(m + i)).
    """
    with mpmath.workdps(40):
        m = h // 2
        term, running, cumulative = mpmath.mpf(2) ** -m, mpmath.mpf(0), []
        for i in range(m):
            running += term
            cumulative.append(running)
            term = term * (m + i) / (i + 1) / 2
        tail = [cumulative[m - 1 - j] / mpmath.factorial(j) for j in range(m)]
        # -d/dx of e^-x Σ tail_j x^j
        return [tail[j] - (j + 1) * tail[j + 1] if j + 1 < m else tail[j] for j in range(m)], tail


def exact(h: int, x: float, which: int) -> mpmath.mpf:
    with mpmath.workdps(40):
        x = mpmath.mpf(x)
        return mpmath.fsum(c * x**power for power, c in enumerate(even_polynomials(h)[which])) * mpmath.exp(-x)


@pytest.mark.parametrize("h", [2, 8, 16, 64, 128, 1024])
def test_density_and_tail_have_the_digits_of_the_exact_sums(h):
    law, std = ProductElement(h), math.sqrt(h)
    x = [1e-300, 1e-12, 1e-3, 0.1, 1.0, 5.0, std, 2 * std, 4 * std, 10 * std, 35 * std] + ([650.0] if h < 20 else [])
    for which, function in ((0, law.pdf), (1, law.sf)):
        expected = np.array([float(exact(h, value, which)) for value in x])
        assert expected.min() > 1e-300
        np.testing.assert_allclose(function(x), expected, rtol=5e-13)


def test_many_products_do_not_overflow_and_are_nearly_normal():
    law = ProductElement(16384)
    x = np.array([0.0, 1.0, 128.0, 1000.0, 4600.0])
    for which, function in ((0, law.pdf), (1, law.sf)):
        expected = [float(exact(16384, value, which)) for value in x]
        np.testing.assert_allclose(function(x), expected, rtol=5e-13)
    # The Edgeworth expansion to O(1/h): sf = Q(y) + φ(y) (y³ - 3y) 6/(24 h); next order h^-2.
    law, y = ProductElement(10**6), np.array([0.5, 1.0, 3.0])
    edgeworth = stats.norm.sf(y) + stats.norm.pdf(y) * (y**3 - 3 * y) / (4 * 10**6)
    np.testing.assert_allclose(law.sf(1000 * y), edgeworth, rtol=1e-10)
    assert law.kl_to_normal() / (0.75 / 10**12) == pytest.approx(1 - 6e-6, abs=1e-10)


@pytest.mark.parametrize("h", [1, 3])
def test_odd_heads_have_bessel_densities(h):
    law = ProductElement(h)
    for x, tail in ODD_TAILS[h].items():
        density = mpmath.besselk(0, x) if h == 1 else x * mpmath.besselk(1, x)
        assert law.pdf(x) == pytest.approx(float(density / mpmath.pi), rel=1e-13)
        assert law.sf(x) == pytest.approx(tail, rel=1e-13)
    assert ProductElement(1).pdf(1e-300) == pytest.approx(float(mpmath.besselk(0, mpmath.mpf("1e-300")) / mpmath.pi))


@pytest.mark.parametrize(("h", "divergence"), DIVERGENCES.items())
def test_divergence_from_the_normal_law_is_relative_however_small(h, divergence):
    law = ProductElement(h)
    assert law.kl_to_normal() == pytest.approx(divergence, rel=1e-13)
    normal = 0.5 * math.log(2 * math.pi * math.e * h)
    assert law.entropy() == pytest.approx(normal - divergence, rel=1e-14)


@pytest.mark.parametrize("h", [2, 16, 1024])
def test_quantiles_are_relative_next_to_the_median(h):
    for shift in (2.0**-50, 2.0**-30, 1e-5, 0.02, 0.06):
        x = float(ProductElement(h).ppf(0.5 + shift))
        with mpmath.workdps(40):  # one Newton step of the exact sums leaves an error of second order
            step = (exact(h, x, 1) - (1 - mpmath.mpf(0.5 + shift))) / exact(h, x, 0)
        assert abs(float(step)) < 2e-14 * x


def test_scale_is_a_scale_and_the_ends_of_the_domain_are_known():
    plain, wide = ProductElement(7), ProductElement(7, 4.0)
    x = np.array([-9.0, 0.3, 2.0])
    np.testing.assert_allclose(wide.pdf(4.0 * x), plain.pdf(x) / 4.0, rtol=1e-15)
    np.testing.assert_allclose(wide.sf(4.0 * x), plain.sf(x), rtol=1e-15)
    assert wide.ppf(0.01) == 4.0 * plain.ppf(0.01)
    assert wide.entropy() == pytest.approx(plain.entropy() + math.log(4.0), rel=1e-15)
    assert wide.kl_to_normal() == plain.kl_to_normal()
    assert wide.kurtosis() == plain.kurtosis() == 6 / 7
    assert product_element(768, 64, sigma_q=0.5, sigma_k=2.0).var() == pytest.approx(64 / 768, rel=1e-15)
    assert product_element(768, 64, sigma_q=0.5, sigma_k=3.0, normalization="none").std() == 12.0
    law = ProductElement(1)
    np.testing.assert_array_equal(law.pdf([0.0, -np.inf, np.inf]), [np.inf, 0.0, 0.0])
    np.testing.assert_allclose(law.cdf([-np.inf, 0.0, np.inf]), [0.0, 0.5, 1.0], rtol=1e-15)
    np.testing.assert_allclose(law.sf([-np.inf, 0.0, np.inf]), [1.0, 0.5, 0.0], rtol=1e-15)
    assert law.ppf(0.5) == law.isf(0.5) == 0.0
    assert np.isnan(law.logsf(np.nan)) and law.logsf(1e300) == pytest.approx(-1e300)
    assert ProductElement(3).pdf(0.0) == pytest.approx(1 / math.pi, rel=1e-14)


def test_moments_are_exact():
    law = ProductElement(64)
    assert [law.moment(k) for k in range(5)] == [1.0, 0.0, 64.0, 0.0, 3.0 * 64 * 66]
    assert law.moment(6) == 15 * 64 * 66 * 68
    assert law.mean() == 0.0 and law.var() == 64.0 and law.std() == 8.0
    assert law.moment(4) / law.var() ** 2 - 3.0 == pytest.approx(law.kurtosis(), rel=1e-15)
    assert ProductElement(64, 1e100).moment(4) == math.inf
    # From the density, by Gauss–Legendre quadrature.
    nodes, weights = np.polynomial.legendre.leggauss(200)
    x = 80.0 * (nodes + 1.0)
    for k in (0, 2, 4, 6):
        assert 160.0 * np.sum(weights * x**k * law.pdf(x)) == pytest.approx(law.moment(k), rel=1e-12)
