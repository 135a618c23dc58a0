"""Moments of the participation ratio from exact trace moments, against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.errors import ParameterError
from rmtbase.laws import normalized_participation_ratio, participation_ratio


@pytest.mark.parametrize(
    ("function", "arguments", "name"),
    [
        (participation_ratio, (8, 9), "d_head"),
        (participation_ratio, (8.5, 4), "d_model"),
        (normalized_participation_ratio, (8, 0), "d_head"),
        (normalized_participation_ratio, (True, 1), "d_model"),
        (participation_ratio, ((8,),), "dims"),
        (participation_ratio, ((8, -1),), "dims"),
    ],
)
def test_bad_parameters_are_named(function, arguments, name):
    with pytest.raises(ParameterError, match=name):
        function(*arguments)


def test_reference_values():
    # The leading order of the standard deviation is 0.0040127; the next lowers it by 1.0e-6 of the ratio's own.
    moments = normalized_participation_ratio(768, 64)
    assert moments.mean == pytest.approx(0.8552522, abs=5e-8)
    assert moments.std == pytest.approx(0.0040087, abs=5e-8)
    assert 0 < moments.error < 1e-9 and 0 < moments.std_error < 1e-8


def test_normalized_is_divided_by_the_head_dimension():
    whole, part = participation_ratio(96, 12), normalized_participation_ratio(96, 12)
    for name in ("mean", "std", "error", "std_error"):
        assert getattr(whole, name) == pytest.approx(12 * getattr(part, name), rel=1e-15)
    assert (whole.skewness, whole.excess_kurtosis) == (part.skewness, part.excess_kurtosis)


def test_a_single_eigenvalue_has_participation_ratio_one():
    for moments in (participation_ratio(50, 1), participation_ratio((7, 1, 5, 4))):
        assert (moments.mean, moments.std, moments.error, moments.std_error) == (1.0, 0.0, 0.0, 0.0)
        assert moments.method == "exact"


def test_one_factor_agrees_with_the_exact_moments_of_its_inverse():
    # For one factor the trace is independent of the ratio: E (1/PR)^k = E (tr M^2)^k / E (tr M)^(2k), exactly.
    from rmtbase.laws import trace_moment

    dims = (300, 40)
    inverse, square = (
        float(
            trace_moment((2,) * k, dims=dims, normalization="none")
            / trace_moment((1, 1) * k, dims=dims, normalization="none")
        )
        for k in (1, 2)
    )
    relative = (square - inverse**2) / inverse**2
    moments = participation_ratio(dims=dims)
    # E PR = (1 + v + O(v^(3/2))) / E (1/PR), v the relative variance of 1/PR, here 1.4e-5.
    assert moments.mean * inverse == pytest.approx(1.0 + relative, abs=5 * relative**1.5)
    assert (moments.std * inverse) ** 2 == pytest.approx(relative, rel=20 * relative**0.5 + 1e-2)


# Means and spreads within 5 standard errors (chance 6e-7 each) and the stated error.
@pytest.mark.parametrize(
    ("d_model", "d_head", "draws"), [(384, 32, 8000), (64, 64, 2000), (64, 8, 40000), (16, 16, 10000), (64, 4, 40000)]
)
def test_simulated_heads_have_the_stated_moments(simulated, d_model, d_head, draws):
    eigenvalues = simulated(d_model, d_head, draws)
    sample = eigenvalues.sum(axis=1) ** 2 / (eigenvalues**2).sum(axis=1)
    moments = participation_ratio(d_model, d_head)
    assert abs(sample.mean() - moments.mean) < 5 * moments.std / math.sqrt(draws) + moments.error
    z = (sample - sample.mean()) / sample.std()
    spread = math.sqrt((np.mean(z**4) - 1.0) / draws) / 2
    assert abs(sample.std() / moments.std - 1.0) < 5 * spread + moments.std_error / moments.std
    # What is claimed: 0.3 % of the standard deviation.
    assert abs(sample.std() / moments.std - 1.0) < 5 * spread + 0.003


@pytest.mark.parametrize(("d_model", "d_head"), [(384, 32), (64, 8)])
def test_simulated_heads_have_the_stated_skewness(simulated, d_model, d_head):
    eigenvalues = simulated(d_model, d_head, 8000 if d_head == 32 else 40000)
    sample = eigenvalues.sum(axis=1) ** 2 / (eigenvalues**2).sum(axis=1)
    z = (sample - sample.mean()) / sample.std()
    assert abs(np.mean(z**3) - participation_ratio(d_model, d_head).skewness) < 5 * math.sqrt(6.0 / len(z)) + 0.03


@pytest.mark.parametrize(
    ("dims", "draws"), mostly_exhaustive([((30, 10, 24), 5000), ((24, 16), 10000), ((24, 12, 16, 24), 4000)], always=1)
)
def test_simulated_chains_have_the_stated_moments(simulated_chain, dims, draws):
    eigenvalues, _ = simulated_chain(dims, draws)
    sample = eigenvalues.sum(axis=1) ** 2 / (eigenvalues**2).sum(axis=1)
    moments = participation_ratio(dims=dims)
    assert abs(sample.mean() - moments.mean) < 5 * moments.std / math.sqrt(draws) + moments.error
    assert abs(sample.std() / moments.std - 1.0) < 6 / math.sqrt(2 * draws) + moments.std_error / moments.std


# Heads of 8 and fewer eigenvalues, where the orders that settle are few: mean and spread within 5 standard errors and
# the stated ones, which are larger there by orders of magnitude.
@pytest.mark.parametrize(("d_model", "d_head"), [(8, 8), (4, 4), (2, 2), (3, 2), (8, 2), (16, 8)])
def test_few_eigenvalues_lie_within_the_stated_errors(simulated, d_model, d_head):
    draws = 20000
    eigenvalues = simulated(d_model, d_head, draws)
    sample = eigenvalues.sum(axis=1) ** 2 / (eigenvalues**2).sum(axis=1)
    moments = participation_ratio(d_model, d_head)
    z = (sample - sample.mean()) / sample.std()
    spread = math.sqrt((np.mean(z**4) - 1.0) / draws) / 2
    assert abs(sample.mean() - moments.mean) < 5 * moments.std / math.sqrt(draws) + moments.error
    assert abs(sample.std() - moments.std) < 5 * spread * moments.std + moments.std_error
    assert (moments.std_error > 0.02 * moments.std) == ((d_model, d_head) != (16, 8))


# Of chains that are no W_QK, up to six factors: 10 000 draws, the shape within 5 errors of a normal sample's.
@pytest.mark.parametrize("dims", [(50, 20, 70, 30), (40, 40, 12, 60, 25), (60, 30, 40, 20, 50, 35, 45), (48, 16)])
def test_chains_have_the_stated_shape(dims):
    sample = participation_ratios(np.random.default_rng(dims), dims, 10000)
    moments = participation_ratio(dims=dims)
    z = (sample - sample.mean()) / sample.std()
    assert abs(sample.mean() - moments.mean) < 5 * moments.std / math.sqrt(len(z))
    assert sample.std() == pytest.approx(moments.std, rel=5 / math.sqrt(2 * len(z)))
    assert abs(np.mean(z**3) - moments.skewness) < 5 * math.sqrt(6.0 / len(z))
    assert abs(np.mean(z**4) - 3.0 - moments.excess_kurtosis) < 5 * math.sqrt(24.0 / len(z))


def participation_ratios(rng, dims, draws):
    """(Σ λ)²/Σ λ² of products of Bartlett factors, one for each dimension but the smallest: no eigenvalue is needed."""
    others, rank = sorted(dims)[1:], min(dims)
    k, core = np.arange(rank), None
    for n in others:
        factor = np.triu(rng.standard_normal((draws, rank, rank)), 1)
        factor[:, k, k] = np.sqrt(rng.chisquare(n - k, (draws, rank)))
        core = factor if core is None else core @ factor
    gram = core @ core.mT
    return np.trace(gram, axis1=1, axis2=2) ** 2 / (gram**2).sum(axis=(1, 2))


def test_few_eigenvalues_of_many_factors_have_a_law_of_their_own():
    for dims in [(3,) * 20, (2,) * 30, (4,) * 9]:
        moments = participation_ratio(dims=dims)
        assert 1.0 <= moments.mean < min(dims) and 0.0 < moments.std <= moments.std_error
