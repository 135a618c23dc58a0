"""The Marchenko-Pastur law, right and wrong."""

import math

import numpy as np
import pytest

from rmtbase.laws import low_rank_product, marchenko_pastur, naive_marchenko_pastur


@pytest.mark.parametrize(
    ("rows", "columns", "sigma"), [(768, 64, 1.0), (64, 768, 0.3), (10_000, 1, 2.0), (50, 50, 1.0)]
)
def test_pdf_has_its_closed_form(rows, columns, sigma):
    law = marchenko_pastur(rows, columns, sigma)
    low, high = (sigma * (math.sqrt(rows) + sign * math.sqrt(columns)) for sign in (-1, 1))
    low, high = low**2, high**2
    np.testing.assert_allclose(law.support, (low, high), rtol=1e-12, atol=1e-12)
    x = low + (high - low) * np.linspace(0.01, 0.99, 50)
    expected = np.sqrt((high - x) * (x - low)) / (2 * np.pi * sigma**2 * min(rows, columns) * x)
    np.testing.assert_allclose(law.pdf(x), expected, rtol=1e-11)


def test_the_naive_law_of_w_qk_is_too_narrow():
    naive, right = naive_marchenko_pastur(768, 64), low_rank_product(768, 64)
    np.testing.assert_allclose(naive.support, (388.59, 1275.41), rtol=0, atol=5e-3)
    assert naive.mean() == pytest.approx(right.mean(), rel=1e-14)
    assert naive.var() == pytest.approx(right.var() / 2, rel=1e-12)
    outside = right.cdf(naive.support[0]) + right.sf(naive.support[1])
    assert 0.17 < outside < 0.19


def test_the_naive_law_scales_and_counts_as_the_right_one():
    naive = naive_marchenko_pastur(96, 12, 0.5, 3.0, "none", atom=True)
    right = low_rank_product(96, 12, 0.5, 3.0, "none", atom=True)
    assert naive.mean() == pytest.approx(right.mean(), rel=1e-13)
    assert naive.atom_mass == right.atom_mass
