"""Provenance of a table: enough to make it again, and to see why it might differ."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rmtbase.linalg import arithmetic

_PACKAGES = ("rmtbase", "jax", "jaxlib", "numpy", "scipy", "xarray", "netCDF4")


def software_versions(*packages: str) -> dict[str, str | None]:
    """Return the installed version of each package; None if it is not installed."""
    return {name: _version(name) for name in packages}


def provenance(call: Mapping[str, Any], **sections: Mapping[str, Any]) -> str:
    """Return a JSON record of the software, the platform, the call with its parameters, and any further sections.

    It has no date, so that the same call with the same software writes the same record.
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
    except (PackageNotFoundError, ValueError):  # an empty name is that of no package
        return None
