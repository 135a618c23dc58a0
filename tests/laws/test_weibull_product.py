"""The Weibull fit of the elements of one W_QK: what their dependence does to it, by simulation of whole matrices."""

import math

import numpy as np
import pytest

from rmtbase import laws, statistics

D_MODEL, D_HEAD, DRAWS = 120, 12, 400


@pytest.fixture(scope="module")
def fits():
    rng = np.random.default_rng(3)
    draws = []
    for _ in range(DRAWS):
        w = rng.standard_normal((D_MODEL, D_HEAD)) @ rng.standard_normal((D_HEAD, D_MODEL)) / math.sqrt(D_MODEL)
        draws.append(statistics.weibull_fit(w)[:3])
    return np.array(draws)


def test_means_and_spreads_are_those_of_simulated_matrices(fits):
    # 4.5 standard errors, of spreads from the sample's own fourth moment: one seed in 25 000. And 2 % of a spread for
    # terms of higher order, 0.08 standard deviations of one matrix for the bias that is stated as left out.
    null = laws.weibull_product_null(D_MODEL, D_HEAD)
    for column, law in zip(fits.T, null, strict=True):
        kurtosis = np.mean((column - column.mean()) ** 4) / column.var() ** 2
        error = math.sqrt((kurtosis - 1) / (4 * DRAWS)) + 0.02
        assert column.std(ddof=1) == pytest.approx(law.std, rel=4.5 * error)
        assert abs(column.mean() - law.mean) < (4.5 / math.sqrt(DRAWS) + 0.08) * law.std


def test_the_scale_spreads_several_times_as_far_as_that_of_independent_elements_and_the_shape_does_not():
    d, h = 1000, 64
    null, independent = (
        laws.weibull_product_null(d, h, normalization="none"),
        laws.weibull_null(0.1, laws.parents.VarianceGamma(math.sqrt(h), h)),
    )
    assert null.scale.std > 4 * independent.scale.std(d * d)
    assert independent.shape.std(d * d) < null.shape.std < 1.05 * independent.shape.std(d * d)
    assert null.shape.mean == independent.shape.mean(d * d)


def test_for_wide_heads_the_scale_follows_the_size_of_the_matrix_and_nothing_else_changes():
    # w is normal then; the mean square of one matrix, and so λ̂², varies by a relative 4 d/(h N) more than that of
    # independent elements.
    h = 100_000
    null, independent = laws.weibull_product_null(h, h), laws.weibull_null()
    assert null.shape.std * h == pytest.approx(independent.shape.spread, rel=1e-3)
    expected = math.hypot(independent.scale.spread, independent.scale.limit)
    assert null.scale.std * h == pytest.approx(expected, rel=1e-3)


def test_only_the_scale_has_units():
    plain, scaled = (
        laws.weibull_product_null(90, 9),
        laws.weibull_product_null(90, 9, 0.1, sigma_q=3.0, sigma_k=0.5, normalization="none"),
    )
    factor = 1.5 * math.sqrt(90)
    for name, unit in (("shape", 1.0), ("scale", factor), ("r_squared", 1.0)):
        for field in ("mean", "std"):
            value = getattr(getattr(scaled, name), field)
            assert value == pytest.approx(unit * getattr(getattr(plain, name), field), rel=1e-10)
