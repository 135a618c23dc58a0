"""What cannot be is refused before anything is drawn, with the number, the limit and what to do."""

import math
import tracemalloc

import numpy as np
import pytest

import rmtbase
from rmtbase.ensembles import low_rank_product, make_ensemble
from rmtbase.errors import AllocationError, OutputError, ParameterError
from rmtbase.linalg import available_cores
from rmtbase.montecarlo import (
    LocalProcesses,
    draw_elements,
    draw_spectra,
    make_plan,
    run_plan,
    simulate_gaussian_matrix,
    simulate_heads_with_factors,
)
from telling import Told

SMALL = [{"n_rows": 6, "n_columns": 4}]


def refused(kind, *words):
    return pytest.raises(kind, match="(?s)^[^\n]*" + "[^\n]*".join(words) + "[^\n]*$")


def test_matrices_and_results_that_no_memory_holds_are_refused():
    for size in (10**6, 10**12):
        words = ("low_rank_product", f"{size} × {size}, takes at least", "bytes of memory", "smaller")
        with refused(AllocationError, *words):
            rmtbase.baseline(size, size, draws=2)
    large = make_ensemble("initialized_matrix", {"n_rows": 10**6, "n_columns": 10**6})
    for ensemble in (large, low_rank_product(10**6, 10**6), low_rank_product(10**6, 10**6, "dense")):
        with refused(AllocationError, "1000000 × 1000000, takes"):
            draw_spectra(ensemble, 2, 0)
    with refused(AllocationError, r"1000000000000 × 1000000000000"):
        simulate_gaussian_matrix(10**12, 10**12, 2)
    with refused(AllocationError, "2 × 1000000 × 1000000"):
        simulate_heads_with_factors(10**6, 10**6, 2, 2)
    with refused(AllocationError, "1000000 × 1000000"):
        draw_elements(low_rank_product(10**6, 10**6, "dense"), 2, 0)
    with refused(AllocationError, "4 × 1000000000000"):
        draw_elements(make_ensemble("gaussian_chain", {"dims": (4, 10**12), "method": "dense"}), 2, 0)
    with refused(ParameterError, "draws = 4000000000: expected at most", "run_plan keeps them on disk"):
        rmtbase.baseline(32, 8, draws=4 * 10**9)
    with refused(ParameterError, "draws = 100000000000: expected at most", "80 bytes of memory"):
        simulate_gaussian_matrix(8, 8, 10**11)
    with refused(ParameterError, "draws = 100000000000: expected at most", "ask for fewer"):
        simulate_heads_with_factors(8, 4, 2, 10**11)


@pytest.mark.exhaustive
def test_a_thousand_million_draws_of_elements_take_the_memory_of_one():
    tracemalloc.start()
    first = next(draw_elements(low_rank_product(16, 4, "dense"), 10**9, 0, cores=1))
    assert first.statistics.shape == (1, 10)
    assert np.isfinite(first.statistics).all()
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


def test_chunks_samples_and_files_that_memory_and_disk_do_not_hold(tmp_path):
    many, output = 4 * 10**9, tmp_path / "table.nc"
    with refused(ParameterError, "chunk = 4000000000: expected at most", "of memory available"):
        run_plan(make_plan("gaussian_matrix", SMALL, many, chunk=many, keep_sample=False), output)
    with refused(ParameterError, "draws = 4000000000: expected at most", "keep_sample = false"):
        run_plan(make_plan("gaussian_matrix", SMALL, many, chunk=10**6), output)
    cases = [{"n_rows": 6 + more, "n_columns": 4} for more in range(10)]
    with refused(OutputError, "cannot write", "TiB of disk at least", "are free on that disk", "fewer draws"):
        run_plan(make_plan("gaussian_matrix", cases, many, chunk=10**6, keep_sample=False), output)
    assert list(tmp_path.iterdir()) == []
    with refused(ParameterError, "chunk = 1: expected more draws in each of 2,147,483,648 chunks", "1,000,000"):
        make_plan("gaussian_matrix", SMALL, 2**31, chunk=1, keep_sample=False)


@pytest.mark.parametrize("workers", [10**6, 10**15])
def test_far_more_workers_than_cores(workers, tmp_path):
    plan = make_plan("gaussian_matrix", SMALL, 100)
    most = max(8, 4 * available_cores())
    with refused(ParameterError, f"workers = {workers}: expected at most {most} with"):
        run_plan(plan, tmp_path / "table.nc", executor=LocalProcesses(workers))
    with refused(ParameterError, f"cores = {workers}: expected at most {most} with"):
        draw_spectra(low_rank_product(8, 2), 4, 0, cores=workers)


SHAPE = (32, 8)
REFUSED = [
    *(("d_head", 33, "at most d_model = 32", (d_model, 33), {}) for d_model in (32, [64, 32])),
    *(("d_head", found, "integer", (32, found), {}) for found in (0, -8, 8.0, "8", True, None, np.float64(8))),
    *(("d_model", found, "integer", (found, 1), {}) for found in (0, -8, 8.0, "8", True, None, np.float64(8))),
    ("d_model", 10**30, "at most", (10**30, 2), {}),
    ("d_head", [8, 4, 2], "one for each of the 2 of d_model", ([32, 64], [8, 4, 2]), {}),
    ("d_model", [], "at least one value", ([], 8), {}),
    *(("draws", found, "integer", SHAPE, {"draws": found}) for found in (0, -1, 2.0, "10", True, None)),
    ("draws", 1, "at least 2", SHAPE, {"draws": 1}),
    *(("draws", found, "", SHAPE, {"draws": found}) for found in (2**32, 10**13, 10**30)),
    *(
        ("sigma", found, "number", SHAPE, {"sigma": sigma})
        for found in (0, 0.0, -0.02, math.nan, math.inf, "0.02", None, True)
        for sigma in (found, [1.0, found], (1.0, found))
    ),
    ("sigma", (1, 2, 3), "a pair", SHAPE, {"sigma": (1, 2, 3)}),
    *(("sigma", found, "", SHAPE, {"sigma": found}) for found in (1e200, 1e60, 1e-60, 1e-200)),
    *(("seed", found, "an integer", SHAPE, {"seed": found}) for found in (-1, 2**63, 1.0, "0", True, None)),
    *(("normalization", found, "'sqrt_d'", SHAPE, {"normalization": found}) for found in ("sqrt", "", None, 1)),
]


@pytest.mark.parametrize(("name", "found", "expected", "arguments", "options"), REFUSED, ids=repr)
def test_baseline_names_what_is_outside_its_domain(name, found, expected, arguments, options):
    told = Told()
    with pytest.raises(ParameterError) as caught:
        rmtbase.baseline(*arguments, **{"draws": 10, "progress": told} | options)
    assert caught.value.name.startswith(name)  # or an item of it, such as sigma[1]
    assert f" = {found!r}: expected" in str(caught.value)
    assert expected in str(caught.value)
    assert not told.steps  # drawing has not begun


def test_numpy_numbers_are_numbers():
    usual = rmtbase.baseline(32, 8, 0.5, draws=8)
    for size in (np.int64(8), np.array(8)):
        assert rmtbase.baseline(32, size, 0.5, draws=size, seed=np.int64(0)).equals(usual)
    for sigma in (np.float64(0.5), np.array(0.5), np.array([0.5]), np.float32(0.5)):
        assert rmtbase.baseline(32, 8, sigma, draws=8).equals(usual)
