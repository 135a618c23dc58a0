"""Whether JAX can still be used in this process: a fork takes along none of the threads that its calls wait for.

Imported with the package, so that a fork is seen whichever room is used first.
"""

from __future__ import annotations

import os
import sys

_lost = False  # the threads of JAX, at a fork
_used = False


def require_jax_threads() -> None:
    """Called before JAX is used.

    Raises:
        ForkedProcessError: this process was forked from one that had used JAX; a call would wait for ever.
    """
    global _used
    if _lost:
        from rmtbase.errors import ForkedProcessError  # not before: the command catches Ctrl-C before it imports more

        raise ForkedProcessError
    _used = True


def _after_fork_in_child() -> None:
    global _lost
    # JAX has threads once it has a backend, which the caller may have asked for and not we. JAX's own function takes a
    # lock, and here that may be held by a thread which is no more.
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    _lost = _lost or _used or bool(backends)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
