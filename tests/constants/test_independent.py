"""The constants against their own definitions: simulation, root finding and the laws in double precision."""

import math

import numpy as np
import pytest
from mpmath import mp

from rmtbase import constants, laws

SHAPES = [(768, 64), (1600, 64), (64, 63), (5, 1)]


def law_values(d: int, h: int) -> dict[str, float]:
    law = laws.low_rank_product(d, h)
    low, high = law.support
    scale_low, scale_high = law.edge_scale
    trace, square = (laws.trace_cumulants(power, d_model=d, d_head=h) for power in (1, 2))
    log_determinant = laws.LogDeterminant(d_model=d, d_head=h)
    ratio = laws.normalized_participation_ratio(d_model=d, d_head=h)
    assert scale_low is not None
    return {
        "product_lower_edge": low,
        "product_upper_edge": high,
        "product_lower_singular_edge": low**0.5,
        "product_upper_singular_edge": high**0.5,
        "product_lower_edge_scale": scale_low,
        "product_upper_edge_scale": scale_high,
        "trace_mean": trace.mean,
        "trace_std": trace.std,
        "trace_of_square_mean": square.mean,
        "trace_of_square_std": square.std,
        "normalized_participation_ratio_of_means": trace.mean**2 / (h * square.mean),
        "normalized_participation_ratio_mean": ratio.mean,
        "normalized_participation_ratio_std": ratio.std,
        "log_determinant_mean": log_determinant.mean(),
        "log_determinant_std": log_determinant.std(),
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_the_shape_agree_with_the_laws(shape):
    for name, value in law_values(*shape).items():
        # The log-determinant is a difference of larger numbers; near d_head = d_model the lower edge is too.
        tolerance = {"abs": 1e-11 * shape[0]} if name == "log_determinant_mean" else {"rel": 1e-9}
        assert constants.find(name).value(*shape) == pytest.approx(value, **tolerance), name


def test_functions_tend_to_the_constants_of_square_shapes():
    d = 10**9
    for function, constant, unit in (
        ("product_upper_edge", "square_product_upper_edge", d),
        ("spike_threshold", "square_product_spike_threshold", math.sqrt(d)),
        ("normalized_participation_ratio_of_means", "square_product_normalized_participation_ratio", 1),
        ("log_determinant_mean", "square_product_log_determinant", 1),
    ):
        value = constants.find(function).value(d, d) / unit
        if function == "log_determinant_mean":
            value = value / d - math.log(d)
        assert value == pytest.approx(constants.find(constant).value, rel=1e-7), function


@pytest.mark.parametrize("factors", [1, 2])
def test_square_constants_are_averages_over_the_limiting_law(factors):
    d = 1000
    law = laws.GaussianChain(dims=(d,) * (factors + 1), normalization="none")
    unit = float(d) ** factors
    prefix = {1: "square_factor", 2: "square_product"}[factors]

    def of(name: str) -> float:
        return constants.find(f"{prefix}_{name}").value

    mean, mean_singular = law.mean() / unit, law.expect(np.sqrt) / unit**0.5
    entropy = law.expect(lambda x: x / unit * np.log(x / unit)) / mean - math.log(mean)
    log_singular = law.expect(lambda x: np.sqrt(x / unit) * np.log(x / unit)) / 2
    entropy_singular = log_singular / mean_singular - math.log(mean_singular)
    assert law.support[1] / unit == pytest.approx(of("upper_edge"), rel=1e-12)
    for k in (2, 3, 4):
        assert law.moment(k) / unit**k == pytest.approx(of(f"moment_{k}"), rel=1e-12)
    assert of("normalized_participation_ratio") == pytest.approx(law.mean() ** 2 / law.moment(2), rel=1e-12)
    assert of("normalized_participation_ratio_singular") == pytest.approx(mean_singular**2 / mean, rel=1e-10)
    assert of("entropy_deficit") == pytest.approx(entropy, abs=1e-10)
    assert of("entropy_deficit_singular") == pytest.approx(entropy_singular, abs=1e-10)
    assert of("effective_rank_fraction") == pytest.approx(math.exp(-entropy_singular), abs=1e-10)
    assert of("stable_rank_fraction") == pytest.approx(law.mean() / law.support[1], rel=1e-12)
    assert of("log_determinant") == pytest.approx(law.expect(lambda x: np.log(x / unit)), abs=1e-10)


@pytest.mark.parametrize(("factors", "sure"), [(1, 0.02), (2, 0.02)])
def test_a_spike_leaves_the_bulk_at_its_threshold(factors, sure):
    # One draw: below the threshold the largest singular value stays at the edge, above it comes out, to O(d^(-2/3)).
    d, rng = 800, np.random.default_rng(5)
    product = np.eye(d)
    for _ in range(factors):
        product = product @ rng.standard_normal((d, d)) / math.sqrt(d)
    prefix = {1: "square_factor", 2: "square_product"}[factors]
    edge = constants.find(f"{prefix}_upper_singular_edge").value
    threshold = constants.find(f"{prefix}_spike_threshold").value
    u, v = (x / np.linalg.norm(x) for x in rng.standard_normal((2, d)))

    def largest(strength: float) -> float:
        return float(np.linalg.norm(product + strength * threshold * np.outer(u, v), 2))

    assert largest(0.7) == pytest.approx(edge, rel=sure)
    assert largest(1.5) > (1 + 2 * sure) * edge


def test_spike_threshold_of_a_shape_is_the_inverse_d_transform_at_the_edge():
    # Benaych-Georges & Nadakuditi (2012): 1/θ_c² = D(b), D(z) = (mean of z/(z² - s²) over all d values)².
    d, h = 768, 64
    law = laws.low_rank_product(d, h)

    def root_of_d(beyond: float) -> float:
        z = math.sqrt(law.support[1]) * (1 + beyond)
        return h / d * law.expect(lambda x: z / (z * z - x), rtol=1e-9) + (1 - h / d) / z

    at_edge = 2 * root_of_d(1e-4) - root_of_d(4e-4)  # it has a square root there
    assert constants.spike_threshold.value(d, h) == pytest.approx(1 / at_edge, rel=1e-3)


def test_spectral_radius_of_simulated_products():
    d, h, rng = 1200, 100, np.random.default_rng(1)
    w_q, w_k = rng.standard_normal((2, h, d))
    # The nonzero eigenvalues of W_QᵀW_K are those of W_K W_Qᵀ; the largest modulus fluctuates by a few per cent.
    radius = np.abs(np.linalg.eigvals(w_k @ w_q.T)).max() / math.sqrt(d)
    assert radius == pytest.approx(constants.spectral_radius.value(h), rel=0.08)


def test_smallest_singular_values_of_simulated_square_matrices():
    # 4000 draws of 40×40: five standard errors, and a bias of order 1/n below one of them; fails once in 10^6.
    n, draws = 40, 4000
    s = np.linalg.svd(np.random.default_rng(2).standard_normal((draws, n, n)), compute_uv=False)
    t, log_kappa = math.sqrt(n) * s[:, -1], np.log(s[:, 0] / s[:, -1]) - math.log(n)
    for sample, name in ((t, "square_smallest_singular_value_mean"), (t**2, "square_smallest_eigenvalue_mean")):
        assert sample.mean() == pytest.approx(constants.find(name).value, abs=5 * sample.std() / math.sqrt(draws))
    # Five standard errors are 0.09, and at n = 40 the mean of ln s_max lies 0.04 below ln 2√n.
    assert log_kappa.mean() == pytest.approx(constants.square_log_condition_number.value, abs=0.13)
    assert np.median(t) == pytest.approx(constants.square_smallest_singular_value_median.value, abs=0.055)


@pytest.mark.exhaustive
def test_fitted_weibull_laws_spread_and_correlate_as_said():
    # 3000 fits of 4000 weights: standard deviations to 5 sd of 1.3 %, the correlation to 5 sd of 0.018.
    number, fits = 4000, 3000
    rng = np.random.default_rng(3)
    p = (np.arange(number) + 0.5) / number
    kept = (p > 0.1) & (p < 0.9)
    y = np.log(-np.log1p(-p[kept]))
    fitted = []
    for _ in range(fits):
        x = np.log(np.sort(np.abs(rng.standard_normal(number)))[kept])
        k = np.cov(x, y)[0, 1] / x.var(ddof=1)
        fitted.append((k, math.exp(x.mean() - y.mean() / k)))
    k, scale = np.array(fitted).T
    assert k.std() * math.sqrt(number) == pytest.approx(constants.half_normal_anchor_shape_std.value, rel=0.065)
    assert scale.std() * math.sqrt(number) == pytest.approx(constants.half_normal_anchor_scale_std.value, rel=0.065)
    assert np.corrcoef(k, scale)[0, 1] == pytest.approx(constants.half_normal_anchor_correlation.value, abs=0.09)


def test_residual_edges_are_critical_values_of_the_law():
    # λ = z^L ((1+ψ)/ψ)^(1-L) with z = (m - 1 - σ²m)/(m (1+σ²m)²), ψ = -1 - z m: first minimum on m < 0.
    def edge(depth: int, variance: float) -> float:
        m = -np.logspace(-4, 0, 400_001)[:-1] / variance * 0.999999
        z = (m - 1 - variance * m) / (m * (1 + variance * m) ** 2)
        psi = -1 - z * m
        with np.errstate(all="ignore"):
            values = depth * np.log(z) + (1 - depth) * np.log((1 + psi) / psi)
        first = int(np.argmax(np.diff(values) > 0))
        return float(np.exp(values[first]))

    assert edge(1, 1.0) == pytest.approx(constants.residual_path_upper_edge.value, rel=1e-6)
    # At L blocks the continuum is reached to O(1/L).
    coarse, fine = (edge(depth, 1 / depth) for depth in (100, 200))
    assert 2 * fine - coarse == pytest.approx(constants.residual_path_continuum_upper_edge.value, rel=1e-3)


def test_residual_continuum_agrees_with_a_deep_simulated_product():
    depth, d, rng = 100, 300, np.random.default_rng(4)
    product = np.eye(d)
    for _ in range(depth):
        product += product @ rng.standard_normal((d, d)) / math.sqrt(d * depth)
    eigenvalues = np.linalg.svd(product, compute_uv=False) ** 2
    assert eigenvalues[0] == pytest.approx(constants.residual_path_continuum_upper_edge.value, rel=0.15)
    assert eigenvalues[-1] == pytest.approx(constants.residual_path_continuum_lower_edge.value, rel=0.15)
    ratio = eigenvalues.sum() ** 2 / (d * (eigenvalues**2).sum())
    assert ratio == pytest.approx(constants.residual_path_continuum_participation_ratio.value, rel=0.05)


def test_element_constants_agree_with_simulated_elements():
    h, draws, rng = 4, 400_000, np.random.default_rng(6)
    w = (rng.standard_normal((draws, h)) * rng.standard_normal((draws, h))).sum(axis=1)
    excess = (w**4).mean() / (w**2).mean() ** 2 - 3
    assert excess == pytest.approx(constants.element_excess_kurtosis.value(h), abs=0.15)  # 5 sd
    leading = constants.element_divergence_slope.value / 128**2
    assert constants.element_divergence_128.value == pytest.approx(leading, rel=8 / 128)


def test_projections_satisfy_their_definitions():
    with mp.workdps(30):
        k, scale = (mp.mpf(constants.find(f"half_normal_likelihood_{part}").digits(30)) for part in ("shape", "scale"))

        def average(f):
            return mp.quad(lambda x: f(x) * mp.sqrt(2 / mp.pi) * mp.exp(-x * x / 2), [0, 1, 4, 14])

        mean_log = average(mp.log)

        def log_likelihood(k, scale):
            return mp.log(k) - k * mp.log(scale) + (k - 1) * mean_log - average(lambda x: (x / scale) ** k)

        best = log_likelihood(k, scale)
        step = mp.mpf(10) ** -8
        for move in ((step, 0), (-step, 0), (0, step), (0, -step)):
            assert log_likelihood(k + move[0], scale + move[1]) < best
        k, scale = (mp.mpf(constants.find(f"half_normal_moment_{part}").digits(30)) for part in ("shape", "scale"))
        assert abs(scale * mp.gamma(1 + 1 / k) - mp.sqrt(2 / mp.pi)) < mp.mpf(10) ** -27
        assert abs(scale**2 * mp.gamma(1 + 2 / k) - 1) < mp.mpf(10) ** -27
