"""Atomic writing: a path has the old file or the complete new one, never a part.

By default only a file of the same kind is replaced, as its content shows, and an input never.
"""

from __future__ import annotations

import os
import platform
import re
import secrets
import stat
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import xarray as xr

from rmtbase.errors import OutputError
from rmtbase.interrupts import interrupts_held
from rmtbase.regular_files import identity, open_regular, require_regular
from rmtbase.systems import if_supported, is_alive, process_namespace, replace_file, sync_folder, utf8_path
from rmtbase.tables._digest import OF_ALL, OF_VARIABLES, digest_attributes, without_digest
from rmtbase.tables._heaps import largest_content
from rmtbase.tables._kinds import groups_of

_LARGE = 4096  # number of values from which compression is worth its header
_BULKY = ("order_statistic_lower", "order_statistic_upper", "largest_distance", "eigenvalue_quantile_self_normalized")
_TEXTS = "OUT"  # kinds of dtypes
_LOOKED_AT = 1 << 16  # bytes at the start (for PDF and MP4 also at the end) that identify a file
_PREFIX, _SUFFIX = ".rmtbase-", ".part"  # of the temporary files


def require_writable(path: Path | str) -> Path:
    """Return the path; raise :class:`~rmtbase.errors.OutputError`, before any long work, if it cannot be written."""
    path = Path(path)
    try:
        with suppress(FileNotFoundError):
            require_regular(path)  # a rename onto /dev/null would replace the device
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    try:
        folder = path.resolve().parent
        if not folder.is_dir():
            link = f"it is a link to {path.resolve()}: " if path.is_symlink() else ""
            raise OutputError(path, f"{link}the folder {folder if link else path.parent} does not exist; make it first")
        probe = temporary_name(folder, path.name)
        try:
            _create(probe)
        finally:
            _remove(probe)
    except OutputError:
        raise
    except OSError as error:
        raise OutputError(path, f"{error.strerror or error} (folder {path.parent})") from error
    return path


def write_table(table: xr.Dataset | xr.DataTree, path: Path | str) -> Path:
    """Write a dataset or tree as netCDF4, so that the path has the old file or the complete new one, never a part.

    The file has a digest of its content, which is verified when it is opened. The table is not changed.

    Args:
        table: a table of numbers and text; each attribute is one number or text.
        path: path of the file. An existing file keeps its mode.

    Raises:
        OutputError: the file cannot be written; an existing file is left unchanged.
        ParameterError: a variable or attribute has another type.
    """
    groups = {name: _bare(dataset) for name, dataset in groups_of(table).items()}
    recorded = digest_attributes(groups)
    groups[""] = groups[""].assign_attrs(groups[""].attrs | recorded)
    fixed = {name or "/": _fixed_width(dataset) for name, dataset in groups.items()}
    complete = xr.DataTree.from_dict(fixed) if len(fixed) > 1 else fixed["/"]
    return _replace(path, lambda target: _write_netcdf(complete, groups, target))


def digest_of(table: xr.Dataset | xr.DataTree) -> str:
    return digest_attributes({name: _bare(dataset) for name, dataset in groups_of(table).items()})[OF_ALL]


def _bare(dataset: xr.Dataset) -> xr.Dataset:
    """Remove traces of an earlier file from a dataset: its encoding and its digest."""
    bare = dataset.drop_encoding()
    bare.attrs = without_digest(dataset.attrs)
    return bare


def _fixed_width(dataset: xr.Dataset) -> xr.Dataset:
    """Convert texts to bytes of a fixed width: netCDF-C crashes as files with variable ones are released."""
    empty = [name for name, item in dataset.variables.items() if item.dtype.kind == "O" and not item.size]
    fixed = dataset.assign({name: dataset[name].astype(str) for name in empty})  # xarray takes them for numbers
    for item in (fixed, *fixed.variables.values()):
        item.attrs = {name: value.encode() if isinstance(value, str) else value for name, value in item.attrs.items()}
    return fixed


def _write_netcdf(complete: xr.Dataset | xr.DataTree, groups: dict[str, xr.Dataset], target: Path) -> None:
    for compress in (True, False):
        encoding = {name or "/": _encoding(dataset, compress) for name, dataset in groups.items()}
        options: dict[str, Any] = {"engine": "netcdf4", "format": "NETCDF4"}
        with interrupts_held():
            try:
                if isinstance(complete, xr.DataTree):  # with inherited coordinates: each group can be read by itself
                    complete.to_netcdf(target, encoding=encoding, write_inherited_coords=True, **options)
                else:
                    complete.to_netcdf(target, encoding=encoding["/"], **options)
            except (PermissionError, RuntimeError):
                # netCDF-C has no words for a full disk, for a limit of file size, and for a file system without locks,
                # which it would lock, although no other process knows this file. Python has.
                target.write_bytes(_netcdf_in_memory(groups, encoding))
        if sum(map(_content, groups.values())) <= largest_content(target.stat().st_size):
            return  # else, compressed, it would exceed the limit for reading: it is then written uncompressed


def _netcdf_in_memory(groups: dict[str, xr.Dataset], encoding: dict[str, dict]) -> memoryview:
    import netCDF4
    from xarray.backends import NetCDF4DataStore

    file = netCDF4.Dataset("in memory", "w", format="NETCDF4", memory=1)
    try:
        for name, dataset in groups.items():
            group = file.createGroup(name) if name else file
            store = NetCDF4DataStore(group)
            _fixed_width(dataset).dump_to_store(store, encoding=encoding[name or "/"])
    finally:
        content = file.close()
    return content


def _content(dataset: xr.Dataset) -> int:
    """Count the bytes that reading the values takes; a text takes its stored characters and NumPy's decoded ones."""
    return sum(
        5 * _characters(variable) if variable.dtype.kind in _TEXTS else variable.nbytes
        for variable in dataset.variables.values()
    )


def _characters(texts: xr.Variable) -> int:
    """Count the bytes of an array of texts, each as long as the longest."""
    return texts.size * max((len(str(text).encode()) for text in texts.values.ravel().tolist()), default=0)


def _encoding(dataset: xr.Dataset, compress: bool) -> dict[str, dict]:
    """Storage of the values; the large variables of an atlas are stored case by case, to be read without the others."""
    atlas = dataset.attrs.get("kind") == "atlas"
    encoding = {}
    for name, variable in dataset.variables.items():
        if variable.dtype.kind in _TEXTS:
            packed = compress and variable.ndim and _characters(variable) >= _LARGE
            encoding[str(name)] = {"dtype": "S1"} | ({"zlib": True, "complevel": 4} if packed else {})
        if not variable.ndim or variable.dtype.kind not in "fiu":
            continue
        stored: dict[str, Any] = {"fletcher32": True}
        if atlas:
            stored["chunksizes"] = (1, *variable.shape[1:]) if name in _BULKY else variable.shape
        if atlas or (compress and variable.dtype.kind == "f" and variable.size >= _LARGE):
            stored |= {"zlib": True, "complevel": 9 if atlas else 4, "shuffle": True}
        encoding[str(name)] = stored
    return encoding


def write_bytes(content: bytes, path: Path | str, swept: bool = False) -> Path:
    """Write a file of bytes with the same guarantee as :func:`write_table`.

    Args:
        content: content of the file.
        path: path of the file.
        swept: whether the caller has called :func:`sweep`, so that a folder of many files is not listed for each one.
    """
    return _replace(path, lambda target: target.write_bytes(content), swept)


def _replace(path: Path | str, write: Callable[[Path], object], swept: bool = False) -> Path:
    path = require_writable(path)
    target = path.resolve()  # a link stays, and its target is replaced
    if not swept:
        _sweep_dead(target.parent, path.name)
    temporary = temporary_name(target.parent, path.name)  # named before it exists, so that any interrupt removes it
    try:
        _create(temporary)
        with utf8_path(temporary) as writable:
            write(writable)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):  # else the new file gets the mode of the one that it replaces
            mode = stat.S_IMODE(target.stat().st_mode)
            if mode != stat.S_IMODE(temporary.stat().st_mode):
                with if_supported():
                    temporary.chmod(mode)
        replace_file(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    except RuntimeError as error:  # of netCDF4
        raise OutputError(path, str(error)) from error
    finally:
        _remove(temporary)
    return path


def _prefix(name: str) -> str:
    """Prefix of the names of a file's temporaries: short, because the file's own name may have the maximum length."""
    return f"{_PREFIX}{zlib.crc32(os.fsencode(name)):08x}-"


def here() -> str:
    """Digest of this machine and namespace, whose processes can check whether a process number is alive."""
    return f"{zlib.crc32(f'{platform.node()} {process_namespace()}'.encode()):08x}-"


def temporary_name(folder: Path, name: str) -> Path:
    return folder / f"{_prefix(name)}{here()}{os.getpid()}-{secrets.token_hex(8)}{_SUFFIX}"


def _create(path: Path) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    finally:  # an interrupt may have prevented the removal
        path.unlink(missing_ok=True)


def is_temporary(name: str) -> bool:
    """Return True for the name of a file that is being written, or was when its writer was killed."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove the temporary files in a folder, all or of one file name; no other process may be writing such files."""
    for leftover in folder.glob(f"{_PREFIX if name is None else _prefix(name)}*{_SUFFIX}"):
        leftover.unlink(missing_ok=True)


def _sweep_dead(folder: Path, name: str) -> None:
    """Remove temporary files for that name whose writers are dead; other writers may be at work."""
    prefix = f"{_prefix(name)}{here()}"
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX):
                writer = entry.name.removeprefix(prefix).partition("-")[0]
                if writer.isdecimal() and not is_alive(int(writer)):
                    Path(entry.path).unlink()


def require_replaceable(
    path: Path | str,
    form: str,
    overwrite: bool = False,
    inputs: Iterable[Path | str] = (),
    variants: Sequence[str] = (),
) -> None:
    """Raise unless a file may be replaced; ``variants``: kinds of table or Parquet file, first lines of a CSV."""
    path = Path(path)
    present = identity(path)
    if present is None:
        return
    if present in {identity(Path(source)) for source in inputs}:
        raise OutputError(path, "it is a file that is read; expected another name")
    folders = (Path(source).resolve() for source in inputs if Path(source).is_dir())
    within = any(path.resolve().is_relative_to(folder) for folder in folders)
    if overwrite and not within:
        return
    try:
        with open_regular(path) as stream:
            start = stream.read(_LOOKED_AT)
    except OSError as error:
        raise OutputError(path, error.strerror or str(error)) from error
    if not start or _FORMS[form](path, start, variants):
        return
    if within:
        raise OutputError(path, "it is in a folder that is read, and no earlier output; expected another name")
    noun = _NOUNS[form].format(" or ".join(variants))
    raise OutputError(path, f"a file that is no {noun} is there; remove it, or name another")


def _is_table(path: Path, start: bytes, kinds: Sequence[str]) -> bool:
    import h5py

    if not start.startswith(b"\x89HDF"):
        return False
    try:
        with h5py.File(os.fsencode(path), "r", locking=False) as file:
            kind, digest, _ = (file.attrs[name] for name in ("kind", OF_ALL, OF_VARIABLES))
    except (OSError, KeyError, RuntimeError, ValueError, TypeError):
        return False
    kind, digest = (text.decode(errors="replace") if isinstance(text, bytes) else text for text in (kind, digest))
    return kind in kinds and isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest) is not None


def _is_parquet(path: Path, start: bytes, kinds: Sequence[str]) -> bool:
    if not start.startswith(b"PAR1"):
        return False
    try:
        import pyarrow.parquet as pq  # type: ignore[import-not-found]

        return (pq.read_schema(path).metadata or {}).get(b"rmtbase.kind", b"").decode() in kinds
    except Exception:  # pyarrow raises its own errors for other files
        return False


def _with_end(path: Path, start: bytes) -> bytes:
    with open_regular(path) as stream:
        stream.seek(max(path.stat().st_size - _LOOKED_AT, 0))
        return start + stream.read(_LOOKED_AT)


_GENERATOR = b'<meta name="generator" content="rmtbase '
_FORMS: dict[str, Callable[[Path, bytes, Sequence[str]], bool]] = {
    "table": _is_table,
    "csv": lambda path, start, lines: any(start.startswith(f"{line}\n".encode()) for line in lines),
    "parquet": _is_parquet,
    "latex": lambda path, start, _: start.startswith(b"% rmtbase "),
    "html": lambda path, start, _: start.startswith(b"<!DOCTYPE html>") and _GENERATOR in start,
    "pdf": lambda path, start, _: start.startswith(b"%PDF-") and b"/Creator (rmtbase)" in _with_end(path, start),
    "svg": lambda path, start, _: start.startswith(b"<?xml") and b"<dc:title>rmtbase</dc:title>" in start,
    "png": lambda path, start, _: start.startswith(b"\x89PNG\r\n") and b"tEXtSoftware\0rmtbase" in start,
    "gif": lambda path, start, _: start.startswith(b"GIF8") and b"rmtbase" in start,
    "mp4": lambda path, start, _: start[4:8] == b"ftyp" and b"rmtbase" in _with_end(path, start),
}
_NOUNS = {
    "table": "{} file of rmtbase",
    "csv": "CSV of these columns",
    "parquet": "Parquet file of {} by rmtbase",
    "latex": "LaTeX table of rmtbase",
    "html": "HTML page of rmtbase",
    **{form: f"{form.upper()} of rmtbase" for form in ("pdf", "svg", "png", "gif", "mp4")},
}
