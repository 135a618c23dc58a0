"""What cannot be is refused before anything is drawn, with the number, the limit and what to do."""

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

SMALL = [{"n_rows": 6, "n_columns": 4}]


def refused(kind, *words):
    """An error of one line with these words."""
    return pytest.raises(kind, match="(?s)^[^\n]*" + "[^\n]*".join(words) + "[^\n]*$")


def test_matrices_that_no_memory_holds_are_refused_whatever_they_are_drawn_with():
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


def test_draws_whose_results_no_memory_holds():
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
        run_plan(make_plan("gaussian_matrix", SMALL, many), output)
    cases = [{"n_rows": 6 + more, "n_columns": 4} for more in range(10)]
    with refused(OutputError, "cannot write", "TiB of disk at least", "are free on that disk", "fewer draws"):
        run_plan(make_plan("gaussian_matrix", cases, many, keep_sample=False), output)
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
