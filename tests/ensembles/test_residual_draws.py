"""Residual paths: their parts add up, their moments and spectra are the laws', and what is refused.

False failures: means are compared within 5 standard errors, which fails by chance once in 1.7 million comparisons; with
under 50 of them a correct sampler fails for one seed in 30 000. The seeds are fixed.
"""

import jax
import numpy as np
import pytest
from scipy.special import comb

from exhaustive import mostly_exhaustive
from rmtbase import laws
from rmtbase.ensembles import residual_path
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax

D, DRAWS = 12, 4_000
DEPTHS = ((1, 1.0), (4, 0.6), (10, 0.3), (16, 0.25))
SOME_DEPTHS = pytest.mark.parametrize(("depth", "sigma"), mostly_exhaustive(DEPTHS, always={4}))


@jax.jit
def sample_many(ensemble, indices):
    key = jax.random.key(0, impl="threefry2x32")
    return jax.vmap(lambda index: ensemble.sample(jax.random.fold_in(key, index)).matrix)(indices)


def draws(*parameters, d_model=D, count=DRAWS, **options):
    ensemble = residual_path(d_model, *parameters, **options)
    with reproducible_jax():
        return np.asarray(sample_many(ensemble, np.arange(count, dtype=np.uint32)))


def order(k, depth, sigma):
    return draws(depth, sigma, part="order", order=k)


@pytest.mark.exhaustive
def test_orders_add_up_to_the_path_and_blocks_are_those_of_any_depth():
    path, update = draws(2, 0.6), draws(2, 0.6, part="update")
    orders = [order(k, 2, 0.6) for k in range(3)]
    np.testing.assert_array_equal(orders[0], np.broadcast_to(np.eye(D), path.shape))
    np.testing.assert_array_equal(path, np.eye(D) + update)
    np.testing.assert_allclose(sum(orders), path, atol=1e-13)
    # The sum of the blocks grows by one block, and the product of all by one factor.
    sums = [order(1, depth, 1.0) for depth in (1, 2, 3)]
    blocks = [sums[0], sums[1] - sums[0], sums[2] - sums[1]]
    np.testing.assert_allclose(order(2, 2, 1.0), blocks[0] @ blocks[1], atol=1e-13)
    np.testing.assert_allclose(order(3, 3, 1.0), blocks[0] @ blocks[1] @ blocks[2], atol=1e-13)
    # A difference P - I of numbers near 1 would be off by 1e-16, a ten-millionth of the update.
    update, blocks, pairs = draws(3, 1e-9, part="update"), order(1, 3, 1e-9), order(2, 3, 1e-9)
    np.testing.assert_allclose(update, blocks + pairs, rtol=0, atol=1e-24)


def test_blocks_do_not_depend_on_sigma_and_names_tell_everything_apart():
    np.testing.assert_allclose(order(2, 3, 0.01), 1e-4 * order(2, 3, 1.0), atol=1e-16)
    orders = [residual_path(8, 3, part="order", order=k) for k in (1, 2)]
    paths = [residual_path(8, 3), residual_path(8, 4), residual_path(8, 3, 0.5), residual_path(8, 3, part="update")]
    names = [ensemble.name for ensemble in (*paths, *orders)]
    assert names[0] == "residual_path 8x3 sigma 1.0"
    assert names[-1] == "residual_order 2 8x3 sigma 1.0"
    assert len(set(names)) == len(names)


@SOME_DEPTHS
def test_path_and_update_have_their_exact_moments(depth, sigma):
    exact = laws.residual_trace_moments(depth, sigma, D)
    path = draws(depth, sigma)
    gram = path @ path.swapaxes(1, 2)
    trace, of_square = np.trace(gram, axis1=1, axis2=2), (gram**2).sum(axis=(1, 2))
    assert abs(trace.mean() - exact.mean_trace) < 5 * exact.std_trace / np.sqrt(DRAWS)
    assert abs(of_square.mean() - exact.mean_trace_of_square) < 5 * exact.std_trace_of_square / np.sqrt(DRAWS)
    deviation = (trace - exact.mean_trace) ** 2
    assert abs(deviation.mean() - exact.std_trace**2) < 5 * deviation.std() / np.sqrt(DRAWS)
    square = (draws(depth, sigma, part="update") ** 2).sum(axis=(1, 2))
    assert abs(square.mean() - D * ((1 + sigma**2) ** depth - 1)) < 5 * square.std() / np.sqrt(DRAWS)


@pytest.mark.parametrize("k", mostly_exhaustive([1, 2, 3], always=1))
def test_an_order_has_the_mean_square_of_its_number_of_paths(k):
    square = (order(k, 5, 0.6) ** 2).sum(axis=(1, 2))
    assert abs(square.mean() - D * comb(5, k) * 0.6 ** (2 * k)) < 5 * square.std() / np.sqrt(DRAWS)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("depth", "sigma"), mostly_exhaustive([(1, 1.0), (4, 0.5), (10, 0.3), (16, 0.25)], always={4}))
@pytest.mark.parametrize("part", ["path", "update"])
def test_the_spectrum_is_the_law_up_to_the_inverse_of_the_width(part, depth, sigma):
    # The mean density differs from its limit by O(1/d), and the counts of 20 draws by less than that.
    d = 64
    law = {"path": laws.ResidualPath, "update": laws.ResidualUpdate}[part](depth, sigma)
    eigenvalues = np.sort(
        np.linalg.svd(draws(depth, sigma, d_model=d, part=part, count=20), compute_uv=False).ravel() ** 2
    )
    empirical = (np.arange(eigenvalues.size) + 0.5) / eigenvalues.size
    assert np.abs(law.cdf(eigenvalues) - empirical).max() < 1 / d


BEYOND = r"sigma = .*: expected (less|at least)"
REFUSED = [
    *((BEYOND, (1_000, 1.0), {}), (BEYOND, (2, 1e40), {}), (BEYOND, (2, 1e-80), {"part": "update"})),
    (BEYOND, (8, 1e-20), {"part": "order", "order": 8}),
    (r"order = 4: expected an integer from 0 to 3", (3,), {"part": "order", "order": 4}),
    (r"part = 'all': expected 'path', 'update' or 'order'", (3,), {"part": "all"}),
    (r"order = 2: expected none, or part = 'order'", (3,), {"order": 2}),
]


@pytest.mark.parametrize(("words", "parameters", "options"), REFUSED)
def test_singular_values_beyond_the_doubles_and_unknown_parts_are_refused(words, parameters, options):
    with pytest.raises(ParameterError, match=words):
        residual_path(8, *parameters, **options)
    assert residual_path(8, 8, 1e-20, part="order", order=2).rank == 8
