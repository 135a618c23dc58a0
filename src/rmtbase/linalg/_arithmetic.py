"""Arithmetic of this process, which with the code decides the last digits of a sum, and the settings of all draws."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

from rmtbase.errors import ParameterError
from rmtbase.forks import require_jax_threads

_CPUINFO = Path("/proc/cpuinfo")
_NAMES = ("model name", "cpu", "CPU implementer", "CPU part", "CPU variant", "cpu family", "model")
_FEATURES = ("flags", "Features")  # on x86, and on ARM
_VECTOR = ("sse", "ssse", "avx", "fma", "f16c", "xop", "amx")  # prefixes of the x86 flags that change arithmetic


@cache
def arithmetic() -> dict[str, str]:
    """Describe the arithmetic of this process; two processes in which it is equal give the same bits.

    Returns:
        Plain values: ``cpu`` and ``cpu_features``, the processor and a digest of its vector instructions, by which XLA
        and BLAS choose their code; ``numpy_simd``, the instructions that NumPy uses, which ``NPY_DISABLE_CPU_FEATURES``
        limits; ``libc``, whose logarithms NumPy calls where it has none of its own; ``blas_numpy`` and ``blas_scipy``
        (or ``blas`` where both use the same library): library, version, and the architecture whose kernels it runs,
        which ``OPENBLAS_CORETYPE`` changes.
    """
    return {**_processor(), "libc": " ".join(platform.libc_ver()), **_blas()}


def _processor() -> dict[str, str]:
    simd = np.show_config(mode="dicts").get("SIMD Extensions", {}).get("found", [])
    try:
        first = _CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    except OSError:
        first = ""
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    name, *numbers = [f"{key} {fields[key]}" for key in _NAMES if key in fields] or [f" {platform.processor()}"]
    flags = sorted({flag for key in _FEATURES for flag in fields.get(key, "").split()})
    computing = [flag for flag in flags if "Features" in fields or flag.startswith(_VECTOR)]
    return {
        "cpu": ", ".join([name.partition(" ")[2].removeprefix("name "), *numbers]),
        "cpu_features": hashlib.sha256(" ".join(computing).encode()).hexdigest()[:16] if computing else "unknown",
        "numpy_simd": " ".join(simd),
    }


def _blas() -> dict[str, str]:
    """BLAS libraries that NumPy and SciPy call; JAX calls SciPy's too, as its linear algebra on CPUs is LAPACK's."""
    import scipy.linalg  # noqa: F401  # loads it

    libraries: dict[str, list[str]] = {}
    for library in threadpool_info():
        if library["user_api"] != "blas":
            continue
        folders = Path(library["filepath"]).parts
        packages = [name for name in ("numpy", "scipy") if any(folder.startswith(name) for folder in folders[:-1])]
        if not packages and "site-packages" in folders:  # such as torch's own, which only some processes load
            continue
        words = (library["internal_api"], library.get("version"), library.get("architecture"))
        key = f"blas_{packages[0]}" if packages else "blas"
        libraries.setdefault(key, []).append(" ".join(str(word) for word in words if word))
    if not libraries:  # such as Accelerate, which threadpoolctl does not know
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return {"blas": f"{built.get('name')} {built.get('version')}"}
    return {key: ", ".join(sorted(libraries)) for key, libraries in sorted(libraries.items())}


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
