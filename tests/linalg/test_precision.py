"""The numerical settings hold where they are asked for, and nowhere else."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rmtbase
from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import reproducible_jax
from rmtbase.montecarlo import draw_spectra


def test_double_precision_holds_inside_and_settings_come_back_after_an_error():
    before = jnp.ones(2).dtype
    with pytest.raises(KeyError), reproducible_jax():
        assert jnp.ones(2).dtype == np.float64
        raise KeyError
    assert jnp.ones(2).dtype == before


def test_a_table_leaves_the_callers_settings_alone_and_is_the_same_whatever_they_are():
    precision, state = jax.config.jax_default_matmul_precision, np.random.get_state()[1].copy()  # noqa: NPY002
    usual = rmtbase.baseline(16, 4, draws=10)
    assert jnp.ones(2).dtype == jnp.float32
    assert jax.config.jax_default_matmul_precision == precision
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002
    run = draw_spectra(low_rank_product(9, 4), 16, 0, batch=7)
    next(run)
    assert jnp.ones(1).dtype == jnp.float32  # also between the batches of a run
    run.close()
    threefry = jax.threefry_partitionable(not jax.config.jax_threefry_partitionable)
    with jax.enable_x64(True), jax.default_matmul_precision("bfloat16"), threefry:
        other = rmtbase.baseline(16, 4, draws=10)
    assert usual.identical(other)
