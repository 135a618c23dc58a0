"""Inspection of the structure of a netCDF-4 file before its values are read.

A file of 30 kB can claim to hold 10^8 numbers, or that its values are in another file of this machine. So its structure
is inspected first (objects, types, storage and sizes), and only then are the values of its variables read. The result
is the same as with plain xarray.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import xarray as xr
from h5py import h5ds, h5l, h5o  # type: ignore[attr-defined]  # not in the stubs
from jaxtyping import Shaped

from rmtbase.errors import TableError
from rmtbase.shown import quoted
from rmtbase.tables._heaps import heap_fault, largest_content, stored_bytes
from rmtbase.tables._schema import require_version

_MOST_OBJECTS = 1000
_MOST_ATTRIBUTES = 100
_MOST_DIMENSIONS = 8
_DEEPEST = 3  # levels of nested groups, as in /circuits/ov/heads
_LARGEST_ATTRIBUTE = 16 << 20

_NETCDF_ONLY = frozenset(
    {
        *("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"),
        *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties", "_Encoding"),
    }
)
"""Attributes by which netCDF describes its own structure."""

_RECODING = frozenset({"scale_factor", "add_offset", "missing_value", "_Unsigned", "valid_min", "valid_max", "dtype"})
"""Attributes that change the stored numbers on reading."""

_NO_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_FILTERS = "only deflate, shuffle and fletcher32"
_WHOLE = "a file written by rmtbase"


@dataclass(frozen=True)
class Stored:
    """Variable that has been inspected but not read."""

    dims: tuple[str, ...]  # its dimensions
    # native dtype; ``object`` for text, which is stored as characters along an additional, last dimension
    dtype: np.dtype
    attrs: dict[str, Any]  # its attributes, without those that only describe its storage
    fill: Any  # the number that stands for missing numbers, or None
    values: h5py.Dataset = field(repr=False)  # HDF5 dataset with its values


@dataclass(frozen=True)
class Group:
    """Group that has been inspected."""

    attrs: dict[str, Any]  # its attributes
    variables: dict[str, Stored]  # its variables by name
    coords: frozenset[str]  # names of the variables that are coordinates
    sizes: dict[str, int]  # sizes of the dimensions of its variables


class TableFile:
    """Open netCDF-4 file whose structure has been inspected.

    Attributes:
        path: path of the file.
        groups: groups by path, such as ``/heads``; "" is the root.
    """

    def __init__(self, path: Path | str, file: h5py.File) -> None:
        self.path = path
        self._size = stored_bytes(path)
        self._left = largest_content(self._size)
        self.groups = self._look(file)

    def read(
        self, group: str = "", rows: Mapping[str, slice] | None = None, only: set[str] | None = None
    ) -> xr.Dataset:
        """Read the dataset of a group into memory, restricted to some rows or variables if these are given."""
        found, rows = self.groups[group], rows or {}
        variables = {}
        for name, stored in found.variables.items():
            if only is None or name in only:
                place = tuple(rows.get(dim, slice(None)) for dim in stored.dims)
                variables[name] = stored.dims, self._values(stored, place), stored.attrs
        return xr.Dataset(variables, attrs=found.attrs).set_coords(sorted(found.coords & set(variables)))

    def _values(self, stored: Stored, place: tuple[slice, ...]) -> Shaped[np.ndarray, "..."]:
        if stored.dtype.kind == "O":
            return self._texts(stored.values[place])
        values = np.asarray(stored.values[place], dtype=stored.dtype)
        if stored.fill is None or stored.fill != stored.fill:
            return values
        absent = values == stored.fill
        if not absent.any():
            return values
        if stored.dtype.kind != "f":
            raise self._refuse(f"values of {quoted(stored.values.name)} that were never written")
        return np.where(absent, stored.dtype.type(np.nan), values)

    @staticmethod
    def _texts(characters: Shaped[np.ndarray, "... character"]) -> Shaped[np.ndarray, "..."]:
        """Join the characters along the last axis, and decode them."""
        width = characters.shape[-1]
        return np.char.decode(np.ascontiguousarray(characters).view(f"S{width}")[..., 0], "utf-8")

    def _look(self, file: h5py.File) -> dict[str, Group]:
        require_version(self._attributes(file), self.path)
        scales: dict[int, tuple[str, int]] = {}
        listed: dict[str, tuple[h5py.Group, dict[str, h5py.Dataset]]] = {}
        ahead: dict[str, h5py.Group] = {"": file}
        while ahead:
            name, group = ahead.popitem()
            members, deeper = self._listed(group)
            if deeper and name.count("/") == _DEEPEST:
                raise self._refuse(f"a group in the group {quoted(name)}")
            listed[name] = group, members
            ahead |= {f"{name}/{inner}": one for inner, one in deeper.items()}
            if len(listed) + len(ahead) + sum(len(members) for _, members in listed.values()) > _MOST_OBJECTS:
                raise self._refuse(f"more than {_MOST_OBJECTS} objects")
        for _, members in listed.values():
            for name, member in members.items():
                if h5ds.is_scale(member.id):
                    if len(member.shape) != 1 + _is_text(member):
                        raise self._refuse(f"a dimension {quoted(name)} of shape {member.shape}")
                    scales[_address(member.id)] = (name, member.shape[0])
        return {name: self._group(group, members, scales) for name, (group, members) in listed.items()}

    def _listed(self, group: h5py.Group) -> tuple[dict[str, h5py.Dataset], dict[str, h5py.Group]]:
        """List the datasets and the groups of a group, and refuse links."""
        if group.id.get_num_objs() > _MOST_OBJECTS:
            raise self._refuse(f"more than {_MOST_OBJECTS} objects")
        datasets, groups = {}, {}
        for name in map(str, group):
            if group.id.links.get_info(os.fsencode(name)).type != h5l.TYPE_HARD:  # not following it
                raise self._refuse(f"{quoted(name)}, a link", "no links: the values themselves")
            member = group[name]
            if isinstance(member, h5py.Dataset):
                datasets[name] = member
            elif isinstance(member, h5py.Group):
                groups[name] = member
            else:
                raise self._refuse(f"{quoted(name)}, which is neither variable nor group")
        return datasets, groups

    def _group(self, group: h5py.Group, members: dict[str, h5py.Dataset], scales: dict[int, tuple[str, int]]) -> Group:
        attributes = self._attributes(group)
        coordinates = set(str(attributes.pop("coordinates", "")).split())
        variables, sizes = {}, {}
        for name, member in members.items():
            if h5ds.is_scale(member.id) and h5ds.get_scale_name(member.id).startswith(_NO_VARIABLE):
                continue
            attrs = self._attributes(member)
            coordinates |= set(str(attrs.pop("coordinates", "")).split())
            fill = attrs.pop("_FillValue", None)
            if recoding := sorted(_RECODING & set(attrs)):
                raise self._refuse(f"attribute {recoding[0]} of variable {quoted(member.name)}", "values as they are")
            dtype = self._dtype(member)
            dims = self._dims(name, member, scales)
            variables[name] = Stored(dims, dtype, attrs, fill, member)
            self._require_storage(member)
            for dim, size in zip(dims, member.shape[: len(dims)], strict=True):
                if sizes.setdefault(dim, size) != size:
                    raise self._refuse(f"variable {quoted(member.name)} of {size} {dim}", f"{sizes[dim]}, as others")
            if dims == (name,):
                coordinates.add(name)
        return Group(attributes, variables, frozenset(coordinates & set(variables)), sizes)

    def _dims(self, name: str, member: h5py.Dataset, scales: dict[int, tuple[str, int]]) -> tuple[str, ...]:
        if len(member.shape) > _MOST_DIMENSIONS:
            raise self._refuse(f"variable {quoted(member.name)} of {len(member.shape)} dimensions")
        if h5ds.is_scale(member.id):
            return (name,)
        if not member.shape:
            return ()
        is_text = _is_text(member)
        references = member.attrs.get("DIMENSION_LIST")
        if references is None or np.shape(references) != (len(member.shape),):
            raise self._refuse(f"variable {quoted(member.name)} without named dimensions")
        dims = []
        for one, length in zip(references, member.shape, strict=True):
            scale = scales.get(_address(h5py.h5r.dereference(one[0], member.id))) if len(one) == 1 else None
            if scale is None:
                raise self._refuse(f"variable {quoted(member.name)} with a dimension that is not in the file")
            if scale[1] != length:
                raise self._refuse(f"variable {quoted(member.name)} with {length} {quoted(scale[0])}", f"{scale[1]}")
            dims.append(scale[0])
        dims = dims[: len(dims) - is_text]
        if len(set(dims)) < len(dims):
            raise self._refuse(f"variable {quoted(member.name)} with dimensions {quoted(tuple(dims))}", "each once")
        return tuple(dims)

    def _dtype(self, member: h5py.Dataset) -> np.dtype:
        kind = member.id.get_type()
        if _is_text(member):
            if not member.shape or not member.shape[-1]:
                raise self._refuse(f"variable {quoted(member.name)} of characters that are no texts")
            return np.dtype(object)
        if isinstance(kind, h5py.h5t.TypeStringID):
            raise self._refuse(
                f"variable {quoted(member.name)} with texts of variable length",
                "texts of a fixed width, as rmtbase.tables.write_table writes them",
            )
        if isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID) and kind.get_size() in (1, 2, 4, 8):
            return kind.dtype.newbyteorder("=")
        raise self._refuse(f"variable {quoted(member.name)} of type {quoted(member.dtype)}", "numbers or text")

    def _require_storage(self, member: h5py.Dataset) -> None:
        """Raise unless all values are in this file, in storage of a known kind, and within the file's limit."""
        layout, name = member.id.get_create_plist(), member.name
        if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
            raise self._refuse(
                f"variable {quoted(name)}, whose values lie in another file", "values in the file itself"
            )
        known = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32)
        if any(layout.get_filter(number)[0] not in known for number in range(layout.get_nfilters())):
            raise self._refuse(f"variable {quoted(name)}, stored by an unknown filter", _FILTERS)
        width = member.id.get_type().get_size()
        needed = prod(member.shape) * width
        if _is_text(member):
            self._take(4 * needed, name)  # for NumPy's decoded texts
        if layout.get_layout() == h5py.h5d.CHUNKED:
            # A chunk is read as a whole, even if little of it lies within the variable.
            pieces = [-(-length // chunk) for length, chunk in zip(member.shape, layout.get_chunk(), strict=True)]
            self._take(prod(pieces) * prod(layout.get_chunk()) * width, name)
            there = member.id.get_num_chunks() == prod(pieces)
        else:
            self._take(needed, name)
            there = member.id.get_storage_size() == needed
        if not there:
            raise self._refuse(f"variable {quoted(name)}, parts of which were never written", "all of its values")

    def _attributes(self, owner: h5py.Group | h5py.Dataset) -> dict[str, Any]:
        """Read the attributes, each of which must be one text or number."""
        if h5py.h5a.get_num_attrs(owner.id) > _MOST_ATTRIBUTES:
            raise self._refuse(f"more than {_MOST_ATTRIBUTES} attributes of {quoted(owner.name)}")
        attributes = {}
        for name in owner.attrs:
            if name in _NETCDF_ONLY:
                continue
            found = owner.attrs.get_id(name)
            kind, size = found.get_type(), found.get_storage_size()
            known = isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID | h5py.h5t.TypeStringID)
            if not known or found.shape not in ((), (1,), None):
                what = f"attribute {quoted(name)} of {quoted(owner.name)}: {quoted(found.dtype)} of shape {found.shape}"
                raise self._refuse(what, "one text or number")
            if size > _LARGEST_ATTRIBUTE:
                raise self._refuse(f"attribute {quoted(name)} of {size:,} bytes", f"{_LARGEST_ATTRIBUTE:,} at most")
            self._take(size, name)
            attributes[name] = _attribute(found)
            if isinstance(attributes[name], str):
                self._take(4 * len(attributes[name]), name)
        return attributes

    def _take(self, amount: int, what: object) -> None:
        """Count bytes to be read towards the file's limit, and raise if it is exceeded."""
        self._left -= amount
        if self._left < 0:
            limit = largest_content(self._size) / 2**20
            raise self._refuse(
                f"more values than so small a file can hold, at {quoted(what)}", f"at most {limit:,.0f} MiB in all"
            )

    def _refuse(self, found: str, expected: str = _WHOLE) -> TableError:
        return TableError(self.path, found, expected)


@contextmanager
def looked_into(path: Path | str) -> Iterator[TableFile]:
    """Open a netCDF-4 file for the duration of a ``with`` block and inspect its structure."""
    if (fault := heap_fault(path)) is not None:
        raise TableError(path, fault, _WHOLE)
    # No lock is needed: a file is replaced whole, and never changed in place.
    with h5py.File(os.fsencode(path), "r", locking=False) as file:
        yield TableFile(path, file)


def _is_text(member: h5py.Dataset) -> bool:
    """Return True if a variable holds single characters, which is how texts of a fixed width are stored."""
    kind = member.id.get_type()
    return isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str() and kind.get_size() == 1


def _address(identifier: Any) -> int:
    return h5o.get_info(identifier).addr


def _attribute(found: h5py.h5a.AttrID) -> Any:
    """Return an attribute as netCDF does: text, or a NumPy number."""
    if found.shape is None:
        return ""
    values = np.empty(found.shape, found.dtype)
    found.read(values)
    if values.dtype.kind in "SO":
        one = values.item()
        return one.decode() if isinstance(one, bytes) else str(one)
    return values.astype(values.dtype.newbyteorder("=")).reshape(())[()]
