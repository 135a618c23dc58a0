"""Draws are those of (seed, case, index) alone, whatever JAX is set to; what changes rounding is in a cache's key."""

import os

import jax
import numpy as np
import pytest

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.montecarlo import cache_folder, case_key, make_plan, run_in_memory
from rmtbase.montecarlo._machine import _COMPILED, compiler_settings_digest
from rmtbase.nulls._null_of_file import cached_null

SETTINGS = {
    "jax_random_seed_offset": 5, "jax_default_prng_impl": "rbg", "jax_enable_custom_prng": True,
    "jax_legacy_prng_key": "error", "jax_debug_key_reuse": True, "jax_threefry_partitionable": False,
    "jax_high_dynamic_range_gumbel": True, "jax_enable_x64": True, "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise", "jax_default_matmul_precision": "bfloat16", "jax_debug_nans": True,
    "jax_debug_infs": True, "jax_enable_checks": True,
}  # fmt: skip
ROUNDING = {
    "jax_disable_jit": True, "jax_disable_most_optimizations": True, "jax_exec_time_optimization_effort": 0.5,
    "jax_memory_fitting_effort": 0.5, "jax_enable_pgle": True,
}  # fmt: skip


@pytest.fixture
def set_to():
    before = {name: jax.config.values[name] for name in (*SETTINGS, *ROUNDING)}
    yield jax.config.update
    for name, value in before.items():
        jax.config.update(name, value)


def draws():
    uniform = {"dims": (6, 3, 6), "entries": "uniform"}
    tables = [
        rmtbase.baseline(12, 4, draws=10, seed=2**40 + 3),
        run_in_memory(make_plan("gaussian_chain", [{"dims": (6, 3, 5)}], 10, 1)),
        run_in_memory(make_plan("independent_chain", [uniform], 10, 1)),
    ]
    return np.concatenate([table["sample"].values.ravel() for table in tables])


@pytest.fixture(scope="module")
def as_they_are():
    return draws()


@pytest.mark.parametrize("name", mostly_exhaustive(SETTINGS, always={"jax_enable_x64"}))
def test_no_setting_changes_a_draw(name, as_they_are, set_to):
    set_to(name, SETTINGS[name])
    jax.clear_caches()  # what was compiled before knows nothing of the setting
    np.testing.assert_array_equal(draws(), as_they_are)


def test_a_seed_has_the_key_that_jax_gives_it():
    with jax.enable_x64(True):
        for seed in (0, 7, 2**32 + 5, 2**63 - 1):
            known = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), 0)
            np.testing.assert_array_equal(jax.random.key_data(case_key(seed, "")), jax.random.key_data(known))


@pytest.mark.parametrize("name", ROUNDING)
def test_what_changes_rounding_is_in_the_key_of_a_cache_and_nothing_else(name, set_to, monkeypatch):
    before, there = compiler_settings_digest(), os.environ.get("XLA_FLAGS", "")
    monkeypatch.setenv("XLA_FLAGS", f"{there} --xla_dump_to=somewhere")
    assert compiler_settings_digest() == before
    monkeypatch.setenv("XLA_FLAGS", f"{there} --xla_cpu_enable_fast_math=true")
    assert compiler_settings_digest() != before
    assert name in _COMPILED
    before, value = compiler_settings_digest(), jax.config.values[name]
    set_to(name, not value if isinstance(value, bool) else ROUNDING[name])
    assert compiler_settings_digest() != before


def test_a_null_drawn_under_one_setting_is_not_read_under_another(set_to, monkeypatch, tmp_path):
    monkeypatch.setenv("RMTBASE_CACHE", str(tmp_path))
    cached_null((12, 4, 12), 10)
    set_to("jax_random_seed_offset", 5)  # which changes nothing: the same file is read
    cached_null((12, 4, 12), 10)
    assert len(list(cache_folder().iterdir())) == 1
    set_to("jax_exec_time_optimization_effort", 0.5)
    cached_null((12, 4, 12), 10)
    assert len(list(cache_folder().iterdir())) == 2
