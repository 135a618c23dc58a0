"""Errata of "A Two-Parameter Weibull Framework for Diagnosing Transformer Weight Distributions" (arXiv:2605.18898v1).

Item 7 of docs/errata.md. Each test holds the published value against that of weights that have learned nothing; a
simulation that shares no code with rmtbase decides.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmtbase.laws import (
    parents,
    weibull_anchor,
    weibull_body_tail_gap,
    weibull_closure,
    weibull_maximum_likelihood,
    weibull_moment_match,
    weibull_null,
)

PUBLISHED_GAP, PUBLISHED_SPREAD, ENTRIES = 0.0519, 0.0017, 12  # section 3.2: k(80 %) - k(100 %) of trained models
PUBLISHED_BAND = (1.186, 1.204)  # section 3.1: k of trained feed-forward and output matrices
PUBLISHED_CLOSURE = 0.02  # section 3.1 and appendix A.1: relative error of the Gamma closure


def fit(weights, trim):
    """The paper's protocol (appendix A.1) with plotting positions (i - 1/2)/N."""
    x = np.log(np.sort(np.abs(weights)))
    n = x.size
    p = (np.arange(n) + 0.5) / n
    kept = (p >= trim) & (p <= 1 - trim)
    slope, intercept = np.polyfit(x[kept], np.log(-np.log1p(-p[kept])), 1)
    return slope, math.exp(-intercept / slope)


@pytest.fixture(scope="module")
def untrained():
    """A million independent normal weights."""
    return np.random.default_rng(7).standard_normal(1_000_000)


def test_the_body_tail_gap_is_there_before_training(untrained):
    # Published as the pull of "the heavy tail"; half-normal weights, which have none, show more of it, not less.
    null = weibull_body_tail_gap()
    assert null.limit == pytest.approx(0.0543677, abs=5e-8)
    gap = fit(untrained, 0.1)[0] - fit(untrained, 0.0)[0]
    assert abs(null.z_score(gap, untrained.size)) < 4.5  # false failure: 7e-6
    z = (PUBLISHED_GAP - null.limit) / (PUBLISHED_SPREAD / math.sqrt(ENTRIES))
    assert z == pytest.approx(-5.03, abs=0.005)
    assert (PUBLISHED_GAP - null.limit) / PUBLISHED_SPREAD == pytest.approx(-1.45, abs=0.005)


@pytest.mark.parametrize(("trim", "published"), [(0.1, 1.195), (0.05, 1.182), (0.0, 1.143)])
def test_all_three_protocols_move_together(trim, published):
    # Table 1: the medians of trained models lie below the anchor by nearly the same amount under every protocol.
    assert weibull_anchor(trim).shape - published == pytest.approx(0.0092, abs=0.0015)


def test_the_closure_fails_at_the_anchor_under_the_published_reading(untrained):
    closure = weibull_closure()
    k, scale = fit(untrained, 0.1)
    fitted_std = scale * math.sqrt(math.gamma(1 + 2 / k) - math.gamma(1 + 1 / k) ** 2)
    fitted_rms = scale * math.sqrt(math.gamma(1 + 2 / k))
    rms = math.sqrt(np.mean(untrained**2))
    found = {
        "std": fitted_std / np.abs(untrained).std(),  # of |w|: +15.3 %
        "rms": fitted_rms / rms,  # the second raw moment that A.1 writes down: +8.5 %
        "std_to_rms": fitted_std / rms,  # of the signed weights: -30.5 %
    }
    for name, expected in (("std", 1.152682), ("rms", 1.085416), ("std_to_rms", 0.694849)):
        law = getattr(closure, name)
        assert law.limit == pytest.approx(expected, abs=5e-7)
        assert abs(law.z_score(found[name], untrained.size)) < 4.5  # false failure: 7e-6
        assert abs(law.limit - 1) > 4 * PUBLISHED_CLOSURE


def test_only_moments_of_the_fitted_middle_close_within_two_per_cent(untrained):
    closure = weibull_closure()
    closing = {name for name, law in vars(closure).items() if abs(law.limit - 1) < PUBLISHED_CLOSURE}
    assert closing == {"trimmed_mean", "trimmed_rms"}
    assert closure.trimmed_rms.limit == pytest.approx(1.016176, abs=5e-7)
    assert closure.trimmed_mean.limit == pytest.approx(1.005741, abs=5e-7)
    body = np.sort(np.abs(untrained))[100_000:900_000]
    p = (np.arange(100_000, 900_000) + 0.5) / 1_000_000
    k, scale = fit(untrained, 0.1)
    fitted = scale * (-np.log1p(-p)) ** (1 / k)
    found = math.sqrt(np.mean(fitted**2) / np.mean(body**2))
    assert abs(closure.trimmed_rms.z_score(found, untrained.size)) < 4.5  # false failure: 7e-6


def test_the_anchor_is_that_of_gaussian_initialisation_only():
    # "Any departure from k0 is attributable entirely to training" (1.1), "universal across vendors" (A.3).
    shapes = {name: weibull_anchor(0.1, name).shape for name in ("normal", "truncated_normal", "uniform", "laplace")}
    assert shapes == pytest.approx(
        {"normal": 1.205434, "truncated_normal": 1.227174, "uniform": 1.375119, "laplace": 1.0}, abs=5e-7
    )
    null = weibull_null()
    for name in ("truncated_normal", "uniform"):  # sixteen million untrained weights
        assert null.shape.z_score(shapes[name], 4096 * 4096) > 60


def test_the_band_of_trained_models_does_not_hold_the_anchor():
    low, high = PUBLISHED_BAND
    shape = weibull_null().shape
    assert low < high < shape.limit
    assert shape.std(49_152) == pytest.approx(0.00616, abs=5e-6)
    assert shape.z_score(PUBLISHED_BAND, 49_152) == pytest.approx([-3.16, -0.23], abs=0.005)
    assert shape.z_score(PUBLISHED_BAND, 4096 * 4096) == pytest.approx([-58.3, -4.3], abs=0.05)


def test_a_straight_plot_is_no_evidence(untrained):
    # "Every fit achieves R^2 >= 0.99" (3.1): so does the half-normal law, which is not Weibull.
    null = weibull_null()
    assert null.r_squared.limit == pytest.approx(0.9977403672326515, rel=1e-15)
    p = (np.arange(untrained.size) + 0.5) / untrained.size
    kept = (p >= 0.1) & (p <= 0.9)
    x, y = np.log(np.sort(np.abs(untrained)))[kept], np.log(-np.log1p(-p[kept]))
    found = np.corrcoef(x, y)[0, 1] ** 2
    assert abs(null.r_squared.z_score(found, untrained.size)) < 4.5  # false failure: 7e-6


def test_the_middle_80_per_cent_is_not_the_trim_of_least_noise():
    # Section 2.1: "the noise-optimal choice". p* is where one point is least noisy; the slope is least noisy at 3.3 %.
    spread = {trim: weibull_null(trim).shape.spread for trim in (0.0, 0.0326, 0.1)}
    assert spread[0.1] / spread[0.0326] == pytest.approx(1.0499, abs=5e-5)
    assert spread[0.0] / spread[0.1] == pytest.approx(1.0735, abs=5e-5)


def test_the_full_data_fit_is_lower_by_definition_not_by_bias():
    # Section 2.1: fitting without trim "systematically underestimates k by 3-7 %"; the half-normal plot is curved, and
    # its own line without trim is 4.5 % less steep.
    assert 1 - weibull_anchor(0.0).shape / weibull_anchor(0.1).shape == pytest.approx(0.0451, abs=5e-5)


def test_three_projections_are_three_numbers():
    assert weibull_anchor().shape == pytest.approx(1.205434, abs=5e-7)
    assert weibull_maximum_likelihood().shape == pytest.approx(1.262757, abs=5e-7)
    assert weibull_moment_match().shape == pytest.approx(1.337057, abs=5e-7)


def test_the_published_aggregate_is_a_mixture_as_stated():
    # Appendix B.3 is right: 1.153 and 0.0174 at step 1 are those of the pooled initialisation.
    sigma_in, sigma_out = math.sqrt(2 / (5 * 512)), 2 / (6 * math.sqrt(512))
    pooled = weibull_anchor(0.1, parents.Mixture((parents.Normal(sigma_in), parents.Normal(sigma_out)), (4, 5)))
    assert (round(pooled.shape, 3), round(pooled.scale, 4)) == (1.153, 0.0174)
    # Figure 3 pools 14 155 776 weights: the published digits are within four standard errors of the law's mean.
    null = weibull_null(0.1, pooled.parent)
    assert abs(null.shape.z_score(1.153, 14_155_776)) < 4.0 and null.shape.std(14_155_776) < 5e-4
