"""The edge laws of the extreme eigenvalues."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.laws import GaussianChain, largest_eigenvalue, low_rank_product, smallest_eigenvalue


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"dims": (768,)}, "dims"),
        ({"dims": (768, 0)}, "dims"),
        ({"dims": (8, 4, 8), "sigmas": (1.0,)}, "sigmas"),
        ({"dims": (8, 4, 8), "normalization": "d"}, "normalization"),
        ({"dims": (8, 4, 8), "half_shift": 0.5}, "half_shift"),
    ],
)
@pytest.mark.parametrize("function", [largest_eigenvalue, smallest_eigenvalue])
def test_bad_parameters_are_named(function, arguments, name):
    with pytest.raises(ParameterError, match=name):
        function(**arguments)


@pytest.mark.parametrize("dims", [(64, 64, 64), (64, 64), (64, 32, 128, 32)])
def test_a_hard_edge_has_no_law_for_the_smallest(dims):
    with pytest.raises(ParameterError, match="hard"):
        smallest_eigenvalue(dims)
    largest_eigenvalue(dims)


def test_reference_values():
    dims = (768, 64, 768)
    bare = largest_eigenvalue(dims, normalization="sqrt_d", half_shift=False)
    assert bare.mean() == pytest.approx(1521.1, abs=0.05) and bare.std() == pytest.approx(45.3, abs=0.05)
    low = smallest_eigenvalue(dims, normalization="sqrt_d", half_shift=False)
    assert low.mean() == pytest.approx(301.07, abs=0.005)


def test_without_the_shift_the_edges_are_the_laws_own():
    law = GaussianChain((90, 30, 70), (0.5, 3.0))
    upper = largest_eigenvalue(law.dims, law.sigmas, half_shift=False)
    lower = smallest_eigenvalue(law.dims, law.sigmas, half_shift=False)
    assert (lower.location, upper.location) == law.support
    assert (lower.scale, upper.scale) == law.edge_scale


def test_one_wishart_matrix_has_johnstones_centre_and_scale():
    n, p = 100.0, 20.0
    law = largest_eigenvalue((100, 20))
    root = math.sqrt(n - 0.5) + math.sqrt(p - 0.5)
    assert law.location == pytest.approx(root**2, rel=1e-13)
    scale = root * (1 / math.sqrt(n - 0.5) + 1 / math.sqrt(p - 0.5)) ** (1 / 3)
    assert law.scale == pytest.approx(scale, rel=1e-13)


def test_the_normalization_divides_by_the_true_d():
    raw, scaled = (largest_eigenvalue((96, 12, 96), normalization=name) for name in ("none", "sqrt_d"))
    assert scaled.location == pytest.approx(raw.location / 96, rel=1e-14)
    assert scaled.scale == pytest.approx(raw.scale / 96, rel=1e-14)


@pytest.mark.parametrize("function", [largest_eigenvalue, smallest_eigenvalue])
def test_an_edge_law_is_one_law(function):
    law = function((768, 64, 768), normalization="sqrt_d")
    q = np.array([1e-9, 0.025, 0.5, 0.975])
    np.testing.assert_allclose(law.cdf(law.ppf(q)), q, rtol=1e-11)
    np.testing.assert_allclose(law.sf(law.isf(q)), q, rtol=1e-11)
    x = np.linspace(law.mean() - 9 * law.std(), law.mean() + 9 * law.std(), 2001)
    pdf = law.pdf(x)
    step = x[1] - x[0]
    assert step * pdf.sum() == pytest.approx(1.0, abs=1e-9)
    assert step * (x * pdf).sum() == pytest.approx(law.mean(), rel=1e-8)
    assert math.sqrt(step * ((x - law.mean()) ** 2 * pdf).sum()) == pytest.approx(law.std(), rel=1e-6)
    assert law.support == (-math.inf, math.inf)


@pytest.mark.parametrize(("d_model", "d_head", "draws"), [(384, 32, 8000), (256, 16, 12000)])
def test_the_half_shift_removes_most_of_the_error_of_the_mean(simulated, d_model, d_head, draws):
    eigenvalues = simulated(d_model, d_head, draws)
    dims = (d_model, d_head, d_model)
    for function, sample in ((largest_eigenvalue, eigenvalues[:, 0]), (smallest_eigenvalue, eigenvalues[:, -1])):
        spread = sample.std()
        shifted = function(dims, normalization="sqrt_d")
        bare = function(dims, normalization="sqrt_d", half_shift=False)
        # Monte Carlo error of the mean: 0.011 standard deviations. True errors with the shift: 0.01 to 0.08 and
        # without it 0.14 to 0.21, so each bound is at least 3 errors away (false-failure rate below 2e-3, seeded).
        assert abs(shifted.mean() - sample.mean()) < 0.115 * spread
        assert abs(bare.mean() - sample.mean()) > 0.1 * spread
        assert shifted.std() == pytest.approx(spread, rel=0.09)  # bias up to 6 %, Monte Carlo error below 0.9 %


def test_exceedances_of_the_edge_quantile_are_at_the_stated_rate(simulated):
    largest = simulated(512, 64, 3000)[:, 0]
    law = largest_eigenvalue((512, 64, 512), normalization="sqrt_d")
    for level in (0.5, 0.1, 0.02):
        rate = (largest > law.isf(level)).mean()
        # Five binomial standard deviations (6e-7) and 15 % for the asymptotics.
        assert abs(rate - level) < 5 * math.sqrt(level * (1 - level) / largest.size) + 0.15 * level


def test_the_edge_lies_at_the_end_of_the_law():
    law = low_rank_product(768, 64)
    upper = largest_eigenvalue((768, 64, 768), normalization="sqrt_d", half_shift=False)
    # The typical gap: about one eigenvalue in d_head lies beyond support[1] - 2.3 scales.
    expected = 1.0 - law.cdf(upper.location - 2.3 * upper.scale)
    assert 0.4 < expected * 64 < 1.6
