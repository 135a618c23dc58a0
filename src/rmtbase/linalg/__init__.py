"""Factored matrices and their spectra through the small core, in double precision."""

from rmtbase.linalg._factored import (
    core_of_triangles,
    core_singular_values,
    product_core,
    product_singular_values,
    triangle,
)
from rmtbase.linalg._precision import DTYPE, MATMUL_PRECISION, PRNG_IMPLEMENTATION, reproducible_jax
from rmtbase.linalg._solver import (
    SpectrumSolver,
    available_cores,
    matrix_singular_values,
    single_threaded_blas,
    singular_values,
)
from rmtbase.linalg._tridiagonal import extreme_eigenvalues

__all__ = [
    "DTYPE",
    "MATMUL_PRECISION",
    "PRNG_IMPLEMENTATION",
    "SpectrumSolver",
    "available_cores",
    "core_of_triangles",
    "core_singular_values",
    "extreme_eigenvalues",
    "matrix_singular_values",
    "product_core",
    "product_singular_values",
    "reproducible_jax",
    "single_threaded_blas",
    "singular_values",
    "triangle",
]
