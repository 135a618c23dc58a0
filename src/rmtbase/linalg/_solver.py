"""Singular values of stacks of small matrices; extreme eigenvalues."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal, get_lapack_funcs

from rmtbase import parameters
from rmtbase.errors import ParameterError
from rmtbase.linalg._threads import available_cores, blas_threads, single_threaded_blas

_STACKED_BELOW = 512  # up to this size LAPACK on one core per matrix beats a threaded LAPACK on one matrix

_SQUARED = 400  # elements between 2⁻⁴⁰⁰ and 2⁴⁰⁰ have squares in float64
_SMALLEST_GRAM = 1e-140  # with s_1 below it, a Gram matrix has lost digits to underflow

GRAM_CONDITION = {"float64": 1e4, "float32": 1e2}
"""Largest λ_1/λ_r at which a Gram matrix of that precision is trusted: λ_r is good to 1e-12, or 1e-5 in float32."""

DEVICE_SVD_CONDITION = {"float64": np.inf, "float32": 1e4}
"""Largest λ_1/λ_r at which :func:`symmetric_singular_values` of that precision are trusted.

In float32 their error of a few ε s_1 leaves λ_r good to 1e-3 at the limit; for (64, 64) matrices it hides the
smallest singular value altogether. In float64 their error is LAPACK's.
"""


def singular_values(stack: NDArray[np.floating], rank: int | None = None) -> NDArray[np.float64]:
    """Singular values ``(..., min(p, q))`` of matrices ``(..., p, q)``, descending, without the vectors.

    Uses LAPACK's gesdd in float64, also for float32 matrices, as sgesdd takes as long. Absolute error of order ε s_1.

    Args:
        stack: the matrices.
        rank: number of singular values to return, the largest ones; all if None.

    Raises:
        ParameterError: the stack is not an array of finite real matrices, the rank is not a positive integer, or
            singular values overflow float64.
    """
    wide = parameters.require_matrices("stack", stack)  # LAPACK prints messages to the screen if given NaN or infinity
    most = None if rank is None else parameters.require_positive_integer("rank", rank)
    values = np.asarray(np.linalg.svd(wide, compute_uv=False)[..., :most], dtype=np.float64)
    if not np.isfinite(values).all():
        raise ParameterError("stack", f"elements up to {np.abs(wide).max():.3g}", "singular values within float64")
    return values


def gram_singular_values(stack: NDArray[np.floating], rank: int | None = None) -> NDArray[np.float64]:
    """Singular values (n, rank) by the smaller Gram matrix, up to twice as fast as :func:`singular_values`."""
    # The relative error of λ_r is of order ε λ_1/λ_r (measured: 0.3 of that); beyond 10⁴ the SVD solves a matrix again.
    wide = parameters.require_real_numbers("stack", stack)
    if wide.ndim != 3:
        raise ParameterError("stack", f"shape {wide.shape}", "matrices (n, p, q)")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        gram = _smaller_gram(wide)
    if not (wide.size and np.isfinite(gram).all()):
        return singular_values(wide, rank)
    most = None if rank is None else parameters.require_positive_integer("rank", rank)
    values = np.sqrt(np.maximum(np.linalg.eigvalsh(gram)[..., ::-1][..., :most], 0.0))
    lost = loses_digits(values, "float64") | (values[:, 0] < _SMALLEST_GRAM)
    if lost.any():
        values[lost] = singular_values(wide[lost], rank)
    return values


def _smaller_gram(stack: Any) -> Any:
    transposed = stack.swapaxes(-1, -2)
    return stack @ transposed if stack.shape[-2] <= stack.shape[-1] else transposed @ stack


def loses_digits(values: NDArray, precision: str, trusted: Mapping[str, float] = GRAM_CONDITION) -> NDArray[np.bool_]:
    """Mask of the spectra (n, r), descending, for which a Gram matrix, or a solver so ``trusted``, loses digits."""
    values = parameters.require_real_numbers("values", values)
    if values.ndim != 2 or values.shape[1] == 0:
        raise ParameterError("values", f"shape {values.shape}", "spectra (n, r)")
    condition = np.sqrt(trusted[precision])  # λ_1/λ_r as s_1/s_r, whose squares may leave float64
    return ~(values[:, 0] <= condition * values[:, -1])  # negated, so that NaN is not trusted either


HOST_SOLVERS: dict[str, Callable[[NDArray[np.floating], int | None], NDArray[np.float64]]] = {
    "svd": singular_values,
    "gram": gram_singular_values,
}
"""Solvers that run on the host, one core per matrix, by name."""

DEVICE_SOLVERS = ("device_svd", "device_gram")
"""Solvers of :func:`device_singular_values`, which run on the device where JAX has drawn the matrices."""

SOLVERS = (*HOST_SOLVERS, *DEVICE_SOLVERS)


def require_solver(name: object) -> str:
    if name not in SOLVERS:
        raise ParameterError("solver", name, f"one of {', '.join(SOLVERS)}")
    return str(name)


def device_singular_values(stack: Any, solver: str) -> Any:
    """Singular values of a JAX array on its device; the caller solves again what :func:`loses_digits` marks."""
    # Accelerators take SVDs of matrices over 32 × 32 one after the other, but eigenvalues all at once.
    import jax
    import jax.numpy as jnp

    if solver not in DEVICE_SOLVERS:
        raise ParameterError("solver", solver, f"one of {', '.join(DEVICE_SOLVERS)}")
    stack = _finite_on_device(stack)
    if solver == "device_svd":
        return jax.lax.platform_dependent(
            stack, cpu=lambda matrices: jnp.linalg.svd(matrices, compute_uv=False), default=symmetric_singular_values
        )
    return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(_smaller_gram(stack)), 0.0))[..., ::-1]


def symmetric_singular_values(stack: Any) -> Any:
    """Singular values s from the eigenvalues ±s of [[0, M], [Mᵀ, 0]], M or its triangle; error of order ε s_1."""
    import jax.numpy as jnp

    stack = _finite_on_device(stack)
    rows, columns = stack.shape[-2:]
    if rows != columns:
        stack = jnp.linalg.qr(stack if rows > columns else stack.swapaxes(-1, -2), mode="r")
    zeros = jnp.zeros_like(stack)
    doubled = jnp.block([[zeros, stack], [stack.swapaxes(-1, -2), zeros]])
    eigenvalues = jnp.linalg.eigvalsh(doubled)[..., ::-1]
    # Half the difference of each pair ±s is in order and never negative, even where s is zero up to rounding.
    return ((eigenvalues - eigenvalues[..., ::-1]) / 2)[..., : stack.shape[-1]]


def _finite_on_device(stack: Any) -> Any:
    import jax.numpy as jnp
    from jax.core import Tracer

    if isinstance(stack, Tracer):
        return stack
    largest = np.abs(parameters.require_matrices("stack", stack)).max(initial=0.0)
    with np.errstate(over="ignore"):
        array = jnp.asarray(stack)
    if array.dtype not in (jnp.float32, jnp.float64):
        array = array.astype(float)
    if not jnp.isfinite(array).all():
        raise ParameterError("stack", f"elements up to {largest:.3g}", f"elements that {array.dtype} can hold")
    return array


def matrix_singular_values(matrix: NDArray[np.float64], cores: int | None = None) -> NDArray[np.float64]:
    matrix = parameters.require_real_array("matrix", matrix)
    if matrix.ndim != 2:
        raise ParameterError("matrix", f"shape {matrix.shape}", "one matrix (rows, columns)")
    if max(matrix.shape) <= _STACKED_BELOW:
        return singular_values(matrix)
    with blas_threads(available_cores() if cores is None else cores):
        return singular_values(matrix)


def appended_rows(triangle: NDArray[np.float64] | None, rows: NDArray[np.floating]) -> NDArray[np.float64]:
    """Factor R of [triangle; rows], or the rows themselves: sequential QR, SIAM J. Sci. Comput. 34, A206 (2012)."""
    # It has the singular values of [triangle; rows], and small ones keep the digits that a Gram matrix would lose. On
    # one core, because LAPACK's own threads wait for each other at every column.
    below = parameters.require_real_array("rows", rows)  # the only float64 copy is the one for LAPACK
    if below.ndim != 2 or (triangle is not None and below.shape[1] != triangle.shape[1]):
        width = "" if triangle is None else f" of {triangle.shape[1]} columns"
        raise ParameterError("rows", f"shape {below.shape}", f"a matrix{width}")
    if triangle is None:
        return parameters.require_matrices("rows", below.astype(np.float64))
    height, width = len(triangle), below.shape[1]
    both = np.empty((height + len(below), width), order="F")
    both[:height], both[height:] = triangle, below
    parameters.require_finite_numbers("rows", both[height:])
    factor, workspace = get_lapack_funcs(("geqrf", "geqrf_lwork"), (both,))
    with single_threaded_blas():
        factored = factor(both, lwork=int(workspace(*both.shape)[0]), overwrite_a=True)[0]
    return np.triu(factored[:width])


def extreme_eigenvalues(main: NDArray[np.float64], off: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Largest and smallest eigenvalues of tridiagonal matrices (n, size), (n, size - 1), by bisection, to ε λ_1."""
    main, off = parameters.require_matrices("main", main), parameters.require_matrices("off", off)
    if main.ndim != 2 or off.shape != (len(main), main.shape[1] - 1):
        raise ParameterError("off", f"shape {off.shape} beside {main.shape}", "(n, size - 1) beside (n, size)")
    size = main.shape[1]
    if size == 1:
        return main[:, 0], main[:, 0]
    # Scaled by powers of two, which is exact, because the bisection squares the off-diagonal.
    exponent = np.frexp(np.maximum(np.abs(main).max(axis=1), np.abs(off).max(axis=1)))[1]
    exponent = np.where(np.abs(exponent) > _SQUARED, exponent, 0)
    main, off = (np.ldexp(diagonal, -exponent[:, None]) for diagonal in (main, off))
    ends = [
        [eigvalsh_tridiagonal(m, o, select="i", select_range=(place, place))[0] for m, o in zip(main, off, strict=True)]
        for place in (size - 1, 0)
    ]
    return np.ldexp(ends[0], exponent), np.ldexp(ends[1], exponent)
