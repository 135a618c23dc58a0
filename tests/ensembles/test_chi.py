"""Exact χ draws: their law against SciPy's, and each a function of its key alone.

False failures: a Kolmogorov–Smirnov p-value must exceed 1e-6, and a mean must lie within 5 standard errors; with 20
comparisons a correct sampler fails for one seed in 25 000. The seeds are fixed.
"""

import jax
import numpy as np
import pytest
from scipy import stats

from rmtbase.ensembles._chi import chi
from rmtbase.linalg import reproducible_jax

DRAWS = 20_000
DEGREES = np.array([1.0, 2.0, 3.0, 10.0, 1_000.0, 1e6, 1e15])


@jax.jit
def sample(degrees, indices):
    key = jax.random.key(3, impl="threefry2x32")
    return jax.vmap(lambda index: chi(jax.random.fold_in(key, index), degrees))(indices)


def lengths(degrees, indices=range(DRAWS)):
    with reproducible_jax():
        return np.asarray(sample(np.asarray(degrees, dtype=float), np.asarray(indices, dtype=np.uint32)))


@pytest.fixture(scope="module")
def many():
    return lengths(DEGREES)


@pytest.mark.parametrize("place", range(len(DEGREES)))
def test_a_length_has_the_chi_law_and_its_square_the_moments(many, place):
    nu = DEGREES[place]
    # 2 √n (√χ² - …) would do for large ν; the regularised gamma function itself is good to 1e-9 there.
    assert stats.kstest(many[:, place] ** 2, stats.chi2(nu).cdf).pvalue > 1e-6
    nu, square = DEGREES[place], many[:, place] ** 2
    assert abs(square.mean() - nu) < 5 * np.sqrt(2 * nu / DRAWS)
    # Var (χ² - ν)² = E (χ² - ν)⁴ - (2 ν)² = 8 ν² + 48 ν.
    assert abs(((square - nu) ** 2).mean() - 2 * nu) < 5 * np.sqrt((8 * nu**2 + 48 * nu) / DRAWS)


def test_lengths_of_one_draw_are_independent_and_none_without_freedom(many):
    correlation = np.corrcoef(many, rowvar=False)[np.triu_indices(len(DEGREES), 1)]
    assert np.abs(correlation).max() < 5 / np.sqrt(DRAWS)
    np.testing.assert_array_equal(lengths([0.0, 0.0], range(5)), 0.0)


@pytest.mark.exhaustive
@pytest.mark.optimized
def test_a_draw_depends_on_its_key_alone():
    # Places with one to five degrees of freedom: about one draw in two has a rejection, some draws several.
    degrees = np.tile([1.0, 2.0, 3.0, 4.0, 5.0], 4)
    together = lengths(degrees, range(2_000))
    np.testing.assert_array_equal(lengths(degrees, [1_000]), together[1_000:1_001])
