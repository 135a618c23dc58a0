"""``rmtbase doctor``: versions, devices, precision, what is installed."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated, Any

import typer


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Say what is installed, on which devices it runs, and check that double precision holds.

    Example: rmtbase doctor --json
    """
    facts = _examine()
    if as_json:
        print(json.dumps(facts, indent=1))
    else:
        for section, entries in facts.items():
            print(f"{section}")
            for name, value in entries.items():
                print(f"  {name:<28} {value}")
    if facts["precision"]["verdict"] != "good":
        raise typer.Exit(1)


def _examine() -> dict[str, dict[str, Any]]:
    import rmtbase
    from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION, SpectrumSolver, available_cores
    from rmtbase.montecarlo import cache_folder

    packages = {name: _version(name) or "not installed" for name in _requirements()}
    return {
        "software": {"rmtbase": rmtbase.__version__, "python": platform.python_version(), **packages},
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores for this process": available_cores(),
            "executable": sys.executable,
        },
        "numerics": {"dtype": DTYPE, "prng": PRNG_IMPLEMENTATION, "solver": SpectrumSolver.name},
        "devices": _devices(),
        "precision": _precision(),
        "files": {"cache": str(cache_folder())},
    }


def _devices() -> dict[str, str]:
    import jax

    return {str(device): device.device_kind for device in jax.devices()}


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


def _requirements() -> list[str]:
    """The packages that rmtbase asks for, those of the extras `hf` and `cuda` among them."""
    try:
        lines = requires("rmtbase") or []
    except PackageNotFoundError:
        return []
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if _is_wanted(line)]
    return list(dict.fromkeys(names))


def _is_wanted(requirement: str) -> bool:
    return "extra ==" not in requirement or re.search(r"extra == .(hf|cuda)", requirement) is not None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
