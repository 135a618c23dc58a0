"""Digest of the content of a file (names, dimensions, types, values, attributes), verified for what is read.

A copy with another compression, chunking or byte order keeps it. Each variable has one, to name a damaged one.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from rmtbase.errors import ParameterError, TableError
from rmtbase.shown import quoted
from rmtbase.tables._schema import Outline

OF_ALL, OF_VARIABLES = "sha256", "sha256_of_variables"
"""Names of the attributes. The second is a JSON object with the digest of each variable; the first is the digest of
the second and of everything other than values."""

_CHANGED = "the file as it was written (where it was changed on purpose, write it with rmtbase.tables.write_table)"


def variable_digest(variable: xr.Variable) -> str:
    """Return the SHA-256 of a variable's dimensions, shape, type, attributes and values, in hexadecimal."""
    values = np.asarray(variable.values)
    is_text = values.dtype.kind in "OUT"
    if not is_text and values.dtype.kind not in "fiu":
        raise ParameterError("table", f"a variable of type {values.dtype}", "numbers or text")
    kind = "text" if is_text else f"{values.dtype.kind}{values.dtype.itemsize}"
    header = [list(map(str, variable.dims)), list(values.shape), kind, _attributes(variable.attrs)]
    total = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    if is_text:
        total.update(json.dumps(values.ravel().tolist()).encode())
    else:
        little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        total.update(little.reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def digest_attributes(groups: Mapping[str, xr.Dataset]) -> dict[str, str]:
    """Return the two attributes of a file with these groups; "" is the root."""
    of_variables = {
        f"{group}/{name}": variable_digest(variable)
        for group, dataset in groups.items()
        for name, variable in dataset.variables.items()
    }
    return {OF_ALL: _digest_of_all(groups, of_variables), OF_VARIABLES: json.dumps(of_variables, sort_keys=True)}


def without_digest(attributes: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in attributes.items() if name not in (OF_ALL, OF_VARIABLES)}


def verify(groups: Mapping[str, Outline], read: Mapping[str, xr.Dataset], path: Path | str) -> None:
    """Compare all or some variables read from a file with the digest in its root."""
    recorded = groups[""].attrs
    if OF_ALL not in recorded and OF_VARIABLES not in recorded:  # a flipped byte can hide one of the two, not both
        expected = "a file written by rmtbase: open it with xarray, and write it with rmtbase.tables.write_table"
        raise TableError(
            path, "no digest, so that damage could not be detected: it was written by other software", expected
        )
    try:
        of_variables = json.loads(str(recorded.get(OF_VARIABLES)))
    except (ValueError, RecursionError):
        of_variables = None
    names = {f"{group}/{name}" for group, dataset_outline in groups.items() for name in dataset_outline.variables}
    if not isinstance(of_variables, dict) or set(of_variables) != names:
        raise TableError(path, "variables that do not fit the digest", _CHANGED)
    for group, dataset in read.items():
        for name, variable in dataset.variables.items():
            if variable_digest(variable) != of_variables[f"{group}/{name}"]:
                raise TableError(path, f"variable {quoted(f'{group}/{name}')} that does not fit its digest", _CHANGED)
    if recorded.get(OF_ALL) != _digest_of_all(groups, of_variables):
        raise TableError(path, "attributes that do not fit the digest", _CHANGED)


def case_checksums(atlas: xr.Dataset) -> list[int]:
    """Checksum of each case of an atlas: 63 bits of the digest of an atlas of only this case, without the checksums."""
    variables = {str(name): variable for name, variable in atlas.variables.items() if name != "checksum"}
    shared = {name: variable_digest(variable) for name, variable in variables.items() if "case" not in variable.dims}
    checksums = []
    for case in range(atlas.sizes["case"]):
        rows = slice(case, case + 1)
        in_case = {
            name: variable_digest(variable.isel(case=rows))
            for name, variable in variables.items()
            if "case" in variable.dims
        }
        total = hashlib.sha256(json.dumps(shared | in_case, sort_keys=True).encode())
        checksums.append(int.from_bytes(total.digest()[:8]) >> 1)
    return checksums


def with_checksums(atlas: xr.Dataset) -> xr.Dataset:
    """Add a checksum of every case to an atlas, so that a case can be verified without reading the others."""
    return atlas.assign(checksum=("case", case_checksums(atlas)))


def _digest_of_all(groups: Mapping[str, Outline], of_variables: Mapping[str, str]) -> str:
    content = {
        "attributes": {name: _attributes(without_digest(group.attrs)) for name, group in groups.items()},
        "coordinates": {name: sorted(map(str, group.coords)) for name, group in groups.items()},
        "variables": of_variables,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _attributes(attributes: Mapping[Any, Any]) -> dict[str, list[str]]:
    return {str(name): _attribute(name, value) for name, value in attributes.items()}


def _attribute(name: object, value: object) -> list[str]:
    """Return a text or number with its type, in a form that does not depend on its storage."""
    array = np.asarray(value)
    if array.size == 1 and array.dtype.kind in "fiuUT":
        scalar = array.reshape(()).item()
        return [type(scalar).__name__, scalar.hex() if isinstance(scalar, float) else str(scalar)]
    raise ParameterError("table", f"attribute {quoted(name)} = {quoted(value)}", "each attribute one text or number")
