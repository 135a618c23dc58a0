"""Reading of tables, which are inspected, verified and validated before any number is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from rmtbase.errors import MissingFileError, TableError, UnreadableTableError
from rmtbase.regular_files import require_regular
from rmtbase.tables._digest import verify, without_digest
from rmtbase.tables._kinds import KINDS, require_outline, require_values
from rmtbase.tables._schema import names_as_objects


def open_table(path: Path | str, *kinds: str) -> xr.Dataset | xr.DataTree:
    """Open a table, verify and validate it, and load it into memory.

    Before any value is read, the file's structure is inspected: whether all values are in the file, and how much memory
    they would take. Then all content is compared with the digest in the file and with the schema of each variable.

    Args:
        path: the file.
        *kinds: accepted kinds of table (:data:`rmtbase.tables.KINDS`); any kind but an atlas if none is named.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is not a table of that kind, has another schema version, is damaged, or has no digest because
            other software wrote it; ``write_table(xarray.open_datatree(path), path)`` adds one.
    """
    accepted = kinds or tuple(name for name in KINDS if name != "atlas")
    from rmtbase.tables._hdf5 import looked_into

    with _reading(path), looked_into(path) as file:
        kind = require_outline(file.groups, path, accepted)
        groups = {name: file.read(name) for name in file.groups}
        verify(file.groups, groups, path)
        groups[""].attrs = without_digest(groups[""].attrs)
        require_values(groups, kind, path)
    groups = {name: names_as_objects(group) for name, group in groups.items()}
    if set(kind.groups) == {""}:
        return groups[""]
    tree: xr.DataTree = xr.DataTree.from_dict({name or "/": group for name, group in groups.items()})
    return tree


def open_atlas_case(path: Path | str, d_model: int, d_head: int) -> xr.Dataset | None:
    """Read, verify and validate one shape of an atlas without reading the others; None if the atlas lacks it."""
    from rmtbase.tables._hdf5 import looked_into

    with _reading(path), looked_into(path) as file:
        kind = require_outline(file.groups, path, ("atlas",))
        variables = file.groups[""].variables
        shared = {name for name, variable in variables.items() if "case" not in variable.dims}
        shared |= {"d_model", "d_head", "checksum"}
        index = file.read(only=shared)
        verify(file.groups, {"": index}, path)
        cases = np.flatnonzero((index["d_model"].values == d_model) & (index["d_head"].values == d_head))
        row = None
        if cases.size:
            row = file.read(rows={"case": slice(int(cases[0]), int(cases[0]) + 1)})
            row.attrs = without_digest(row.attrs)
            require_values({"": row}, kind, path)  # includes the checksum of the case
    return None if row is None else row.isel(case=0)


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    try:
        require_regular(Path(path))
    except FileNotFoundError as error:
        raise MissingFileError(path, advice="check the name, or make the table first") from error
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        yield
    except TableError:
        raise
    except OSError as error:
        if error.errno is not None:  # of the system, and not of HDF5
            raise _unreadable(path, error) from error
        raise TableError(path, f"no readable netCDF4 file ({error})", "a file written by rmtbase") from error
    except Exception as error:  # a damaged file can make HDF5, netCDF4 and xarray raise anything
        raise TableError(path, f"no readable netCDF4 file ({error})", "a file written by rmtbase") from error


def _unreadable(path: Path | str, error: OSError) -> UnreadableTableError:
    reason = os.strerror(error.errno) if isinstance(error.errno, int) and error.filename is None else error.strerror
    return UnreadableTableError(path, f"a file that cannot be read ({reason})", "a file written by rmtbase")


def baseline_shapes(dataset: xr.Dataset) -> list[tuple[int, int]]:
    return list(zip(dataset["d_model"].values.tolist(), dataset["d_head"].values.tolist(), strict=True))
