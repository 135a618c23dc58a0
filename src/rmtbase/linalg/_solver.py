"""Singular values of a stack of small matrices, with all cores busy and none oversubscribed."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

_STACKED_BELOW = 512  # up to this size LAPACK on one core per matrix beats a threaded LAPACK on one matrix


def available_cores() -> int:
    """Cores that this process may use (its CPU affinity where the system tells it)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def single_threaded_blas() -> threadpool_limits:
    """A context in which BLAS uses one thread per call, for code that spreads its calls over the cores itself."""
    return threadpool_limits(limits=1, user_api="blas")


def singular_values(stack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Singular values ``(..., min(p, q))`` of matrices ``(..., p, q)``, descending; without the vectors."""
    return np.asarray(np.linalg.svd(stack, compute_uv=False), dtype=np.float64)


def matrix_singular_values(matrix: NDArray[np.float64], cores: int | None = None) -> NDArray[np.float64]:
    """Singular values of one matrix, descending: on all cores where it is large enough to gain by it."""
    if max(matrix.shape) <= _STACKED_BELOW:
        return singular_values(matrix)
    with threadpool_limits(limits=available_cores() if cores is None else cores, user_api="blas"):
        return singular_values(matrix)


class SpectrumSolver:
    """Values-only SVD of a stack ``(n, p, q)``: one single-threaded LAPACK call per matrix, spread over the cores.

    LAPACK's own threads and a thread pool on top of each other stall on stacks of 128 x 128 matrices, so the BLAS
    thread count is pinned to one while the solver is open and the pool owns the cores. Each matrix is solved
    alone: its singular values do not depend on the stack it came in, nor on the number of cores.

    Matrices of more than 512 rows are solved one after the other, with BLAS's own threads.

    Use as a context manager::

        with SpectrumSolver() as solver:
            s = solver.singular_values(stack)          # (n, min(p, q)), descending
    """

    name = "LAPACK gesdd, values only (numpy.linalg.svd)"

    def __init__(self, cores: int | None = None) -> None:
        self.cores = cores if cores is not None else available_cores()
        self._pool: ThreadPoolExecutor | None = None
        self._limits: Any = None

    def __enter__(self) -> SpectrumSolver:
        self._limits = single_threaded_blas()
        self._pool = ThreadPoolExecutor(self.cores, thread_name_prefix="rmtbase-spectrum")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._limits is not None:
            self._limits.restore_original_limits()

    def singular_values(self, stack: NDArray[np.float64]) -> NDArray[np.float64]:
        """Singular values ``(n, min(p, q))`` of a stack ``(n, p, q)``, descending along the last axis."""
        if self._pool is None:
            raise RuntimeError("SpectrumSolver is used outside its `with` block")
        if stack.shape[0] == 0:
            return np.empty((0, min(stack.shape[1:])))
        if max(stack.shape[1:]) > _STACKED_BELOW:
            return np.stack([matrix_singular_values(matrix, self.cores) for matrix in stack])
        # More parts than cores: the last part of an uneven split is then a short one.
        parts = np.array_split(stack, min(len(stack), 4 * self.cores))
        return np.concatenate(list(self._pool.map(singular_values, parts)))
