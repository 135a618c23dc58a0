"""Atomic writing and validated reading of netCDF files."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import xarray as xr

from rmtbase.errors import MissingFileError, OutputError, TableError
from rmtbase.tables._atlas import atlas_encoding, validate_atlas
from rmtbase.tables._depth_schema import validate_effective_depths
from rmtbase.tables._element_schema import validate_elements
from rmtbase.tables._schema import validate_baseline, validate_scores, validate_spectra

_LARGE = 4096  # values from which compression pays for its header
_PREFIX, _SUFFIX = ".rmtbase-", ".part"  # of the temporary files


def check_writable(path: Path | str) -> Path:
    """The path, or :class:`~rmtbase.errors.OutputError` if no file can be put there: asked before long work."""
    path = Path(path)
    try:
        kind = _file_type(path)
        if kind == stat.S_IFDIR:
            raise OutputError(path, "it is a folder; expected a file name")
        if kind not in (None, stat.S_IFREG):  # a rename onto /dev/null would replace the device
            raise OutputError(path, "it is no regular file; expected a file name")
        folder = path.resolve().parent
        if not folder.is_dir():
            raise OutputError(path, f"the folder {path.parent} does not exist; make it first")
        with tempfile.NamedTemporaryFile(dir=folder, prefix=_prefix(path.name), suffix=_SUFFIX):
            pass
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(path, f"{error.strerror or error} (folder {path.parent})") from error
    return path


def _file_type(path: Path) -> int | None:
    """The type of the file there, links followed, or None where there is none."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except FileNotFoundError:
        return None


def write_table(table: xr.Dataset | xr.DataTree, path: Path | str) -> Path:
    """Write a dataset or tree as netCDF4, so that the path holds the old file or the whole new one, never a part.

    Raises:
        OutputError: the file cannot be written; what was there is untouched.
    """
    if isinstance(table, xr.DataTree):
        encoding = {node.path: _encoding(node.to_dataset(inherit=False)) for node in table.subtree if node.data_vars}
        return _replace(
            path,
            lambda target: table.to_netcdf(target, engine="netcdf4", format="NETCDF4", encoding=encoding),
        )
    return _replace(
        path,
        lambda target: table.to_netcdf(target, engine="netcdf4", format="NETCDF4", encoding=_encoding(table)),
    )


def write_bytes(content: bytes, path: Path | str) -> Path:
    """Write a file of bytes with the same promise as :func:`write_table`."""
    return _replace(path, lambda target: target.write_bytes(content))


def _replace(path: Path | str, write: Callable[[Path], object]) -> Path:
    path = check_writable(path)
    target = path.resolve()  # where it is a link, the link stays and what it points to is replaced
    temporary = None
    try:
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=_prefix(path.name), suffix=_SUFFIX)
        os.close(descriptor)
        temporary = Path(name)
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(target)
        _sync_folder(target.parent)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    except RuntimeError as error:  # what netCDF4 makes of a full disk
        free = shutil.disk_usage(target.parent).free / 2**20
        raise OutputError(path, f"{error} ({free:,.1f} MiB are free on that disk)") from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
    return path


def _prefix(name: str) -> str:
    """The beginning of the names of a file's temporaries: short, for the file's own may be as long as names can be."""
    return f"{_PREFIX}{zlib.crc32(os.fsencode(name)):08x}-"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encoding(dataset: xr.Dataset) -> dict[str, dict]:
    if dataset.attrs.get("kind") == "atlas":
        return atlas_encoding(dataset)
    return {
        str(name): {"zlib": True, "complevel": 4, "shuffle": True}
        for name, variable in dataset.data_vars.items()
        if variable.dtype.kind == "f" and variable.size >= _LARGE
    }


def open_baseline(path: Path | str) -> xr.Dataset:
    """Open a baseline table, validated, and loaded into memory.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is not a baseline table, of another schema version, or damaged.
    """
    dataset = open_netcdf(path)
    validate_baseline(dataset, path)
    return dataset


def open_scores(path: Path | str) -> xr.DataTree:
    """Open a scores file, validated, and loaded into memory.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is not a scores file, of another schema version, or damaged.
    """
    with _reading(path), xr.open_datatree(path, engine="netcdf4") as file:
        tree = file.load()
    validate_scores(tree, path)
    return tree


def open_atlas_file(path: Path | str) -> xr.Dataset:
    """Open an atlas, validated, and loaded into memory.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is no atlas, of another schema version, or damaged.
    """
    atlas = open_netcdf(path)
    validate_atlas(atlas, path)
    return atlas


def open_atlas_case(path: Path | str, d_model: int, d_head: int) -> xr.Dataset | None:
    """One shape of an atlas, validated, reading no other; None if the atlas does not hold it.

    Raises:
        MissingFileError, TableError: as :func:`open_atlas_file`.
    """
    with _reading(path), xr.open_dataset(path, engine="netcdf4", cache=False) as atlas:
        if atlas.attrs.get("kind") != "atlas" or not {"d_model", "d_head"} <= set(atlas.variables):
            raise TableError(path, f"a file of kind {atlas.attrs.get('kind')!r}", "an atlas written by rmtbase")
        cases = np.flatnonzero((atlas["d_model"].values == d_model) & (atlas["d_head"].values == d_head))
        row = atlas.isel(case=cases[:1]).load()
    if not cases.size:
        return None
    validate_atlas(row, path)
    return row.isel(case=0)


def open_table(path: Path | str) -> xr.Dataset | xr.DataTree:
    """Open a baseline table, a table of spectra or of elements, effective depths or a scores file, validated.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is none of them, of another schema version, or damaged.
    """
    dataset = open_netcdf(path)
    kind = dataset.attrs.get("kind")
    if kind == "scores":
        return open_scores(path)
    validate = {
        "spectra": validate_spectra,
        "elements": validate_elements,
        "effective_depth": validate_effective_depths,
    }.get(str(kind), validate_baseline)
    validate(dataset, path)
    return dataset


def open_netcdf(path: Path | str) -> xr.Dataset:
    """Open any netCDF4 dataset, loaded into memory and not validated.

    Raises:
        MissingFileError: there is no such file.
        TableError: it is not a readable netCDF4 file.
    """
    with _reading(path):
        return xr.load_dataset(path, engine="netcdf4")


def is_temporary(name: str) -> bool:
    """Whether that is the name of a file which is being written, or was when its writer was killed."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what writers killed in the middle have left in a folder: all, or what was to become the file of that name.

    Call where no other process writes them.
    """
    for leftover in folder.glob(f"{_PREFIX if name is None else _prefix(name)}*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)


@contextmanager
def _reading(path: Path | str) -> Iterator[None]:
    """Turn what netCDF says of a file it cannot read into the errors of this library."""
    try:
        if _file_type(Path(path)) is None:
            raise MissingFileError(path, advice="check the name, or make the table first")
        if _file_type(Path(path)) != stat.S_IFREG:
            raise TableError(path, "a folder or device", "a file written by rmtbase")
        yield
    except (MissingFileError, TableError):
        raise
    except Exception as error:  # a damaged file can make HDF5, netCDF4 and xarray raise anything
        raise TableError(path, f"no readable netCDF4 file ({error})", "a file written by rmtbase") from error
