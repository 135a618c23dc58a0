"""The exact law of the log-determinant, against high precision, closed forms and simulation."""

import math
from collections import Counter
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, polygamma

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import LogDeterminant


@pytest.mark.parametrize("dims", [(5, 1), (1, 5), (5, 1, 7)])
def test_a_constant_determinant_has_no_law(dims):
    with pytest.raises(ParameterError, match="a determinant that varies"):
        LogDeterminant(dims=dims, self_normalized=True, normalization="none")
    LogDeterminant(dims=dims, normalization="none")
    LogDeterminant((1, 5, 1), self_normalized=True, normalization="none")


def test_reference_value_and_scaling():
    head = {"d_model": 768, "d_head": 64}
    raw = LogDeterminant(**head, normalization="none")
    assert raw.mean() == pytest.approx(844.830, abs=5e-4)
    scaled = LogDeterminant(**head, sigma_q=0.5, sigma_k=3.0)
    assert scaled.mean() == pytest.approx(raw.mean() + 64 * math.log(0.25 * 9.0 / 768), rel=1e-13)
    assert (scaled.std(), scaled.skewness()) == (raw.std(), raw.skewness())
    scaled, own = (LogDeterminant(**head, sigma=sigma, self_normalized=True) for sigma in (0.5, None))
    assert scaled.cumulant(1) == own.cumulant(1)
    assert own.std() == pytest.approx(0.122238, abs=5e-7)


@pytest.mark.parametrize(("normalization", "value"), [("none", 2 * math.log(50)), ("sqrt_d", math.log(50))])
def test_a_self_normalized_single_eigenvalue_is_the_product_of_the_widths(normalization, value):
    with pytest.raises(ParameterError, match=r"is always [0-9.]+$") as raised:
        LogDeterminant(d_model=50, d_head=1, sigma_q=2.0, normalization=normalization, self_normalized=True)
    assert float(str(raised.value).rsplit(" ", 1)[1]) == pytest.approx(value, rel=1e-15)


def _cumulant(dims, k, own):
    """The definition, term by term, in 30 digits: for one smallest dimension, and n_j any."""
    others = sorted(dims)[1:]
    rank = min(dims)
    with mpmath.workdps(30):

        def log_chi_square(n):
            return mpmath.polygamma(k - 1, mpmath.mpf(n) / 2) + (mpmath.log(2) if k == 1 else 0)

        total = mpmath.fsum(log_chi_square(n - i) for n in others for i in range(rank))
        if own:
            for n, m in pairwise(dims):
                total -= mpmath.mpf(rank) ** k * (log_chi_square(n * m) - (mpmath.log(n * m) if k == 1 else 0))
        return float(total)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dims", [(5, 3), (4, 4), (2, 7, 3), (6, 2, 5, 3, 7), (200, 64, 200), (300, 300), (500, 40)])
def test_cumulants_are_sums_of_polygamma_functions(dims, own):
    law = LogDeterminant(dims=dims, self_normalized=own, normalization="none")
    for k in (1, 2, 3, 4):
        # Dividing out the scales cancels: at worst a factor of 10^4 at (500, 40).
        assert law.cumulant(k) == pytest.approx(_cumulant(dims, k, own), rel=1e-9 if own else 1e-12)
    assert law.var() == law.cumulant(2) and law.std() ** 2 == pytest.approx(law.var(), rel=1e-15)
    assert law.skewness() == pytest.approx(law.cumulant(3) / law.std() ** 3, rel=1e-13)
    assert law.moment(2) == pytest.approx(law.var() + law.mean() ** 2, rel=1e-13)
    mean, variance, third = law.mean(), law.var(), law.cumulant(3)
    assert law.moment(3) == pytest.approx(third + 3 * mean * variance + mean**3, rel=1e-12)


def _log_mgf(dims, own, s):
    """ln E exp(s X), term by term."""
    rank = min(dims)
    total = mpmath.fsum(
        count
        * (mpmath.loggamma(mpmath.mpf(n - i) / 2 + s) - mpmath.loggamma(mpmath.mpf(n - i) / 2) + s * mpmath.log(2))
        for n, count in Counter(sorted(dims)[1:]).items()
        for i in range(rank)
    )
    if own:
        for n, m in pairwise(dims):
            half = mpmath.mpf(n * m) / 2
            total -= mpmath.loggamma(half + rank * s) - mpmath.loggamma(half) - rank * s * mpmath.log(half)
    return total


def _tail(dims, own, x, s0, bend):
    """P(X > x) for s0 > 0 and P(X <= x) for s0 < 0: the inversion integral in 25 digits, on s0 + w (i u - bend u^2)."""
    with mpmath.workdps(25):
        s0, x, step = mpmath.mpf(s0), mpmath.mpf(x), mpmath.mpf(1) / 6
        start = _log_mgf(dims, own, s0) - s0 * x
        small = s0 / 10**6
        curvature = (
            _log_mgf(dims, own, s0 + small) + _log_mgf(dims, own, s0 - small) - 2 * (start + s0 * x)
        ) / small**2
        width, total = 1 / mpmath.sqrt(curvature + 1 / s0**2), mpmath.mpf(0)
        for k in range(200):
            u = k * step
            s, tangent = s0 + width * mpmath.mpc(-bend * u**2, u), width * mpmath.mpc(1, 2 * bend * u)
            term = mpmath.exp(_log_mgf(dims, own, s) - s * x - start) / s * tangent
            total += term.real * (0.5 if k == 0 else 1)
            if abs(term) < 1e-17:
                break
        return float(abs(total) * step / mpmath.pi * mpmath.exp(start))


# s0 is close to the saddle point. Tails from 1e-10 to 1e-138.
@pytest.mark.parametrize(
    ("dims", "own", "x", "s0", "bend", "accuracy"),
    mostly_exhaustive(
        [
            ((5, 3, 4), False, -313.5, -0.997, 0.25, 1e-10),
            ((5, 3, 4), False, -17.6, -0.944, 0.1, 1e-11),
            ((5, 3, 4), False, 26.1, 37.7, 0.1, 1e-10),
            ((24, 8, 24), False, -1.5, -8.37, 0.1, 1e-10),
            ((24, 8, 24), False, 56.7, 7.72, 0.03, 1e-11),
            ((96, 16, 96), False, 137.8, -6.77, 0, 1e-11),
            ((96, 16, 96), False, 158.8, 27.8, 0, 1e-10),
            ((32, 32), False, -556.7, -0.498, 0.25, 1e-10),
            ((32, 32), False, 97.6, 3.92, 0, 1e-11),
            ((64, 8, 64), True, 52.2, -27.6, 0.05, 1e-9),
            ((64, 8, 64), True, 66.3, 119, 0.05, 1e-9),
            ((20, 24), True, 38.4, -2.27, 0.1, 1e-10),
            ((20, 24), True, 62.8, 130, 0.05, 1e-9),
        ],
        always=4,
    ),
)
def test_tails_have_the_values_of_the_inversion_integral(dims, own, x, s0, bend, accuracy):
    law = LogDeterminant(dims=dims, self_normalized=own, normalization="none")
    value = law.sf(x) if s0 > 0 else law.cdf(x)
    assert value == pytest.approx(_tail(dims, own, x, s0, bend), rel=accuracy, abs=0)


def test_one_or_two_rows_have_their_closed_laws():
    law, chi_square = LogDeterminant(dims=(1, 7), normalization="none"), stats.chi2(7)
    x = np.array([-600.0, -60.0, -3.0, 0.0, 1.5, 2.0, 4.0, 6.5, 7.1])
    np.testing.assert_allclose(law.cdf(x[x < 3]), chi_square.cdf(np.exp(x[x < 3])), rtol=1e-10)
    np.testing.assert_allclose(law.sf(x), chi_square.sf(np.exp(x)), rtol=1e-10)
    np.testing.assert_allclose(law.pdf(x[1:]), np.exp(x[1:]) * chi_square.pdf(np.exp(x[1:])), rtol=1e-10)
    # Two rows of two: lambda_1 lambda_2 / (mean square)^2 = 4 V, V = det/(|X|^2/2)^2, and sqrt V is uniform on (0, 1).
    law = LogDeterminant(dims=(2, 2), self_normalized=True, normalization="none")
    assert law.support == (-math.inf, pytest.approx(2 * math.log(2)))
    x = math.log(4.0) + np.array([-900.0, -50.0, -5.0, -1.0, -0.1, -0.01])
    np.testing.assert_allclose(law.cdf(x), np.exp(0.5 * (x - math.log(4.0))), rtol=1e-8)
    assert law.cdf(1.4) == 1.0 and law.sf(1.4) == law.pdf(1.4) == 0.0


# Kolmogorov-Smirnov at 1e-6 for each of 12 cases, seeded; the dimensions put the smallest one in every place.
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dims", [(5, 3, 4), (3, 5, 4), (4, 5, 3), (6, 2, 5, 3, 7), (4, 4, 4), (7, 4)])
def test_simulated_determinants_have_this_law(simulated_chain, dims, own):
    eigenvalues, own_variance = simulated_chain(dims, 10000)
    sample = np.log(eigenvalues).sum(axis=1) - (min(dims) * np.log(own_variance) if own else 0.0)
    assert stats.kstest(sample, LogDeterminant(dims=dims, self_normalized=own, normalization="none").cdf).pvalue > 1e-6


@pytest.mark.parametrize(("rank", "wider"), [(7, 7), (64, 64), (1000, 1000), (1000, 6000), (4096, 4126)])
def test_sums_over_progressions_are_exact_to_rounding_and_short(rank, wider):
    law, halves = LogDeterminant(dims=(wider, rank), normalization="none"), 0.5 * (wider - np.arange(rank))
    assert law.mean() == pytest.approx((np.log(2.0) + digamma(halves)).sum(), rel=1e-13)
    for order in (2, 3, 4):
        assert law.cumulant(order) == pytest.approx(polygamma(order - 1, halves).sum(), rel=1e-13)
    assert len(law._law.weights) <= 10 + 10 * math.ceil(math.log2(1 + rank / 10))
