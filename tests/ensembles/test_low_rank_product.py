"""Draws of W_QK: shapes, determinism, precision, and what is refused."""

import jax
import numpy as np
import pytest

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import DenseGaussianChain, ThinGaussianChain, gaussian_chain, low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import case_key, draw_keys, draw_spectra

METHODS = ("thin", "dense")
SHAPES = [(1, 1), (7, 1), (9, 4), (4, 4)]


@jax.jit
def sample_many(ensemble, key, indices):
    return jax.vmap(ensemble.sample)(draw_keys(key, indices))


def draws(ensemble, indices, seed=0, case="case"):
    """Draws by index, all in one batch."""
    with reproducible_jax():
        draw = sample_many(ensemble, case_key(seed, case), np.asarray(indices, dtype=np.uint32))
        return jax.tree.map(np.asarray, draw)


@pytest.mark.parametrize(("d_model", "d_head"), mostly_exhaustive(SHAPES, always=2))
@pytest.mark.parametrize("method", METHODS)
def test_a_draw_has_the_stated_shape_and_rank(method, d_model, d_head):
    ensemble = low_rank_product(d_model, d_head, method)
    side = d_head if method == "thin" else d_model
    assert ensemble.matrix_shape == (side, side)
    assert ensemble.rank == d_head
    got = draws(ensemble, range(50))
    assert got.matrix.shape == (50, side, side)
    assert got.norm_squared.shape == (50, 2)
    assert all(part.dtype == np.float64 for part in got)
    assert (np.linalg.matrix_rank(got.matrix) == d_head).all()


@pytest.mark.parametrize("method", METHODS)
def test_at_d_head_one_the_eigenvalue_is_the_product_of_the_norms(method):
    # W_Q and W_K are then vectors: λ = ‖w_q‖² ‖w_k‖², draw by draw.
    got = draws(low_rank_product(7, 1, method), range(50))
    eigenvalue = np.linalg.norm(got.matrix, 2, axis=(1, 2)) ** 2
    np.testing.assert_allclose(eigenvalue, got.norm_squared.prod(axis=-1), rtol=1e-13)


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
def test_the_norms_bound_the_spectrum_of_their_own_draw(method):
    # ‖W_Qᵀ W_K‖_F ≤ ‖W_Q‖_F ‖W_K‖_F, and far below it unless d_head is 1: the norms are those of this draw's factors.
    got = draws(low_rank_product(9, 4, method), range(50))
    ratio = (got.matrix**2).sum(axis=(1, 2)) / (got.norm_squared.prod(axis=-1))
    assert (ratio < 1).all()
    assert ratio.mean() == pytest.approx(1 / 4, rel=0.15)  # E Σλ = E‖W_Q‖² E‖W_K‖² / h


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", METHODS)
def test_a_draw_is_a_function_of_seed_case_and_index_alone(method):
    ensemble = low_rank_product(9, 4, method)
    together = draws(ensemble, range(50))
    shuffled = draws(ensemble, [5, 2, 7])
    np.testing.assert_array_equal(shuffled.matrix, together.matrix[[5, 2, 7]])
    np.testing.assert_array_equal(shuffled.norm_squared, together.norm_squared[[5, 2, 7]])


@pytest.mark.parametrize("method", METHODS)
def test_other_seeds_cases_and_indices_give_other_draws(method):
    ensemble = low_rank_product(9, 4, method)
    first = draws(ensemble, range(50)).matrix
    assert len(np.unique(first.reshape(50, -1), axis=0)) == 50
    for other in (draws(ensemble, range(50), seed=1), draws(ensemble, range(50), case="another")):
        assert (other.matrix != first).any(axis=(1, 2)).all()


def spectra(*args, **kwargs):
    chunks = list(draw_spectra(*args, **kwargs))
    assert [chunk.start for chunk in chunks] == np.cumsum([0] + [len(c.singular_values) for c in chunks[:-1]]).tolist()
    return [np.concatenate(part) for part in list(zip(*chunks, strict=True))[1:]]


@pytest.mark.parametrize("method", METHODS)
def test_draws_do_not_depend_on_their_number_or_the_batch(method):
    ensemble = low_rank_product(9, 4, method)
    whole = spectra(ensemble, 23, 0, "case")
    for count, batch in ((23, 1), (23, 7), (10, 7)):
        for expected, got in zip(whole, spectra(ensemble, count, 0, "case", batch=batch), strict=True):
            np.testing.assert_array_equal(got, expected[:count])


def test_structural_zeros_are_left_out_of_the_spectrum_of_a_dense_draw():
    values, _ = spectra(low_rank_product(9, 4, "dense"), 5, 0, "case")
    assert values.shape == (5, 4)
    assert (values > 0).all()
    assert (np.diff(values, axis=-1) < 0).all()


@pytest.mark.exhaustive
def test_one_compilation_serves_every_d_model():
    traced = []

    @jax.jit
    def sample(ensemble, key):
        traced.append(ensemble.rank)
        return ensemble.sample(key)

    with reproducible_jax():
        key = case_key(0, "case")
        widths = [float(sample(low_rank_product(d, 4), key).norm_squared[0]) for d in (4, 64, 65_536, 10**12)]
        assert traced == [4]
        assert widths == sorted(widths)  # the width is an input and has its effect
        sample(low_rank_product(64, 5), key)
    assert traced == [4, 5]


def test_the_users_jax_settings_are_left_alone():
    settings = ("jax_enable_x64", "jax_default_matmul_precision", "jax_threefry_partitionable")
    before = [getattr(jax.config, name) for name in settings]
    assert before[0] is False
    first, norm = spectra(low_rank_product(9, 4), 3, 0, "case", batch=7)
    assert first.dtype == norm.dtype == np.float64
    assert [getattr(jax.config, name) for name in settings] == before
    assert jax.numpy.zeros(1).dtype == np.float32
    # Neither are the results a function of them.
    with jax.enable_x64(True), jax.threefry_partitionable(not before[2]), jax.default_matmul_precision("bfloat16"):
        again, _ = spectra(low_rank_product(9, 4), 3, 0, "case", batch=7)
    np.testing.assert_array_equal(again, first)


def test_the_users_settings_are_left_alone_between_the_batches_of_a_run():
    run = draw_spectra(low_rank_product(9, 4), 16, 0, "case", batch=7)
    next(run)
    assert jax.numpy.zeros(1).dtype == np.float32
    run.close()


def test_a_low_rank_product_is_a_gaussian_chain_under_its_own_name():
    for method, kind, name in (("thin", ThinGaussianChain, ""), ("dense", DenseGaussianChain, "dense_")):
        ensemble = low_rank_product(8, 2, method)
        assert isinstance(ensemble, kind)
        assert ensemble == gaussian_chain((8, 2, 8), method) == low_rank_product(np.int64(8), np.int32(2), method)
        assert ensemble.name == f"{name}low_rank_product 8x2"
        assert ensemble.factor_sizes == (16, 16)


@pytest.mark.parametrize("value", [0, -3, 2.0, True, "8", None, float("nan")])
@pytest.mark.parametrize("name", ["d_model", "d_head"])
def test_dimensions_that_are_not_positive_integers_are_refused(name, value):
    with pytest.raises(ParameterError, match=rf"{name} = .*: expected (a positive|an) integer"):
        low_rank_product(**({"d_model": 8, "d_head": 2} | {name: value}))


def test_a_head_wider_than_the_model_is_refused():
    with pytest.raises(ParameterError, match=r"d_head = 9: expected at most d_model = 8"):
        low_rank_product(8, 9)


def test_an_unknown_method_is_refused():
    with pytest.raises(ParameterError, match=r"method = 'exact': expected 'thin' or 'dense'"):
        low_rank_product(8, 2, "exact")


@pytest.mark.parametrize("parameter", [("draws", 0), ("draws", 2.5), ("draws", 2**32 + 1), ("batch", 0), ("seed", -1)])
def test_a_run_with_parameters_outside_their_domain_is_refused_when_it_is_asked_for(parameter):
    name, value = parameter
    with pytest.raises(ParameterError, match=f"{name} = "):
        draw_spectra(low_rank_product(8, 2), **({"draws": 3, "seed": 0, "case": "case"} | {name: value}))
