"""Contents of a file that rmtbase wrote, as entries."""

import hashlib
from pathlib import Path
from typing import Any

from entries import attribute, without_code

_STORED = ("zlib", "shuffle", "complevel", "fletcher32")


def contents(path: Path) -> Any:
    """Read a table by groups, variables, attributes and encodings, a figure by its pixels, a text unchanged."""
    if path.suffix == ".nc":
        return _netcdf(path)
    if path.suffix == ".png":
        return _pixels(path)
    content = path.read_bytes()
    try:
        return without_code(content.decode())
    except UnicodeDecodeError:
        return hashlib.sha256(content).hexdigest()


def _netcdf(path: Path) -> dict[str, Any]:
    import netCDF4

    found: dict[str, Any] = {}
    with netCDF4.Dataset(path) as file:
        file.set_auto_maskandscale(False)
        waiting = [file]
        while waiting:
            group = waiting.pop()
            waiting += group.groups.values()
            place = group.path.rstrip("/")
            found[f"{place}/@dims"] = " ".join(f"{name}={len(size)}" for name, size in group.dimensions.items())
            for name in group.ncattrs():
                found[f"{place}/@{name}"] = attribute(name, group.getncattr(name))
            for name, variable in group.variables.items():
                found[f"{place}/{name}"] = variable[...]
                found[f"{place}/{name}@dims"] = " ".join(variable.dimensions)
                found[f"{place}/{name}@stored"] = _stored(variable)
                for key in variable.ncattrs():
                    found[f"{place}/{name}@{key}"] = variable.getncattr(key)
    return found


def _stored(variable: Any) -> str:
    filters = variable.filters() or {}
    stored = {key: filters.get(key) for key in _STORED}
    return f"{variable.dtype} {variable.endian()} {variable.chunking()} {stored}"


def _pixels(path: Path) -> dict[str, Any]:
    from matplotlib.image import imread

    pixels = imread(path)
    return {"shape": pixels.shape, "sha256 of the pixels": hashlib.sha256(pixels.tobytes()).hexdigest()}
