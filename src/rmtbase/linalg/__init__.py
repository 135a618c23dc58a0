"""Factored matrices and their spectra through the small core, in double precision."""

from rmtbase.arguments import check_public
from rmtbase.linalg._arithmetic import (
    DTYPE,
    MATMUL_PRECISION,
    PRECISIONS,
    PRNG_IMPLEMENTATION,
    arithmetic,
    reproducible_jax,
    require_precision,
)
from rmtbase.linalg._factored import (
    core_of_triangles,
    core_singular_values,
    equal_rows,
    product_singular_values,
    product_svd,
    triangle,
    triangles,
    without_noise,
)
from rmtbase.linalg._solver import (
    DEVICE_SOLVERS,
    DEVICE_SVD_CONDITION,
    GRAM_CONDITION,
    HOST_SOLVERS,
    SOLVERS,
    appended_rows,
    device_singular_values,
    extreme_eigenvalues,
    gram_singular_values,
    loses_digits,
    matrix_singular_values,
    require_solver,
    singular_values,
    symmetric_singular_values,
)
from rmtbase.linalg._threads import available_cores, blas_threads, single_threaded_blas

__all__ = ["arithmetic", "available_cores", "product_singular_values", "singular_values"]

check_public(globals())
