"""Examination of the installation: versions, libraries, devices, precision, and the solvers chosen here."""

import platform
import sys
from pathlib import Path
from typing import Any

# Requirements of rmtbase and of its extras; a source tree that is not installed has no list of them.
PACKAGES = (
    *("jax", "jaxlib", "numpy", "scipy", "mpmath", "xarray", "netCDF4", "h5py", "matplotlib", "lazy_loader"),
    *("safetensors", "typer", "rich", "ml_dtypes", "huggingface-hub", "jaxtyping", "threadpoolctl", "filelock"),
    *("jinja2", "platformdirs", "pyyaml", "torch", "transformers", "gguf", "distributed"),
)
_SHAPES = ((768, 64), (64, 64))  # (d_model, d_head): well conditioned, as most heads are, and as badly as possible


def examine() -> dict[str, dict[str, Any]]:
    """Report what is installed and how it computes, by section and name; ``["precision"]["verdict"]`` is "good"."""
    import jax

    import rmtbase
    from rmtbase.ensembles import low_rank_product
    from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION, available_cores
    from rmtbase.montecarlo import cache_folder, choose_solver
    from rmtbase.tables import software_versions

    packages = {name: version or "not installed" for name, version in software_versions(*PACKAGES).items()}
    chosen = {shape: choose_solver(low_rank_product(*shape)) for shape in _SHAPES}
    return {
        "software": {"rmtbase": rmtbase.__version__, "python": platform.python_version(), **packages},
        "libraries": _libraries(),
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores for this process": available_cores(),
            "executable": sys.executable,
        },
        "numerics": {"dtype": DTYPE, "prng": PRNG_IMPLEMENTATION},
        "solvers": {
            f"draws, d_model {d_model}, d_head {d_head}": f"{choice.name} ({choice.reason})"
            for (d_model, d_head), choice in chosen.items()
        },
        "devices": {str(device): device.device_kind for device in jax.devices()},
        "precision": _precision(),
        "files": {"cache": str(cache_folder())},
    }


def _libraries() -> dict[str, str]:
    import h5py
    import netCDF4
    import numpy  # noqa: F401  # loads its BLAS
    import scipy.linalg  # noqa: F401  # loads another BLAS
    from threadpoolctl import threadpool_info

    libraries = {}
    for library in threadpool_info():
        if library["user_api"] == "blas":
            facts = [*map(library.get, ("architecture", "threading_layer")), f"{library['num_threads']} threads"]
            name = f"BLAS {Path(library['filepath']).parent.name.removesuffix('.libs')}"
            libraries[name] = f"{library['internal_api']} {library['version']} ({', '.join(filter(None, facts))})"
    libraries["HDF5, to check files"] = h5py.version.hdf5_version
    libraries["HDF5, to read and write"] = netCDF4.__hdf5libversion__
    libraries["netCDF-C"] = netCDF4.__netcdf4libversion__
    return libraries


def _precision() -> dict[str, str]:
    import numpy as np

    from rmtbase.linalg import product_singular_values, reproducible_jax

    with reproducible_jax():
        import jax

        key = jax.random.key(0)
        w = np.asarray(jax.random.normal(key, (2, 16, 64)))
        product = np.asarray(jax.numpy.asarray(w[0]).T @ jax.numpy.asarray(w[1]))
    matmul = float(np.abs(product - w[0].T @ w[1]).max())
    thin = product_singular_values(w[0], w[1])
    dense = np.linalg.svd(product, compute_uv=False)[:16]
    spectrum = float(np.abs(thin / dense - 1).max())
    good = w.dtype == np.float64 and matmul < 1e-12 and spectrum < 1e-12
    return {
        "matrix product, jax - numpy": f"{matmul:.1e}",
        "spectrum, thin / dense - 1": f"{spectrum:.1e}",
        "verdict": "good" if good else "bad: expected both below 1e-12 in float64",
    }
