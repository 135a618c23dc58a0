"""Reading tables: looked into, verified and validated before a number of them is used."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import numpy as np
import xarray as xr

from rmtbase.errors import MissingFileError, RmtbaseWarning, TableError
from rmtbase.regular_files import require_regular
from rmtbase.shown import shown
from rmtbase.tables._digest import verify, without_digest
from rmtbase.tables._kinds import KINDS, require_outline, require_values
from rmtbase.tables._schema import names_as_objects


class TableWarning(RmtbaseWarning):
    """A file without a digest was read: whether it is as it was written cannot be told."""


def open_table(path: Path | str, *kinds: str) -> xr.Dataset | xr.DataTree:
    """Open a table, verified, validated, and loaded into memory.

    Before a value is read the file's structure is looked at: whether all lies in the file, and what it would take. Then
    all content is compared with the digest in the file, and with what the schema says of each variable.

    Args:
        path: the file.
        *kinds: which kinds of table are wanted (:data:`rmtbase.tables.KINDS`); any but an atlas if none is named.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is no table of that kind, of another schema version, or damaged.

    Warns:
        TableWarning: it has no digest, as files before schema 1.2 and those that other software has written.
    """
    wanted = kinds or tuple(name for name in KINDS if name != "atlas")
    from rmtbase.tables._hdf5 import looked_into

    with _reading(path), looked_into(path) as file:
        kind = require_outline(file.groups, path, wanted)
        groups = {name: file.read(name) for name in file.groups}
        verified = verify(file.groups, groups, path)
        groups[""].attrs = without_digest(groups[""].attrs)
        require_values(groups, kind, path)
    groups = {name: _as_made_now(group) for name, group in groups.items()}
    if not verified:
        _warn_of_no_digest(path, groups[""].attrs["schema_version"])
    if set(kind.groups) == {""}:
        return groups[""]
    tree: xr.DataTree = xr.DataTree.from_dict({name or "/": one for name, one in groups.items()})
    return tree


def open_baseline(path: Path | str) -> xr.Dataset:
    """Open a baseline table; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.Dataset, open_table(path, "baseline"))


def open_scores(path: Path | str) -> xr.DataTree:
    """Open a scores file; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.DataTree, open_table(path, "scores"))


def open_signal(path: Path | str) -> xr.DataTree:
    """Open a file of signal and noise; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.DataTree, open_table(path, "signal"))


def open_comparison(path: Path | str) -> xr.DataTree:
    """Open a comparison; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.DataTree, open_table(path, "comparison"))


def open_composition(path: Path | str) -> xr.Dataset:
    """Open the compositions of a model's heads; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.Dataset, open_table(path, "composition"))


def open_trajectory(path: Path | str) -> xr.DataTree:
    """Open a trajectory; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.DataTree, open_table(path, "trajectory"))


def open_atlas_file(path: Path | str) -> xr.Dataset:
    """Open an atlas; see :func:`open_table`, also for what it raises and warns of."""
    return cast(xr.Dataset, open_table(path, "atlas"))


def open_atlas_case(path: Path | str, d_model: int, d_head: int) -> xr.Dataset | None:
    """One shape of an atlas, verified and validated, reading no other; None if the atlas does not hold it.

    Raises:
        MissingFileError, TableError: as :func:`open_table`.

    Warns:
        TableWarning: as :func:`open_table`.
    """
    from rmtbase.tables._hdf5 import looked_into

    with _reading(path), looked_into(path) as file:
        kind = require_outline(file.groups, path, ("atlas",))
        variables = file.groups[""].variables
        shared = {name for name, one in variables.items() if "case" not in one.dims} | {"d_model", "d_head", "checksum"}
        index = file.read(only=shared)
        verified = verify(file.groups, {"": index}, path)
        cases = np.flatnonzero((index["d_model"].values == d_model) & (index["d_head"].values == d_head))
        row = None
        if cases.size:
            row = file.read(rows={"case": slice(int(cases[0]), int(cases[0]) + 1)})
            row.attrs = without_digest(row.attrs)
            require_values({"": row}, kind, path)  # the checksum of the case among them
    if not verified:
        _warn_of_no_digest(path, index.attrs["schema_version"])
    return None if row is None else row.isel(case=0)


def _as_made_now(group: xr.Dataset) -> xr.Dataset:
    """Without units "1", which files before schema 1.3 have and xarray writes into every label; names as objects."""
    for variable in group.variables.values():
        if variable.attrs.get("units") == "1":
            del variable.attrs["units"]
    return names_as_objects(group)


def _warn_of_no_digest(path: Path | str, version: object) -> None:
    warnings.warn(
        f"{shown(path)} has no digest (schema {shown(version)}), so that damage to it cannot be told: make it again, "
        "or open it and write it with rmtbase.tables.write_table",
        TableWarning,
        stacklevel=3,
    )


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    """Turn what netCDF says of a file it cannot read into the errors of this library."""
    try:
        require_regular(Path(path))
    except FileNotFoundError as error:
        raise MissingFileError(path, advice="check the name, or make the table first") from error
    except OSError as error:
        raise TableError(path, f"a file that cannot be read ({error.strerror})", "a file written by rmtbase") from error
    try:
        yield
    except TableError:
        raise
    except Exception as error:  # a damaged file can make HDF5, netCDF4 and xarray raise anything
        raise TableError(path, f"no readable netCDF4 file ({error})", "a file written by rmtbase") from error


def baseline_shapes(dataset: xr.Dataset) -> list[tuple[int, int]]:
    """(d_model, d_head) of every case of a baseline table."""
    return list(zip(dataset["d_model"].values.tolist(), dataset["d_head"].values.tolist(), strict=True))
