"""Import of JAX in one piece, where there is room for it: without either its C++ code ends the process."""

import os

from rmtbase.errors import ParameterError
from rmtbase.interrupts import interrupts_held
from rmtbase.systems import address_space_left

_ROOM, _ROOM_OF_A_CORE = 3 << 30, 64 << 20  # bytes of address space for libraries and draws, and for each thread

_left, _needed = address_space_left(), _ROOM + (os.cpu_count() or 1) * _ROOM_OF_A_CORE
if _left is not None and _left < _needed:
    _found = f"{_left >> 20:,} MiB left by the limit of this process (ulimit -v)"
    raise ParameterError("address space", _found, f"at least {_needed >> 20:,} MiB for JAX, or no limit")

with interrupts_held():
    import jax
    import jax.numpy
    import jax.sharding  # noqa: F401
