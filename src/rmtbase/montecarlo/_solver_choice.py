"""Which solver an ensemble's spectra are solved with."""

from __future__ import annotations

import time

import numpy as np

from rmtbase.ensembles import Ensemble
from rmtbase.linalg import (
    HOST_SOLVERS,
    SOLVERS,
    SolverChoice,
    available_cores,
    fastest_solver,
    is_measured,
    measured_solver,
    require_precision,
    single_threaded_blas,
    singular_values,
)
from rmtbase.montecarlo._compiled_sampler import BatchPlan, CompiledSampler, plan_batches, tile_size
from rmtbase.montecarlo._keys import case_key
from rmtbase.montecarlo._machine import Devices, local_devices
from rmtbase.montecarlo._memory import require_draw_fits

_PROBES = 4  # draws that tell how ill-conditioned the ensemble is
_MANY = 2**20  # draws: more than are ever timed at once


def choose_solver(
    ensemble: Ensemble, precision: str = "float64", *, devices: Devices = None, cores: int | None = None
) -> SolverChoice:
    """The solver for an ensemble, and why: the fastest of those whose accuracy its conditioning allows.

    λ_1/λ_rank of four draws, always the same, tells whether Gram matrices keep the digits (a draw for which they do not
    is recognised and solved otherwise, whatever is chosen). The times are measurements that the package holds; on a
    device of a kind that it has none of, each solver is timed at once. On a CPU the choice is a function of ensemble
    and precision alone.

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
    with single_threaded_blas():
        samplers = [CompiledSampler(ensemble, key, precision, chosen, 1, name) for name in SOLVERS]
        microseconds = {one.solver: _microseconds(plan_batches(one, _MANY, None, cores)) for one in samplers}
    return fastest_solver(microseconds, condition, precision, f"timed on {kind}")


def _condition(sampler: CompiledSampler) -> float:
    """The largest λ_1/λ_rank of the first draws."""
    matrices = np.concatenate([sampler.matrices(first)[0] for first in range(0, _PROBES, sampler.draws)])[:_PROBES]
    with single_threaded_blas(), np.errstate(divide="ignore", invalid="ignore"):
        values = singular_values(matrices, sampler.ensemble.rank)
        return float(np.max((values[:, 0] / values[:, -1]) ** 2))


def _microseconds(plan: BatchPlan) -> float:
    sampler = plan.sampler
    sampler.spectra(0)  # compiles
    begin = time.perf_counter()
    sampler.spectra(sampler.draws)
    at_once = plan.workers if sampler.solver in HOST_SOLVERS else 1
    return 1e6 * (time.perf_counter() - begin) / (sampler.draws * at_once)
