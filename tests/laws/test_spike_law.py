"""The planted rank-one spike."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from rmtbase.laws import GaussianChain, RankOneSpike, TracyWidom, largest_eigenvalue, spiked_tracy_widom_cdf

W_QK = (768, 64, 768)


@pytest.mark.parametrize(("n", "m", "sigma"), [(100, 400, 1.0), (400, 100, 0.02), (50, 50, 3.0)])
def test_one_matrix_has_the_closed_form_of_benaych_georges_and_nadakuditi(n, m, sigma):
    # Section 3.1 of their paper: entries of variance 1/m, c = n/m <= 1; overlap of the n side first.
    spike = RankOneSpike(dims=(n, m), sigmas=(sigma,), normalization="none")
    assert spike.threshold == pytest.approx(sigma * (n * m) ** 0.25, rel=1e-14)
    wide = max(n, m)
    c = min(n, m) / wide
    t2 = np.array([1.01, 1.5, 4.0, 100.0]) ** 2 * math.sqrt(c)
    theta = sigma * np.sqrt(wide * t2)
    np.testing.assert_allclose(spike.eigenvalue(theta), sigma**2 * wide * (1 + t2) * (c + t2) / t2, rtol=1e-13)
    short, long = 1 - c * (1 + t2) / (t2 * (t2 + c)), 1 - (c + t2) / (t2 * (t2 + 1))
    expected = (short, long) if n <= m else (long, short)
    np.testing.assert_allclose(spike.overlaps(theta), expected, rtol=1e-12)


def test_w_qk_has_a_closed_form():
    d, h = 768, 64
    psi_edge = (-1 + math.sqrt(1 + 8 * d / h)) / 4
    product = RankOneSpike(dims=W_QK, normalization="none")
    factor = RankOneSpike(dims=W_QK, factor=0, normalization="none")
    assert product.threshold == pytest.approx(d * math.sqrt(1 + 1 / psi_edge), rel=1e-13)
    assert factor.threshold == pytest.approx(math.sqrt(d / psi_edge), rel=1e-13)
    assert product.threshold / math.sqrt(d) == pytest.approx(33.394063, abs=5e-7)
    assert factor.threshold == pytest.approx(18.632323, abs=5e-7)
    theta = 1500.0
    out = theta * (1 + (h / d) * d**2 / (theta**2 - d**2))
    assert product.eigenvalue(theta) == pytest.approx(out**2, rel=1e-13)


@pytest.mark.parametrize(
    ("dims", "factor"),
    [(W_QK, None), (W_QK, 0), (W_QK, 1), ((64, 64, 64), None), ((64, 64, 64), 1), ((60, 60), None), ((60, 60), 0)]
    + [((90, 40, 70, 40, 200), factor) for factor in (None, 0, 1, 2, 3)],
)
def test_the_outlier_solves_the_equation_of_the_d_transform(dims, factor):
    law = GaussianChain(dims=dims, normalization="none")
    spike = RankOneSpike(dims=dims, factor=factor, normalization="none")
    theta = np.array([1.05, 1.5, 4.0]) * spike.threshold
    eigenvalue = spike.eigenvalue(theta)
    if factor is None:
        # D = (1 + c_0 psi)(1 + c_L psi)/lambda, psi by quadrature of the law.
        for value, strength in zip(eigenvalue, theta, strict=True):
            psi = law.expect(lambda x, value=value: x / (value - x))
            d = (1 + law.rank / dims[0] * psi) * (1 + law.rank / dims[-1] * psi) / value
            assert d * strength**2 == pytest.approx(1.0, rel=1e-9)
    np.testing.assert_allclose(spike.strength(eigenvalue), theta, rtol=1e-11)
    assert spike.eigenvalue(spike.threshold * 1.0001) == pytest.approx(law.support[1], rel=1e-5)
    assert spike.edge == pytest.approx(law.support[1], rel=1e-13)


@pytest.mark.parametrize(
    ("dims", "factor"),
    [((96, 16, 64), 0), ((96, 16, 64), None), ((50, 20, 70, 30), None), ((50, 20, 70, 30), 1), ((64, 64), 0)],
)
def test_an_outlier_is_where_a_slow_solver_finds_it(dims, factor):
    """By Brent's method in ln ψ, within 1e-9, from near the threshold on."""
    spike = RankOneSpike(dims=dims, factor=factor, normalization="none")
    ratios = min(dims) / np.array(dims)
    first, last = (0, len(dims) - 1) if factor is None else (factor, factor + 1)
    unit = math.prod(dims) / min(dims), math.prod(dims[first : last + 1]) / min(dims)
    edge = brentq(lambda t: np.sum(1.0 / (1.0 + np.exp(-t) / ratios)) - 1.0, -30.0, 30.0, xtol=1e-15)
    for strength in spike.threshold * np.array([1.0001, 1.01, 1.3, 7.0, 1e4]):

        def excess(t, strength=strength):
            return np.log1p(ratios[first + 1 : last] * np.exp(t)).sum() - t - np.log(strength**2 / unit[1])

        psi = np.exp(brentq(excess, -60.0, edge, xtol=1e-15))
        eigenvalue = unit[0] * np.prod(1.0 + ratios * psi) / psi
        assert spike.eigenvalue(strength) == pytest.approx(eigenvalue, rel=1e-9)
        assert spike.strength(eigenvalue) == pytest.approx(strength, rel=1e-9)


def test_below_the_threshold_nothing_is_seen():
    spike = RankOneSpike(dims=W_QK, normalization="none")
    theta = np.array([0.0, 0.5, 0.999, math.nan]) * spike.threshold
    np.testing.assert_array_equal(spike.eigenvalue(theta), [spike.edge] * 3 + [math.nan])
    np.testing.assert_array_equal(spike.overlaps(theta), [[0, 0, 0, math.nan]] * 2)
    assert np.isnan(spike.eigenvalue_std(theta)).all()
    assert np.isnan(spike.strength([0.5 * spike.edge, spike.edge, math.nan])).all()
    assert np.isnan(spike.power(theta)[-1])


def test_scaling_is_exact_and_sides_are_exchanged_backwards():
    raw = RankOneSpike((96, 12, 96), normalization="none")
    scaled = RankOneSpike((96, 12, 96), (0.3, 0.5), normalization="sqrt_d")
    unit = 0.15 / math.sqrt(96)
    theta = raw.threshold * np.array([0.9, 1.2, 3.0])
    assert scaled.threshold == pytest.approx(unit * raw.threshold, rel=1e-13)
    np.testing.assert_allclose(scaled.eigenvalue(unit * theta), unit**2 * raw.eigenvalue(theta), rtol=1e-12)
    np.testing.assert_allclose(scaled.eigenvalue_std(unit * theta), unit**2 * raw.eigenvalue_std(theta), rtol=1e-12)
    np.testing.assert_allclose(scaled.power(unit * theta), raw.power(theta), rtol=1e-9)
    # A strength on a factor is in that factor's own units, whatever the normalization and the other sigmas.
    on_factor = RankOneSpike((96, 12, 96), (0.3, 0.5), normalization="sqrt_d", factor=0)
    unscaled = RankOneSpike((96, 12, 96), factor=0, normalization="none")
    assert on_factor.threshold == pytest.approx(0.3 * unscaled.threshold, rel=1e-13)
    forward = RankOneSpike((90, 30, 60, 200), (1.0, 2.0, 3.0), factor=0, normalization="none")
    backward = RankOneSpike((200, 60, 30, 90), (3.0, 2.0, 1.0), factor=2, normalization="none")
    theta = 1.7 * forward.threshold
    assert backward.eigenvalue(theta) == pytest.approx(forward.eigenvalue(theta), rel=1e-12)
    np.testing.assert_allclose(backward.overlaps(theta), forward.overlaps(theta)[::-1], rtol=1e-12)
    assert backward.eigenvalue_std(theta) == pytest.approx(forward.eigenvalue_std(theta), rel=1e-11)


def spiked_svd(rng, d, h, theta, factor):
    """Singular values, u_1 and v_1 of a dense W_QK with a spike, and the spike's directions in W."""
    w_q, w_k = rng.standard_normal((2, h, d))
    u, v = rng.standard_normal((2, d))
    u, v = u / np.linalg.norm(u), v / np.linalg.norm(v)
    if factor is None:
        w = w_q.T @ w_k + theta * np.outer(u, v)
    else:
        a = rng.standard_normal(h)
        a /= np.linalg.norm(a)
        w = (w_q.T + theta * np.outer(u, a)) @ w_k
        v = w_k.T @ a
        v /= np.linalg.norm(v)
    left, s, right = np.linalg.svd(w)
    return s[0] ** 2, (left[:, 0] @ u) ** 2, (right[0] @ v) ** 2


@pytest.mark.parametrize("factor", [None, 0])
def test_dense_matrices_have_the_outlier_and_the_overlaps(factor):
    d, h, draws = 200, 25, 40
    spike = RankOneSpike((d, h, d), factor=factor, normalization="none")
    theta = 2.0 * spike.threshold
    rng = np.random.default_rng(11)
    sample = np.array([spiked_svd(rng, d, h, theta, factor) for _ in range(draws)])
    expected = np.array([spike.eigenvalue(theta), *spike.overlaps(theta)])
    # Four and a half Monte Carlo errors (false-failure rate 4e-5 over six comparisons) and O(1/r) of the overlaps.
    error = 4.5 * sample.std(axis=0) / math.sqrt(draws) + np.array([0.0, 0.004, 0.004])
    assert (np.abs(sample.mean(axis=0) - expected) < error).all()


def thin_largest(rng, d, h, theta, factor, draws):
    """Largest eigenvalues of spiked W_QK through thin factors."""
    largest = np.empty(draws)
    for draw in range(draws):
        w_q, w_k = rng.standard_normal((2, h, d))
        left, right = w_q.T, w_k.T
        if factor is None:
            left = np.column_stack([left, theta * np.eye(d)[0]])
            right = np.column_stack([right, np.eye(d)[0]])
        else:
            left[0, 0] += theta
        core = np.linalg.qr(left, mode="r") @ np.linalg.qr(right, mode="r").T
        largest[draw] = np.linalg.svd(core, compute_uv=False)[0] ** 2
    return largest


@pytest.mark.parametrize("factor", [None, 0])
def test_the_outlier_fluctuates_as_stated(factor):
    d, h, draws = 256, 32, 500
    spike = RankOneSpike((d, h, d), factor=factor, normalization="none")
    theta = 1.6 * spike.threshold
    sample = thin_largest(np.random.default_rng(12), d, h, theta, factor, draws)
    # The mean: 0.06 sd (measured) and 4.5 errors of 0.045 sd. The sd: 3 % (measured) and 4.5 errors of 3.2 %.
    assert abs(sample.mean() - spike.eigenvalue(theta)) < 0.26 * spike.eigenvalue_std(theta)
    assert sample.std() == pytest.approx(spike.eigenvalue_std(theta), rel=0.17)


@pytest.mark.parametrize(
    ("factor", "multiple"), [(None, 0.9), (None, 1.0), (None, 1.1), (0, 0.8), (0, 1.0), (0, 1.25), (0, 1.5)]
)
def test_power_below_at_and_above_the_threshold(factor, multiple):
    d, h, draws = 128, 16, 600
    spike = RankOneSpike((d, h, d), factor=factor, normalization="none")
    theta = multiple * spike.threshold
    critical = largest_eigenvalue((d, h, d), normalization="none").isf(0.05)
    found = (thin_largest(np.random.default_rng(13), d, h, theta, factor, draws) > critical).mean()
    # Stated accuracy and four binomial errors (false-failure rate 4e-4 over the seven, seeded).
    predicted = spike.power(theta)
    assert abs(found - predicted) < 0.035 + 4 * math.sqrt(predicted * (1 - predicted) / draws)


def test_power_is_the_level_without_a_spike_and_the_detectable_strength_has_its_own():
    for dims in (W_QK, (128, 128), (256, 32, 256)):
        spike = RankOneSpike(dims=dims, normalization="none")
        for level in (0.5, 0.05, 0.01):
            assert spike.power(0.0, level) == pytest.approx(level, rel=0.02)
        assert spike.power(5 * spike.threshold) == pytest.approx(1.0, abs=1e-6)
        power = spike.power(np.linspace(0, 2, 81) * spike.threshold)
        assert (np.diff(power) > -1e-9).all()
    spike = RankOneSpike(dims=W_QK, factor=1, normalization="none")
    for power in (0.1, 0.5, 0.95):
        assert spike.power(spike.detectable_strength(power, 0.01), 0.01) == pytest.approx(power, abs=1e-8)


@pytest.mark.parametrize("beta", [1, 2])
def test_the_spiked_law_solves_its_equation_and_ends_at_tracy_widom(beta):
    """By fourth-order differences; of β = 1 the law is stored, of others it is made."""
    x, w, step = np.linspace(-4.0, 3.0, 15)[:, None], np.linspace(-1.5, 2.5, 17)[None], 0.02

    def difference(weights, dx, dw):
        at = (-2, -1, 0, 1, 2)
        found = [spiked_tracy_widom_cdf(x + k * step * dx, w + k * step * dw, beta) for k in at]
        return np.tensordot(weights, found, 1)

    first, second = np.array([1.0, -8.0, 0.0, 8.0, -1.0]) / 12.0, np.array([-1.0, 16.0, -30.0, 16.0, -1.0]) / 12.0
    by_x, by_w = difference(first, 1, 0) / step, difference(first, 0, 1) / step
    left = by_x + 2.0 / beta * difference(second, 0, 1) / step**2 + (x - w**2) * by_w
    assert np.abs(left).max() < 2e-4 * np.abs(by_w).max()
    x = np.linspace(-7.5, 8.5, 65)
    np.testing.assert_allclose(spiked_tracy_widom_cdf(x, np.inf, beta), TracyWidom(beta).cdf(x), rtol=0, atol=6e-6)


def test_the_spiked_law_is_tracy_widom_at_both_ends_and_increasing():
    x, w = np.meshgrid(np.linspace(-6, 8, 57), np.linspace(-2.5, 6, 35))
    cdf = spiked_tracy_widom_cdf(x, w)
    assert (np.diff(cdf, axis=0) > -1e-5).all() and (np.diff(cdf, axis=1) > -1e-5).all()
    assert np.isnan(spiked_tracy_widom_cdf([math.nan, 0.0], [0.0, math.nan])).all()
    np.testing.assert_allclose(spiked_tracy_widom_cdf([-99.0, 99.0], 0.0), [0.0, 1.0], atol=1e-12)
    # F_2(x; 0) = F_1(x)^2 (Baik, Ben Arous & Peche 2005).
    x = np.linspace(-7.5, 8.5, 65)
    np.testing.assert_allclose(spiked_tracy_widom_cdf(x, 0.0, 2), TracyWidom(1).cdf(x) ** 2, rtol=0, atol=6e-6)


@pytest.mark.parametrize(
    ("dims", "factor"), [((100, 400), None), (W_QK, None), (W_QK, 0), (W_QK, 1), ((80, 30, 50, 90), 1)]
)
def test_shrunken_is_strength_times_both_cosines(dims, factor):
    # Nadakuditi 2014: the best singular value of û v̂ᵀ for θ u vᵀ is θ cos_u cos_v, here of the spike's image in W.
    spike = RankOneSpike(dims=dims, factor=factor, normalization="none")
    theta = spike.threshold * np.array([1.05, 1.5, 3.0, 30.0])
    left, right = spike.overlaps(theta)
    expected = spike.gain * theta * np.sqrt(left * right)
    found = spike.outlier(spike.eigenvalue(theta))
    np.testing.assert_allclose(found.shrunken, expected, rtol=1e-9)
    np.testing.assert_allclose(found.strength, theta, rtol=1e-9)
    np.testing.assert_allclose(found.std, spike.eigenvalue_std(theta), rtol=1e-6)
    np.testing.assert_array_equal(spike.outlier([0.0, spike.edge]).shrunken, 0.0)


def test_gain_excess_and_strong_spikes():
    first, last = (RankOneSpike(dims=(100, 20, 60), factor=factor, normalization="none") for factor in (0, 1))
    strength = 3.0 * first.gain * first.threshold
    assert first.eigenvalue(strength / first.gain) == pytest.approx(last.eigenvalue(strength / last.gain), rel=1e-12)
    assert first.gain == pytest.approx(math.sqrt(60.0))
    assert RankOneSpike(dims=(100, 20, 60), normalization="none").gain == 1.0
    # One matrix, in the limit: λ - θ² = n + m + n m/θ².
    spike = RankOneSpike(dims=(50, 80), normalization="none")
    theta = np.array([1.5, 4.0, 1e3]) * spike.threshold
    np.testing.assert_allclose(spike.outlier(spike.eigenvalue(theta)).excess, -(130 + 4000 / theta**2), rtol=1e-9)
    assert spike.outlier(0.5 * spike.edge).excess == spike.outlier(spike.edge).excess
    # sqrt(lambda_out) -> theta + u^T W v, and u^T W v has variance sigma^2.
    spike = RankOneSpike(dims=(80, 200), sigmas=(0.5,), normalization="none")
    theta = 1e4
    assert spike.eigenvalue_std(theta) / (2 * theta) == pytest.approx(0.5, rel=1e-5)
    own = RankOneSpike(dims=(768, 64), normalization="none").threshold
    assert own == pytest.approx(14.889678, abs=1e-6)
    assert RankOneSpike(dims=W_QK, factor=0, normalization="none").threshold > 1.25 * own


@pytest.mark.parametrize("dims", [(384, 32, 384), (200, 1000), (60, 20, 30, 70)])
def test_limits_are_where_the_tail_has_half_the_level(dims):
    spike = RankOneSpike(dims=dims, factor=0, normalization="none")
    theta = spike.threshold * np.array([0.8, 0.95, 1.05, 1.4, 3.0, 50.0])
    for level in (0.05, 0.2):
        low, _ = spike.strength_limits(spike.eigenvalue_quantile(1.0 - level / 2, theta), level)
        _, high = spike.strength_limits(spike.eigenvalue_quantile(level / 2, theta), level)
        np.testing.assert_allclose(low, theta, rtol=1e-9)
        np.testing.assert_allclose(high, theta, rtol=1e-9)
    assert spike.strength_limits(0.5 * spike.edge)[0] == 0.0


def test_quantiles_are_those_of_the_power_and_normal_far_above():
    spike = RankOneSpike(dims=W_QK, factor=0, normalization="none")
    for theta in spike.threshold * np.array([0.9, 1.3, 2.0]):
        power = spike.power(theta, 0.05)
        critical = spike.eigenvalue_quantile(1.0 - power, theta)
        # The critical value of the shifted edge: within 0.2 of its scale of the second-order law's.
        law = largest_eigenvalue(dims=W_QK, normalization="none")
        assert critical == pytest.approx(float(law.isf(0.05)), abs=0.2 * law.std())
    for dims in ((384, 32, 384), (200, 1000)):
        spike = RankOneSpike(dims=dims, factor=0, normalization="none")
        far = 6.0 * spike.threshold
        for q, z in ((0.025, -1.96), (0.5, 0.0), (0.975, 1.96)):
            standard = (spike.eigenvalue_quantile(q, far) - spike.eigenvalue(far)) / spike.eigenvalue_std(far)
            assert standard == pytest.approx(z, abs=0.15)  # half a step of the edge's lattice, of order r^(-1/3)
