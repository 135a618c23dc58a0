"""The smallest eigenvalue at hard and nearly hard edges: the Bessel edge's law, and that of chains through it."""

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
import pytest
from scipy import special

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import BesselEdge, EdgeLaw, HardEdgeLaw, null, smallest_eigenvalue
from rmtbase.statistics import inverse_moment_order

# The closed forms of ln P(S > s), and of P(S ≤ s) without cancellation.
CLOSED = {
    0: (lambda s: -s / 8 - np.sqrt(s) / 2, lambda s: -np.expm1(-s / 8 - np.sqrt(s) / 2)),
    1: (lambda s: -s / 8, lambda s: -np.expm1(-s / 8)),
    3: (
        lambda s: -s / 8 + np.log(2 * special.ive(1, np.sqrt(s))) + np.sqrt(s) - np.log(s) / 2,
        lambda s: np.array([float(1 - mp.exp(-x / 8) * mp.hyp0f1(2, mp.mpf(x) / 4)) for x in s]),
    ),
}


@pytest.mark.parametrize("index", CLOSED)
def test_the_bessel_edge_has_its_closed_forms(index):
    law, (log_sf, cdf) = BesselEdge(index), CLOSED[index]
    near = np.array([1e-6, 0.001, 0.1, 0.5])
    np.testing.assert_allclose(np.exp(log_sf(law.isf(near))), near, rtol=1e-6)
    far = np.array([1e-28, 1e-16, 1e-10])
    np.testing.assert_allclose(np.exp(log_sf(law.isf(far))), far, rtol=1e-3)
    with mp.workdps(60):
        small = np.append(far, near)
        np.testing.assert_allclose(cdf(law.ppf(small)), small, rtol=1e-6)
    if index == 1:
        assert law.mean() == pytest.approx(8.0, rel=1e-6) == law.std()


@pytest.mark.parametrize("index", [0, 2, 7, 15])
def test_the_bessel_edge_is_a_power_near_zero_and_half_known_far_out(index):
    law = BesselEdge(index)
    s = law.ppf([1e-30, 1e-26])
    assert math.log(1e4) / math.log(s[1] / s[0]) == pytest.approx((index + 1) / 2, rel=1e-3)
    # ln P(S > s) + s/8 - (ν - 1)√s/2 + ν(ν - 1)(ln s)/8 tends to a constant.
    far = law.isf([1e-24, 1e-28])
    rest = np.log([1e-24, 1e-28]) + far / 8 - (index - 1) * np.sqrt(far) / 2 + index * (index - 1) * np.log(far) / 8
    assert abs(np.diff(rest)[0]) < 0.02 * math.log(1e4) * (1 + index)


def _square(n: int) -> Callable[[mp.mpf], mp.mpf]:
    """The density of s, s² the smallest eigenvalue of a square Gaussian matrix (Edelman 1988)."""
    constant = 2 * n * mp.gamma(mp.mpf(n + 1) / 2) / mp.sqrt(2 * mp.pi)
    return lambda s: constant * mp.exp(-n * s**2 / 2) * mp.hyperu(mp.mpf(n - 1) / 2, mp.mpf(-1) / 2, s**2 / 2)


# Exact for one factor: exp(-m x/2) for m × (m + 1), times M(-m, 2, -x) for m × (m + 3) (Muirhead 1982, theorem 9.7.4).
@pytest.mark.parametrize(("m", "bound"), mostly_exhaustive([(4, 0.08), (8, 0.03), (64, 0.002)], always=1))
def test_one_factor_has_its_exact_law(m, bound):
    score = np.arange(-3.0, 3.01)
    for nu in (0, 1, 3):
        law = smallest_eigenvalue(dims=(m + nu, m), normalization="none")
        x = np.where(score < 0, law.ppf(special.ndtr(score)), law.isf(special.ndtr(-score)))
        if nu == 0:
            found = special.ndtri([float(mp.quad(_square(m), [0, mp.sqrt(one)])) for one in x])
        else:
            log_sf = -0.5 * m * x + (np.log(special.hyp1f1(-m, 2, -x)) if nu == 3 else 0.0)
            found = np.where(score < 0, special.ndtri(-np.expm1(log_sf)), -special.ndtri(np.exp(log_sf)))
        np.testing.assert_allclose(found, score, atol=bound)


@pytest.mark.exhaustive
def test_tails_towards_zero_are_powers_and_inverse_moments_end_where_they_must():
    for dims in [(16, 16), (12, 10, 12), (30, 9, 14, 16), (20, 5, 20), (16, 16, 16)]:
        law, order = smallest_eigenvalue(dims=dims, normalization="none"), inverse_moment_order(dims)
        assert isinstance(law, HardEdgeLaw)
        log_x = np.log(law.ppf([1e-60, 1e-40]))
        assert 20 * math.log(10) / np.diff(log_x)[0] == pytest.approx(order, rel=1e-9)
        assert math.isinf(law.expect_power(-order)) and math.isinf(law.expect_power(-order - 1))
        # E λ^-p = p int x^(-p-1) P(λ ≤ x) dx, in ln x.
        grid, power = np.linspace(log_x[0], 100.0, 40_001), 0.6 * order
        integral = power * np.trapezoid(np.exp(-power * grid) * law.cdf(np.exp(grid)), grid)
        assert law.expect_power(-power) == pytest.approx(integral, rel=1e-5)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("dims", [(24, 16, 24), (16, 16), (9, 8, 8, 12)])
def test_a_hard_edge_law_is_one_law(dims, own):
    law = smallest_eigenvalue(dims=dims, sigma=0.5, self_normalized=own)
    assert law.side == "lower" and law.support == (0.0, math.inf)
    tails = np.array([1e-30 if own else 1e-100, 1e-9, 0.01, 0.5])
    np.testing.assert_allclose(law.cdf(law.ppf(tails)), tails, rtol=1e-9)
    np.testing.assert_allclose(law.sf(law.isf(tails)), tails, rtol=1e-9)
    mean, variance, _ = law.log_cumulants()
    log_x = np.linspace(np.log(law.ppf(1e-12)), np.log(law.isf(1e-12)), 20_001)
    mass = law.pdf(np.exp(log_x)) * np.exp(log_x)
    assert np.trapezoid(mass * log_x, log_x) == pytest.approx(mean, abs=1e-5 * math.sqrt(variance))


def test_dimensions_in_any_order_sigmas_and_their_estimates():
    raw = smallest_eigenvalue((20, 16, 24), normalization="none")
    q = np.array([1e-3, 0.5, 0.999])
    np.testing.assert_array_equal(raw.ppf(q), smallest_eigenvalue((16, 24, 20), normalization="none").ppf(q))
    scaled = smallest_eigenvalue((20, 16, 24), sigmas=(0.5, 3.0))
    np.testing.assert_allclose(scaled.ppf(q), 2.25 / 20 * raw.ppf(q), rtol=1e-12)
    own = smallest_eigenvalue((20, 16, 24), normalization="none", self_normalized=True)
    halves = np.array([20 * 16, 16 * 24]) / 2
    expected = np.array([(special.digamma(halves) - np.log(halves)).sum(), special.polygamma(1, halves).sum()])
    found = np.subtract(raw.log_cumulants(), own.log_cumulants())[:2]
    np.testing.assert_allclose(found, expected, atol=1e-9)


@pytest.mark.exhaustive
def test_the_laws_of_both_kinds_of_edge_meet():
    # Mean and standard deviation of ln λ as functions of ν bend smoothly from 15 to 16, to 0.05 standard deviations.
    laws = [smallest_eigenvalue((12 + nu, 12, 12 + nu), normalization="none") for nu in (14, 15, 16, 17)]
    assert [type(law) for law in laws] == [HardEdgeLaw, HardEdgeLaw, EdgeLaw, EdgeLaw]
    cumulants = np.array([law.log_cumulants()[:2] for law in laws])
    mean, spread = cumulants[:, 0], np.sqrt(cumulants[:, 1])
    third = np.array([-1.0, 3.0, -3.0, 1.0])
    assert abs(third @ mean) < 3 * 0.05 * spread[0] and abs(third @ np.log(spread)) < 3 * 0.02


def test_what_was_not_simulated_is_refused():
    for dims in [(3, 3, 3), (2, 2), (1, 1)]:
        with pytest.raises(ParameterError, match="a rank of at least 4"):
            smallest_eigenvalue(dims=dims, normalization="none")
    assert smallest_eigenvalue((8,) * 5, normalization="none").mean() > 0.0
    with pytest.raises(ParameterError, match="at most 4 dimensions near the second smallest"):
        smallest_eigenvalue((8,) * 6, normalization="none")


# 0.2 standard deviations of bias in no quantile, 20 % in no tail, and five standard errors (false-failure rate 6e-7).
@pytest.mark.parametrize(("dims", "draws"), [((10, 10, 10), 4000), ((14, 9, 14), 4000), ((12, 10, 30, 11), 4000)])
def test_simulated_chains_have_this_law_and_this_condition_number(simulated_chain, dims, draws):
    eigenvalues, own = simulated_chain(dims, draws)
    samples = {
        smallest_eigenvalue(dims=dims, normalization="none"): eigenvalues[:, -1],
        smallest_eigenvalue(dims=dims, normalization="none", self_normalized=True): eigenvalues[:, -1] / own,
        null("condition_number", dims=dims): eigenvalues[:, 0] / eigenvalues[:, -1],
    }
    for law, sample in samples.items():
        for level in (0.5, 0.1, 0.01):
            for count in ((sample > law.isf(level)).sum(), (sample < law.ppf(level)).sum()):
                expected = level * draws
                assert abs(count - expected) < 0.2 * expected + 5 * math.sqrt(expected)
