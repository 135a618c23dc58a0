"""Draws are those of (seed, case, index) alone, whatever JAX is set to; what changes rounding is in a cache's key.

The solver is chosen from measurements, for a reason that is given, and the same way every time.
"""

import json
import os
import time
from pathlib import Path

import jax
import numpy as np
import pytest
from waves import Waves

import rmtbase
from exhaustive import mostly_exhaustive
from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import DEVICE_SOLVERS, HOST_SOLVERS, PRECISIONS, SOLVERS, singular_values
from rmtbase.montecarlo import (
    MICROSECONDS,
    cache_folder,
    case_key,
    choose_solver,
    make_plan,
    measured_solver,
    run_in_memory,
    tile_size,
)
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


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
FILES = {"cpu": ("solvers.json", HOST_SOLVERS), "NVIDIA H100 80GB HBM3": ("solvers_accelerator.json", DEVICE_SOLVERS)}


@pytest.mark.parametrize("kind", FILES)
def test_the_table_is_that_of_the_committed_measurements(kind):
    assert set(MICROSECONDS) == set(FILES)
    file, solvers = FILES[kind]
    committed, table = json.loads((RESULTS / file).read_text()), MICROSECONDS[kind]
    assert committed["device_kind"] == kind
    assert set(table) == set(committed["times"]) == set(PRECISIONS)
    for precision, by_solver in committed["times"].items():
        assert set(table[precision]) == set(by_solver) == set(solvers)
        for solver, by_size in by_solver.items():
            measured = {int(size): microseconds for size, microseconds in by_size.items()}
            assert table[precision][solver] == pytest.approx(measured, rel=0.01)


def test_the_gram_matrix_where_it_keeps_the_digits_and_the_svd_where_it_does_not():
    head = choose_solver(low_rank_product(768, 64))
    assert head.name == "gram"
    assert "allows the Gram matrix" in head.reason
    square = choose_solver(low_rank_product(64, 64))
    assert square.name == "svd"
    assert "forbids the Gram matrix" in square.reason

    assert len({choose_solver(Waves(2.0)) for _ in range(3)}) == 1
    for condition in (float("inf"), float("nan")):
        assert measured_solver("cpu", 64, "float64", condition).name == "svd"


def test_solvers_are_timed_on_a_device_of_which_there_are_no_measurements_and_a_slow_one_is_not_waited_for(monkeypatch):
    monkeypatch.delitem(MICROSECONDS, jax.devices()[0].device_kind)
    for condition, allowed in ((2.0, SOLVERS), (1e6, [solver for solver in SOLVERS if "gram" not in solver])):
        choice = choose_solver(Waves(condition))
        timed, _ = choice.reason.removeprefix("timed on cpu: ").split(";", 1)
        fastest_first = [one.split()[0] for one in timed.split(", ")]
        assert set(fastest_first) == set(SOLVERS)
        assert choice.name == next(solver for solver in fastest_first if solver in allowed)
    solved = []

    def slow(stack, rank):
        solved.append(len(stack))
        time.sleep(0.02 * len(stack))
        return singular_values(stack, rank)

    monkeypatch.setitem(HOST_SOLVERS, "svd", slow)
    assert choose_solver(Waves(2.0), cores=1).name != "svd"
    assert sum(solved) < 50 < tile_size((8, 8))


@pytest.mark.parametrize("size", [8, 64, 200, 1000])
@pytest.mark.parametrize("kind", sorted(set(MICROSECONDS) - {"cpu"}))
def test_an_accelerator_solves_what_it_draws_unless_float32_would_lose_the_smallest(kind, size):
    def choice(condition, precision):
        return measured_solver(kind, size, precision, condition)

    assert {choice(2.0, precision).name for precision in PRECISIONS} == {"device_gram"}
    assert choice(1e6, "float64").name == choice(float("inf"), "float64").name == "device_svd"
    assert choice(500.0, "float32").name == "device_svd"
    assert choice(1e6, "float32").name == "svd"
    assert "forbids the Gram matrix and the device's SVD" in choice(1e6, "float32").reason
