"""This machine: devices, threads and memory to draw with, and the settings that decide, with the plan, the bits."""

import hashlib
import json
import math
import os
import platform
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from rmtbase.ensembles import BidiagonalGaussianMatrix
from rmtbase.errors import AllocationError, ParameterError
from rmtbase.forks import require_jax_threads
from rmtbase.linalg import DTYPE, MATMUL_PRECISION, PRNG_IMPLEMENTATION, arithmetic, available_cores, reproducible_jax
from rmtbase.montecarlo._keys import case_key
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import shown
from rmtbase.systems import available_memory
from rmtbase.tables import software_versions
from rmtbase.words import counted

Device = Any  # jax.Device, which type checkers take for a variable
Devices = int | Sequence[Device] | None
Result = TypeVar("Result")

_DRAWING = ("ensembles", "linalg", "montecarlo", "statistics")
_COMPILED = (
    "jax_default_device",  # selects among several kinds of device
    "jax_disable_jit",  # runs each operation by itself, which changes sums
    "jax_disable_most_optimizations",  # this and the following reach the compiler, which then orders sums differently
    "jax_optimization_level",
    "jax_exec_time_optimization_effort",
    "jax_memory_fitting_effort",
    "jax_memory_fitting_level",
    "jax_enable_pgle",
)
"""JAX settings that change bits and that rmtbase does not set; precision, promotion and generator are set for every
draw by ``linalg.reproducible_jax``."""

_HARMLESS = re.compile(r"--xla_(force_host_platform_device_count|dump_|hlo_profile)\w*=?")
"""XLA options that change no bit: the number of virtual devices, and dumps and profiles for people to read."""


def local_devices(devices: Devices = None) -> tuple[Device, ...]:
    require_jax_threads()
    if devices is None:
        return tuple(jax.local_devices())
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        kinds = {device.device_kind if isinstance(device, jax.Device) else None for device in devices}
        if len(kinds) != 1 or None in kinds or len(set(devices)) < len(devices):
            raise ParameterError("devices", devices, "JAX devices of one kind, at least one and each once")
        return tuple(devices)
    count, local = require_positive_integer("devices", devices), jax.local_devices()
    if count > len(local):
        raise ParameterError("devices", count, f"at most {len(local)}, as many as JAX has here")
    return tuple(local[:count])


def is_cpu(device: Device) -> bool:
    return device.platform == "cpu"


def in_order(
    function: Callable[[int], Result], numbers: Iterable[int], threads: int, ahead: int, name: str
) -> Generator[Future[Result], None, None]:
    """Compute a function of each number on threads; yield futures in order, at most ``ahead`` calls begun before."""
    # Closing the generator, or leaving it by an exception, starts no further calls and waits for those that are
    # running.
    pool, pending = ThreadPoolExecutor(threads, thread_name_prefix=name), deque[Future[Result]]()
    try:
        for number in numbers:
            pending.append(pool.submit(function, number))
            if len(pending) > ahead:
                yield pending.popleft()
        while pending:
            yield pending.popleft()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def machine_settings() -> dict[str, Any]:
    require_jax_threads()
    return {
        **software_versions("rmtbase", "jax", "jaxlib", "numpy", "scipy"),
        "source": _source(),
        "machine": platform.machine(),
        **arithmetic(),
        "device": jax.local_devices()[0].device_kind,
        **_compiler_settings(),
    }


def compiler_settings_digest() -> str:
    require_jax_threads()
    return hashlib.sha256(json.dumps(_compiler_settings(), sort_keys=True).encode()).hexdigest()[:8]


def _compiler_settings() -> dict[str, str]:
    flags = [flag for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS") for flag in os.environ.get(name, "").split()]
    # Some settings are flags only.
    compiled = {name: str(getattr(jax.config, name, jax.config.values.get(name))) for name in _COMPILED}
    harmful = " ".join(flag for flag in flags if not _HARMLESS.match(flag))
    return {"backend": jax.default_backend(), **compiled, "xla_flags": harmful}


def numerics_record(settings: Mapping[str, Any], dtype: str = DTYPE) -> dict[str, Any]:
    return {
        "dtype": dtype,
        "matmul_precision": MATMUL_PRECISION,
        "prng": PRNG_IMPLEMENTATION,
        "prng_partitionable": True,
        "key": "fold_in(fold_in(key(seed), crc32(name of the case)), draw)",
        **settings,
    }


@cache
def _source() -> str:
    """Digest of the code that draws, because the version does not change with every change of code."""
    package = Path(__file__).parents[1]
    files = sorted(file for room in _DRAWING for file in (package / room).rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(package).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    keys = [key for key in {**first, **second} if first.get(key) != second.get(key)]
    values = [[shown(settings.get(key), 60) or "none" for settings in (first, second)] for key in keys]
    pairs = zip(keys, values, strict=True)
    return ", ".join(f"{key}: {recorded} there, {present} here" for key, (recorded, present) in pairs)


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
