"""Spectra of many draws of an ensemble, batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from functools import partial
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float64

from rmtbase.ensembles import Ensemble
from rmtbase.linalg import available_cores, require_precision, require_solver, single_threaded_blas
from rmtbase.montecarlo._compiled_sampler import BatchPlan, CompiledSampler, plan_batches
from rmtbase.montecarlo._keys import case_key, require_indices
from rmtbase.montecarlo._machine import Devices, in_order, is_cpu, local_devices, require_draw_fits, require_workers
from rmtbase.montecarlo._solver_choice import choose_solver
from rmtbase.parameters import require_positive_integer
from rmtbase.progress import SILENT, Progress
from rmtbase.shown import in_one_line

Precision = Literal["float64", "float32"]


@in_one_line
class SpectrumChunk(NamedTuple):
    """Spectra of consecutive draws."""

    start: int  #: index of the first draw
    #: (draw, rank), descending, of the ensemble's matrix, each factor at σ = 1
    singular_values: Float64[np.ndarray, "draw rank"]
    norm_squared: Float64[np.ndarray, "draw factor"]  #: ‖X‖_F² of each factor, (draw, factor)


def draw_spectra(
    ensemble: Ensemble,
    draws: int,
    seed: int,
    case: str | None = None,
    *,
    start: int = 0,
    batch: int | None = None,
    precision: Precision = "float64",
    solver: str | None = None,
    cores: int | None = None,
    devices: Devices = None,
    progress: Progress = SILENT,
) -> Generator[SpectrumChunk, None, None]:
    """Yield the spectra of the draws start, …, start + draws - 1, batch by batch.

    A draw is a function of the ensemble, seed, case, its own index, precision and solver: on a CPU to the bit, whatever
    the batch, the first index, and the number of cores and (virtual) devices. On an accelerator the random bits are
    those of a CPU, and the singular values agree to a few n ε s_1, n the rank and ε of the precision
    (``benchmarks/results/engine_accelerator.json``).

    BLAS stays at one thread while the iterator is open. When it is closed or left by an exception (also Ctrl-C), it
    starts no further work and waits for its threads. Memory does not grow with the draws.

    ``precision="float32"`` makes other draws, of half the size. JAX's normals are then one of 2²³ numbers up to ±5.42,
    with mean -3e-7, variance 1 - 8e-8 and fourth moment 3 (1 - 2e-6): no mean of a statistic differs from float64's by
    more than the Monte Carlo error of 20 000 draws (2 000 at (4096, 128)). Host solvers still solve in float64; device
    solvers have an error of at most 5e-6 in every statistic at (d_model, d_head) = (768, 64), 1.4e-6 at (4096, 128),
    and at (64, 64) 1e-3 in the smallest eigenvalue and the condition number and 3e-6 in the others
    (``benchmarks/results/solvers.json``). In float32 an accelerator leaves draws with λ_1/λ_r over 10⁴ to the host.

    Args:
        ensemble: the ensemble to draw.
        draws: number of draws.
        seed: seed of the whole run.
        case: name of the case, which with the seed and the index determines a draw; by default that of the ensemble.
        start: index of the first draw.
        batch: draws in memory at once (for each core, on CPUs), rounded up to whole tiles of each device; chosen by the
            available memory if None. It is halved when an allocation fails, repeatedly, down to one tile.
        precision: ``"float64"`` or ``"float32"``, of the draws and their matrices; results are float64.
        solver: one of ``rmtbase.linalg.SOLVERS``; chosen by :func:`choose_solver` if None.
        cores: number of cores to use; all that the process may use if None.
        devices: number of local devices of JAX's default backend to use, or the devices; all if None.
        progress: receives the number of finished draws after each batch.

    Raises:
        ParameterError: a number is not a positive integer or too large for this machine, an index exceeds 32 bits, or
            the seed, precision or solver is outside its domain.
        AllocationError: even one draw at a time does not fit in memory.
        ForkedProcessError: this process was forked from a process that had used JAX.
    """
    start, draws = require_indices(start, draws)
    if batch is not None:
        batch = require_positive_integer("batch", batch)
    require_precision(precision)
    cores = available_cores() if cores is None else require_workers("cores", cores)
    chosen = local_devices(devices)
    require_draw_fits(ensemble, precision, chosen)
    if solver is not None:
        require_solver(solver)
    key = case_key(seed, ensemble.name if case is None else case)

    def batches() -> Generator[SpectrumChunk, None, None]:
        name = solver or choose_solver(ensemble, precision, devices=chosen, cores=cores).name
        sampler = CompiledSampler(ensemble, key, precision, chosen, 1, name)
        plan = plan_batches(sampler, draws, batch, cores)
        advance = progress.bar("drawing", draws)
        with closing(_chunks(plan, start, start + draws)) as chunks:
            for chunk in chunks:
                yield chunk
                advance(len(chunk.singular_values))

    return batches()


def _chunks(plan: BatchPlan, start: int, stop: int) -> Generator[SpectrumChunk, None, None]:
    with single_threaded_blas():
        while start < stop:
            begin = start - start % plan.sampler.tile if is_cpu(plan.sampler.devices[0]) else start
            firsts, draw = range(begin, stop, plan.draws), partial(plan.spectra, stop=stop)
            with closing(in_order(draw, firsts, plan.workers, 2 * plan.workers, "rmtbase-spectrum")) as batches:
                for first, batch in zip(firsts, batches, strict=True):
                    try:
                        values, norms = batch.result()
                    except (MemoryError, jax.errors.JaxRuntimeError) as error:
                        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
                            raise
                        plan = plan.smaller()
                        break
                    rows = slice(start - first, stop - first)
                    chunk = SpectrumChunk(start, values[rows], norms[rows])
                    start += len(chunk.singular_values)
                    yield chunk
