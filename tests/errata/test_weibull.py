"""Errata of "A Two-Parameter Weibull Framework for Diagnosing Transformer Weight Distributions" (arXiv:2605.18898v1).

Items 7, 17 to 22, 24 to 26 and 28 to 30 of docs/errata.md. Each test holds the published value against that of weights
that have learned nothing, or against what follows from the published numbers themselves; code that is not rmtbase's
decides.
"""

import math
import re
from itertools import permutations

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from rmtbase.laws import (
    parents,
    weibull_anchor,
    weibull_body_tail_gap,
    weibull_closure,
    weibull_maximum_likelihood,
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


def test_the_closure_fails_at_the_anchor_but_for_moments_of_the_fitted_middle(untrained):
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
    closing = {name for name, law in vars(closure).items() if abs(law.limit - 1) < PUBLISHED_CLOSURE}
    assert closing == {"trimmed_mean", "trimmed_rms"}
    assert closure.trimmed_rms.limit == pytest.approx(1.016176, abs=5e-7)
    assert closure.trimmed_mean.limit == pytest.approx(1.005741, abs=5e-7)
    body = np.sort(np.abs(untrained))[100_000:900_000]
    p = (np.arange(100_000, 900_000) + 0.5) / 1_000_000
    fitted = scale * (-np.log1p(-p)) ** (1 / k)
    found = math.sqrt(np.mean(fitted**2) / np.mean(body**2))
    assert abs(closure.trimmed_rms.z_score(found, untrained.size)) < 4.5  # false failure: 7e-6


def test_the_anchor_is_that_of_gaussian_initialisation_only_and_outside_the_band():
    # "Any departure from k0 is attributable entirely to training" (1.1), "universal across vendors" (A.3).
    shapes = {name: weibull_anchor(0.1, name).shape for name in ("normal", "truncated_normal", "uniform", "laplace")}
    assert shapes == pytest.approx(
        {"normal": 1.205434, "truncated_normal": 1.227174, "uniform": 1.375119, "laplace": 1.0}, abs=5e-7
    )
    null = weibull_null()
    for name in ("truncated_normal", "uniform"):  # sixteen million untrained weights
        assert null.shape.z_score(shapes[name], 4096 * 4096) > 60
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


def test_the_middle_80_per_cent_is_not_the_trim_of_least_noise_and_none_is_no_bias():
    # Section 2.1: "the noise-optimal choice". p* is where one point is least noisy; the slope is least noisy at 3.3 %.
    spread = {trim: weibull_null(trim).shape.spread for trim in (0.0, 0.02, 0.0326, 0.05, 0.1)}
    assert min(spread, key=spread.__getitem__) == 0.0326
    assert spread[0.1] / spread[0.0326] == pytest.approx(1.0499, abs=5e-5)
    assert spread[0.0] / spread[0.1] == pytest.approx(1.0735, abs=5e-5)
    # Simulated: slopes of 10 000 samples at once, by the weights that least squares gives a sorted sample.
    n = 600
    x = np.log(np.sort(np.abs(np.random.default_rng(41).standard_normal((10_000, n))), axis=1))
    p = (np.arange(n) + 0.5) / n
    y = np.log(-np.log1p(-p))

    def noise(trim):
        kept = (p >= trim) & (p <= 1 - trim)
        centred = x[:, kept] - x[:, kept].mean(axis=1, keepdims=True)
        return ((centred @ (y[kept] - y[kept].mean())) / (centred**2).sum(axis=1)).std()

    assert noise(0.1) / noise(0.0326) == pytest.approx(1.0499, abs=0.02)  # five errors: 0.016, and n is finite
    assert noise(0.1) / noise(0.0326) > 1.02
    # Section 2.1: fitting without trim "systematically underestimates k by 3-7 %"; the half-normal plot is curved, and
    # its own line without trim is 4.5 % less steep.
    assert 1 - weibull_anchor(0.0).shape / weibull_anchor(0.1).shape == pytest.approx(0.0451, abs=5e-5)


def test_three_projections_are_three_numbers_and_the_aggregate_is_a_mixture():
    assert weibull_anchor().shape == pytest.approx(1.205434, abs=5e-7)
    assert weibull_maximum_likelihood().shape == pytest.approx(1.262757, abs=5e-7)
    # The third has the mean and the mean square of |w|: Γ(1+2/k)/Γ²(1+1/k) = π/2.
    assert special.gamma(1 + 2 / 1.337057) / special.gamma(1 + 1 / 1.337057) ** 2 == pytest.approx(
        math.pi / 2, abs=5e-7
    )
    # Appendix B.3 is right: 1.153 and 0.0174 at step 1 are those of the pooled initialisation.
    sigma_in, sigma_out = math.sqrt(2 / (5 * 512)), 2 / (6 * math.sqrt(512))
    pooled = weibull_anchor(0.1, parents.Mixture((parents.Normal(sigma_in), parents.Normal(sigma_out)), (4, 5)))
    assert (pooled.shape, pooled.scale) == pytest.approx((1.1530278, 0.01743117), abs=5e-8)
    # Figure 3 pools 14 155 776 weights: the published digits are within four standard errors of the law's mean.
    null = weibull_null(0.1, pooled.parent)
    assert abs(null.shape.z_score(1.153, 14_155_776)) < 4.0 and null.shape.std(14_155_776) < 5e-4


# Table 4, Pythia: peak learning rate over weight decay (0.01), terminal mean lambda over the three kinds.
RATES = np.array([1.0e-3, 6.0e-4, 3.0e-4, 3.0e-4, 1.2e-4])
TERMINAL = np.array([0.0224, 0.0200, 0.0190, 0.0191, 0.0149])


def test_the_line_through_the_origin_fits_worse_than_a_constant():
    # Section 5.4: "scales with sqrt(eta_peak/lambda_wd) at Pearson r = 0.94 (n = 5, linear fit through origin: lambda =
    # 0.087 sqrt(eta/lambda_wd)". r belongs to the line with an intercept.
    x = np.sqrt(RATES / 0.01)
    slope = (x @ TERMINAL) / (x @ x)
    assert slope == pytest.approx(0.087, abs=5e-4)
    assert stats.pearsonr(x, TERMINAL).statistic == pytest.approx(0.94, abs=5e-3)
    about_mean = ((TERMINAL - TERMINAL.mean()) ** 2).sum()
    assert 1 - ((TERMINAL - slope * x) ** 2).sum() / about_mean == pytest.approx(-2.0, abs=0.05)
    assert np.abs(slope * x / TERMINAL - 1) == pytest.approx([0.23, 0.07, 0.21, 0.21, 0.36], abs=5e-3)
    line = stats.linregress(x, TERMINAL)
    assert (line.intercept, line.intercept_stderr) == pytest.approx((0.0125, 0.0014), abs=5e-5)


def test_the_exponent_of_the_rate_is_a_third_of_the_published_one():
    power = stats.linregress(np.log(np.sqrt(RATES / 0.01)), np.log(TERMINAL))
    assert (power.slope, power.stderr) == pytest.approx((0.36, 0.06), abs=5e-3)
    assert (1 - power.slope) / power.stderr > 11


# Appendix A.3 and Table 5: L and d of Pythia 70m, 160m, 410m, 1B (small_init, wang_init) and 6.9B (defaults).
LAYERS, WIDTHS = np.array([6, 12, 24, 16, 32]), np.array([512, 768, 1024, 2048, 4096])
SIGMA_OUT = np.where(WIDTHS < 4096, 2 / (LAYERS * np.sqrt(WIDTHS)), 0.02 / np.sqrt(2 * LAYERS))
SIGMA_IN = np.where(WIDTHS < 4096, np.sqrt(2 / (5 * WIDTHS)), 0.02)
FIRST = np.array([0.0131, 0.0053, 0.0023, 0.0025, 0.0022])  # Table 3, lambda_O at initialisation
LAST = np.array([0.0186, 0.0157, 0.0180, 0.0188, 0.0130])  # and at the end


def test_the_paired_growth_starts_on_the_diagonal_by_construction():
    # Section 5.3: r = 0.9967 of ln lambda_O with ln lambda_FFN_out over 25 size-step combinations. At step 0 both are
    # 0.8875 sigma_out, so that each size has a point on the diagonal, far from the later ones.
    assert weibull_anchor().scale * SIGMA_OUT == pytest.approx(FIRST, abs=5e-5)
    assert np.log(FIRST.max() / FIRST.min()) > 4.5 * np.log(LAST.max() / LAST.min())
    # Were the 20 later pairs uncorrelated, with the spread of the published terminal values, r would be 0.96.
    rng = np.random.default_rng(43)
    later = np.log(LAST).mean() + np.log(LAST).std(ddof=1) * rng.standard_normal((2, 2000, 20))
    pairs = np.concatenate([np.broadcast_to(np.log(FIRST), (2, 2000, 5)), later], axis=2)
    pairs = pairs - pairs.mean(axis=2, keepdims=True)
    r = (pairs[0] * pairs[1]).sum(axis=1) / np.sqrt((pairs**2).sum(axis=2).prod(axis=0))
    assert r.mean() == pytest.approx(0.959, abs=0.002)
    assert (r > 0.92).mean() > 0.95


def test_the_class_of_the_fused_projection_moves_the_mean_scale():
    # Sections 1.2 and 5.4 leave W_qkv out "as Selection"; 5.1, 5.2 and Fig. 10 count it among "the four Transmission
    # Class kinds", and Fig. 11 averages over four. At step 0 the two means differ by this much.
    three, four = (SIGMA_IN + 2 * SIGMA_OUT) / 3, (2 * SIGMA_IN + 2 * SIGMA_OUT) / 4
    assert four / three == pytest.approx([1.115, 1.241, 1.344, 1.288, 1.350], abs=5e-4)


@pytest.mark.exhaustive
def test_olmo_1_has_a_gate():
    # Section 2.2: "2-matrix GeLU FFNs (Pythia, OLMo-1)"; Fig. 6: "FFN gate/up/down", "7 components" of OLMo-1.
    import transformers

    config = transformers.OlmoConfig(
        hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=4, vocab_size=8, pad_token_id=0
    )
    layer = transformers.OlmoModel(config).layers[0]
    projections = [name.split(".")[1] for name, weight in layer.named_parameters() if weight.ndim == 2]
    assert len(projections) == 7 and {"gate_proj", "up_proj", "down_proj"} < set(projections)
    assert config.hidden_act == "silu"


def test_the_pooled_weights_of_pythia_70m_have_no_gate():
    # Figs. 3 and 14 pool "W_o + W_gate + W_up + W_down"; the number that Fig. 3 prints is that of W_o and two more.
    d, layers = int(WIDTHS[0]), int(LAYERS[0])
    assert layers * (d * d + 2 * 4 * d * d) == POOLED
    assert layers * (d * d + 3 * 4 * d * d) == 20_447_232


def test_five_models_in_any_order():
    # Item 17: how often would five numbers in any order have such an r?
    x = np.sqrt(RATES / 0.01)
    r = [abs(np.corrcoef(x, TERMINAL[list(order)])[0, 1]) for order in permutations(range(5))]
    assert np.count_nonzero(np.array(r) >= np.corrcoef(x, TERMINAL)[0, 1] - 1e-12) == 6


POOLED = 14_155_776  # Figure 3: weights of W_o and both feed-forward matrices of Pythia-70m


def test_the_body_predicts_too_heavy_a_tail_before_training():
    # Section 3.3: "At step 1, the right tail beyond q99 matches the Weibull body prediction within sampling noise."
    def sf(x):
        return (4 * stats.norm.sf(x / SIGMA_IN[0]) + 5 * stats.norm.sf(x / SIGMA_OUT[0])) * 2 / 9

    p = 0.1 + 0.8 * (np.arange(800) + 0.5) / 800
    x = [optimize.brentq(lambda x, q=q: 1 - sf(x) - q, 1e-6, 1.0, xtol=1e-14) for q in p]
    line = stats.linregress(np.log(x), np.log(-np.log1p(-p)))
    assert line.slope == pytest.approx(1.153, abs=5e-4)

    def predicted_over(probability):
        quantile = optimize.brentq(lambda x: math.log(sf(x) / probability), 1e-3, 1.0)
        return math.exp(-math.exp(line.intercept) * quantile**line.slope) / probability

    assert predicted_over(1e-2) * POOLED / 100 == pytest.approx(163_183, rel=3e-4)
    assert (predicted_over(1e-2) - 1) * POOLED / 100 / math.sqrt(POOLED * 0.01 * 0.99) == pytest.approx(57.8, abs=0.5)
    assert [predicted_over(q) for q in (1e-4, 1e-6)] == pytest.approx([4.2, 32.3], abs=0.1)
    of_median = -math.expm1(math.log(0.5) / POOLED)
    assert predicted_over(of_median) * of_median * POOLED == pytest.approx(105, abs=0.5)
    assert np.array([-29.9, -44.7]) + math.log10(POOLED) == pytest.approx([-22.7, -37.5], abs=0.06)
    for q, times in ((1e-2, 2.7), (1e-4, 26), (1e-6, 399)):  # one normal matrix
        anchor = weibull_anchor()
        assert math.exp(-((stats.norm.isf(q / 2) / anchor.scale) ** anchor.shape)) / q == pytest.approx(times, rel=0.02)


def test_the_band_is_wide_beside_that_of_untrained_models():
    # Section 3.1: CV 0.51 % over 12 models. The smallest has 6 layers with two matrices of 512 x 2048.
    rng, law = np.random.default_rng(47), weibull_null().shape
    for matrices, n, expected in ((12, 512 * 2048, 0.0370), (64, 4096 * 11008, 0.0026)):
        medians = np.median(law.mean(n) + law.std(n) * rng.standard_normal((2_000, 12, matrices)), axis=2)
        variation = 100 * medians.std(axis=1, ddof=1) / medians.mean(axis=1)
        assert variation.mean() == pytest.approx(expected, rel=0.03)  # five errors: 0.025
        assert 6 * variation.max() < 0.51


# DATABASE_v9_1.csv of github.com/tiexinding/NPM-Weibull-public at 213fd405 (T. Ding, CC BY 4.0), k_median_*: of Pythia
# the fused projection, output, FFN in and out; of the others queries, keys, values, output, gate, up and down.
DATABASE = {
    "Pythia-70m": (1.0488, 1.1838, 1.1903, 1.1898),
    "Pythia-160m": (1.0982, 1.1917, 1.1927, 1.1953),
    "Pythia-410m": (1.1466, 1.1988, 1.1991, 1.2011),
    "Pythia-1B": (1.1758, 1.1990, 1.1997, 1.1993),
    "Pythia-6.9B": (1.1726, 1.1986, 1.2026, 1.2010),
    "OLMo-1-7B": (0.8123, 0.7601, 1.0601, 1.0409, 1.2010, 1.2039, 1.2041),
    "OLMo-2-7B": (0.9895, 0.9716, 1.1930, 1.1958, 1.1976, 1.2032, 1.2031),
    "LLaMA-3-8B": (1.1352, 1.1462, 1.1710, 1.1841, 1.1890, 1.1971, 1.1931),
    "Mistral-7B": (1.1485, 1.1291, 1.1702, 1.1902, 1.1947, 1.1964, 1.1926),
    "Qwen2.5-7B": (1.1328, 1.1033, 1.1430, 1.1665, 1.1904, 1.1888, 1.1830),
    "Qwen2.5-14B": (1.1638, 1.1413, 1.1628, 1.1903, 1.1929, 1.1926, 1.1897),
    "Qwen3-8B": (1.1623, 1.1539, 1.1581, 1.1802, 1.1872, 1.1886, 1.1846),
}
GROUPED = ("LLaMA-3-8B", "Mistral-7B", "Qwen2.5-7B", "Qwen2.5-14B", "Qwen3-8B")


def output_and_feed_forward(shapes):
    """k of W_o, and of the feed-forward kinds, of a row of the database."""
    return (shapes[1], shapes[2:]) if len(shapes) == 4 else (shapes[3], shapes[4:])


def test_text_and_table_of_the_band_are_of_different_matrices():
    # 3.1: "the FFN modules fit [...] with median terminal k in [1.186, 1.204]"; Table 1: "10 / 12"; Fig. 5: "applied to
    # FFN + W_o components". Medians of the medians of each kind, which are not those of all matrices to the last digit.
    low, high = PUBLISHED_BAND
    rows = [output_and_feed_forward(shapes) for shapes in DATABASE.values()]
    feed_forward = sorted(np.median(kinds) for _, kinds in rows)
    assert (feed_forward[0], feed_forward[-1]) == pytest.approx((1.1872, 1.2039), abs=1e-9)
    assert low < feed_forward[0] and feed_forward[-1] < high
    with_output = sorted(np.median([output, *kinds]) for output, kinds in rows)
    assert with_output[:2] == pytest.approx([1.1859, 1.1859], abs=6e-5)
    assert sum(low <= k <= high for k in with_output) == 10


def test_the_database_is_not_monotone_in_the_budget():
    # 4.2: "larger T/tau produces more severe drift"; budgets of Table 3, of 70m to 6.9B.
    budgets = [1.43, 0.86, 0.43, 0.43, 0.17]
    fused = [shapes[0] for name, shapes in DATABASE.items() if name.startswith("Pythia")]
    assert fused == [1.0488, 1.0982, 1.1466, 1.1758, 1.1726]
    assert budgets[4] < budgets[3] and fused[4] < fused[3]  # less budget, more drift
    assert budgets[2] == budgets[3] and fused[3] - fused[2] > 9 * (fused[3] - fused[4])
    # The difference is no sampling error: medians of 16 and 32 matrices of 3 x 2048^2 and 3 x 4096^2 weights.
    law = weibull_null().shape
    error = 1.2533 * math.hypot(law.std(3 * 2048**2) / math.sqrt(16), law.std(3 * 4096**2) / math.sqrt(32))
    assert fused[3] - fused[4] > 20 * error


def test_output_projections_of_the_database_leave_the_band():
    # 4.4: "within a single layer, W_o and FFN modules hold steady within the Transmission band"; Fig. 6, of OLMo-1:
    # "uniform-bodied V/O, k in transmission band".
    low, high = PUBLISHED_BAND
    outside = [name for name, shapes in DATABASE.items() if not low <= output_and_feed_forward(shapes)[0] <= high]
    assert outside == ["Pythia-70m", "OLMo-1-7B", "LLaMA-3-8B", "Qwen2.5-7B", "Qwen3-8B"]
    assert DATABASE["OLMo-1-7B"][2:4] == pytest.approx((1.060, 1.041), abs=5e-4)


def class_of_package(k):
    """Class that npm-weibull-py 0.4.0 gives a k: 1.18 to 1.21, 0.95 to 1.18 or above 1.21, below 0.95."""
    return "transmission" if 1.18 <= k <= 1.21 else "mild_selection" if k >= 0.95 else "strong_selection"


def class_of_paper(k):
    """Class by the ranges of 3.1 and 4.3, printed to two decimals for queries and keys; "" in a gap."""
    ranges = {"deep": (0.755, 0.995), "mild": (1.095, 1.165), "transmission": PUBLISHED_BAND}
    return next((name for name, (low, high) in ranges.items() if low <= k <= high), "")


def test_the_classes_of_the_package_are_not_those_of_the_paper():
    for k in DATABASE["OLMo-2-7B"][:2]:
        assert (class_of_paper(k), class_of_package(k)) == ("deep", "mild_selection")
    grouped = [k for name in GROUPED for k in DATABASE[name][:2]]
    assert len(grouped) == 10
    assert {class_of_paper(k) for k in grouped} == {"mild"}
    assert {class_of_package(k) for k in grouped} == {
        "mild_selection"
    }  # of grouped attention it expects "transmission"
    anchor, uniform = (weibull_anchor(0.1, name).shape for name in ("normal", "uniform"))
    assert (anchor, uniform) == pytest.approx((1.2054, 1.375), abs=5e-4)
    assert (class_of_paper(anchor), class_of_package(anchor)) == ("", "transmission")
    assert class_of_package(uniform) == "mild_selection"


def test_the_released_package_has_these_borders():
    package = pytest.importorskip("npm_weibull")
    assert package.__version__ == "0.4.0"
    for k in (0.7, 0.9499, 0.95, 0.99, 1.13, 1.1799, 1.18, 1.2, 1.21, 1.2101, 1.375):
        assert package.classify_k(k)["class"] == class_of_package(k)
    for name in GROUPED:
        assert not any(package.classify_k(k, arch_type="GQA")["in_expected_range"] for k in DATABASE[name][:2])
    with_layers = {"q": DATABASE["LLaMA-3-8B"][0], "k": DATABASE["LLaMA-3-8B"][1]}
    nearest = package.compare_to_benchmark({"arch": "GQA", "per_component_summary": with_layers})
    assert "transmission" in nearest["family_class"]


def test_the_released_package_has_four_of_the_eight_functions():
    package = pytest.importorskip("npm_weibull")
    names = {name for name in package.__all__ if callable(getattr(package, name))}
    assert {"weibull_fit", "k_drift_severity", "classify_attention_arch", "sigma_decompose"} < names
    assert not any(word in name for name in names for word in ("band", "scaling", "gamma"))
    # The expression of the closure, which nothing compares with weights; and the correlation within another function.
    k, scale = 1.2, 0.5
    spread = scale * math.sqrt(math.gamma(1 + 2 / k) - math.gamma(1 + 1 / k) ** 2)
    assert package.sigma_from_k_lambda(k, scale)["sigma"] == pytest.approx(spread, rel=1e-12)
    assert package.sigma_decompose([k, k, k], [1.0, 2.0, 4.0], [1.0, 2.1, 3.9])["paired_r"] > 0.99


def noise_of_a_point(p):
    """N times the variance of Y = ln(-ln(1-F)) at probability p, appendix A.2."""
    return p / ((1 - p) * np.log1p(-p) ** 2)


LEAST = optimize.minimize_scalar(noise_of_a_point, bounds=(0.5, 0.95), method="bounded").fun


def lowest_tenth(n):
    """Mean noise of the lowest tenth of n points over the least: 10 sum psi'(i), as Y there is ln of gamma(i)/n."""
    last = n // 10
    return 10 * (special.digamma(last + 1) + np.euler_gamma + last * special.polygamma(1, last + 1)) / LEAST


def test_the_noise_of_the_lowest_tenth_has_no_mean():
    # 2.1: "The bottom 10% of the distribution carries approximately 6.5x more measurement noise than the optimal
    # central region". 6.48 is where it ends, and the least of it.
    assert [noise_of_a_point(p) / LEAST for p in (0.1, 0.05, 0.01)] == pytest.approx([6.482, 13.0, 64.8], abs=0.05)
    p = np.geomspace(1e-9, 0.1, 1000)
    assert (np.diff(noise_of_a_point(p)) < 0).all()
    assert noise_of_a_point(p) * p == pytest.approx(1.0, abs=1e-3)  # 1/p, so that the integral is ln
    above = [10 * integrate.quad(noise_of_a_point, low, 0.1)[0] / LEAST for low in (1e-3, 1e-6)]
    assert above == pytest.approx([10 * math.log(0.1 / low) / LEAST for low in (1e-3, 1e-6)], rel=1e-3)
    assert [lowest_tenth(n) for n in (49_152, 262_144, POOLED)] == pytest.approx([65, 76, 102], abs=0.5)
    # The upper tenth: with E = -ln(1-p) the integral of (1 - exp(-E))/E^2, which converges.
    upper = integrate.quad(lambda e: -math.expm1(-e) / e**2, math.log(10), math.inf)[0]
    assert 10 * upper / LEAST == pytest.approx(2.7, abs=0.05)


def test_simulated_points_of_the_lowest_tenth_are_noisier_than_its_end():
    n, draws = 1000, 4000
    points = np.sort(np.random.default_rng(53).standard_exponential((draws, n)), axis=1)
    noise = n * np.log(points).var(axis=0) / LEAST
    assert noise[:100].mean() == pytest.approx(lowest_tenth(n), rel=0.05)  # the first point is half of the error, 1 %
    assert noise[99] == pytest.approx(6.48, rel=0.15)  # five errors: 0.11
    assert noise[:100].mean() > 5 * noise[99]
    assert noise[900:].mean() < 2.7


MEASURED = np.array([1.900, 3.798, 7.589, 5.053, 8.000])  # Table 5


def test_measured_ratios_are_off_by_more_than_sampling():
    # Each is the mean of two ratios of lambda, of 3 d^2 and d^2, and of 4 d^2 and 4 d^2 weights in L blocks.
    law = weibull_null().scale
    error = law.spread / law.limit * np.sqrt((1 / 3 + 1 + 1 / 4 + 1 / 4) / LAYERS) / WIDTHS / 2
    off = np.maximum(np.abs(MEASURED - SIGMA_IN / SIGMA_OUT) - 5e-4, 0) / (SIGMA_IN / SIGMA_OUT)
    assert error * 100 == pytest.approx([0.047, 0.022, 0.012, 0.007, 0.0025], rel=0.1)
    assert off / error == pytest.approx([2.4, 3.4, 0, 17, 0], abs=0.5)


def test_bins_of_fixed_width_move_the_ratios():
    # npm-weibull-py 0.4.0: 1024 bins of log10 |w| from -12 to 2, Y of the cumulated share at the middle of each bin.
    edges = np.linspace(-12, 2, 1025)

    def scale(sigma):
        cdf = special.erf(10**edges / (sigma * math.sqrt(2)))
        share, middle = np.diff(cdf), (cdf[1:] + cdf[:-1]) / 2
        kept = (middle >= 0.1) & (middle <= 0.9)
        x = math.log(10) * (edges[1:] + edges[:-1])[kept] / 2
        slope, intercept = np.polyfit(x, np.log(-np.log1p(-middle[kept])), 1, w=np.sqrt(share[kept]))
        return math.exp(-intercept / slope)

    reads, writes = ([scale(sigma) for sigma in sigmas] for sigmas in (SIGMA_IN, SIGMA_OUT))
    over_sigma = np.concatenate([reads / SIGMA_IN, writes / SIGMA_OUT])
    assert (over_sigma.min(), over_sigma.max()) == pytest.approx((0.8866, 0.8882), abs=1e-4)
    assert np.divide(reads, writes) == pytest.approx([1.8987, 3.7970, 7.5952, 5.0552, 8.0009], abs=1e-4)


def test_a_mean_of_half_a_per_cent_does_not_move_the_shape():
    p = 0.1 + 0.8 * (np.arange(20_000) + 0.5) / 20_000
    y = np.log(-np.log1p(-p))

    def shape(mean):
        x = np.exp(np.linspace(math.log(0.05), math.log(3), 40_000))
        cdf = stats.norm.cdf(x, mean) - stats.norm.cdf(-x, mean)
        return stats.linregress(np.interp(p, cdf, np.log(x)), y).slope

    moved = [shape(mean) - shape(0.0) for mean in (0.006, 0.06)]
    assert abs(moved[0]) < 1e-9 and moved[1] == pytest.approx(1.14e-6, rel=0.05)


# models/{70M,160M,410M,1B,6.9B}/*.yml of EleutherAI/pythia: "lr", "weight-decay", "warmup" and "train-iters".
CONFIGURED_RATES = np.array([1.0e-3, 6.0e-4, 3.0e-4, 2.5e-4, 1.2e-4])
CONFIGURED_DECAY, WARMUP, STEPS = 0.1, 0.01, 143_000


def test_pythia_was_trained_with_ten_times_the_weight_decay():
    printed, configured = STEPS * RATES * 0.01, STEPS * CONFIGURED_RATES * CONFIGURED_DECAY
    assert printed == pytest.approx([1.43, 0.86, 0.43, 0.43, 0.17], abs=5e-3)  # Table 3
    assert configured == pytest.approx([14.3, 8.6, 4.3, 3.6, 1.7], abs=0.05)
    assert configured.min() > 1.0  # "Models with T/tau > 1 (Pythia-70m, [...] Saturated)", 5.2
    root = np.sqrt(CONFIGURED_RATES / CONFIGURED_DECAY)
    assert TERMINAL / root == pytest.approx([0.224, 0.258, 0.347, 0.382, 0.430], abs=5e-4)
    assert (root @ TERMINAL) / (root @ root) == pytest.approx(0.28, abs=5e-3)
    assert stats.pearsonr(root, TERMINAL).statistic == pytest.approx(0.92, abs=5e-3)
    assert np.exp(-0.55 * configured)[[0, -1]] == pytest.approx([0.0004, 0.39], rel=0.05)


# The caption of Fig. 6, and that of Fig. 7, of the same checkpoint.
FIGURE_6 = "extending to log10 |w| ~ -5 in mid-to-deep blocks (blocks 8-17 and 23-27)"
FIGURE_7 = (
    "Both NO-QK-Norm models show pronounced specialization tail extending to log10 |w| ~ -5 in shallow-to-mid blocks"
)


def test_two_figures_place_one_tail_in_different_layers():
    places = [re.findall(r"in (\S+)-to-(\S+) blocks", caption) for caption in (FIGURE_6, FIGURE_7)]
    assert places == [[("mid", "deep")], [("shallow", "mid")]]
    blocks = np.r_[8:18, 23:28]
    assert (blocks >= 16).mean() > 0.4  # of 32


def test_warmup_is_over_before_either_peak():
    assert pytest.approx(1430) == STEPS * WARMUP
    gone = (np.array([10_000, 32_000]) - STEPS * WARMUP) / (STEPS * (1 - WARMUP))
    assert 0.1 + 0.45 * (1 + np.cos(np.pi * gone)) == pytest.approx([0.99, 0.90], abs=5e-3)
