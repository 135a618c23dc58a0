"""Checks, before anything is drawn, that memory suffices: without it, XLA aborts or the system kills the process."""

import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from rmtbase.ensembles import BidiagonalGaussianMatrix
from rmtbase.errors import AllocationError, ParameterError
from rmtbase.linalg import available_cores, reproducible_jax
from rmtbase.montecarlo._keys import case_key
from rmtbase.montecarlo._machine import Device, is_cpu
from rmtbase.parameters import require_positive_integer
from rmtbase.systems import available_memory
from rmtbase.words import counted

ELEMENTS_AT_ONCE = 1 << 18  # 2 MiB, which stay in a core's cache from the product to the last count

_COPIES = 6  # of a draw's matrix, at least, while it is drawn and solved; measured: 6.8 to 9.6 at 1500 × 1500
_COPIES_OF_BIDIAGONAL = 2  # measured 2.6
_COPIES_ON_DEVICE = 2  # random bits and the numbers made from them
_COPIES_OF_BLOCK = 3  # of a block of rows
_FEWEST_WORKERS, _WORKERS_PER_CORE = 8, 4

_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
_UNKNOWN = 2**30  # assumed on systems that do not report it: any machine of today has that much to spare


def device_memory(device: Device) -> int:
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return _UNKNOWN
    return max(0, stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def host_memory() -> int:
    available = available_memory()
    least = _UNKNOWN if available is None else available
    for limit, usage in _GROUPS:
        with suppress(OSError, ValueError):  # no such file, or no limit (the word ``max``)
            least = min(least, int(limit.read_text(encoding="utf-8")) - int(usage.read_text(encoding="utf-8")))
    return max(0, least)


def spectrum_bytes(ensemble: Any, precision: str = "float64") -> int:
    copies = _COPIES_OF_BIDIAGONAL if isinstance(ensemble, BidiagonalGaussianMatrix) else _COPIES
    return copies * math.prod(ensemble.matrix_shape) * np.dtype(precision).itemsize


def elements_bytes(ensemble: Any) -> int:
    with reproducible_jax():  # shapes only: nothing is drawn
        context = jax.eval_shape(lambda: ensemble.row_context(case_key(0, ensemble.name)))
    context_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(context))
    rows, columns = ensemble.element_shape
    return context_bytes + _COPIES_OF_BLOCK * 8 * min(rows * columns, max(columns, ELEMENTS_AT_ONCE))


def require_draw_fits(ensemble: Any, precision: str = "float64", devices: Sequence[Any] = ()) -> None:
    needed = spectrum_bytes(ensemble, precision)
    require_bytes(ensemble.name, ensemble.matrix_shape, needed, host_memory())
    if devices and not is_cpu(devices[0]):
        needed = _COPIES_ON_DEVICE * math.prod(ensemble.matrix_shape) * np.dtype(precision).itemsize
        require_bytes(ensemble.name, ensemble.matrix_shape, needed, min(map(device_memory, devices)))


def require_elements_fit(ensemble: Any) -> None:
    require_bytes(ensemble.name, ensemble.element_shape, elements_bytes(ensemble), host_memory())


def require_bytes(name: str, shape: Sequence[int], needed: int, available: int) -> None:
    if needed > available:
        raise AllocationError(name, shape, "", needed, available=available)


def require_results_fit(draws: int, bytes_each: int, advice: str) -> None:
    available = host_memory()
    if draws * bytes_each > available:
        most = f"at most {available // bytes_each}: each takes {bytes_each:,} bytes of memory"
        raise ParameterError("draws", draws, f"{most}, of which {binary_size(available)} are available; {advice}")


def require_workers(name: str, value: object) -> int:
    number, cores = require_positive_integer(name, value), available_cores()
    most = max(_FEWEST_WORKERS, _WORKERS_PER_CORE * cores)
    if number > most:
        raise ParameterError(name, number, f"at most {most} with {counted(cores, 'core')}, as each keeps one busy")
    return number


def binary_size(number: int) -> str:
    power = min(max(number.bit_length() - 1, 0) // 10, 8)
    if power == 0:
        return f"{number} bytes"
    return f"{number / 2 ** (10 * power):.1f} {'KMGTPEZY'[power - 1]}iB"
