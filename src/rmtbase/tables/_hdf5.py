"""Inspection of the structure of a netCDF-4 file before its values are read.

A file of 30 kB can claim to hold 10^8 numbers, or that its values are in another file of this machine.
"""

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

from rmtbase.errors import TableError
from rmtbase.shown import quoted
from rmtbase.tables._heaps import heap_fault, largest_content, stored_bytes
from rmtbase.tables._schema import require_version

_MOST_OBJECTS = 1000

_NETCDF_ONLY = (
    *("CLASS", "NAME", "REFERENCE_LIST", "DIMENSION_LIST"),
    *("_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict", "_NCProperties", "_Encoding"),
)  #: Attributes by which netCDF describes its own structure

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
    values: h5py.Dataset = field(repr=False)  # HDF5 dataset with its values


@dataclass(frozen=True)
class Group:
    """Group that has been inspected."""

    attrs: dict[str, Any]  # its attributes
    variables: dict[str, Stored]  # its variables by name
    coords: frozenset[str]  # names of the variables that are coordinates
    sizes: dict[str, int]  # sizes of the dimensions of its variables


class TableFile:
    """Open netCDF-4 file whose structure has been inspected; ``groups`` are by path, "" is the root."""

    def __init__(self, path: Path | str, file: h5py.File) -> None:
        self.path = path
        self._size = stored_bytes(path)
        self._left = largest_content(self._size)
        self.groups = self._look(file)

    def read(self, group: str = "", rows: Mapping[str, slice] | None = None, only: set | None = None) -> xr.Dataset:
        inspected, rows = self.groups[group], rows or {}
        variables = {}
        for name, stored in inspected.variables.items():
            if only is None or name in only:
                values = stored.values[tuple(rows.get(dim, slice(None)) for dim in stored.dims)]
                if stored.dtype.kind == "O":  # characters, which are joined along the last axis
                    values = np.ascontiguousarray(values).view(f"S{values.shape[-1]}")[..., 0]
                    variables[name] = stored.dims, np.char.decode(values, "utf-8"), stored.attrs
                else:
                    variables[name] = stored.dims, np.asarray(values, dtype=stored.dtype), stored.attrs
        return xr.Dataset(variables, attrs=inspected.attrs).set_coords(sorted(inspected.coords & set(variables)))

    def _look(self, file: h5py.File) -> dict[str, Group]:
        require_version(self._attributes(file), self.path)
        scales: dict[int, str] = {}
        listed: dict[str, tuple[h5py.Group, dict[str, h5py.Dataset]]] = {}
        ahead: dict[str, h5py.Group] = {"": file}
        objects = 1
        while ahead:
            place, group = ahead.popitem()
            listed[place] = group, {}
            objects += len(group)
            if objects > _MOST_OBJECTS:
                raise self._refuse(f"more than {_MOST_OBJECTS} objects")
            for name in map(str, group):
                if group.id.links.get_info(os.fsencode(name)).type != h5l.TYPE_HARD:  # not following it
                    raise self._refuse(f"{quoted(name)}, a link", "no links: the values themselves")
                member = group[name]
                if isinstance(member, h5py.Dataset):
                    listed[place][1][name] = member
                    if h5ds.is_scale(member.id):
                        scales[h5o.get_info(member.id).addr] = name
                elif isinstance(member, h5py.Group):
                    ahead[f"{place}/{name}"] = member
                else:
                    raise self._refuse(f"{quoted(name)}, which is neither variable nor group")
        return {place: self._group(group, members, scales) for place, (group, members) in listed.items()}

    def _group(self, group: h5py.Group, members: dict[str, h5py.Dataset], scales: dict[int, str]) -> Group:
        attributes = self._attributes(group)
        coordinates = set(str(attributes.pop("coordinates", "")).split())
        variables, sizes = {}, {}
        for name, member in members.items():
            if h5ds.is_scale(member.id) and h5ds.get_scale_name(member.id).startswith(_NO_VARIABLE):
                continue
            attrs = self._attributes(member)
            coordinates |= set(str(attrs.pop("coordinates", "")).split())
            attrs.pop("_FillValue", None)
            dims = self._dims(name, member, scales)
            variables[name] = Stored(dims, self._dtype(member), attrs, member)
            self._require_storage(member)
            sizes |= zip(dims, member.shape, strict=False)
            if dims == (name,):
                coordinates.add(name)
        return Group(attributes, variables, frozenset(coordinates & set(variables)), sizes)

    def _dims(self, name: str, member: h5py.Dataset, scales: dict[int, str]) -> tuple[str, ...]:
        if h5ds.is_scale(member.id):
            return (name,)
        if not member.shape:
            return ()
        references: Any = member.attrs["DIMENSION_LIST"]  # KeyErrors become errors of the table, as all others
        dims = tuple(scales[h5o.get_info(h5py.h5r.dereference(scale, member.id)).addr] for (scale,) in references)
        return dims[: len(dims) - _is_text(member)]

    def _dtype(self, member: h5py.Dataset) -> np.dtype:
        kind = member.id.get_type()
        if _is_text(member):
            if not member.shape or not member.shape[-1]:
                raise self._refuse(f"variable {quoted(member.name)} of characters that are no texts")
            return np.dtype(object)
        if isinstance(kind, h5py.h5t.TypeStringID):
            expected = "texts of a fixed width, as rmtbase.tables.write_table writes them"
            raise self._refuse(f"variable {quoted(member.name)} with texts of variable length", expected)
        if isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID) and kind.get_size() in (1, 2, 4, 8):
            return kind.dtype.newbyteorder("=")
        raise self._refuse(f"variable {quoted(member.name)} of type {quoted(member.dtype)}", "numbers or text")

    def _require_storage(self, member: h5py.Dataset) -> None:
        """Raise unless all values are in this file, in storage of a known kind, and within the file's limit."""
        layout, name = member.id.get_create_plist(), member.name
        if layout.get_layout() == h5py.h5d.VIRTUAL or layout.get_external_count():
            elsewhere = f"variable {quoted(name)}, whose values lie in another file"
            raise self._refuse(elsewhere, "values in the file itself")
        filters = (h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32)
        if any(layout.get_filter(number)[0] not in filters for number in range(layout.get_nfilters())):
            raise self._refuse(f"variable {quoted(name)}, stored by an unknown filter", _FILTERS)
        width = member.id.get_type().get_size()
        needed = prod(member.shape) * width
        if _is_text(member):
            self._take(4 * needed, name)  # for NumPy's decoded texts
        if layout.get_layout() == h5py.h5d.CHUNKED:
            # A chunk is read as a whole, even if little of it lies within the variable.
            chunks = zip(member.shape, layout.get_chunk(), strict=True)
            needed = prod(-(-length // chunk) * chunk for length, chunk in chunks) * width
        self._take(needed, name)

    def _attributes(self, owner: h5py.Group | h5py.Dataset) -> dict[str, Any]:
        attributes = {}
        for name in owner.attrs:
            if name in _NETCDF_ONLY:
                continue
            attribute = owner.attrs.get_id(name)
            kind, size = attribute.get_type(), attribute.get_storage_size()
            is_plain = isinstance(kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID | h5py.h5t.TypeStringID)
            if not is_plain or attribute.shape not in ((), (1,), None):
                where, shape = f"attribute {quoted(name)} of {quoted(owner.name)}", attribute.shape
                raise self._refuse(f"{where}: {quoted(attribute.dtype)} of shape {shape}", "one text or number")
            self._take(size, name)
            attributes[name] = _attribute(attribute)
            if isinstance(attributes[name], str):
                self._take(4 * len(attributes[name]), name)
        return attributes

    def _take(self, amount: int, name: object) -> None:
        self._left -= amount
        if self._left < 0:
            limit = f"at most {largest_content(self._size) / 2**20:,.0f} MiB in all"
            raise self._refuse(f"more values than so small a file can hold, at {quoted(name)}", limit)

    def _refuse(self, fault: str, expected: str = _WHOLE) -> TableError:
        return TableError(self.path, fault, expected)


@contextmanager
def looked_into(path: Path | str) -> Iterator[TableFile]:
    if (fault := heap_fault(path)) is not None:
        raise TableError(path, fault, _WHOLE)
    # No lock is needed: a file is replaced whole, and never changed in place.
    with h5py.File(os.fsencode(path), "r", locking=False) as file:
        yield TableFile(path, file)


def _is_text(member: h5py.Dataset) -> bool:
    """Return True if a variable holds single characters, which is how texts of a fixed width are stored."""
    kind = member.id.get_type()
    return isinstance(kind, h5py.h5t.TypeStringID) and not kind.is_variable_str() and kind.get_size() == 1


def _attribute(attribute: h5py.h5a.AttrID) -> Any:
    """Return an attribute as netCDF does: text, or a NumPy number."""
    if attribute.shape is None:
        return ""
    values = np.empty(attribute.shape, attribute.dtype)
    attribute.read(values)
    if values.dtype.kind in "SO":
        text = values.item()
        return text.decode() if isinstance(text, bytes) else str(text)
    return values.astype(values.dtype.newbyteorder("=")).reshape(())[()]
