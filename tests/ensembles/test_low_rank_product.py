"""Draws of W_QK: shapes, determinism, precision, and what is refused."""

import jax
import numpy as np
import pytest

from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import case_key, draw_keys, draw_spectra

METHODS = ("thin", "dense")


@jax.jit
def sample_many(ensemble, key, indices):
    return jax.vmap(ensemble.sample)(draw_keys(key, indices))


def draws(ensemble, indices, seed=0, case="case"):
    with reproducible_jax():
        draw = sample_many(ensemble, case_key(seed, case), np.asarray(indices, dtype=np.uint32))
        return jax.tree.map(np.asarray, draw)


@pytest.mark.parametrize("method", METHODS)
def test_at_d_head_one_the_eigenvalue_is_the_product_of_the_norms(method):
    # W_Q and W_K are then vectors: λ = ‖w_q‖² ‖w_k‖², draw by draw.
    got = draws(low_rank_product(7, 1, method), range(50))
    eigenvalue = np.linalg.norm(got.matrix, 2, axis=(1, 2)) ** 2
    np.testing.assert_allclose(eigenvalue, got.norm_squared.prod(axis=-1), rtol=1e-13)


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
