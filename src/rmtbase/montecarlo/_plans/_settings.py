"""What decides about the bits of a run beside its plan."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rmtbase.montecarlo._draws._solver_choice import choose_solver
from rmtbase.montecarlo._plans._plan import Plan
from rmtbase.tables import software_versions

_DRAWING = ("ensembles", "linalg", "montecarlo", "statistics")


def machine_settings() -> dict[str, Any]:
    """The versions of what draws and solves, the kind of processor, and JAX's device, as plain values."""
    import jax

    return {
        **software_versions("rmtbase", "jax", "jaxlib", "numpy"),
        "source": _source(),
        "machine": platform.machine(),
        "backend": jax.default_backend(),
        "device": jax.local_devices()[0].device_kind,
    }


@cache
def _source() -> str:
    """Digest of the code that draws: between two releases the version does not tell whether it is the same."""
    package = Path(__file__).parents[2]
    files = sorted(file for room in _DRAWING for file in (package / room).rglob("*.py"))
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.relative_to(package).as_posix().encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def choose_solvers(plan: Plan, cores: int | None = None) -> list[str]:
    """The solver of each case, chosen where it will be used; none for elements, whose spectra nobody asks for."""
    if plan.measure == "elements":
        return ["none"] * len(plan.cases)
    return [choose_solver(ensemble, plan.precision, cores=cores).name for ensemble in plan.ensembles]


def differences(there: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """In which settings two processes differ, in words; empty where in none."""
    keys = [key for key in {**there, **here} if there.get(key) != here.get(key)]
    return ", ".join(f"{key}: {_short(there.get(key))} there, {_short(here.get(key))} here" for key in keys)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
