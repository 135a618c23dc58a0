"""Batches: draws do not know how they were made; memory that runs out halves what is drawn; interrupts end threads."""

import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest
from threadpoolctl import threadpool_info
from waves import Waves

from exhaustive import mostly_exhaustive
from rmtbase.ensembles import low_rank_product
from rmtbase.errors import AllocationError, ParameterError
from rmtbase.linalg import SOLVERS
from rmtbase.montecarlo import (
    MAX_DRAWS,
    BatchPlan,
    CompiledSampler,
    compute_chunk,
    draw_elements,
    draw_spectra,
    make_plan,
    tile_size,
)
from telling import Told

pytestmark = pytest.mark.optimized

ENSEMBLE = Waves(2.0)
SMALL, LARGE = low_rank_product(24, 8), low_rank_product(8192, 256)
TILE = tile_size(ENSEMBLE.matrix_shape)


CHILD = """
import json, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
sys.path[:0] = sys.argv[1], os.path.dirname(sys.argv[1])
from test_runner import digests
print(json.dumps(digests(*json.loads(sys.argv[2]))))
"""
ELSEWHERE = {
    "one core": (("svd", "device_svd", "large"), None, ""),
    "four devices": (("svd", "device_svd", "single"), 4, "--xla_force_host_platform_device_count=4"),
}
"""On one core both. The large one, whose loops XLA splits by the cores that it finds, is not for several devices."""


@pytest.fixture(scope="module")
def elsewhere():
    children = {
        where: subprocess.Popen(
            [sys.executable, "-c", CHILD, str(Path(__file__).parent), json.dumps([runs, devices])],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"XLA_FLAGS": flags},
        )
        for where, (runs, devices, flags) in ELSEWHERE.items()
    }  # fmt: skip
    yield children
    for child in children.values():
        child.kill()
        child.communicate()


def spectra(draws, seed=0, ensemble=ENSEMBLE, **options):
    chunks = list(draw_spectra(ensemble, draws, seed, **options))
    starts = [chunk.start for chunk in chunks] + [options.get("start", 0) + draws]
    assert [after - before for before, after in pairwise(starts)] == [len(chunk.norm_squared) for chunk in chunks]
    return tuple(np.concatenate(part) for part in (list(zip(*chunks, strict=True))[1:]))


def assert_same(first, second, rows=slice(None)):
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other[rows])


@pytest.fixture(scope="module")
def whole():
    return spectra(2 * TILE + 5)


WAYS = [
    *({"batch": batch} for batch in (1, TILE - 1, TILE + 1, 10 * TILE)),
    *({"cores": cores} for cores in (1, 3)),
    *({"start": start, "draws": draws} for start, draws in ((3, 4), (TILE - 1, 2), (TILE, TILE), (2 * TILE + 4, 1))),
]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_draws_depend_neither_on_batch_and_cores_nor_on_where_a_run_begins_and_ends(way, whole):
    options = {"draws": 2 * TILE + 5} | way
    start = options.get("start", 0)
    assert_same(spectra(**options), whole, slice(start, start + options["draws"]))


def test_the_case_is_the_ensembles_name_seeds_have_64_bits_and_indices_32():
    assert_same(spectra(3), spectra(3, case=ENSEMBLE.name))
    assert not np.isin(spectra(3, case="another")[0], spectra(3)[0]).any()
    assert (spectra(2, 2**40, precision="float32")[0] != spectra(2, 0, precision="float32")[0]).all()
    values, _ = spectra(2, start=MAX_DRAWS - 2)
    assert len(np.unique(values)) == values.size
    with pytest.raises(ParameterError, match=r"draws = 3: expected at most 2: an index has 32 bits"):
        draw_spectra(ENSEMBLE, 3, 0, start=MAX_DRAWS - 2)


@pytest.mark.parametrize("precision", mostly_exhaustive(["float64", "float32"], always=1))
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_solver_finds_the_same_spectra(solver, precision):
    expected, norms = spectra(5, precision=precision, solver="svd")
    values, same = spectra(5, precision=precision, solver=solver)
    assert values.dtype == same.dtype == np.float64
    np.testing.assert_array_equal(same, norms)
    on_the_device_in_single = solver.startswith("device") and precision == "float32"
    np.testing.assert_allclose(values, expected, rtol=2e-5 if on_the_device_in_single else 1e-12)


@pytest.mark.exhaustive
def test_single_precision_draws_have_the_same_law():
    # Means of 2 000 draws against the exact ones. Chance that either is off by more than four standard errors: 1e-4.
    values, norms = spectra(2000, ensemble=SMALL, precision="float32")
    for sample, exact in (((values**2).sum(axis=1), 8 * 24**2), (norms[:, 0], 8 * 24)):
        assert abs(sample.mean() - exact) < 4 * sample.std() / np.sqrt(2000)
    np.testing.assert_array_equal(norms, norms.astype(np.float32))


@pytest.mark.exhaustive
def test_a_gram_matrix_that_loses_digits_on_the_device_is_solved_again(monkeypatch):
    solved = []
    call = CompiledSampler.matrices
    monkeypatch.setattr(
        CompiledSampler, "matrices", lambda self, start, how=None: solved.append(how) or call(self, start, how)
    )
    ill = Waves(1e12)
    expected, _ = spectra(4, ensemble=ill, solver="svd")
    assert ((expected[:, 0] / expected[:, -1]) ** 2 > 1e10).all()
    solved.clear()
    values, _ = spectra(4, ensemble=ill, solver="device_gram")
    assert solved == ["device_gram", "device_svd"]
    np.testing.assert_allclose(values, expected, rtol=1e-9)


def failing(monkeypatch, error, fits):
    tried, work = [], BatchPlan.spectra

    def spectra_of(self, first, stop):
        tried.append(self)
        if not fits(self):
            raise error
        return work(self, first, stop)

    monkeypatch.setattr(BatchPlan, "spectra", spectra_of)
    return tried


OUT_OF_MEMORY = [MemoryError("no"), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=["host", "device"])
def test_a_failed_allocation_halves_what_is_drawn_at_once_and_changes_no_draw(error, monkeypatch, whole):
    told = Told()
    tried = failing(monkeypatch, error, lambda plan: plan.workers == 1)
    assert_same(spectra(2 * TILE + 5, cores=4, batch=TILE, progress=told), whole)
    assert max(plan.workers for plan in tried) == 3  # one for each tile
    assert sum(told.steps.values()) == 2 * TILE + 5


def test_an_accelerator_halves_its_tiles_down_to_one_draw(monkeypatch, whole):
    for module in ("_compiled_sampler", "_spectra"):
        monkeypatch.setattr(f"rmtbase.montecarlo.{module}.is_cpu", lambda device: False)
    monkeypatch.setattr("rmtbase.montecarlo._compiled_sampler.device_memory", lambda device: 2**30)
    tried = failing(monkeypatch, OUT_OF_MEMORY[1], lambda plan: plan.sampler.tile == 1)
    values, _ = spectra(6, start=2, batch=5, solver="device_svd")
    assert list(dict.fromkeys(plan.sampler.tile for plan in tried)) == [5, 2, 1]
    np.testing.assert_allclose(values, whole[0][2:8], rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("condition", "rtol"), [(1e8, 1e-12), (2.0, 1e-5)])
def test_an_accelerator_leaves_to_lapack_what_float32_hides_from_it(monkeypatch, condition, rtol):
    ill = Waves(condition)
    expected, _ = spectra(20, ensemble=ill, precision="float32", solver="svd")
    for module in ("_compiled_sampler", "_spectra"):
        monkeypatch.setattr(f"rmtbase.montecarlo.{module}.is_cpu", lambda device: False)
    monkeypatch.setattr("rmtbase.montecarlo._compiled_sampler.device_memory", lambda device: 2**30)
    found, _ = spectra(20, ensemble=ill, precision="float32", solver="device_svd")
    np.testing.assert_allclose(found, expected, rtol=rtol)


def test_memory_that_is_not_there_is_named_and_other_errors_are_passed_on(monkeypatch):
    with monkeypatch.context() as patch:
        failing(patch, OUT_OF_MEMORY[0], lambda plan: False)
        with pytest.raises(AllocationError, match=r"waves: out of memory .* 8 × 8 .* 512 bytes") as caught:
            spectra(3)
    assert (caught.value.shape, caught.value.needed) == ((8, 8), 512)
    tried = failing(monkeypatch, jax.errors.JaxRuntimeError("INTERNAL: broken"), lambda plan: False)
    with pytest.raises(jax.errors.JaxRuntimeError, match="broken"):
        spectra(3, cores=1)
    assert len(tried) == 1


def test_few_large_matrices_at_once_where_memory_is_small(monkeypatch):
    monkeypatch.setattr("rmtbase.montecarlo._compiled_sampler.host_memory", lambda: 16 * 2 * 8 * 8 * 8 * TILE)
    tried = failing(monkeypatch, MemoryError(), lambda plan: True)
    spectra(4 * TILE, cores=4)
    assert {plan.workers for plan in tried} == {2}


def test_blas_has_one_thread_while_drawing_and_its_own_number_afterwards():
    before = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    chunks = draw_spectra(ENSEMBLE, 3, 0)
    next(chunks)
    assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {1}
    chunks.close()
    assert [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"] == before


BAD = [
    ("draws", 0), ("draws", 2.0), ("draws", True), ("draws", 2**32), ("start", -1), ("start", 1.0), ("start", True),
    ("start", 2**32), ("batch", 0), ("batch", "4"), ("precision", "float16"), ("precision", None), ("solver", "qr"),
    ("solver", 1), ("cores", 0), ("cores", True), ("devices", 0), ("devices", 1000), ("devices", []),
    ("devices", ["cpu:0"]), ("devices", "cpu"), ("seed", -1), ("seed", float("nan")),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_parameters_outside_their_domain_are_refused_when_the_run_is_asked_for(name, value):
    with pytest.raises(ParameterError) as caught:
        draw_spectra(ENSEMBLE, **({"draws": 3, "seed": 0} | {name: value}))
    assert caught.value.name == name


RUNS = {
    "svd": {"draws": 5 * TILE, "start": 7, "solver": "svd"},
    "device_svd": {"draws": 5 * TILE, "start": 7, "solver": "device_svd"},
    "single": {"draws": 3, "start": 1, "ensemble": SMALL, "solver": "gram", "precision": "float32"},
    "large": {"draws": 3, "start": 1, "ensemble": LARGE, "solver": "gram"},
}


def digests(runs, devices):
    arrays = {name: spectra(**RUNS[name], devices=devices) for name in runs}
    return {name: [hashlib.sha256(one.tobytes()).hexdigest() for one in of_run] for name, of_run in arrays.items()}


@pytest.mark.exhaustive
@pytest.mark.parametrize("where", ELSEWHERE)
def test_draws_do_not_depend_on_the_machines_cores_nor_on_the_devices(where, elsewhere):
    here = digests(ELSEWHERE[where][0], None)
    out, error = elsewhere[where].communicate(timeout=300)
    assert elsewhere[where].returncode == 0, error
    assert json.loads(out) == here


PLAN = make_plan("low_rank_product", [{"d_model": 64, "d_head": 16}], 10**6, chunk=50_000, keep_sample=False)


def interrupted_spectra():
    for chunk in PLAN.chunks:
        compute_chunk(PLAN, chunk, "gram")


def interrupted_elements():
    for _ in draw_elements(low_rank_product(64, 16, "dense"), 10**6, 0):
        pass


def ours():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rmtbase-")]


@pytest.fixture
def interrupt():
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


# Between the opening of a file and its with statement an interrupt leaves it to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*unclosed file.*:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.exhaustive
@pytest.mark.parametrize("draw", mostly_exhaustive([interrupted_spectra, interrupted_elements], always=1))
def test_interrupt_at_any_moment_ends_the_threads_that_draw(draw, interrupt):
    seen = threading.Event()

    def watch():
        while not seen.is_set():
            if ours():
                seen.set()
            time.sleep(0.001)

    threading.Thread(target=watch, daemon=True).start()
    for moment in itertools.chain([1.5], (0.05 + 0.05 * step for step in range(4))):
        interrupt(moment)
        with pytest.raises(KeyboardInterrupt) as held:
            draw()
        assert ours() == [], held
    assert seen.is_set()
