"""The devices to draw on, and the memory there is to draw in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from rmtbase.errors import ParameterError
from rmtbase.forks import require_jax_threads
from rmtbase.parameters import require_positive_integer

Device = Any  # jax.Device, which is a variable to type checkers
Devices = int | Sequence[Device] | None

_MEMINFO = Path("/proc/meminfo")
_GROUPS = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"), Path("/sys/fs/cgroup/memory/memory.usage_in_bytes")),
)
_UNKNOWN = 2**30  # on systems that do not tell: what any machine of today has to spare


def local_devices(devices: Devices = None) -> tuple[Device, ...]:
    """The local devices of JAX's default backend: all, the first few, or those given.

    Raises:
        ParameterError: not a positive integer, more than there are, none, or devices of several kinds.
        ForkedProcessError: this process was forked from one that had used JAX.
    """
    require_jax_threads()
    if devices is None:
        return tuple(jax.local_devices())
    if isinstance(devices, Sequence) and not isinstance(devices, str):
        kinds = {device.device_kind if isinstance(device, jax.Device) else None for device in devices}
        if len(kinds) != 1 or None in kinds or len(set(devices)) < len(devices):
            raise ParameterError("devices", devices, "JAX devices of one kind, at least one and each once")
        return tuple(devices)
    count, there = require_positive_integer("devices", devices), jax.local_devices()
    if count > len(there):
        raise ParameterError("devices", count, f"at most {len(there)}, as many as JAX has here")
    return tuple(there[:count])


def is_cpu(device: Device) -> bool:
    """Whether it is a CPU, or one of the virtual devices that XLA can make of one."""
    return device.platform == "cpu"


def device_memory(device: Device) -> int:
    """Bytes that can still be allocated on an accelerator."""
    stats = device.memory_stats()
    if not stats or "bytes_limit" not in stats:
        return _UNKNOWN
    return max(0, stats["bytes_limit"] - stats.get("bytes_in_use", 0))


def host_memory() -> int:
    """Bytes of memory that are available to this process, by the system and by the limits of its control group."""
    return min([_available(), *(_left(*group) for group in _GROUPS)])


def _available() -> int:
    try:
        lines = dict(line.split(":", 1) for line in _MEMINFO.read_text().splitlines())
        return 1024 * int(lines["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return _UNKNOWN


def _left(limit: Path, usage: Path) -> int:
    """What a control group has left; 2^63 where there is no such file or no limit (the word ``max``)."""
    try:
        return max(0, int(limit.read_text()) - int(usage.read_text()))
    except (OSError, ValueError):
        return 2**63
