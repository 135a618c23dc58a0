"""Where each eigenvalue of one draw lies."""

import math

import numpy as np
import pytest

from rmtbase.laws import GaussianChain, largest_eigenvalue, ordered_eigenvalues, smallest_eigenvalue


@pytest.mark.parametrize("dims", [(96, 12, 64), (100, 20), (64, 64, 64), (33, 32, 33), (40, 10, 30, 50), (30, 4, 30)])
def test_they_descend_and_add_up_to_the_trace(dims):
    found = ordered_eigenvalues(dims=dims, normalization="none")
    assert found.mean.shape == found.std.shape == (min(dims),)
    assert (np.diff(found.mean) < 0.0).all() and (found.mean > 0.0).all() and (found.std > 0.0).all()
    # E tr M = prod n_l; biases of one sign add up.
    assert found.mean.sum() == pytest.approx(math.prod(dims), rel=0.015)
    law = GaussianChain(dims=dims, normalization="none")
    assert law.support[0] * 0.3 <= found.mean[-1] and found.mean[0] < law.support[1]


def test_the_ends_are_those_of_their_own_laws():
    dims = (96, 12, 64)
    found = ordered_eigenvalues(dims=dims, sigmas=(0.3, 2.0), normalization="sqrt_d", self_normalized=True)
    for index, function in ((0, largest_eigenvalue), (-1, smallest_eigenvalue)):
        law = function(dims=dims, sigmas=(0.3, 2.0), self_normalized=True)
        assert (found.mean[index], found.std[index]) == (law.mean(), law.std())
    # Of three eigenvalues at a hard edge the smallest has no law of its own, and still a place.
    assert np.isfinite(ordered_eigenvalues((3, 3, 16), normalization="none").std).all()


# Within the bias that is documented, 0.06 and 5 %, and five standard errors (false-failure rate 6e-7 each).
@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(64, 8, 40000), (384, 32, 8000)])
def test_simulated_heads_have_these_eigenvalues(simulated, d_model, d_head, draws):
    sample = simulated(d_model, d_head, draws)
    found = ordered_eigenvalues((d_model, d_head, d_model), normalization="sqrt_d")
    error = 5 / math.sqrt(draws)
    np.testing.assert_array_less(np.abs(sample.mean(axis=0) - found.mean) / found.std, 0.06 + error)
    ratio = sample.std(axis=0) / found.std
    np.testing.assert_allclose(ratio, 1.0, atol=0.05 + error / math.sqrt(1.8))
    # All together, of which a quarter are taken to be independent, within a bias of 0.3/r.
    assert ratio[1:-1].mean() == pytest.approx(1.0, abs=0.3 / d_head + error / math.sqrt(1.8 * d_head / 4))


def test_simulated_chains_have_these_eigenvalues(simulated_chain):
    eigenvalues, own = simulated_chain((40, 10, 30, 50), 4000)
    for self_normalized in (False, True):
        sample = eigenvalues / own[:, None] if self_normalized else eigenvalues
        found = ordered_eigenvalues((40, 10, 30, 50), self_normalized=self_normalized, normalization="none")
        np.testing.assert_array_less(np.abs(sample.mean(axis=0) - found.mean) / found.std, 0.14 + 5 / math.sqrt(4000))
        np.testing.assert_allclose(sample.std(axis=0) / found.std, 1.0, atol=0.07 + 5 / math.sqrt(1.8 * 4000))
