"""Gaussian chains and ensembles by name: what a draw is, how it is named, and what is refused."""

import jax
import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import ENSEMBLES, gaussian_chain, gaussian_matrix, low_rank_product, make_ensemble
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import draw_spectra

METHODS = ("thin", "dense")


def draws(ensemble, count=50):
    with reproducible_jax():
        keys = jax.random.split(jax.random.key(0, impl="threefry2x32"), count)
        return jax.tree.map(np.asarray, jax.jit(jax.vmap(ensemble.sample))(keys))


OF_RANK_ONE = [((5, 1, 4, 1, 6), "thin"), ((1, 3, 2), "thin"), ((4, 3, 1), "thin"), ((5, 1, 4, 1, 6), "dense")]


@pytest.mark.parametrize(("dims", "method"), mostly_exhaustive(OF_RANK_ONE, always=1))
def test_at_rank_one_the_norms_bound_the_singular_value_draw_by_draw(dims, method):
    got = draws(gaussian_chain(dims, method))
    largest = np.linalg.norm(got.matrix, 2, axis=(1, 2)) ** 2
    assert (largest < got.norm_squared.prod(axis=1)).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_chain_of_numbers_has_the_square_of_the_product_of_their_squares(method):
    got = draws(gaussian_chain((1, 1, 1, 1), method))
    np.testing.assert_allclose(got.matrix[:, 0, 0] ** 2, got.norm_squared.prod(axis=1), rtol=1e-14)
    # At d_head one, W_Q and W_K are vectors: λ = ‖w_q‖² ‖w_k‖², draw by draw.
    got = draws(low_rank_product(7, 1, method))
    eigenvalue = np.linalg.norm(got.matrix, 2, axis=(1, 2)) ** 2
    np.testing.assert_allclose(eigenvalue, got.norm_squared.prod(axis=-1), rtol=1e-13)


def test_the_shapes_of_a_draw_are_those_of_the_core_or_of_the_product_and_names_their_own():
    thin, dense = (gaussian_chain((6, 9, 4, 7), method) for method in METHODS)
    assert (thin.rank, thin.matrix_shape) == (4, (4, 4))
    assert (dense.rank, dense.matrix_shape) == (4, (6, 7))
    assert thin.factor_sizes == dense.factor_sizes == (54, 36, 28)
    ((_, values, _),) = draw_spectra(low_rank_product(9, 4, "dense"), 5, 0)  # without the structural zeros
    assert values.shape == (5, 4)
    assert (values > 0).all() and (np.diff(values, axis=-1) < 0).all()
    assert len(gaussian_chain((2,) * 17).factor_sizes) == 16
    assert gaussian_matrix(4, 6) == gaussian_chain((4, 6)) == gaussian_chain([np.int64(6), 4])
    assert low_rank_product(6, 4) == gaussian_chain((6, 4, 6))
    # A chain that has a name of its own goes by it.
    assert gaussian_matrix(4, 6, "dense").name == "dense_gaussian_matrix 4x6"
    assert gaussian_chain((4, 6)).name == "gaussian_matrix 6x4"
    assert gaussian_chain((6, 4, 6)).name == "low_rank_product 6x4"
    for dims in ((4, 6, 4), (6, 4, 5), (6, 4, 6, 4)):
        assert gaussian_chain(dims).name == f"gaussian_chain {'x'.join(map(str, dims))}"


@pytest.mark.exhaustive
def test_the_widest_chains_are_drawn_without_overflow():
    got = draws(gaussian_chain((10**12, 2) + 5 * (10**12, 3) + (10**10,)), 5)
    assert np.isfinite(got.matrix**4).all() and (got.matrix != 0).any()
    np.testing.assert_allclose(got.norm_squared[:, 1], 2e12, rtol=1e-4)


REFUSED = {
    r"dims = .*: expected at most 17 dimensions": lambda: gaussian_chain((2,) * 18),
    r"dims\[2\] = 1000000000001: expected at most 1000000000000": lambda: gaussian_chain((2, 3, 10**12 + 1)),
    r"dims = .*: expected a product of at most 1e140": lambda: gaussian_chain((10**12,) * 12),
    r"dims\[1\] = 0: expected a positive integer": lambda: gaussian_chain((3, 0, 4)),
    r"dims = .*: expected at least two": lambda: gaussian_chain((3,)),
    r"method = 'exact': expected 'thin' or 'dense'": lambda: gaussian_chain((3, 4), "exact"),
    r"method = 'fat': expected 'thin' or 'dense'": lambda: gaussian_matrix(3, 4, "fat"),
}


@pytest.mark.parametrize(("words", "call"), REFUSED.items())
def test_chains_too_long_too_wide_or_too_large_and_unknown_methods_are_refused(words, call):
    with pytest.raises(ParameterError, match=words):
        call()


def test_an_ensemble_is_made_by_the_name_of_its_factory():
    assert make_ensemble("gaussian_chain", {"dims": [6, 4, 5]}) == gaussian_chain((6, 4, 5))
    assert make_ensemble("low_rank_product", {"d_model": 8, "d_head": 2, "method": "dense"}).matrix_shape == (8, 8)
    assert {name: factory.__name__ for name, factory in ENSEMBLES.items()} == {name: name for name in ENSEMBLES}


UNKNOWN = "d_modle = 8: expected a parameter of low_rank_product: d_model, d_head, method"
NAMES_THERE_ARE = r"ensemble = .*: expected one of .*gaussian_chain, .*residual_path"


@pytest.mark.parametrize(("name", "parameters", "words"), [
    *((name, {}, NAMES_THERE_ARE) for name in ("wishart", "", 3, None, ["low_rank_product"])),
    ("low_rank_product", {"d_modle": 8, "d_head": 2}, UNKNOWN),
    ("residual_path", {"sigma": 1.0}, "expected d_model, depth too, which residual_path needs"),
    ("low_rank_product", {"d_model": 8, "d_head": 9}, "d_head = 9: expected at most d_model = 8"),
])  # fmt: skip
def test_unknown_ensembles_and_unknown_missing_and_wrong_parameters_are_named(name, parameters, words):
    with pytest.raises(ParameterError, match=words):
        make_ensemble(name, parameters)
