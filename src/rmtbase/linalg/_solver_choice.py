"""Choice of the fastest solver for a stack of matrices, from measurements."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from rmtbase.linalg._solver import DEVICE_SVD_CONDITION, GRAM_CONDITION

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


class SolverChoice(NamedTuple):
    """Solver and the reason for its choice."""

    name: str  # one of ``linalg.SOLVERS``
    reason: str  # in words, with the times and the condition number


def is_measured(device_kind: str) -> bool:
    return device_kind in MICROSECONDS


def measured_solver(device_kind: str, size: int, precision: str, condition: float) -> SolverChoice:
    """Choose the fastest solver by the stored measurements; the result depends only on the arguments.

    Args:
        device_kind: a kind that :func:`is_measured`.
        size: the smaller side of the matrices; the measured size with the nearest ratio stands for it.
        precision: precision of the matrices.
        condition: typical λ_1/λ_r of the matrices, r their rank.
    """
    nearest = {
        solver: min(times.items(), key=lambda item: abs(math.log(item[0] / size)))[1]
        for solver, times in MICROSECONDS[device_kind][precision].items()
    }
    return fastest_solver(nearest, condition, precision, "measured")


def fastest_solver(microseconds: Mapping[str, float], condition: float, precision: str, origin: str) -> SolverChoice:
    """Choose the fastest of the timed solvers that the condition number allows; LAPACK's SVD if it allows none."""
    gram = condition * _MARGIN <= GRAM_CONDITION[precision]
    device_svd = condition * _MARGIN <= DEVICE_SVD_CONDITION[precision] or precision == "float64"
    allowed = {
        name: time
        for name, time in microseconds.items()
        if (gram or not name.endswith("gram")) and (device_svd or name != "device_svd")
    }
    name = min(allowed, key=allowed.__getitem__, default="svd")
    times = ", ".join(
        f"{solver} {time:.4g} µs" for solver, time in sorted(microseconds.items(), key=lambda item: item[1])
    )
    verdict = "allows" if gram else "forbids"
    also = "" if device_svd or "device_svd" not in microseconds else " and the device's SVD"
    return SolverChoice(name, f"{origin}: {times}; λ_1/λ_r = {condition:.3g} {verdict} the Gram matrix{also}")
