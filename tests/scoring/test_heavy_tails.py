"""Power laws in the eigenvalues of a matrix, beside those of noise; noise, spikes, a power law or effective depth."""

import numpy as np
import pytest
from scipy.integrate import trapezoid

from rmtbase.errors import ParameterError
from rmtbase.laws import GaussianChain
from rmtbase.results.signal import heavy_tails
from rmtbase.results.signal._spectral_likelihood import SmearedLaw, heavy_density, spiked_density
from rmtbase.results.signal.schema import CANDIDATES
from rmtbase.statistics import power_law_fit

SHAPE = (24, 30)


def _with_eigenvalues(eigenvalues, columns, seed):
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((eigenvalues.size, eigenvalues.size)))
    right, _ = np.linalg.qr(rng.standard_normal((columns, eigenvalues.size)))
    return left * np.sqrt(eigenvalues) @ right.T


@pytest.fixture(scope="module")
def untrained():
    """Eight matrices that learned nothing."""
    rng = np.random.default_rng(0)
    return [heavy_tails(rng.standard_normal(SHAPE), draws=39) for _ in range(8)]


@pytest.mark.exhaustive
def test_matrices_that_learned_nothing_are_no_power_law_more_often_than_the_level(untrained):
    # 0.4 of 8 at 0.05; 5 have a probability of 2e-5, and of 1e-4 with what 39 draws shared by all add.
    assert sum(one.p_value <= 0.05 for one in untrained) <= 4 >= sum(one.is_power_law for one in untrained)
    p = np.array([[one.p_value, one.comparison.p_value[0]] for one in untrained])
    assert p.min() >= 1 / 40 and p.max() <= 1.0
    # Standard errors 0.10 from the matrices and 0.05 from the draws.
    np.testing.assert_allclose(p.mean(axis=0), 0.5 + 0.5 / 40, atol=0.45)


def test_matrices_that_learned_nothing_are_called_noise(untrained):
    assert sum(one.comparison.verdict != "noise" for one in untrained) <= 4  # as above
    for one in untrained:
        of = one.comparison
        assert np.isnan(of.p_value[1]) == (of.directions == 0) == np.isinf(of.log_likelihood[1])
        assert of.standing == tuple(name for name, p in zip(CANDIDATES, of.p_value, strict=True) if p > 0.05)


def test_a_power_law_spikes_and_a_residual_path_are_found_and_told():
    quantiles = (np.arange(SHAPE[0]) + 0.5) / SHAPE[0]
    matrix = _with_eigenvalues(quantiles ** (-1.0 / 0.5), SHAPE[1], 1)
    found = heavy_tails(matrix, draws=39)
    assert found.is_power_law and found.p_value <= 2 / 40
    assert found.fit.exponent == pytest.approx(1.5, abs=0.2)
    assert found.fit.exponent == pytest.approx(power_law_fit(np.linalg.svd(matrix, compute_uv=False) ** 2).exponent)
    assert found.comparison.verdict == "power_law" and found.comparison.exponent == pytest.approx(1.5, abs=0.2)
    assert found.comparison.p_value[0] == 1 / 40
    matrix = np.random.default_rng(2).standard_normal(SHAPE)
    matrix[0, 0] += 5.0 * (SHAPE[0] * SHAPE[1]) ** 0.25
    found = heavy_tails(matrix, draws=39).comparison
    assert found.verdict == "spikes" and found.directions == 1
    assert found.log_likelihood.argmax() == 1 and found.p_value[0] == 1 / 40
    rng, path = np.random.default_rng(3), np.eye(SHAPE[0])
    for _ in range(6):
        path = path @ (np.eye(SHAPE[0]) + rng.standard_normal((SHAPE[0], SHAPE[0])) / SHAPE[0] ** 0.5)
    found = heavy_tails(path, draws=39).comparison
    assert found.verdict == "depth" and abs(found.depth - 6) <= 1
    assert max(found.p_value[0], found.p_value[2]) <= 2 / 40


def test_one_finding_however_the_matrix_lies_and_whatever_its_unit():
    matrix = np.random.default_rng(5).standard_normal(SHAPE)
    found, turned = heavy_tails(matrix, draws=39), heavy_tails(1e-3 * matrix.T, draws=39)
    assert turned.fit.exponent == pytest.approx(found.fit.exponent, rel=1e-9)
    assert turned.p_value == found.p_value > 0.05
    assert found.null_exponent.shape == (39,)
    np.testing.assert_allclose(turned.comparison.log_likelihood, found.comparison.log_likelihood, atol=1e-6)
    np.testing.assert_array_equal(turned.comparison.p_value, found.comparison.p_value)
    values = np.linalg.svd(matrix, compute_uv=False)
    again = heavy_tails(values[::-1], draws=39, dims=SHAPE)
    np.testing.assert_allclose(again.comparison.log_likelihood, found.comparison.log_likelihood, atol=1e-6)


@pytest.mark.parametrize("dims", [(60, 90), (20, 20), (50, 16, 50)])
def test_every_density_integrates_to_one(dims):
    rank = min(dims)
    quantile = np.log(GaussianChain(dims=dims, normalization="none").isf((np.arange(rank) + 0.5) / rank))
    law = SmearedLaw.from_quantiles(quantile)
    y = np.linspace(quantile[-1] - 80.0, quantile[0] + 80.0, 400_001)
    at, spread, start = np.array([quantile[0] + 1.5, quantile[0] + 0.3]), np.array([0.2, 0.1]), float(quantile[3])
    bulk = np.exp(law.logpdf(y))
    densities = [
        bulk,
        np.exp(spiked_density(y + 1.0, at + 1.0, spread, law, 1.0, rank)),
        np.exp(heavy_density(y + 1.0, start + 1.0, 0.7, 0.2, law, 1.0)),
        np.exp(heavy_density(y, start, 1.3, 1.0, law, 0.0)),
    ]
    for density in densities:  # tables are linear in ln f between nodes, and a tail begins between two points
        assert trapezoid(density, y) == pytest.approx(1.0, abs=4e-3)
    below = np.searchsorted(y, quantile[::5])
    found = [trapezoid(bulk[:place], y[:place]) for place in below]
    np.testing.assert_allclose(found, np.exp(law.logcdf(quantile[::5])), atol=4e-3)
    np.testing.assert_allclose(law.ppf(np.exp(law.logcdf(quantile))), quantile, atol=1e-6)
    # Of the law itself it is a smear: (i - 1/2)/r to within half a place.
    np.testing.assert_allclose(np.exp(law.logcdf(quantile)), 1.0 - (np.arange(rank) + 0.5) / rank, atol=0.5 / rank)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"matrix": np.ones((15, 40))}, "matrix"),
        ({"matrix": np.ones(40)}, "matrix"),
        ({"matrix": np.ones((24, 30))}, "rank 1"),
        ({"matrix": np.eye(24)}, "all equal"),
        ({"matrix": np.ones(23), "dims": (24, 30)}, "24 singular values"),
        ({"matrix": -np.ones(24), "dims": (24, 30)}, "matrix"),
        ({"matrix": np.ones(12), "dims": (12, 30)}, "dims"),
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
