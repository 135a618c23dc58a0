"""The limiting law of a residual path and its continuous limit."""

import math

import mpmath
import numpy as np
import pytest
from oracles import polynomial_roots, residual_paths

from exhaustive import mostly_exhaustive
from rmtbase.laws import FreeMultiplicativeBrownian, GaussianChain, ResidualPath, ResidualUpdate, TracyWidom

# Soft, hard and nearly hard edges; one block to a thousand; laws from 1e-60 wide to thousands of orders of magnitude.
PATHS = [
    (1, 0.5), (1, 0.999999), (1, 1.0), (1, 2.0), (1, 1e-100), (2, 1.0), (3, 50.0), (5, 1.0 - 1e-12), (5, 1.0 + 1e-12),
    (10, 0.3), (10, 1e-7), (16, 1.0), (100, 1e-60), (1000, 0.03), (1000, 0.999), (1000, 1.0), (1000, 1.0 + 1e-9),
    (1000, 5.0),
]  # fmt: skip
TIMES = [1e-200, 1e-10, 0.01, 1.0, 10.0, 1e4, 1e6]
LAWS = [ResidualPath(*path) for path in PATHS] + [FreeMultiplicativeBrownian(t) for t in TIMES]
PROBABILITIES = np.concatenate([[1e-12, 1e-6], np.linspace(0.001, 0.999, 41), [1 - 1e-6]])


def test_reference_edges_are_zero_from_sigma_one_on():
    assert ResidualPath(1, 1.0).support == (0.0, pytest.approx(27 / 4, rel=1e-14))
    assert ResidualPath(10, 0.3).support[1] == pytest.approx(15.00988, abs=5e-6)
    assert ResidualPath(16, 1.0).support[1] == pytest.approx(2.23332e6, abs=5.0)
    assert not ResidualPath(7, 0.999).has_hard_edge and ResidualPath(7, 0.999).support[0] > 0.0
    for sigma in (1.0, 1.001, 3.0):
        law = ResidualPath(7, sigma)
        assert law.has_hard_edge and law.support[0] == 0.0 and law.pdf(0.0) == math.inf
        assert law.edge_scale(100)[0] is None


@pytest.mark.parametrize(("depth", "sigma"), [(1, 0.5), (4, 0.5), (7, 0.9), (16, 0.25)])
def test_edges_are_critical_values_in_40_digits(depth, sigma):
    with mpmath.workdps(40):
        variance = mpmath.mpf(sigma) ** 2
        # The numerator of d ln lambda / dp, a cubic.
        a, b, c = 2 * depth, (depth + 1) * variance, variance
        roots = polynomial_roots([a, a + b + a * c - c, (a + b) * c - c * (2 + variance), -c * (1 + variance)])
        values = []
        for root in roots:
            p = mpmath.re(root)
            if abs(mpmath.im(root)) < 1e-30 and p > -1:
                value = (1 + p) ** (depth + 1) * (p + variance) * (p + 1 + variance) ** (depth - 1) / p
                values.append(float(value))
    np.testing.assert_allclose(ResidualPath(depth, sigma).support, sorted(values), rtol=1e-13)


@pytest.mark.parametrize(("depth", "sigma"), [(1, 1.0), (3, 1.0), (16, 1.0), (1, 2.0), (3, 2.0), (16, 1.5)])
def test_the_exponent_of_a_hard_edge(depth, sigma):
    law = ResidualPath(depth, sigma).log_eigenvalue
    y = law.ppf(1e-30)
    exponent = 2.0 / (depth + 2) if sigma == 1.0 else 1.0 / (depth + 1)
    assert math.log(law.cdf(y) / law.cdf(y - 10.0)) / 10.0 == pytest.approx(exponent, rel=1e-9)


def test_a_tiny_quantile_at_a_hard_edge_is_relatively_accurate():
    q = np.array([1e-60, 1e-30, 1e-12, 1e-3])
    for depth, sigma in [(1, 1.0), (16, 1.0), (5, 1.0 + 1e-12), (3, 2.0), (1000, 1.0)]:
        law = ResidualPath(depth, sigma).log_eigenvalue
        np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_pdf_cdf_quantiles_and_moments_are_of_one_law(law):
    log = law.log_eigenvalue
    assert log.expect(np.ones_like) == pytest.approx(1.0, abs=1e-13)
    assert log.mean() == pytest.approx(law.log_mean(), rel=1e-12, abs=1e-12 * log.std())
    below, above = log.ppf(PROBABILITIES), log.isf(PROBABILITIES)
    assert (np.diff(below) > 0.0).all()
    tolerance = 1e-13 + 1e-15 * abs(log.support[1])  # one rounding of ln lambda, where it is large
    np.testing.assert_allclose(log.cdf(below), PROBABILITIES, rtol=0, atol=tolerance)
    np.testing.assert_allclose(log.sf(above), PROBABILITIES, rtol=0, atol=tolerance)
    np.testing.assert_allclose(log.cdf(below) + log.sf(below), 1.0, rtol=0, atol=tolerance)
    for k in range(1, 5):
        exact = law.moment(k)
        if math.isfinite(exact):
            mean = log.expect(lambda y, k=k: np.exp(k * (y - log.support[1]))) * math.exp(k * log.support[1])
            assert mean == pytest.approx(exact, rel=1e-12)
    assert law.moment(0) == 1.0 and law.moment(1) == law.mean()
    # The width relative to the mean, free of cancellation in the first and of overflow in both.
    spread = log.expect(lambda y: np.expm1(y - math.log(law.mean())) ** 2) if math.isfinite(law.moment(2)) else None
    if spread is not None:
        assert law.var() == pytest.approx(spread * law.mean() ** 2, rel=1e-8 if log.std() < 1e-6 else 1e-11)
        assert law.std() == math.sqrt(law.var())
    nodes, weights = np.polynomial.legendre.leggauss(200)
    upper = log.support[1]
    for start in log.ppf([0.3, 0.7, 0.99]):
        # ln lambda = upper - span t^2 takes the square root out of the upper edge.
        t, span = 0.5 * (nodes + 1.0), upper - start
        assert np.sum(weights * log.pdf(upper - span * t**2) * span * t) == pytest.approx(log.sf(start), abs=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_last_doubles_inside_the_edges_are_regular(law):
    log = law.log_eigenvalue
    for edge, inward in zip(log.support, (1.0, -1.0), strict=True):
        if math.isfinite(edge):
            y = edge + inward * abs(edge) * np.arange(1, 400) * 2.3e-16
            density = log.pdf(y)
            assert np.isfinite(density).all() and (density >= 0.0).all()
            assert (density < 1e-3 * log.pdf(log.ppf(0.5))).all()
            np.testing.assert_allclose(log.cdf(y), 0.0 if inward > 0 else 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("depth", "sigma"), mostly_exhaustive([(1, 0.5), (2, 1.0), (4, 0.5), (4, 2.0), (6, 1.0)], always=2)
)
def test_pdf_agrees_with_the_polynomial_in_60_digits(depth, sigma):
    law = ResidualPath(depth, sigma)
    with mpmath.workdps(60):
        variance = mpmath.mpf(sigma) ** 2
        product = [mpmath.mpf(1)]
        for constant in [mpmath.mpf(1)] * (depth + 1) + [variance] + [1 + variance] * (depth - 1):
            product = [a + constant * b for a, b in zip([*product, 0], [0, *product], strict=True)]
        for x in law.ppf([1e-3, 0.2, 0.5, 0.9, 0.999]):
            polynomial = [*product[:-2], product[-2] - mpmath.mpf(float(x)), product[-1]]
            roots = polynomial_roots(polynomial, maxsteps=2000, extraprec=800)
            # The one on the curve where the arguments of the factors add up to that of p.
            on_curve = [
                p
                for p in roots
                if mpmath.im(p) > 1e-30
                and abs(
                    (depth + 1) * mpmath.arg(1 + p)
                    + mpmath.arg(p + variance)
                    + (depth - 1) * mpmath.arg(p + 1 + variance)
                    - mpmath.arg(p)
                )
                < 1e-20
            ]
            assert len(on_curve) == 1
            density = mpmath.im(on_curve[0] * (on_curve[0] + 1 + variance)) / (variance * mpmath.pi * float(x))
            assert law.pdf(x) == pytest.approx(float(density), rel=1e-12)


def test_one_block_and_a_large_sigma_have_known_laws():
    # z = (m - 1 - sigma^2 m) / (m (1 + sigma^2 m)^2) for the Stieltjes transform m, by direct integration.
    law, z, variance = ResidualPath(1, 0.7), 1.3 + 0.4j, 0.49
    m = law.expect(lambda x: np.real(1 / (x - z))) + 1j * law.expect(lambda x: np.imag(1 / (x - z)))
    assert (m - 1 - variance * m) / (m * (1 + variance * m) ** 2) == pytest.approx(z, rel=1e-11)
    chain = GaussianChain((1, 1, 1, 1), normalization="none")
    path = ResidualPath(3, 1e8)
    q = np.linspace(0.05, 0.95, 7)
    np.testing.assert_allclose(path.ppf(q) / 1e48, chain.ppf(q), rtol=1e-7)


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_density_of_singular_values_at_zero_is_its_limit(depth, sigma):
    law = ResidualPath(depth, sigma)
    at_zero, near = law.pdf_singular_values(0.0), law.pdf_singular_values([1e-9, 1e-12])
    if at_zero == 0.0:
        assert near[1] <= near[0] < 1e-2
    elif at_zero == math.inf:
        assert near[1] > near[0] > 10.0
    else:
        assert near[1] == pytest.approx(at_zero, rel=1e-5)
    s = np.sqrt(law.ppf([0.3, 0.8]))
    np.testing.assert_allclose(law.pdf_singular_values(s), 2 * s * law.pdf(s**2), rtol=1e-12)


@pytest.mark.parametrize("t", [0.01, 1.0, 3.0])
def test_the_continuous_limit_has_its_closed_forms(t):
    law = FreeMultiplicativeBrownian(t)
    r = math.sqrt(t**2 + 2 * t)
    np.testing.assert_allclose(law.support, ((1 + t - r) * math.exp(-r), (1 + t + r) * math.exp(r)), rtol=1e-13)
    for k, polynomial in [(1, 1), (2, 1 + 2 * t), (3, 1 + 6 * t + 6 * t**2)]:
        assert law.moment(k) == pytest.approx(math.exp(k * t) * polynomial, rel=1e-14)
    q = np.linspace(0.1, 0.9, 9)
    np.testing.assert_allclose(law.ppf(q) * law.ppf(1.0 - q), 1.0, rtol=1e-12)  # lambda and 1/lambda have one law
    # The S-transform: psi at a real argument beyond the support.
    x = 2.0 * law.support[1]
    psi = law.expect(lambda y: y / (x - y))
    assert (1 + psi) / (psi * x) == pytest.approx(math.exp(-t * (1 + 2 * psi)), rel=1e-11)


@pytest.mark.parametrize("t", [0.5, 2.0])
def test_deep_paths_approach_the_continuous_limit_as_one_over_depth(t):
    limit = FreeMultiplicativeBrownian(t).log_eigenvalue
    y = np.linspace(*limit.support, 301)
    distances = [
        depth * np.abs(ResidualPath(depth, math.sqrt(t / depth)).log_eigenvalue.cdf(y) - limit.cdf(y)).max()
        for depth in (50, 1000)
    ]
    assert distances[0] == pytest.approx(distances[1], rel=0.05)


@pytest.mark.parametrize(
    ("kind", "depth", "sigma"),
    [
        *(
            (ResidualPath, *path)
            for path in [(1, 0.5), (1, 1.0), (1, 2.0), (4, 0.5), (10, 10**-0.5), (16, 0.25), (16, 1.0)]
        ),
        *((ResidualUpdate, *path) for path in [(3, 0.6), (4, 1.2), (16, 0.25)]),
    ],
)
def test_simulated_spectra_follow_the_law(kind, depth, sigma):
    paths = residual_paths(np.random.default_rng([depth, int(100 * sigma)]), depth, sigma, 200, 3)
    law, direct = kind(depth, sigma), np.eye(200) if kind is ResidualUpdate else 0.0
    eigenvalues = np.linalg.svd(paths - direct, compute_uv=False) ** 2
    for x in law.ppf(np.linspace(0.1, 0.9, 9)):
        # Counts have a standard deviation of 0.8 and a bias below 0.7 (60 draws): 3 of them are almost five standard
        # deviations of the mean of three draws, false failures 1e-6 a comparison. The seed is fixed.
        assert abs((eigenvalues <= x).mean() - law.cdf(x)) < 3.0 / 200
    if kind is ResidualUpdate:  # the largest one lies some d^(-2/3) = 3 % below the edge, times a few
        assert eigenvalues[:, 0].mean() == pytest.approx(law.support[1], rel=0.12)


@pytest.mark.parametrize(("depth", "sigma"), [(4, 0.5), (10, 0.3)])
def test_simulated_extremes_lie_a_tracy_widom_scale_from_the_edges(depth, sigma):
    paths = residual_paths(np.random.default_rng([depth]), depth, sigma, 40, 400)
    eigenvalues = np.linalg.svd(paths, compute_uv=False) ** 2
    law, tracy_widom = ResidualPath(depth, sigma), TracyWidom(1)
    for side, inward, extreme in ((1, 1.0, eigenvalues[:, 0]), (0, -1.0, eigenvalues[:, -1])):
        scale = inward * law.edge_scale(40)[side]
        standardized = (extreme - law.support[side]) / scale
        # What the scale leaves out is of order d^(-1/3) standard deviations; the error of the mean is 0.05 of them.
        assert abs(standardized.mean() - tracy_widom.mean()) < 0.4 * tracy_widom.std()
        assert standardized.std() == pytest.approx(tracy_widom.std(), rel=0.3)
