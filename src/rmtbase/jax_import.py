"""Import of JAX in one piece: its C++ code ends the process if an interrupt is raised in it."""

from rmtbase.interrupts import interrupts_held

with interrupts_held():
    import jax
    import jax.numpy
    import jax.sharding  # noqa: F401
