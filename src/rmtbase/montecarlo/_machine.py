"""This machine: devices and threads to draw on, and the settings that decide, with the plan, the bits of a run."""

import hashlib
import json
import os
import platform
import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax

from rmtbase.errors import ParameterError
from rmtbase.forks import require_jax_threads
from rmtbase.linalg import DTYPE, MATMUL_PRECISION, PRNG_IMPLEMENTATION, arithmetic
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import shown
from rmtbase.tables import software_versions

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
