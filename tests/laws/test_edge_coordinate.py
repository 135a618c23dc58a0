"""The coordinate in which an edge of the spectrum is Airy's."""

import math
from dataclasses import replace
from itertools import combinations, pairwise

import mpmath
import numpy as np
import pytest
from oracles import polynomial_roots

from exhaustive import mostly_exhaustive
from rmtbase.laws import GaussianChain, TracyWidom, largest_eigenvalue

# Soft and hard edges, one to three factors, equal and different dimensions, real ones, narrow and nearly hard supports.
CHAINS = [
    (768, 64, 768), (100, 20), (64, 64, 64), (30, 20, 40, 50), (8.5, 4.5, 9.5), (65, 64, 65), (10**6, 2),
    (10**9, 64, 10**9),
]  # fmt: skip
EDGES = [
    (dims, side) for dims in CHAINS for side in ("upper", "lower") if side == "upper" or sorted(dims)[1] > min(dims)
]


def _coordinate(dims, side):
    """That of a law, at these dimensions, which need not be integers."""
    one = largest_eigenvalue(dims=(16, 8), normalization="none").coordinate
    return replace(one, chain=replace(one.chain, dims=tuple(map(float, dims))), side=side)


def _outwards(side) -> float:
    return 1.0 if side == "upper" else -1.0


@pytest.mark.parametrize(("dims", "side"), EDGES)
def test_zeta_is_smooth_and_increasing_and_the_shift_symmetric(dims, side):
    coordinate = _coordinate(dims, side)
    t = np.linspace(-3.0, 3.0, 121)
    log_x = coordinate.edge + _outwards(side) * t / coordinate.slope
    zeta = coordinate.zeta(log_x)
    assert (np.diff(zeta) > 0.0).all()
    # A polynomial of degree 8 over six widths of the edge: no kink at the edge, where the definition changes.
    fitted = np.polynomial.Chebyshev.fit(t, zeta, 8)
    np.testing.assert_allclose(zeta, fitted(t), rtol=0, atol=2e-4 if min(dims) < 20 else 1e-5)
    assert coordinate.zeta(np.array([coordinate.edge]))[0] == pytest.approx(0.0, abs=1e-8)
    middle = fitted.deriv()(0.0)
    assert middle == pytest.approx(1.0, abs=1e-3 if min(dims) < 20 else 1e-5)
    u = [1.0 / (n + min(dims) * coordinate.psi) for n in dims]
    first, second, third = (math.fsum(map(math.prod, combinations(u, k))) for k in (1, 2, 3))
    moved = -0.5 * (first + third / second)  # of the edge, in ln lambda
    assert -_outwards(side) * coordinate.shift / coordinate.slope == pytest.approx(moved, rel=1e-8)


@pytest.mark.parametrize(("dims", "side"), mostly_exhaustive(EDGES, always=5))
def test_log_x_inverts_zeta_and_the_slope_is_its_derivative(dims, side):
    coordinate = _coordinate(dims, side)
    whole = (1.5 * math.pi * min(dims)) ** (2 / 3)
    zeta = np.array([-0.98 * whole, -0.5 * whole, -1.0, -1e-3, 0.0, 1e-3, 1.0, 8.0, 50.0, 400.0])
    log_x = coordinate.log_x(zeta)
    # One rounding of ln x is worth slope * 1e-16 * |ln x| in zeta.
    rounding = 4e-16 * coordinate.slope * (1.0 + abs(coordinate.edge))
    np.testing.assert_allclose(coordinate.zeta(log_x), zeta, rtol=1e-11, atol=1e-11 + 20 * rounding)
    step = 1e-3 / coordinate.slope
    slope = (coordinate.zeta(log_x + step) - coordinate.zeta(log_x - step)) / (2 * step)
    np.testing.assert_allclose(coordinate.zeta_slope(log_x)[1:], np.abs(slope)[1:], rtol=2e-4)
    assert coordinate.log_x(zeta.reshape(2, 5)).shape == coordinate.zeta(log_x.reshape(2, 5)).shape == (2, 5)


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("dims", [(768, 64, 768), (100, 20), (30, 20, 40, 50), (65, 64, 65), (10**6, 2)])
def test_inside_the_support_zeta_is_the_mass_to_the_edge(dims, side):
    law, coordinate = GaussianChain(dims=dims, normalization="none"), _coordinate(dims, side)
    x = law.ppf(np.array([1e-6, 0.003, 0.1, 0.5, 0.9, 0.997, 1 - 1e-6]))
    mass = law.sf(x) if side == "upper" else law.cdf(x)
    zeta = coordinate.zeta(np.log(x / (math.prod(dims) / min(dims))))
    np.testing.assert_allclose(zeta, -((1.5 * math.pi * min(dims) * mass) ** (2 / 3)), rtol=1e-9, atol=2e-10)


def _real_gap(ratios, x, side):
    """Distance of the two real roots of prod (1 + c psi) = x psi that meet at the edge."""
    polynomial = [mpmath.mpf(1)]
    for c in ratios:
        polynomial = [a + c * b for a, b in zip([*polynomial, 0], [0, *polynomial], strict=True)]
    polynomial[1] -= x
    roots = [root.real for root in polynomial_roots(polynomial[::-1], maxsteps=200, extraprec=80)]
    if side == "upper":
        near = sorted(root for root in roots if root > 0)
    else:
        near = sorted(root for root in roots if -1 / sorted(ratios)[-2] < root < -1)
    return near[1] - near[0]


@pytest.mark.parametrize(("dims", "side"), [case for case in EDGES if max(case[0]) < 1e5])
def test_outside_zeta_is_the_area_between_the_two_real_solutions(dims, side):
    coordinate, outwards = _coordinate(dims, side), _outwards(side)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    with mpmath.workdps(25):
        ratios = [mpmath.mpf(min(dims)) / mpmath.mpf(n) for n in dims]
        psi = mpmath.findroot(lambda p: 1 / p - mpmath.fsum(c / (1 + c * p) for c in ratios), coordinate.psi)
        at_edge = mpmath.fprod(1 + c * psi for c in ratios) / psi  # real, of either sign at the lower edge
        for distance in (0.05, 0.8):
            # ln |x| = edge +- s^2 takes the square root out of the edge.
            end = math.sqrt(distance)
            s = [mpmath.mpf(0.5 * end * (1.0 + node)) for node in nodes]
            gaps = [_real_gap(ratios, at_edge * mpmath.exp(int(outwards) * one**2), side) for one in s]
            area = math.fsum(end * weight * float(one * gap) for weight, one, gap in zip(weights, s, gaps, strict=True))
            expected = (0.75 * min(dims) * area) ** (2 / 3)
            log_x = float(mpmath.log(abs(at_edge))) + outwards * distance
            assert coordinate.zeta(np.array([log_x]))[0] == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("side", ["upper", "lower"])
@pytest.mark.parametrize("dims", [(10**9, 16, 10**9), (10**9, 16), (10**9, 64, 10**9)])
def test_a_narrow_support_is_that_of_the_gaussian_orthogonal_ensemble(dims, side):
    coordinate, rank = _coordinate(dims, side), dims[1]
    t = np.array([-3.0, -1.0, 0.5, 2.0, 4.0])
    # Semicircle of radius 2 in y: ln lambda = centre + spread y, spread^2 = sum c, and t = r^(2/3) (|y| - 2).
    spread = math.sqrt(sum(rank / n for n in dims if n > rank))
    zeta = coordinate.zeta(coordinate.edge + _outwards(side) * spread * t / rank ** (2 / 3))
    # (2/3) zeta^(3/2) = r times the integral of (y^2/4 - 1)^(1/2), expanded; the support is not narrow to O(spread).
    small = t / rank ** (2 / 3)
    expected = t * (1.0 + small / 20.0 - small**2 / 350.0)
    np.testing.assert_allclose(
        zeta, expected, rtol=0, atol=(4e-4 * np.abs(t * small**3) + 0.7 * spread * np.abs(t)).max()
    )
    assert coordinate.variance * rank ** (2 / 3) == pytest.approx(2 * -3 / 20, rel=1e-5)
    assert coordinate.shift * rank ** (1 / 3) == pytest.approx(0.5, rel=1e-2 * spread * rank + 1e-3)


def test_johnstone_and_ma_and_the_tracy_widom_scale():
    # Difference to (sqrt(n - 1/2) +- sqrt(p - 1/2))^2 in units of the scale: r^(-4/3), the second order in 1/2.
    for side, sign in (("upper", 1.0), ("lower", -1.0)):
        differences = []
        for p in (8, 64, 512):
            n = 4 * p
            coordinate = _coordinate((n, p), side)
            centre = coordinate.log_x(np.array([-coordinate.shift]))[0] + math.log(n)
            known = 2.0 * math.log(math.sqrt(n - 0.5) + sign * math.sqrt(p - 0.5))
            differences.append(abs(centre - known) * coordinate.slope)
        assert differences[0] < 0.02
        for small, large in pairwise(differences):
            assert large / small == pytest.approx(8.0 ** (-4 / 3), rel=0.1)
    for dims in [(768, 64, 768), (30, 20, 40, 50)]:
        law = GaussianChain(dims=dims, normalization="none")
        for side, edge, scale in zip(("lower", "upper"), law.support, law.edge_scale, strict=True):
            assert _coordinate(dims, side).slope == pytest.approx(edge / scale, rel=1e-12)


def test_second_order_corrections_are_those_of_the_known_expansion():
    # GOE at n: F(zeta + shift), its variance changed, is F + [t^2/20 F' - (3/20) F''] n^(-2/3) at t + 1/(2 n^(1/3)),
    # the coefficient of F'' being v/2, twice that of the unitary ensemble.
    n, law = 64, TracyWidom(1)
    edge = largest_eigenvalue(dims=(10**11, n), normalization="none")
    coordinate = edge.coordinate
    t = np.linspace(-4.0, 2.0, 25)
    spread = math.sqrt(n / 10**11)
    x = np.exp(edge.log_unit + coordinate.edge + spread * t / n ** (2 / 3))
    at, step = t + 0.5 * n ** (-1 / 3), 1e-3
    slope, bend = law.pdf(at), (law.pdf(at + step) - law.pdf(at - step)) / (2 * step)
    expected = law.cdf(at) + (t**2 / 20.0 * slope - 0.15 * bend) * n ** (-2 / 3)
    # Neglected: squares of the corrections, (0.125 and 0.02)^2; without the corrections the difference is 0.003.
    np.testing.assert_allclose(edge.cdf(x), expected, rtol=0, atol=4e-4)
    assert np.abs(edge.cdf(x) - law.cdf(at)).max() > 2.5e-3
