"""One limit on the threads of BLAS for the whole process: whoever comes and goes, it ends as it began."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from rmtbase.linalg import blas_threads, matrix_singular_values, single_threaded_blas, singular_values


def blas():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def before():
    with threadpool_limits(3, user_api="blas"):
        yield blas()


def test_overlapping_calls_of_two_threads_leave_blas_as_it_was(before):
    # The first to come is the first to go: each by itself would restore what it found.
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def first():
        with single_threaded_blas():
            first_is_in.set()
            second_is_in.wait(60)

    def second():
        first_is_in.wait(60)
        with single_threaded_blas():
            second_is_in.set()
            one.join(60)
            assert set(blas().values()) == {1}

    one = threading.Thread(target=first)
    one.start()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(second).result(60)
    assert blas() == before


def test_solvers_in_many_threads_at_once_leave_blas_as_it_was(before):
    stack = np.random.default_rng(0).standard_normal((8, 40, 40))

    def solve(number):
        with single_threaded_blas():
            return singular_values(stack)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(solve, range(40)))
    assert blas() == before
    for one in found:
        np.testing.assert_array_equal(one, found[0])


def test_the_innermost_limit_of_a_thread_and_between_threads_the_smallest_counts(before):
    with single_threaded_blas():
        with blas_threads(2):
            assert set(blas().values()) == {2}
            with single_threaded_blas():
                assert set(blas().values()) == {1}
            assert set(blas().values()) == {2}
        assert set(blas().values()) == {1}
    assert blas() == before

    def many():
        with blas_threads(2):
            return set(blas().values())

    with ThreadPoolExecutor(1) as pool:
        with single_threaded_blas():
            assert pool.submit(many).result(60) == {1}
        assert pool.submit(many).result(60) == {2}
    assert blas() == before
    matrix = np.random.default_rng(0).standard_normal((520, 4))
    matrix_singular_values(matrix, cores=2)
    assert blas() == before


FORK = """
import os, threading
from threadpoolctl import threadpool_info, threadpool_limits
from rmtbase.linalg import single_threaded_blas

def blas():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

threadpool_limits(3, user_api="blas")
held, ended = threading.Event(), threading.Event()

def hold():
    with single_threaded_blas():
        held.set()
        ended.wait(60)

other = threading.Thread(target=hold)
other.start()
held.wait(60)
if os.fork() == 0:
    with single_threaded_blas():
        assert blas() == {1}
    os._exit(0 if blas() == {3} else 1)
status = os.wait()[1]
ended.set()
other.join()
print(status, blas())
"""


def test_child_of_a_fork_is_not_bound_by_the_limits_of_threads_that_it_has_not():
    ended = subprocess.run([sys.executable, "-c", FORK], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "0 {3}\n", ended.stderr
