"""Numerical settings of all draws, set locally and never in the user's global JAX configuration."""

from collections.abc import Iterator
from contextlib import contextmanager

from rmtbase.errors import ParameterError
from rmtbase.forks import require_jax_threads

DTYPE = "float64"
PRECISIONS = ("float64", "float32")
MATMUL_PRECISION = "highest"  # TF32 would cost three digits on a GPU that has it
PRNG_IMPLEMENTATION = "threefry2x32"  # JAX's only generator whose bits do not depend on batching


def require_precision(precision: object) -> str:
    if precision not in PRECISIONS:
        raise ParameterError("precision", precision, f"one of {', '.join(PRECISIONS)}")
    return str(precision)


@contextmanager
def reproducible_jax(precision: str = DTYPE) -> Iterator[None]:
    """Run JAX code in this precision, at the highest matmul precision, with random bits that no partition changes."""
    require_jax_threads()
    from rmtbase.jax_import import jax

    with (
        jax.enable_x64(precision == DTYPE),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.default_matmul_precision(MATMUL_PRECISION),
        jax.threefry_partitionable(True),
        jax.transfer_guard("allow"),
        jax.no_tracing(False),
        jax.check_tracer_leaks(False),
    ):
        yield
