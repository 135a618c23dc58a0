"""Errata of "Weight Distributions in Transformer Attention Heads" (post 1) and its draft.

Items 1 to 3, 12 to 15, 27 and 36 of docs/errata.md.

Each test holds the published formula, as it is written, against the right one; an oracle that shares no code with
rmtbase (quadrature or simulation) decides.
"""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import curve_fit

from rmtbase.laws import (
    ContaminatedNormal,
    largest_eigenvalue,
    low_rank_product,
    marchenko_pastur,
    normal_entropy,
    normal_kl,
    product_element,
)
from rmtbase.models import known_models


def published_kl(sigma, sigma0):
    """Draft, section "Analysis", last equation: ln(sigma/sigma_0) + sigma^2/sigma_0^2 - 1/2."""
    return math.log(sigma / sigma0) + sigma**2 / sigma0**2 - 0.5


@pytest.mark.parametrize(("sigma", "published"), [(0.5, -0.9431), (1.0, 0.5), (2.0, 4.1931)])
def test_divergence_of_two_normal_laws(sigma, published):
    assert published_kl(sigma, 1.0) == pytest.approx(published, abs=5e-5)

    def integrand(x):
        return stats.norm.pdf(x, scale=sigma) * (stats.norm.logpdf(x, scale=sigma) - stats.norm.logpdf(x))

    integral = quad(integrand, -30, 30, points=[-5, 0, 5], epsabs=1e-12, limit=200)[0]
    assert normal_kl(sigma, 1.0) == pytest.approx(integral, abs=1e-10)
    assert abs(published_kl(sigma, 1.0) - integral) > 0.49


def test_a_divergence_is_zero_at_equality_and_never_negative():
    assert normal_kl(0.7, 0.7) == 0.0 and published_kl(0.7, 0.7) == 0.5
    ratios = np.geomspace(0.1, 10, 101)
    assert (normal_kl(ratios, 1.0) >= 0).all()
    assert min(published_kl(ratio, 1.0) for ratio in ratios) < -2.5


@pytest.mark.parametrize("sigma", [0.1, 0.2887, 3.0])
def test_the_sign_of_the_entropy(sigma):
    # Draft, section "Analysis": S = <ln P> = sum P ln P, and later S = <ln P> = ln(2 pi e / n)/2, which is -<ln P>.
    mean_log = quad(
        lambda x: stats.norm.pdf(x, scale=sigma) * stats.norm.logpdf(x, scale=sigma), -12 * sigma, 12 * sigma
    )[0]
    assert normal_entropy(sigma) == pytest.approx(-mean_log, abs=1e-9)
    assert abs(normal_entropy(sigma) - mean_log) > 0.3


def published_edges(d_model, d_head):
    """Post 1, before Fig. 3 (and the draft): lambda_+- = sqrt(d_h) (1 +- sqrt(d/d_h))."""
    return tuple(math.sqrt(d_head) * (1 + sign * math.sqrt(d_model / d_head)) for sign in (-1, 1))


@pytest.mark.parametrize(("d_model", "d_head"), [(768, 64), (1000, 500), (300, 300)])
def test_the_published_edges_are_those_of_one_factor(d_model, d_head):
    low, high = marchenko_pastur(d_head, d_model).support
    lower, upper = published_edges(d_model, d_head)
    assert upper == pytest.approx(math.sqrt(high), rel=1e-12)
    assert -lower == pytest.approx(math.sqrt(low), rel=1e-12, abs=1e-6)


@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(768, 64, 10), (200, 200, 20)])
def test_edges_of_the_product(d_model, d_head, draws):
    rng = np.random.default_rng([2, d_model])
    largest = np.empty(draws)
    for draw in range(draws):
        w_q, w_k = rng.standard_normal((2, d_head, d_model))
        core = np.linalg.qr(w_q.T, mode="r") @ np.linalg.qr(w_k.T, mode="r").T
        largest[draw] = np.linalg.svd(core, compute_uv=False)[0] / math.sqrt(d_model)
    law = largest_eigenvalue((d_model, d_head, d_model), normalization="sqrt_d")
    # The standard deviation of s = sqrt(lambda) is half that of lambda, relative; five errors of the mean.
    error = 5 * 0.5 * law.std() / math.sqrt(law.mean() * draws)
    assert largest.mean() == pytest.approx(math.sqrt(law.mean()), abs=error + 0.003 * largest.mean())
    published = published_edges(d_model, d_head)[1]
    assert largest.mean() - published > 10 * error / 5
    assert largest.min() > published


def test_reference_values_of_the_edges():
    right = np.sqrt(low_rank_product(768, 64).support)
    np.testing.assert_allclose(right, (17.0423, 39.5503), atol=5e-5)
    np.testing.assert_allclose(published_edges(768, 64), (-19.7128, 35.7128), atol=5e-5)
    square = math.sqrt(low_rank_product(1000, 1000).support[1] / 1000)
    assert square == pytest.approx(math.sqrt(27 / 4), rel=1e-12)
    assert published_edges(1000, 1000)[1] / math.sqrt(1000) == pytest.approx(2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("d_model", "d_head", "written", "divided"), [(768, 64, 8.0, 0.2887), (1000, 500, 22.36, 0.7071)]
)
def test_the_published_width_needs_a_division_by_the_root_of_the_width(d_model, d_head, written, divided):
    # Post 1, of W_QK = W_Q^T W_K, sigma = 1: "The left panel confirms that sigma_WQK = sqrt(d_h/d) and that the entropy
    # follows S = 1/2 ln(2 pi e d_h/d)"; the draft: "the matrix elements of W_QK divided by sqrt(d_model)".
    w_q, w_k = np.random.default_rng(37).standard_normal((2, d_head, d_model))
    w = w_q.T @ w_k
    assert w.std() == pytest.approx(written, rel=0.02)  # one matrix: an error of 1/sqrt(2 d_model) at most, 0.26 %
    published = math.sqrt(d_head / d_model)
    assert published == pytest.approx(divided, abs=5e-5)
    assert (w / math.sqrt(d_model)).std() == pytest.approx(published, rel=0.02)
    for normalization, sigma in (("none", written), ("sqrt_d", divided)):
        assert product_element(d_model, d_head, normalization=normalization).std() == pytest.approx(sigma, rel=2e-4)
    if d_model == 768:
        entropies = [float(normal_entropy(sigma)) for sigma in (math.sqrt(d_head), published)]
        assert entropies == pytest.approx([3.498, 0.176], abs=5e-4)
        s = np.linalg.svd(w, compute_uv=False)[:d_head]
        assert (s[-1], s[0]) == pytest.approx((472, 1096), rel=0.05)
        law = low_rank_product(d_model, d_head, normalization="none")
        np.testing.assert_allclose(np.sqrt(law.support), (472.3, 1096.0), atol=0.1)


P, A, SIGMA0 = 0.1, 2.0, 1.0  # spike weight, its location, width of the bulk


def mixture_sample(spike_weight):
    rng = np.random.default_rng(31)
    bulk = rng.normal(0.0, SIGMA0, 400_000)
    return np.where(rng.random(bulk.size) < spike_weight, A, bulk)


def test_the_weight_of_the_mixture_changes_its_owner():
    # Post 1, "Correlations Among Per-Head Statistics": "N(0, sigma_0) with weight p and an additional localized
    # component at a with weight 1 - p", then mu = p a and sigma^2 = (1 - p) sigma_0^2 + p a^2.
    as_the_words_say, as_the_formulas_say = (mixture_sample(weight).mean() for weight in (1 - P, P))
    assert as_the_formulas_say == pytest.approx(P * A, abs=0.01)  # five standard errors: 0.009
    assert as_the_words_say == pytest.approx((1 - P) * A, abs=0.01)
    assert ContaminatedNormal(P, A, SIGMA0).mean() == pytest.approx(P * A, rel=1e-15)
    sample, law = mixture_sample(P), ContaminatedNormal(P, A, SIGMA0)
    assert sample.var() == pytest.approx(law.var(), rel=0.012)  # five standard errors: 0.011
    assert stats.skew(sample) == pytest.approx(law.skewness(), abs=0.025)
    assert stats.kurtosis(sample, fisher=False) == pytest.approx(law.kurtosis(), abs=0.05)
    # sigma^2 without the term -mu^2.
    assert (1 - P) * SIGMA0**2 + P * A**2 - law.var() == pytest.approx((P * A) ** 2, rel=1e-12)
    # "gamma ~ p a^3/sigma^3, kappa ~ p a^4/sigma^4": from a = 2 to 4 the factors change twelvefold and threefold.
    laws = {a: ContaminatedNormal(P, a, SIGMA0) for a in (2.0, 4.0)}
    third, fourth = (
        {a: statistic(law) / (P * a**k / law.std() ** k) for a, law in laws.items()}
        for k, statistic in ((3, ContaminatedNormal.skewness), (4, ContaminatedNormal.kurtosis))
    )
    assert third[4.0] > 12 * third[2.0]
    assert fourth[2.0] > 3 * fourth[4.0]


def test_the_published_limits_of_sigma_exclude_the_mixture_itself():
    sample = mixture_sample(P)
    mean, std, skewness = sample.mean(), sample.std(), stats.skew(sample)
    # sigma(mu) >~ sqrt((mu^2 + (1-p)/p sigma_0^2)/p); right, and an equality: sqrt((1-p) (sigma_0^2 + mu^2/p)).
    published = math.sqrt((mean**2 + (1 - P) / P * SIGMA0**2) / P)
    right = math.sqrt((1 - P) * (SIGMA0**2 + mean**2 / P))
    assert std == pytest.approx(right, rel=0.01)
    assert published > 8 * std
    # sigma(gamma) >~ sqrt((1-p)/p) sigma_0 / sqrt(1 - (p gamma)^(2/3)).
    assert math.sqrt((1 - P) / P) * SIGMA0 / math.sqrt(1 - (P * skewness) ** (2 / 3)) > 2.5 * std
    # gamma = p a^3/sigma^3 and sigma^2 = (1-p) sigma_0^2 + p a^2 together give
    # sigma = sqrt(1-p) sigma_0 / sqrt(1 - (sqrt(p) gamma)^(2/3)).
    sigma = math.sqrt((1 - P) * SIGMA0**2 + P * A**2)
    gamma = P * A**3 / sigma**3
    derived = math.sqrt(1 - P) * SIGMA0 / math.sqrt(1 - (math.sqrt(P) * gamma) ** (2 / 3))
    published = math.sqrt((1 - P) / P) * SIGMA0 / math.sqrt(1 - (P * gamma) ** (2 / 3))
    assert derived == pytest.approx(sigma, rel=1e-12)
    assert published > 2.5 * sigma


MODELS = {model.name: model for model in known_models()}


def test_a_head_of_gpt2_xl_has_twice_the_elements_of_one_of_gpt2():
    # "The 2x increase in model dimension results in a 4x increase in the number of matrix elements per head, which
    # should reduce sampling fluctuations on statistical estimators by roughly 2x": of W_Q, "approx 49,000" in GPT-2.
    small, large = (MODELS[name].d_model * MODELS[name].d_head for name in ("gpt2", "gpt2-xl"))
    assert (small, large) == (49_152, 102_400)
    assert large / small == pytest.approx(2.0833, abs=5e-5)  # d_head is 64 in both
    rng = np.random.default_rng(19)
    spread = [
        rng.standard_normal((400, size), dtype=np.float32).std(axis=1).std() for size in (small // 16, large // 16)
    ]
    assert spread[0] / spread[1] == pytest.approx(math.sqrt(large / small), rel=0.25)  # five errors: 0.18
    assert spread[0] / spread[1] < 1.8


LIGHT, HEAVY = (stats.uniform, stats.truncnorm(-2.0, 2.0)), (stats.laplace, stats.logistic, stats.t(5))


def entropy_residual(law):
    """Delta S = S - ln(2 pi e sigma^2)/2, before Fig. 15."""
    return float(law.entropy()) - float(normal_entropy(law.std()))


def test_no_law_has_more_entropy_than_the_normal_of_its_variance():
    # "a positive residual would indicate heavier tails or broader structure": heavier tails make it negative.
    assert entropy_residual(stats.norm(scale=0.3)) == pytest.approx(0.0, abs=1e-12)
    for law in HEAVY:
        assert law.stats(moments="k") > 1.0
        assert entropy_residual(law) < -0.01
    assert [entropy_residual(stats.t(freedom)) for freedom in (3, 5, 9)] == pytest.approx(
        [-0.1948, -0.0468, -0.0117], abs=5e-5
    )
    assert [entropy_residual(law) for law in HEAVY] == pytest.approx([-0.07236, -0.01436, -0.04685], abs=5e-6)


def test_a_negative_residual_does_not_tell_light_from_heavy_tails():
    # "Negative values indicate sub-Gaussian entropy", Fig. 15.
    for law in LIGHT:
        assert law.stats(moments="k") < -0.6
        assert entropy_residual(law) < -0.03
    assert [entropy_residual(law) for law in LIGHT] == pytest.approx([-0.17649, -0.03144], abs=5e-6)
    # An untrained W_QK has heavier tails than the normal law, and less entropy: the post's own Delta S = -D_KL.
    element = product_element(768, 64)
    assert element.kurtosis() > 0.09
    residual = element.entropy() - float(normal_entropy(element.std()))
    assert residual == pytest.approx(-element.kl_to_normal(), abs=1e-9)
    assert residual == pytest.approx(-1.684e-4, abs=5e-8)


def unit_sample(law):
    sample = law.rvs(size=49_152, random_state=np.random.default_rng(23))
    return (sample - sample.mean()) / sample.std()


@pytest.mark.parametrize("law", [*LIGHT, *HEAVY])
def test_the_maximum_likelihood_width_is_the_standard_deviation(law):
    # "The fitted standard deviation sigma_fit (obtained by maximum-likelihood fitting) [...] is systematically slightly
    # smaller": by maximum likelihood it is the same number, whatever the sample.
    sample = unit_sample(law)
    assert stats.norm.fit(sample) == pytest.approx((sample.mean(), sample.std()), abs=1e-12)
    assert stats.norm.fit(sample, floc=0.0)[1] ** 2 == pytest.approx(sample.var() + sample.mean() ** 2, rel=1e-12)


def test_a_width_that_is_fitted_to_a_histogram_is_smaller_where_tails_are_heavier():
    # "The systematic negative residual reflects sub-Gaussian character in the trained distributions", Fig. 18.
    def fitted(law):
        density, edges = np.histogram(unit_sample(law), 200, density=True)
        return curve_fit(stats.norm.pdf, (edges[1:] + edges[:-1]) / 2, density, p0=(0.0, 1.0))[0][1]

    assert all(fitted(law) < 0.95 for law in HEAVY)
    assert all(fitted(law) > 1.05 for law in LIGHT)
    # Of this sample; another moves them by up to 0.02.
    assert [fitted(law) for law in (*LIGHT, *HEAVY)] == pytest.approx([1.326, 1.102, 0.735, 0.906, 0.833], abs=1e-3)


WIDTH, HEAD = 4096, 128  # of LLaMA 3.1 8B and Mistral 7B v0.3
# Weibull paper, Table 4: mean lambda of W_o, gate, up and down; proportional to sigma at one k. Of LLaMA-3-8B and
# Mistral-7B v0.1, the releases before those of the post.
PUBLISHED = {"llama": 0.0097, "mistral": 0.0026}


def test_a_factor_of_the_logits_is_its_root_in_each_of_two_matrices():
    # "If one model uses 1/sqrt(d) while the other uses 1/sqrt(d_h), the ratio of effective scales is sqrt(d/d_h)
    # approx 5.66, which matches the observed ratio nearly exactly"; observed are W_Q and W_K, "5-10x smaller" each.
    factor = math.sqrt(WIDTH / HEAD)
    assert factor == pytest.approx(5.657, abs=5e-4)
    each = math.sqrt(factor)
    assert each == pytest.approx(2.378, abs=5e-4)
    w_q, w_k, x = np.random.default_rng(29).standard_normal((3, 16, 64))
    logits = x @ w_q.T @ w_k @ x.T
    narrow, wide = logits / math.sqrt(HEAD), x @ (each * w_q).T @ (each * w_k) @ x.T / math.sqrt(WIDTH)
    np.testing.assert_allclose(wide, narrow, rtol=1e-12)


def test_no_scale_of_attention_explains_feed_forward_weights():
    assert PUBLISHED["llama"] / PUBLISHED["mistral"] == pytest.approx(3.73, abs=5e-3)


@pytest.mark.parametrize("family", ["Llama", "Mistral"])
def test_both_families_divide_by_the_root_of_the_head_dimension(family):
    import transformers

    config = getattr(transformers, f"{family}Config")(
        hidden_size=64,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=8,
    )
    model = getattr(transformers, f"{family}Model")(config)
    assert model.layers[0].self_attn.scaling == pytest.approx(1 / math.sqrt(64 / 4), rel=1e-12)


def test_the_sign_of_an_element_is_that_of_a_coordinate_and_not_of_a_logit():
    # Post 1, "Amplification of Non-Gaussianity": "A heavier negative tail means more extreme "don't attend" signals".
    rng, d, h = np.random.default_rng(36), 256, 32
    w = rng.standard_normal((h, d)).T @ rng.standard_normal((h, d)) / math.sqrt(d)
    rows, columns = rng.choice(d // 2, 60, replace=False), d // 2 + rng.choice(d // 2, 60, replace=False)
    w[rows, columns] -= 12 * w.std()  # a heavy negative tail
    left, right = rng.standard_normal((2, 2_000, d))
    logits = np.einsum("nd,de,ne->n", left, w, right)
    # The same model with the first half of the coordinates of the residual stream of the other sign.
    signs = np.where(np.arange(d) < d // 2, -1.0, 1.0)
    flipped = signs[:, None] * w * signs
    assert stats.skew(w, axis=None) == pytest.approx(-1.24, abs=0.01)
    assert stats.skew(flipped, axis=None) == pytest.approx(1.24, abs=0.01)
    assert np.einsum("nd,de,ne->n", left * signs, flipped, right * signs) == pytest.approx(logits, abs=1e-9)
    # In a basis that is turned at random the tail is gone, and the logits are still the same.
    turn = stats.ortho_group.rvs(d, random_state=36)
    turned = turn @ w @ turn.T
    assert abs(stats.skew(turned, axis=None)) < 0.05
    assert np.einsum("nd,de,ne->n", left @ turn.T, turned, right @ turn.T) == pytest.approx(logits, abs=1e-8)
    # Vectors of a symmetric law have logits of a symmetric law, whatever the tail: false failure 6e-5.
    assert abs(np.mean(logits < 0) - 0.5) < 4 * 0.5 / math.sqrt(2_000)
