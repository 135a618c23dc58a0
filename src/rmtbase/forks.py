"""Check that a fork has not lost JAX's threads; imported with the package, so that every fork is noticed."""

import os
import sys

_lost = False  # True if a fork has lost JAX's threads
_used = False


def require_jax_threads() -> None:
    """Check, before JAX is used, that its threads exist in this process."""
    global _used
    if _lost:
        from rmtbase.errors import ForkedProcessError  # late: the command catches Ctrl-C before it imports more

        raise ForkedProcessError
    _used = True


def _after_fork_in_child() -> None:
    global _lost
    # JAX has threads once it has a backend, which the caller's code may have started. JAX's own function takes a lock,
    # which may be held by a thread that does not exist in the child.
    backends = getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None)
    _lost = _lost or _used or bool(backends)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
