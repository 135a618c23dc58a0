"""The limiting law of a Gaussian chain."""

import math

import mpmath
import numpy as np
import pytest
from oracles import polynomial_roots
from scipy.integrate import IntegrationWarning
from scipy.special import gamma

from rmtbase.laws import GaussianChain, low_rank_product, marchenko_pastur, naive_marchenko_pastur

# Soft and hard edges, L = 1 ... 8, aspect ratios from 1e-4 to 1, and nearly hard edges.
CHAINS = [
    (768, 64, 768), (64, 64, 64), (768, 64), (64, 64), (10_000, 1, 10_000), (10_000, 1), (1, 1), (65, 64, 65),
    (1000, 999, 1000), (100_000, 99_999), (768, 64, 768, 64, 768), (10_000, 100, 200, 10_000, 300), (50,) * 9,
    (50, 51, 52, 53, 54, 55, 56, 57, 58), (1, 2, 1000, 50, 3, 3, 7, 1000, 1),
    (1000, 1, 1000, 2, 1000, 3, 1000, 4, 1000), (1_000_000, 1_000_000, 1_000_001), (7,) * 13,
]  # fmt: skip
PROBABILITIES = np.concatenate([[1e-12, 1e-6], np.linspace(0.001, 0.999, 41), [1 - 1e-6]])


def test_reference_values_of_edges():
    law = low_rank_product(768, 64)
    np.testing.assert_allclose(law.support, (290.440529, 1564.226138), rtol=0, atol=5e-7)
    np.testing.assert_allclose(law.edge_scale, (8.806, 35.716), rtol=0, atol=5e-4)
    assert law.mean() == 768.0
    assert law.moment(2) / 768**2 == pytest.approx(1 + 2 / 12, rel=1e-15)
    law = low_rank_product(64, 64)
    assert law.has_hard_edge and law.support[0] == 0.0 and law.edge_scale[0] is None
    assert law.support[1] == pytest.approx(27 * 64 / 4, rel=1e-14)
    assert law.pdf(0.0) == math.inf
    for d_model, d_head in [(768, 64), (4096, 128), (10_000, 1), (100, 99)]:
        ratio = d_head / d_model
        psi = (-1 + np.array([-1, 1]) * math.sqrt(1 + 8 / ratio)) / 4
        edges = d_model * (1 + psi) * (1 + ratio * psi) ** 2 / psi
        np.testing.assert_allclose(low_rank_product(d_model, d_head).support, edges, rtol=1e-12)


@pytest.mark.parametrize("factors", range(1, 9))
def test_expectations_and_cumulants_of_square_chains_are_fuss_catalan(factors):
    # E lambda^t = Gamma((L + 1) t + 1) / (Gamma(t + 1) Gamma(L t + 2)), at fractions and below zero too.
    law = GaussianChain(dims=(1,) * (factors + 1), normalization="none")
    for t in (0.5, 1.5, 3.0, -0.4 / (factors + 1)):
        expected = gamma((factors + 1) * t + 1) / (gamma(t + 1) * gamma(factors * t + 2))
        assert law.expect(lambda x, t=t: x**t) == pytest.approx(expected, rel=1e-12)
    for k in range(7):
        assert law.moment(k) == math.comb((factors + 1) * k, k) // (factors * k + 1)
    for k in range(1, 8):
        assert law.free_cumulant(k) == math.comb(factors * k, k) // ((factors - 1) * k + 1)


def test_cumulants_of_one_factor_and_of_a_narrow_law():
    law = GaussianChain(dims=(7, 5), sigmas=(0.5,), atom=True, normalization="none")
    for k in range(1, 9):
        assert law.free_cumulant(k) == 7 * 5 ** (k - 1) * 0.25**k
    # Semicircle of variance 2 gamma (relative to the mean) up to order gamma^2; its fourth cumulant is -variance^2.
    law = GaussianChain((10**8, 1, 10**8), normalization="none")
    variance = law.cumulant(2)
    assert variance == pytest.approx(2e-8 * law.mean() ** 2, rel=1e-14)
    assert law.cumulant(4) == pytest.approx(-(variance**2), rel=1e-6)


@pytest.mark.parametrize("atom", [False, True])
def test_classical_cumulants_follow_from_the_moments(atom):
    law = GaussianChain((9, 7, 8, 11), atom=atom, normalization="none")
    m1, m2, m3, m4 = (law.moment(k) for k in range(1, 5))
    assert law.cumulant(1) == law.mean()
    assert law.cumulant(2) == pytest.approx(law.var(), rel=1e-14)
    assert law.cumulant(3) == pytest.approx(m3 - 3 * m2 * m1 + 2 * m1**3, rel=1e-12)
    assert law.cumulant(4) == pytest.approx(m4 - 4 * m3 * m1 - 3 * m2**2 + 12 * m2 * m1**2 - 6 * m1**4, rel=1e-12)


@pytest.mark.parametrize("atom", [False, True])
@pytest.mark.parametrize("dims", CHAINS)
def test_pdf_cdf_moments_and_quantiles_are_of_one_law(dims, atom):
    law = GaussianChain(dims=dims, atom=atom, normalization="none")
    assert law.expect(np.ones_like) == pytest.approx(1.0, abs=1e-13)
    for k in range(1, 5):
        power = k
        assert law.expect(lambda x, p=power: x**p) == pytest.approx(law.moment(k), rel=1e-12)
    quantile = law.ppf(PROBABILITIES)
    # Below the atom's mass the quantile is 0, where the cdf is that mass.
    expected = np.maximum(PROBABILITIES, law.atom_mass)
    np.testing.assert_allclose(law.cdf(quantile), expected, rtol=0, atol=5e-14)
    np.testing.assert_allclose(law.sf(quantile), 1.0 - expected, rtol=0, atol=5e-14)
    np.testing.assert_allclose(law.sf(law.isf(PROBABILITIES)), np.minimum(PROBABILITIES, 1 - law.atom_mass), atol=5e-14)
    assert law.mean() == law.moment(1)
    assert law.var() == pytest.approx(law.moment(2) - law.mean() ** 2, rel=1e-9)
    assert law.std() == math.sqrt(law.var())


@pytest.mark.parametrize("dims", CHAINS)
def test_the_last_doubles_inside_the_edges_are_regular(dims):
    law = GaussianChain(dims=dims, normalization="none")
    for edge, inward in zip(law.support, (1.0, -1.0), strict=True):
        x = edge * (1.0 + inward * np.arange(1, 400) * 2.3e-16)
        x = x[(x > law.support[0]) & (x < law.support[1])]
        density, below = law.pdf(x), law.cdf(x)
        assert np.isfinite(density).all() and (density >= 0.0).all()
        # In the edge's own unit it is the square root of the distance, 1e-13 of the edge or 1e-11 of a narrow support.
        assert (np.minimum(x, law.std()) * density < 1e-5).all()
        # The mass above or below grows as the distance to the power 3/2: nothing is left this close.
        np.testing.assert_allclose(below, 0.0 if inward > 0 else 1.0, rtol=0, atol=1e-12)


def _exactly(law, x):
    """(pdf, cdf, sf) at the double x in 80 digits: a root of the polynomial of psi, and its masses in closed form."""
    with mpmath.workdps(80):
        rank, x = min(law.dims), mpmath.mpf(float(x))
        ratios = [mpmath.mpf(rank) / n for n in law.dims]
        polynomial = [mpmath.mpf(1)]
        for ratio in ratios:
            polynomial = [a + ratio * b for a, b in zip([*polynomial, 0], [0, *polynomial], strict=True)]
        polynomial[1] -= x * rank / math.prod(law.dims)
        roots = polynomial_roots(polynomial[::-1], maxsteps=4000, extraprec=300)
        # On the physical branch sum arg(1 + c psi) = arg psi; the other roots miss it by multiples of 2 pi.
        (psi,) = (
            root
            for root in roots
            if mpmath.im(root) > 1e-60
            and abs(mpmath.fsum(mpmath.arg(1 + c * root) for c in ratios) - mpmath.arg(root)) < 1
        )
        above = mpmath.fsum(mpmath.arg(1 + c * psi) / c for c in ratios) - (len(ratios) - 1) * mpmath.im(psi)
        return mpmath.im(psi) / (mpmath.pi * x), 1 - above / mpmath.pi, above / mpmath.pi


@pytest.mark.parametrize(
    "dims",
    [
        (768, 64),
        (768, 64, 768),
        (64, 64, 64),
        (10_000, 1, 10_000),
        (1, 10**12, 10**12),
        (1000, 999, 1000),
        (65, 64, 65),
        (10_000, 100, 200, 10_000, 300),
        (9, 7, 8, 11),
        (50, 51, 52, 53, 54, 55, 56, 57, 58),
    ],
    ids=str,
)
def test_pdf_cdf_and_sf_are_relatively_accurate_up_to_the_edges(dims):
    law = GaussianChain(dims=dims, normalization="none")
    lower, upper = law.support
    near = 10.0 ** np.array([-3.0, -8.0, -14.0])
    points = [*(upper - (upper - lower) * near), *law.ppf([1e-9, 0.4])]
    points += [] if law.has_hard_edge else list(lower + (upper - lower) * near)
    for x in points:
        if lower < x < upper:  # 1e-14 of a narrow support is below a double's resolution
            pdf, cdf, sf = _exactly(law, x)
            assert abs(law.pdf(x) / pdf - 1) < 2e-14
            assert abs(law.sf(x) / sf - 1) < 2e-14
            assert abs(law.cdf(x) / cdf - 1) < 2e-13


@pytest.mark.parametrize("dims", [(7, 7), (7, 9, 7, 30), (7, 7, 7, 9), (7,) * 9, (7, 1000, 7)], ids=str)
def test_density_far_down_a_hard_edge_has_its_leading_form(dims):
    # psi + 1 -> (x / prod(1 - c))^(1/k) exp(i pi / k): density sin(pi/k) / (pi lambda) times the modulus.
    law = GaussianChain(dims=dims, normalization="none")
    k = dims.count(7)
    gaps = math.prod(1 - 7 / n for n in dims if n > 7)
    unit = math.prod(dims) / 7 * gaps
    for x in (1e-150, 1e-250, 1e-300):
        leading = math.sin(math.pi / k) / (math.pi * x) * (x / unit) ** (1 / k)
        assert law.pdf(x) == pytest.approx(leading, rel=2e-13)
        assert law.cdf(x) == pytest.approx(k * leading * x, rel=2e-13)
    assert 0.0 < law.cdf(5e-324) < law.cdf(1e-300) and math.isfinite(law.pdf(1e-310))


def test_a_tiny_quantile_at_a_hard_edge_is_relatively_accurate():
    law = GaussianChain((7, 7, 7, 9), normalization="none")
    q = np.array([1e-60, 1e-30, 1e-12, 1e-3])
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-12)


def test_the_atom_is_seen_by_every_method():
    plain, full = low_rank_product(768, 64), low_rank_product(768, 64, atom=True)
    mass = 64 / 768
    assert plain.atom_mass == 0.0 and full.atom_mass == pytest.approx(1 - mass, rel=1e-15)
    assert full.cdf(0.0) == pytest.approx(1 - mass, rel=1e-15) and full.cdf(-1e-300) == 0.0
    assert full.sf(-1.0) == 1.0
    assert full.ppf(0.5) == 0.0 and full.ppf(0.0) == 0.0
    assert full.pdf(700.0) == pytest.approx(mass * plain.pdf(700.0), rel=1e-15)
    assert full.moment(3) == pytest.approx(mass * plain.moment(3), rel=1e-15)
    assert full.moment(0) == 1.0
    assert full.expect(lambda x: x + 1.0) == pytest.approx(mass * 768 + 1.0, rel=1e-13)
    law = low_rank_product(768, 64, atom=True)
    q = np.array([[0.0, 1e-30, 1e-6], [0.05, 0.5, 1.0]])
    quantile = law.isf(q)
    assert quantile.shape == q.shape
    assert quantile[0, 0] == law.support[1] and (quantile[1, 1:] == 0.0).all()
    np.testing.assert_allclose(law.sf(quantile[0, 2]), 1e-6, rtol=1e-9)
    np.testing.assert_allclose(law.sf(quantile[1, 0]), 0.05, rtol=1e-13)
    assert np.isnan(law.isf([-0.1, 1.1, np.nan])).all()
    assert low_rank_product(768, 64).isf(1.0) == low_rank_product(768, 64).support[0]
    assert GaussianChain(dims=(6, 3), atom=True, normalization="none").atom_mass == 0.0
    assert GaussianChain(dims=(3, 6), atom=True, normalization="none").atom_mass == 0.5


def test_the_density_of_singular_values_has_mass_one():
    for law in (low_rank_product(768, 64), GaussianChain(dims=(8, 8), normalization="none")):
        low, high = np.sqrt(law.support)
        nodes, weights = np.polynomial.legendre.leggauss(400)
        angle = 0.5 * np.pi * (nodes + 1.0)
        s = 0.5 * (low + high) - 0.5 * (high - low) * np.cos(angle)
        mass = np.sum(weights * law.pdf_singular_values(s) * 0.5 * (high - low) * np.sin(angle)) * 0.5 * np.pi
        assert mass == pytest.approx(1.0, abs=1e-10)
    # The quarter circle: density sqrt(4 n - s^2) / (pi n).
    square = GaussianChain(dims=(8, 8), normalization="none")
    assert square.pdf_singular_values(0.0) == pytest.approx(2 / (math.pi * math.sqrt(8)), rel=1e-14)
    assert low_rank_product(8, 8).pdf_singular_values(0.0) == math.inf
    assert low_rank_product(8, 4).pdf_singular_values(0.0) == 0.0


def test_expectations_have_their_closed_form_or_warn():
    # For one square factor E ln(lambda/n) = -1; a chain of L of them adds up.
    for factors in (1, 2, 5):
        law = GaussianChain(dims=(3,) * (factors + 1), normalization="none")
        assert law.expect(np.log) == pytest.approx(factors * (math.log(3) - 1), rel=1e-12)
    with pytest.warns(IntegrationWarning, match="65536 nodes"):
        GaussianChain(dims=(8, 4), normalization="none").expect(lambda x: (x > 3.0).astype(float), rtol=1e-14)


@pytest.mark.parametrize(("d_model", "d_head"), [(512, 64), (64, 64)])
def test_simulated_spectra_follow_the_law(simulated, d_model, d_head):
    eigenvalues = simulated(d_model, d_head, 400)
    law = low_rank_product(d_model, d_head)
    # The mean count below a fixed point differs from h cdf by O(1) and its standard error is about 0.02: what is
    # tested is the order 1/h. Deterministic seed; the bias stays below 0.35 counts, 15 standard errors from failing.
    for x in law.ppf(np.linspace(0.1, 0.9, 9)):
        assert abs((eigenvalues <= x).mean() - law.cdf(x)) < 0.7 / d_head


@pytest.mark.parametrize(
    ("rows", "columns", "sigma"), [(768, 64, 1.0), (64, 768, 0.3), (10_000, 1, 2.0), (50, 50, 1.0)]
)
def test_pdf_has_its_closed_form(rows, columns, sigma):
    law = marchenko_pastur(rows, columns, sigma)
    low, high = (sigma * (math.sqrt(rows) + sign * math.sqrt(columns)) for sign in (-1, 1))
    low, high = low**2, high**2
    np.testing.assert_allclose(law.support, (low, high), rtol=1e-12, atol=1e-12)
    x = low + (high - low) * np.linspace(0.01, 0.99, 50)
    expected = np.sqrt((high - x) * (x - low)) / (2 * np.pi * sigma**2 * min(rows, columns) * x)
    np.testing.assert_allclose(law.pdf(x), expected, rtol=1e-11)


def test_the_naive_law_of_w_qk_is_too_narrow():
    naive, right = naive_marchenko_pastur(768, 64), low_rank_product(768, 64)
    np.testing.assert_allclose(naive.support, (388.59, 1275.41), rtol=0, atol=5e-3)
    assert naive.mean() == pytest.approx(right.mean(), rel=1e-14)
    assert naive.var() == pytest.approx(right.var() / 2, rel=1e-12)
    outside = right.cdf(naive.support[0]) + right.sf(naive.support[1])
    assert 0.17 < outside < 0.19
    naive = naive_marchenko_pastur(96, 12, 0.5, 3.0, "none", atom=True)
    right = low_rank_product(96, 12, 0.5, 3.0, "none", atom=True)
    assert naive.mean() == pytest.approx(right.mean(), rel=1e-13)
    assert naive.atom_mass == right.atom_mass
