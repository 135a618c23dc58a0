"""Errata of the follow-up post on language model internals through training: docs/errata.md, 9 to 11.

Each test holds what is written against what is right; NumPy's draws and SVD, which share no code with rmtbase, decide.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from rmtbase.laws import ResidualPath, ResidualUpdate

WIDTH = 512

Array = NDArray[np.float64]


@pytest.fixture(scope="module")
def gaussian() -> Array:
    return relative(np.random.default_rng(1).standard_normal((WIDTH, WIDTH)))


def relative(matrix: Array) -> Array:
    """Singular values over their root mean square."""
    values = np.linalg.svd(matrix, compute_uv=False)
    return values / math.sqrt((values**2).mean())


def toy_model(depth: int) -> Array:
    """Π (I + G_l / √d), at critical initialisation."""
    rng = np.random.default_rng(depth)
    product = np.eye(WIDTH)
    for _ in range(depth):
        product = product @ (np.eye(WIDTH) + rng.standard_normal((WIDTH, WIDTH)) / math.sqrt(WIDTH))
    return product


def test_gaussian_and_logistic_matrices_have_one_spectrum(gaussian: Array) -> None:
    logistic = relative(np.random.default_rng(2).logistic(size=(WIDTH, WIDTH)))
    path = relative(toy_model(16))
    between = wasserstein_distance(gaussian, logistic) / gaussian.mean()
    assert between == pytest.approx(0.0035, abs=5e-5)
    for one in (gaussian, logistic):
        assert wasserstein_distance(one, path) / one.mean() == pytest.approx(0.751, abs=5e-4)


def test_depth_one_is_gaussian_without_the_direct_path_only(gaussian: Array) -> None:
    path = toy_model(1)
    whole, update = relative(path), relative(path - np.eye(WIDTH))
    assert wasserstein_distance(update, gaussian) < 0.01
    assert wasserstein_distance(whole, gaussian) > 0.05
    below = [float((values < 0.1).mean()) for values in (whole, update)]
    laws = [ResidualPath(1, 1.0), ResidualUpdate(1, 1.0)]
    expected = [float(law.cdf(0.01 * law.moment(1))) for law in laws]
    np.testing.assert_allclose(below, expected, atol=2 / WIDTH)  # levels of a spectrum are rigid
    np.testing.assert_allclose(expected, [0.030, 0.064], atol=5e-4)
    np.testing.assert_allclose([whole[0], update[0]], [math.sqrt(27 / 8), 2.0], rtol=0.02)


@pytest.mark.parametrize(("depth", "edge"), [(1, 1.84), (4, 3.09), (10, 4.67), (16, 5.84), (32, 8.17)])
def test_the_toy_models_law_ends(depth: int, edge: float) -> None:
    law = ResidualPath(depth, 1.0)
    end = math.sqrt(law.support[1] / law.moment(1))
    assert end == pytest.approx(edge, abs=0.005)
    assert float(law.sf(law.support[1] * (1 + 1e-12))) == 0.0
    assert relative(toy_model(depth))[0] < 1.1 * end  # a draw of finite width passes the edge by its fluctuation alone


def test_the_edge_grows_as_the_root_of_the_depth() -> None:
    depth = 1000
    law = ResidualPath(depth, 1.0).log_eigenvalue
    end = law.support[1] - depth * math.log(2.0)
    assert end == pytest.approx(math.log(0.75 * math.e * depth), abs=0.01)
