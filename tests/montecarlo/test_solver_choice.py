"""The solver is chosen from measurements, for a reason that is given, and the same way every time."""

import json
import time
from pathlib import Path

import jax
import pytest
from waves import Waves

from rmtbase.ensembles import low_rank_product
from rmtbase.linalg import DEVICE_SOLVERS, HOST_SOLVERS, PRECISIONS, SOLVERS, singular_values
from rmtbase.montecarlo import MICROSECONDS, choose_solver, measured_solver, tile_size

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
