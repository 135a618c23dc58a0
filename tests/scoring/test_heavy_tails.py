"""Power laws in the eigenvalues of a matrix, beside those in Gaussian matrices."""

from __future__ import annotations

import numpy as np
import pytest

from rmtbase.errors import ParameterError
from rmtbase.scoring import heavy_tails
from rmtbase.statistics import power_law_fit

SHAPE = (24, 30)


def _with_eigenvalues(eigenvalues, columns, seed):
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((eigenvalues.size, eigenvalues.size)))
    right, _ = np.linalg.qr(rng.standard_normal((columns, eigenvalues.size)))
    return left * np.sqrt(eigenvalues) @ right.T


def test_matrices_that_learned_nothing_are_no_power_law_more_often_than_the_level():
    rng = np.random.default_rng(0)
    found = [heavy_tails(rng.standard_normal(SHAPE), draws=39, level=0.1) for _ in range(20)]
    # 2 of 20 at 0.1; 11 have a probability below 1e-5, with what 39 draws shared by all add.
    assert sum(one.p_value <= 0.1 for one in found) <= 11 >= sum(one.is_power_law for one in found)
    p = np.array([[one.p_value, one.hill_p_value] for one in found])
    assert p.min() >= 1 / 40 and p.max() <= 1.0
    # Standard errors 0.07 from the matrices and 0.05 from the draws.
    np.testing.assert_allclose(p.mean(axis=0), 0.5 + 0.5 / 40, atol=0.35)


def test_a_power_law_is_found_and_told():
    quantiles = (np.arange(SHAPE[0]) + 0.5) / SHAPE[0]
    matrix = _with_eigenvalues(quantiles ** (-1.0 / 0.5), SHAPE[1], 1)
    found = heavy_tails(matrix, draws=39)
    assert found.is_power_law and found.p_value == found.hill_p_value == 1 / 40
    assert found.fit.exponent == pytest.approx(1.5, abs=0.2)
    assert found.fit.exponent == pytest.approx(power_law_fit(np.linalg.svd(matrix, compute_uv=False) ** 2).exponent)
    assert "heavier tail than chance makes, and a power law is not ruled out" in found.summary()


def test_one_exponent_however_the_matrix_lies_and_whatever_its_unit():
    matrix = np.random.default_rng(5).standard_normal(SHAPE)
    found, turned = heavy_tails(matrix, draws=39), heavy_tails(1e-3 * matrix.T, draws=39)
    assert turned.fit.exponent == pytest.approx(found.fit.exponent, rel=1e-9)
    assert (turned.p_value, turned.hill_p_value) == (found.p_value, found.hill_p_value)
    assert turned.shape == SHAPE[::-1] and found.null_exponent.shape == (39,)
    assert found.p_value > 0.05 and "No heavier a tail than chance makes." in found.summary()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"matrix": np.ones((19, 40))}, "matrix"),
        ({"matrix": np.ones(40)}, "matrix"),
        ({"matrix": np.ones((24, 30))}, "rank 1"),
        ({"matrix": np.full((24, 30), np.nan)}, "matrix"),
        ({"draws": 0}, "draws"),
        ({"draws": 9, "level": 0.05}, "level"),
        ({"level": 1.0}, "level"),
        ({"seed": -1}, "seed"),
    ],
)
def test_bad_arguments_are_named(arguments, name):
    given = {"matrix": np.random.default_rng(3).standard_normal(SHAPE), "draws": 39} | arguments
    with pytest.raises(ParameterError, match=name):
        heavy_tails(**given)
