"""Choice of the fastest solver for the spectra of an ensemble, from measurements."""

import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from rmtbase import linalg
from rmtbase.ensembles import Ensemble
from rmtbase.montecarlo._compiled_sampler import CompiledSampler, plan_batches, solve_on_device, tile_size
from rmtbase.montecarlo._keys import case_key
from rmtbase.montecarlo._machine import Device, Devices, is_cpu, local_devices, require_draw_fits

Stack = Float[np.ndarray, "draw rows columns"]

MICROSECONDS: dict[str, dict[str, dict[str, dict[int, float]]]] = {
    "cpu": {
        "float64": {
            "svd": {8: 4.06, 16: 11.8, 32: 37.8, 64: 135, 128: 661, 256: 3760, 512: 25700},
            "gram": {8: 2.62, 16: 8.43, 32: 29, 64: 110, 128: 484, 256: 2280, 512: 12800},
        },
        "float32": {
            "svd": {8: 4.11, 16: 11.8, 32: 38, 64: 136, 128: 664, 256: 3790, 512: 25300},
            "gram": {8: 2.65, 16: 8.43, 32: 29.4, 64: 111, 128: 486, 256: 2300, 512: 12900},
        },
    },
    "NVIDIA H100 80GB HBM3": {
        "float64": {
            "device_svd": {8: 0.0608, 16: 0.571, 32: 3.1, 64: 11.6, 128: 74.9, 256: 431, 512: 2170},
            "device_gram": {8: 0.0392, 16: 0.0624, 32: 0.57, 64: 3.11, 128: 11.9, 256: 84.5, 512: 523},
        },
        "float32": {
            "device_svd": {8: 0.0551, 16: 0.267, 32: 1.94, 64: 6.68, 128: 34, 256: 286, 512: 1610},
            "device_gram": {8: 0.0259, 16: 0.0557, 32: 0.261, 64: 2, 128: 6.88, 256: 35, 512: 330},
        },
    },
}
"""Microseconds per n × n matrix: device kind → precision of the matrices → solver → n.

``"cpu"`` lists the host's solvers on one core. An accelerator lists its own solvers, which take all matrices of a stack
at once, but not those of its host, whose 16 cores took longer at every size. Measured by ``benchmarks/solvers.py``; the
results are in ``benchmarks/results/solvers.json`` and ``solvers_accelerator.json``.
"""

_MARGIN = 10.0  # between the condition numbers of a few draws and the limit, which then hardly one in millions exceeds
_PROBES = 4  # draws that show how ill-conditioned the ensemble is
_MANY = 2**20  # draws: more than are ever drawn at once
_LONG_ENOUGH = 0.05  # least time of a solver's timing, in seconds
_MORE = 16  # factor by which the number of timed matrices grows


class SolverChoice(NamedTuple):
    name: str  # one of ``linalg.SOLVERS``
    reason: str  # in words, with the times and the condition number


def choose_solver(
    ensemble: Ensemble, precision: str = "float64", *, devices: Devices = None, cores: int | None = None
) -> SolverChoice:
    """Choose the fastest solver that is accurate enough for an ensemble, and give the reason."""
    # λ_1/λ_rank of four draws shows whether Gram matrices keep the digits; draws that lose them are solved again
    # anyway.
    linalg.require_precision(precision)
    chosen, cores = local_devices(devices), cores or linalg.available_cores()
    require_draw_fits(ensemble, precision, chosen)
    tile, kind = tile_size(ensemble.matrix_shape), chosen[0].device_kind
    sampler = CompiledSampler(ensemble, case_key(0, ensemble.name), precision, chosen, tile, "svd")
    probes = np.concatenate([sampler.matrices(first)[0] for first in range(0, _PROBES, sampler.draws)])[:_PROBES]
    with linalg.single_threaded_blas(), np.errstate(divide="ignore", invalid="ignore"):
        values = linalg.singular_values(probes, ensemble.rank)
        condition = float(np.max((values[:, 0] / values[:, -1]) ** 2))
    if kind in MICROSECONDS:
        return measured_solver(kind, min(ensemble.matrix_shape), precision, condition)
    on_one = replace(sampler, devices=chosen[:1], tile=1, solver="device_svd")
    stack, _ = plan_batches(on_one, _MANY, None, cores).sampler.matrices(0)
    microseconds = {name: time_solver(name, stack, chosen[0], cores) for name in linalg.HOST_SOLVERS}
    microseconds |= {name: time_solver(name, stack, chosen[0], cores) / len(chosen) for name in linalg.DEVICE_SOLVERS}
    return _fastest_solver(microseconds, condition, precision, f"timed on {kind}")


def measured_solver(device_kind: str, size: int, precision: str, condition: float) -> SolverChoice:
    """Choose by the stored times of the size nearest in ratio to ``size``; ``condition`` is λ_1/λ_r."""
    nearest = {
        solver: min(times.items(), key=lambda item: abs(math.log(item[0] / size)))[1]
        for solver, times in MICROSECONDS[device_kind][precision].items()
    }
    return _fastest_solver(nearest, condition, precision, "measured")


def _fastest_solver(microseconds: Mapping[str, float], condition: float, precision: str, origin: str) -> SolverChoice:
    gram = condition * _MARGIN <= linalg.GRAM_CONDITION[precision]
    device_svd = condition * _MARGIN <= linalg.DEVICE_SVD_CONDITION[precision] or precision == "float64"
    allowed = {
        name: duration
        for name, duration in microseconds.items()
        if (gram or not name.endswith("gram")) and (device_svd or name != "device_svd")
    }
    name = min(allowed, key=allowed.__getitem__, default="svd")
    ascending = sorted(microseconds.items(), key=lambda item: item[1])
    times = ", ".join(f"{solver} {duration:.4g} µs" for solver, duration in ascending)
    verdict = "allows" if gram else "forbids"
    also = "" if device_svd or "device_svd" not in microseconds else " and the device's SVD"
    return SolverChoice(name, f"{origin}: {times}; λ_1/λ_r = {condition:.3g} {verdict} the Gram matrix{also}")


def time_solver(solver: str, stack: Stack, device: Device, cores: int, first: int = 1) -> float:
    """Measure microseconds per matrix, with the device or that many cores busy, on ever more matrices of the stack."""
    on_host = solver in linalg.HOST_SOLVERS
    count, at_once = first, cores if on_host else 1

    def solve(part: Any) -> object:
        if on_host:
            return list(pool.map(linalg.HOST_SOLVERS[solver], repeat(part, cores), repeat(None)))
        return jax.block_until_ready(solve_on_device(part, solver, on_cpu=is_cpu(device)))

    with linalg.single_threaded_blas(), linalg.reproducible_jax(str(stack.dtype)), ThreadPoolExecutor(at_once) as pool:
        while True:
            part = stack[:count] if on_host else jax.device_put(stack[:count], device)
            solve(part)  # compiles
            begin = time.perf_counter()
            solve(part)
            seconds = time.perf_counter() - begin
            if seconds > _LONG_ENOUGH or count >= len(stack):
                return 1e6 * seconds / (len(part) * at_once)
            count *= _MORE
