"""Moments of the participation ratio from exact trace moments, against simulation."""

import math

import numpy as np
import pytest
from oracles import chain_gram

from rmtbase.laws import normalized_participation_ratio, participation_ratio


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


# Means and spreads within 5 standard errors (chance 6e-7 each) and the stated error; third and fourth moments, where
# they are known, within 5 errors of a normal sample's.
def agrees(sample, moments):
    draws = len(sample)
    z = (sample - sample.mean()) / sample.std()
    spread = math.sqrt((np.mean(z**4) - 1.0) / draws) / 2
    assert abs(sample.mean() - moments.mean) < 5 * moments.std / math.sqrt(draws) + moments.error
    assert abs(sample.std() - moments.std) < 5 * spread * moments.std + moments.std_error
    if moments.std_error < 0.003 * moments.std:  # what is claimed, but of few eigenvalues
        assert abs(np.mean(z**3) - moments.skewness) < 5 * math.sqrt(6.0 / draws) + 0.03
        assert abs(np.mean(z**4) - 3.0 - moments.excess_kurtosis) < 5 * math.sqrt(24.0 / draws) + 0.03


SETTLED = [(384, 32, 8000), (64, 64, 2000), (64, 8, 40000), (16, 16, 10000), (64, 4, 40000), (16, 8, 20000)]
FEW = [(*shape, 20000) for shape in [(8, 8), (4, 4), (2, 2), (3, 2), (8, 2)]]


@pytest.mark.parametrize(("d_model", "d_head", "draws"), [*SETTLED, *FEW])
def test_simulated_heads_have_the_stated_moments(simulated, d_model, d_head, draws):
    eigenvalues, moments = simulated(d_model, d_head, draws), participation_ratio(d_model, d_head)
    agrees(eigenvalues.sum(axis=1) ** 2 / (eigenvalues**2).sum(axis=1), moments)
    # Of few eigenvalues few orders settle, and the stated errors are larger by orders of magnitude.
    assert (moments.std_error > 0.02 * moments.std) == ((d_model, d_head, draws) in FEW)


@pytest.mark.parametrize(
    "dims",
    [(50, 20, 70, 30), (40, 40, 12, 60, 25), (60, 30, 40, 20, 50, 35, 45), (48, 16), (30, 10, 24), (24, 12, 16, 24)],
)
def test_simulated_chains_have_the_stated_moments(dims):
    gram = chain_gram(dims, 10000)
    agrees(np.trace(gram, axis1=1, axis2=2) ** 2 / (gram**2).sum(axis=(1, 2)), participation_ratio(dims=dims))


def test_few_eigenvalues_of_many_factors_have_a_law_of_their_own():
    for dims in [(3,) * 20, (2,) * 30, (4,) * 9]:
        moments = participation_ratio(dims=dims)
        assert 1.0 <= moments.mean < min(dims) and 0.0 < moments.std <= moments.std_error
