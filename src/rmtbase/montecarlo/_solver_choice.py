"""Which solver an ensemble's spectra are solved with."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat

import jax
import numpy as np
from jaxtyping import Float

from rmtbase.ensembles import Ensemble
from rmtbase.linalg import (
    DEVICE_SOLVERS,
    HOST_SOLVERS,
    SolverChoice,
    available_cores,
    fastest_solver,
    is_measured,
    measured_solver,
    reproducible_jax,
    require_precision,
    single_threaded_blas,
    singular_values,
)
from rmtbase.montecarlo._compiled_sampler import CompiledSampler, plan_batches, solve_on_device, tile_size
from rmtbase.montecarlo._keys import case_key
from rmtbase.montecarlo._machine import Device, Devices, is_cpu, local_devices
from rmtbase.montecarlo._memory import require_draw_fits

Stack = Float[np.ndarray, "draw rows columns"]

_PROBES = 4  # draws that tell how ill-conditioned the ensemble is
_MANY = 2**20  # draws: more than are ever drawn at once
_LONG_ENOUGH = 0.05  # seconds that a solver is timed for, at least
_MORE = 16  # times the matrices timed before


def choose_solver(
    ensemble: Ensemble, precision: str = "float64", *, devices: Devices = None, cores: int | None = None
) -> SolverChoice:
    """The solver for an ensemble, and why: the fastest of those whose accuracy its conditioning allows.

    λ_1/λ_rank of four draws, always the same, tells whether Gram matrices keep the digits (a draw for which they do not
    is recognised and solved otherwise, whatever is chosen). The times are measurements that the package holds; on a
    device of a kind that it has none of, each solver is timed at once, compiled for several sizes of a stack, which
    takes some seconds (15 on an H100, the start of JAX included). On a CPU the choice is a function of ensemble and
    precision alone.

    Args:
        ensemble: what will be drawn.
        precision: ``"float64"`` or ``"float32"``.
        devices: as of :func:`draw_spectra`.
        cores: as of :func:`draw_spectra`.

    Raises:
        ParameterError: an unknown precision, or devices that are not there.
        AllocationError: the matrices that are drawn to find out do not fit in memory.
    """
    require_precision(precision)
    chosen, cores = local_devices(devices), cores or available_cores()
    require_draw_fits(ensemble, precision, chosen)
    key = case_key(0, ensemble.name)
    sampler = CompiledSampler(ensemble, key, precision, chosen, tile_size(ensemble.matrix_shape), "svd")
    condition, kind = _condition(sampler), chosen[0].device_kind
    if is_measured(kind):
        return measured_solver(kind, min(ensemble.matrix_shape), precision, condition)
    on_one = replace(sampler, devices=chosen[:1], tile=1, solver="device_svd")
    stack, _ = plan_batches(on_one, _MANY, None, cores).sampler.matrices(0)
    microseconds = {name: time_solver(name, stack, chosen[0], cores) for name in HOST_SOLVERS}
    microseconds |= {name: time_solver(name, stack, chosen[0], cores) / len(chosen) for name in DEVICE_SOLVERS}
    return fastest_solver(microseconds, condition, precision, f"timed on {kind}")


def time_solver(solver: str, stack: Stack, device: Device, cores: int, first: int = 1) -> float:
    """Microseconds per matrix, with that device busy or, if the solver is one of the host, with so many cores.

    Of ever more matrices, until it takes long enough to tell or they are all: so that one which takes a stack at once
    is given a large one, and one that takes a matrix after the other is not waited for.

    Args:
        solver: one of ``rmtbase.linalg.SOLVERS``.
        stack: matrices, in the precision that a device solves in.
        device: where a device's solver runs.
        cores: that a host's solver runs on, each with as many of the matrices.
        first: how many matrices to begin with.
    """
    count, at_once = first, cores if solver in HOST_SOLVERS else 1
    with single_threaded_blas(), reproducible_jax(str(stack.dtype)), ThreadPoolExecutor(at_once) as pool:
        while True:
            part = stack[:count]
            solve = _on_the_host(solver, part, pool, cores) if solver in HOST_SOLVERS else _on(device, solver, part)
            solve()  # compiles
            begin = time.perf_counter()
            solve()
            seconds = time.perf_counter() - begin
            if seconds > _LONG_ENOUGH or count >= len(stack):
                return 1e6 * seconds / (len(part) * at_once)
            count *= _MORE


def _on_the_host(solver: str, stack: Stack, pool: ThreadPoolExecutor, cores: int) -> Callable[[], object]:
    return lambda: list(pool.map(HOST_SOLVERS[solver], repeat(stack, cores), repeat(None)))


def _on(device: Device, solver: str, stack: Stack) -> Callable[[], object]:
    there = jax.device_put(stack, device)
    return lambda: jax.block_until_ready(solve_on_device(there, solver, on_cpu=is_cpu(device)))


def _condition(sampler: CompiledSampler) -> float:
    """The largest λ_1/λ_rank of the first draws."""
    matrices = np.concatenate([sampler.matrices(first)[0] for first in range(0, _PROBES, sampler.draws)])[:_PROBES]
    with single_threaded_blas(), np.errstate(divide="ignore", invalid="ignore"):
        values = singular_values(matrices, sampler.ensemble.rank)
        return float(np.max((values[:, 0] / values[:, -1]) ** 2))
