"""How a table came to be: enough to make it again, and to see why it could differ."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rmtbase.linalg import arithmetic

_PACKAGES = ("rmtbase", "jax", "jaxlib", "numpy", "scipy", "xarray", "netCDF4")


def software_version() -> str:
    """The version of rmtbase that is installed; ``"0+unknown"`` in a source tree that never was."""
    return _version("rmtbase") or "0+unknown"


def software_versions(*packages: str) -> dict[str, str | None]:
    """The installed version of each package, None where it is not installed."""
    return {name: _version(name) for name in packages}


def provenance(call: Mapping[str, Any], **sections: Mapping[str, Any]) -> str:
    """A JSON record of the software, the platform, the call with its parameters, and any further sections.

    There is no date in it, so that the same call on the same software writes the same record.
    """
    record = {
        "software": {"python": platform.python_version(), **software_versions(*_PACKAGES)},
        "platform": {"system": platform.system(), "machine": platform.machine(), **arithmetic()},
        "call": dict(call),
        **{name: dict(section) for name, section in sections.items()},
    }
    return json.dumps(record, sort_keys=True, indent=1)


@cache
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
