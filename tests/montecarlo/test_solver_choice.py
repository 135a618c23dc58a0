"""The solver is chosen from measurements, for a reason that is given, and the same way every time."""

import json
from pathlib import Path

import pytest
from waves import Waves

from rmtbase.ensembles import low_rank_product
from rmtbase.errors import ParameterError
from rmtbase.linalg import HOST_SOLVERS, MICROSECONDS, PRECISIONS, SOLVERS, measured_solver
from rmtbase.montecarlo import choose_solver
from rmtbase.montecarlo._draws import _solver_choice

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "solvers.json"


def test_the_table_is_that_of_the_committed_measurements():
    committed = json.loads(RESULTS.read_text())
    table = MICROSECONDS[committed["device_kind"]]
    assert set(table) == set(committed["times"]) == set(PRECISIONS)
    for precision, by_solver in committed["times"].items():
        assert set(table[precision]) == set(by_solver) == set(HOST_SOLVERS)
        for solver, by_size in by_solver.items():
            assert table[precision][solver] == pytest.approx(
                {int(size): time for size, time in by_size.items()}, rel=0.01
            )


def test_the_gram_matrix_where_it_keeps_the_digits_and_the_svd_where_it_does_not():
    head = choose_solver(low_rank_product(768, 64))
    assert head.name == "gram"
    assert "allows the Gram matrix" in head.reason
    square = choose_solver(low_rank_product(64, 64))
    assert square.name == "svd"
    assert "forbids the Gram matrix" in square.reason


def test_the_choice_is_the_same_every_time():
    assert len({choose_solver(Waves(2.0)) for _ in range(3)}) == 1


@pytest.mark.parametrize("condition", [float("inf"), float("nan")])
def test_singular_and_broken_matrices_go_to_the_svd(condition):
    assert measured_solver("cpu", 64, "float64", condition).name == "svd"


def test_solvers_are_timed_at_once_on_a_device_of_which_there_are_no_measurements(monkeypatch):
    times = dict(zip(SOLVERS, (4.0, 3.0, 2.0, 1.0), strict=True))
    monkeypatch.setattr(_solver_choice, "is_measured", lambda kind: False)
    monkeypatch.setattr(_solver_choice, "_microseconds", lambda load: times[load.program.solver])
    well = choose_solver(Waves(2.0))
    assert well.name == "device_gram"
    assert well.reason.startswith("timed on cpu: device_gram 1 µs, device_svd 2 µs, gram 3 µs, svd 4 µs;")
    assert choose_solver(Waves(1e6)).name == "device_svd"


def test_all_solvers_are_timed(monkeypatch):
    monkeypatch.setattr(_solver_choice, "is_measured", lambda kind: False)
    reason = choose_solver(Waves(2.0)).reason
    assert all(f"{solver} " in reason for solver in SOLVERS)


def test_unknown_precision_is_refused():
    with pytest.raises(ParameterError, match="precision = 'float16'"):
        choose_solver(low_rank_product(8, 2), "float16")
