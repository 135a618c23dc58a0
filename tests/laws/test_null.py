"""The null of every registered statistic as a distribution, by one set of checks over the whole registry."""

import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from oracles import chain_gram
from scipy import stats

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import (
    NULL_STATISTICS,
    LogDeterminant,
    largest_eigenvalue,
    null,
    participation_ratio,
    smallest_eigenvalue,
    trace_cumulants,
)
from rmtbase.statistics import (
    SPECTRAL_STATISTICS,
    ExtremeMoments,
    get_statistic,
    inverse_moment_order,
    moment_order,
    spectral_statistics,
)

RAW = {"normalization": "none"}
AT_THE_LOWER_EDGE = ("smallest_eigenvalue", "condition_number", "condition_number_singular")
EXACT = ("trace", "trace_of_square", "log_determinant")
SCALE_FREE = (
    *("participation_ratio", "spectral_entropy", "stable_rank", "effective_rank"),
    *("participation_ratio_singular", "stable_rank_singular"),
)
MENDED = (
    *SCALE_FREE,
    *("normalized_participation_ratio", "normalized_participation_ratio_singular", "spectral_entropy_singular"),
)
DIMS = (96, 16, 64)
Q = np.array([1e-6, 0.01, 0.3, 0.5, 0.7, 0.99, 1.0 - 1e-6])
Z = np.linspace(-9.0, 9.0, 721)
WEIGHT = (Z[1] - Z[0]) * stats.norm.pdf(Z)


def _at_normal_scores(law):
    """The quantiles of the law at Z: WEIGHT @ f of them is E f."""
    tail = stats.norm.sf(np.abs(Z))
    return np.where(Z < 0.0, law.ppf(tail), law.isf(tail))


@pytest.mark.parametrize("statistic", NULL_STATISTICS)
def test_few_eigenvalues_are_refused_and_hard_edges_have_an_accuracy_of_their_own(statistic):
    hard, nearly, soft = (null(statistic, dims, **RAW) for dims in [(16,) * 3, (23, 16, 40), (32, 16, 40)])
    assert hard.std() > 0.0 and nearly.std() > 0.0 and soft.std() > 0.0
    assert (hard.accuracy == nearly.accuracy != soft.accuracy) == (statistic in AT_THE_LOWER_EDGE)
    if statistic in AT_THE_LOWER_EDGE:
        with pytest.raises(ParameterError, match="at most 4 dimensions near the second smallest"):
            null(statistic, (16,) * 6, **RAW)
    if statistic in EXACT:
        method = "exact" if statistic == "log_determinant" else "exact moments"
        assert null(statistic, (40, 7, 30), **RAW).method == method
        return
    method = "asymptotic, corrected by draws" if statistic in MENDED else "asymptotic"
    assert null(statistic, (40, 8, 30), **RAW).method == method
    with pytest.raises(ParameterError, match="rank of at least 8"):
        null(statistic, (40, 7, 30), **RAW)


@pytest.mark.parametrize("excess", range(5))
def test_condition_numbers_have_the_moments_that_they_can_have(excess):
    dims = (16 + excess, 16)
    for statistic in ("condition_number", "condition_number_singular"):
        law = null(statistic, dims=dims)
        order = moment_order(get_statistic(statistic), ExtremeMoments(smallest=inverse_moment_order(dims)), 16)
        assert (math.isfinite(law.mean()), math.isfinite(law.std())) == (order > 1, order > 2)


@pytest.mark.parametrize("statistic", NULL_STATISTICS)
def test_sigmas_and_normalization_act_as_the_registry_says(statistic):
    one, rank = get_statistic(statistic), min(DIMS)
    raw = null(statistic, dims=DIMS, **RAW)
    scaled = null(statistic, dims=DIMS, sigmas=(0.5, 3.0), normalization="sqrt_d")
    factor = 0.25 * 9.0 / 96
    np.testing.assert_allclose(scaled.ppf(Q), one.rescale(raw.ppf(Q), factor, rank), rtol=1e-9)
    assert scaled.mean() == pytest.approx(float(one.rescale(raw.mean(), factor, rank)), rel=1e-9)
    assert scaled.std() == pytest.approx(float(one.rescale_spread(raw.std(), factor)), rel=1e-7)
    own = null(statistic, dims=DIMS, sigmas=(0.5, 3.0), normalization="sqrt_d", self_normalized=True)
    np.testing.assert_allclose(
        own.ppf(Q), null(statistic, dims=DIMS, normalization="sqrt_d", self_normalized=True).ppf(Q), rtol=1e-14
    )
    if one.scaling == 0:
        np.testing.assert_allclose(own.ppf(Q), raw.ppf(Q), rtol=1e-14)
    else:
        assert own.std() < null(statistic, dims=DIMS, normalization="sqrt_d").std()


@pytest.mark.parametrize("statistic", NULL_STATISTICS)
def test_normalized_and_transposed_versions_agree(statistic):
    # The nonzero eigenvalues of W^T W and W W^T are the same.
    np.testing.assert_allclose(
        null(statistic, dims=DIMS, **RAW).ppf(Q), null(statistic, dims=DIMS[::-1], **RAW).ppf(Q), rtol=1e-9
    )
    if statistic.startswith("normalized_"):
        whole = null(statistic.removeprefix("normalized_"), dims=DIMS, **RAW)
        np.testing.assert_allclose(null(statistic, dims=DIMS, **RAW).ppf(Q), whole.ppf(Q) / min(DIMS), rtol=1e-12)


@cache
def _sample(draw, dims, draws):
    """All statistics of simulated chains at sigma = 1, raw and self-normalised, (draw, statistic)."""
    eigenvalues, own = draw(dims, draws)
    return tuple(spectral_statistics(np.sqrt(one)) for one in (eigenvalues, eigenvalues / own[:, None]))


# Bias within 0.1 standard deviations of the mean, 3 % of the standard deviation and 35 % of tails, and five errors
# of each from Monte Carlo (false-failure rate 6e-7 each, seeded).
@pytest.mark.parametrize(
    ("dims", "statistic"),
    mostly_exhaustive(
        [
            *((dims, name) for dims in [(48, 16, 48), (60, 16), (48, 16, 36, 40)] for name in NULL_STATISTICS),
            *(((24, 24, 24), name) for name in NULL_STATISTICS if name not in AT_THE_LOWER_EDGE),
            *(((60, 30, 40, 20, 50, 35, 45), name) for name in SCALE_FREE),
        ],
        always=16,
    ),
)
def test_simulated_chains_have_this_null(simulated_chain, statistic, dims):
    draws = 3000
    column = NULL_STATISTICS.index(statistic)
    for own, values in zip((False, True), _sample(simulated_chain, dims, draws), strict=True):
        if own and statistic == "trace" and len(dims) == 2:
            continue  # it does not vary
        law, sample = null(statistic, dims=dims, self_normalized=own, **RAW), values[:, column]
        z = (sample - sample.mean()) / sample.std()
        assert abs(sample.mean() - law.mean()) < (0.1 + 5 / math.sqrt(draws)) * law.std()
        assert sample.std() == pytest.approx(law.std(), rel=0.03 + 5 * math.sqrt((np.mean(z**4) - 1) / 4 / draws))
        for level in (0.05, 0.01):
            for beyond in ((sample > law.isf(level)).mean(), (sample < law.ppf(level)).mean()):
                assert abs(beyond - level) < 0.35 * level + 5 * math.sqrt(level / draws)


# At d_head = 8, where the expansions end: within 0.03 standard deviations and 2 %, and five standard errors.
@pytest.mark.parametrize("statistic", NULL_STATISTICS)
def test_simulated_heads_have_this_null(simulated, statistic):
    draws = 40000
    sample = spectral_statistics(np.sqrt(simulated(64, 8, draws)), [statistic])[:, 0]
    law = null(statistic, (64, 8, 64), normalization="sqrt_d")
    z = (sample - sample.mean()) / sample.std()
    assert abs(sample.mean() - law.mean()) < (0.03 + 5 / math.sqrt(draws)) * law.std()
    assert sample.std() == pytest.approx(law.std(), rel=0.02 + 5 * math.sqrt((np.mean(z**4) - 1) / 4 / draws))


def test_exact_nulls_have_exact_moments_and_one_trace_is_chi_square():
    for own in (False, True):
        for power, statistic in ((1, "trace"), (2, "trace_of_square")):
            moments = trace_cumulants(power, dims=DIMS, **RAW, self_normalized=own)
            law = null(statistic, dims=DIMS, self_normalized=own, **RAW)
            assert (law.mean(), law.std(), law.method) == (moments.mean, moments.std, "exact moments")
            score = (_at_normal_scores(law) - moments.mean) / moments.std
            found = [WEIGHT @ score**k for k in (1, 2, 3)]
            np.testing.assert_allclose(found, [0.0, 1.0, moments.skewness], atol=2e-5)
    assert null("log_determinant", dims=DIMS, **RAW).distribution == LogDeterminant(dims=DIMS, **RAW)
    for dims in [(3, 5), (40, 16), (300, 200)]:
        law = null("trace", dims=dims, sigmas=(0.5,), **RAW)
        exact = stats.chi2(math.prod(dims), scale=0.25)
        assert law.method == "exact" and "all respects" in law.accuracy
        np.testing.assert_allclose(law.ppf(Q), exact.ppf(Q), rtol=1e-8)
        np.testing.assert_allclose(law.sf(exact.isf([1e-9, 0.2])), [1e-9, 0.2], rtol=1e-8)


def test_large_ranks_do_not_lose_the_tails():
    # The gamma distribution of shape 4/skewness^2 where its series converge no more; at 1e-2 it is scipy's own.
    for skewness in (1e-2, 4e-3, -4e-3, 1e-9, -1e-9, 0.0):
        law = replace(null("trace", dims=(3, 5), **RAW).distribution, centre=5.0, spread=2.0, skewness=skewness)
        np.testing.assert_allclose(law.cdf(law.ppf(Q)), Q, rtol=1e-7)
        np.testing.assert_allclose(law.sf(law.isf(Q)), Q, rtol=1e-7)
        z = np.array([-6.0, -1.0, 0.0, 2.0, 6.0])
        # Edgeworth's first term at the ends is of relative size skewness z^3 / 6.
        expected = stats.norm.cdf(z) - skewness / 6.0 * (z**2 - 1.0) * stats.norm.pdf(z)
        np.testing.assert_allclose(law.cdf(5.0 + 2.0 * z), expected, rtol=0.7 * (skewness * 36.0) ** 2 + 1e-7)


def test_a_log_gamma_law_has_the_moments_that_it_is_given():
    for mean, std, skewness in [
        (3.0, 0.6, 0.5),
        (3.0, 0.6, 0.9),
        (1.0, 1e-3, 1e-3),
        (1.0, 1e-6, 0.02),
        (2.0, 2.0, 3.0),
    ]:
        law = null("trace", dims=DIMS, **RAW).distribution.matched(mean, std, skewness)
        assert (law.mean(), law.std()) == (mean, std)
        score = (_at_normal_scores(law) - mean) / std
        assert WEIGHT @ score == pytest.approx(0.0, abs=1e-5) and WEIGHT @ score**2 == pytest.approx(1.0, abs=1e-3)
        if std / mean < 0.6:  # beyond it the skewness is not promised
            assert WEIGHT @ score**3 == pytest.approx(skewness, abs=1e-4)


@pytest.mark.parametrize("dims", [(10**6, 8, 10**6), (8, 8), (4096, 128, 4096), (16, 16, 17, 19, 23), (40,) * 9])
def test_what_is_mended_by_draws_stays_a_law(dims):
    q = np.concatenate([np.geomspace(1e-5, 0.5, 40), 1.0 - np.geomspace(0.4, 1e-12, 40)])
    for statistic in MENDED:
        law = null(statistic, dims=dims)
        quantiles = law.ppf(q)
        assert (np.diff(quantiles) > 0.0).all()
        np.testing.assert_allclose(law.cdf(quantiles), q, rtol=1e-7)


# Within the bound and five standard errors (of 16 % at 1e-3; false-failure rate 6e-7 each, seeded).
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("dims", "statistics", "bound"),
    [
        ((12, 12, 20, 26), SCALE_FREE, 0.25),
        *((dims, SCALE_FREE[:1], 0.45) for dims in [(50, 20, 70, 30), (40, 40, 12, 60, 25), (16, 16, 16)]),
    ],
)
def test_the_tails_of_entropies_and_ranks_hold_for_chains(dims, statistics, bound):
    draws = 40000
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(chain_gram(dims, draws)), 1e-300))
    for statistic, sample in zip(statistics, spectral_statistics(values[:, ::-1], statistics).T, strict=True):
        law = null(statistic, dims=dims)
        for level in (0.01, 0.001):
            for beyond in ((sample > law.isf(level)).mean(), (sample < law.ppf(level)).mean()):
                assert abs(beyond - level) < bound * level + 5 * math.sqrt(level / draws), (statistic, level)


def test_accuracy_is_that_of_the_chain_and_draws_add_little():
    few, several, many = (null("spectral_entropy", dims=dims) for dims in [(40, 16), (50, 20, 70, 30), (32,) * 9])
    assert len({few.accuracy, several.accuracy, many.accuracy}) == 3
    assert "one factor" in few.accuracy and "eight factors" in many.accuracy and "repeated" in many.accuracy
    assert "repeated" not in several.accuracy and "three to six factors" in several.accuracy
    assert null("trace", dims=(40, 16)).method == "exact"
    assert null("trace", dims=(40, 16, 40)).method == "exact moments" == null("trace_of_square", dims=(40, 16)).method
    # Of the participation ratio mean and standard deviation are known without them.
    for dims, closest in [((64, 16, 64), 0.01), ((512, 128, 512), 1e-3)]:
        law, moments = null("participation_ratio", dims=dims), participation_ratio(dims=dims)
        assert law.mean() == pytest.approx(moments.mean, abs=closest * moments.std)
        assert law.std() == pytest.approx(moments.std, rel=closest)


def test_wide_traces_have_the_right_far_quantile():
    # Of a relative spread of 0.66. Within 15 % and five standard errors (false-failure rate 6e-7 each, seeded).
    dims = (30, 300, 12, 12, 12)
    law, moments = null("trace_of_square", dims=dims), trace_cumulants(2, dims=dims)
    assert (law.mean(), law.std()) == (moments.mean, moments.std) and moments.std > 0.6 * moments.mean
    gram = chain_gram(dims, 20000)
    sample = (gram**2).sum(axis=(1, 2)) / dims[0] ** 2
    for level in (0.05, 0.01):
        for beyond in ((sample > law.isf(level)).mean(), (sample < law.ppf(level)).mean()):
            assert abs(beyond - level) < 0.15 * level + 5 * math.sqrt(level / 20000)


def test_a_power_of_an_eigenvalue_maps_the_ends():
    edge = largest_eigenvalue(dims=(40, 16), **RAW)
    for power in (-1.0, -0.5, 2.0):
        law = replace(null("condition_number", dims=DIMS).distribution.powers[0], law=edge, power=power)
        x = np.array([-math.inf, -1.0, 0.0, 5e-324, 1e300, math.inf])
        np.testing.assert_allclose(law.cdf(x), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0], atol=1e-40)
        np.testing.assert_allclose(law.sf(x), [1.0, 1.0, 1.0, 1.0, 0.0, 0.0], atol=1e-40)
        assert np.isnan(law.cdf(np.array(math.nan))) and np.isnan(law.sf(np.array(math.nan)))
        np.testing.assert_allclose(law.cdf(law.ppf(Q)), Q, rtol=1e-9)
        assert (law.ppf(np.array(0.0)), law.isf(np.array(0.0))) == (0.0, math.inf)
        assert law.mean() == edge.expect_power(power)
        assert law.std() ** 2 == pytest.approx(edge.expect_power(2 * power) - law.mean() ** 2, rel=1e-9)
    heavy = replace(law, law=smallest_eigenvalue((18, 16, 18), **RAW), power=-1.0)
    assert math.isfinite(heavy.mean()) and math.isinf(heavy.std())  # E lambda^-2


@pytest.mark.parametrize("dims", [(48, 16, 48), (24, 16, 24), (10**6, 8, 10**6)])
def test_the_table_of_a_ratio_is_its_convolution(dims):
    law = null("condition_number", dims=dims).distribution
    # P(lambda_min > lambda_max / x), by a quadrature of its own over the quantiles of lambda_max.
    q = np.array([1e-8, 1e-4, 0.01, 0.5, 0.99, 1.0 - 1e-4])
    found = law.lower.sf(_at_normal_scores(law.upper) / law.ppf(q)[:, None]) @ WEIGHT
    np.testing.assert_allclose(found, q, rtol=1e-6)
    np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-10)
    remote = np.array([1e-300, 1e-100, 1e-20])
    np.testing.assert_allclose(law.sf(law.isf(remote)), remote, rtol=1e-9)
    assert law.ppf(np.array(0.0)) == 1.0 and math.isinf(law.isf(np.array(0.0)))
    np.testing.assert_array_equal(law.cdf(np.array([0.0, 0.5, 1.0])), 0.0)


def test_reference_values_of_w_qk_in_two_conventions():
    dims = (768, 64, 768)
    for statistic, mean in (
        ("normalized_participation_ratio", 0.855223),
        ("log_determinant", 844.830),
        ("largest_eigenvalue", 1515.7),
        ("smallest_eigenvalue", 302.14),
    ):
        law = null(statistic, dims=dims, normalization="none" if statistic == "log_determinant" else "sqrt_d")
        # Standard errors of the simulated ones: 6e-5, none (digamma), 0.7 and 0.18.
        tolerance = {"largest_eigenvalue": 3.5, "smallest_eigenvalue": 0.9}.get(statistic, 3e-4)
        assert law.mean() == pytest.approx(mean, abs=tolerance)
    assert null("largest_eigenvalue", dims=dims, normalization="sqrt_d").std() == pytest.approx(43.8, abs=2.5)
    eigenvalue, singular = null("condition_number", dims=DIMS), null("condition_number_singular", dims=DIMS)
    np.testing.assert_allclose(singular.ppf(Q) ** 2, eigenvalue.ppf(Q), rtol=1e-10)
    assert tuple(SPECTRAL_STATISTICS) == NULL_STATISTICS
