"""Choice of the solver for the spectra of an ensemble."""

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

_PROBES = 4  # draws that show how ill-conditioned the ensemble is
_MANY = 2**20  # draws: more than are ever drawn at once
_LONG_ENOUGH = 0.05  # least time of a solver's timing, in seconds
_MORE = 16  # factor by which the number of timed matrices grows


def choose_solver(
    ensemble: Ensemble, precision: str = "float64", *, devices: Devices = None, cores: int | None = None
) -> SolverChoice:
    """Choose the fastest solver that is accurate enough for an ensemble, and give the reason.

    λ_1/λ_rank of four draws, always the same ones, shows whether Gram matrices keep the digits. (A single draw for
    which they do not is recognised and solved in another way, whatever the choice.) The times are measurements stored
    in the package. For a kind of device without stored measurements, each solver is compiled and timed for stacks of
    several sizes, which takes some seconds (15 on an H100, including the start of JAX). On a CPU the choice depends
    only on the ensemble and the precision.
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
    """Measure microseconds per matrix, with the device busy or, for a host solver, with that many cores busy.

    The number of matrices grows until the timing is long enough or the stack is used up. So a solver that takes a stack
    at once is given a large one, and one that takes the matrices one by one does not run for long.
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
    array = jax.device_put(stack, device)
    return lambda: jax.block_until_ready(solve_on_device(array, solver, on_cpu=is_cpu(device)))


def _condition(sampler: CompiledSampler) -> float:
    """Return the largest λ_1/λ_rank of the first draws."""
    matrices = np.concatenate([sampler.matrices(first)[0] for first in range(0, _PROBES, sampler.draws)])[:_PROBES]
    with single_threaded_blas(), np.errstate(divide="ignore", invalid="ignore"):
        values = singular_values(matrices, sampler.ensemble.rank)
        return float(np.max((values[:, 0] / values[:, -1]) ** 2))
