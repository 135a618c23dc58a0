"""A safetensors file, read by byte range.

Layout of the file: eight bytes with the length n of the header (little-endian), n bytes of JSON
``{name: {"dtype", "shape", "data_offsets": [begin, end]}}``, then the data, to which the offsets refer.

The ranges are read with plain file reads. The reference reader maps the file into memory instead: every page
once touched counts as resident, so walking through a checkpoint ends with the whole of it resident. Its NumPy
flavour knows no bfloat16 unless ml_dtypes happens to be imported, and it does not say by how much a file is
too short.

Whatever the reference reader refuses is refused here. So is, for safety's sake, some of what it takes: a name twice
(it takes the last), fields besides the three (it steps over them), entries that are lists, more dimensions than an
array can have, and a header that is larger than the bounds below and those of ``_files``.

Reference: the format's specification, in the README of the safetensors project; its reader, in ``tensor.rs`` there.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CorruptFileError
from rmtbase.models._files import LFS_POINTER, LFS_WORDS, parse_json_object, reading
from rmtbase.models._other_formats import format_that_begins
from rmtbase.models._tensor_file import STORAGE, TensorEntry
from rmtbase.shown import quoted, shown

_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000  # the reference reader's own limit
_LONGEST_TEXT = 1 << 25  # of which without the padding: more than that is not parsed
_MOST_DIMENSIONS = 64  # NumPy's own limit
_LARGEST = 2**64 - 1  # sizes and their products are counted in 64 bits
_VALID = "a safetensors file"
_FIELDS = frozenset({"dtype", "shape", "data_offsets"})
_BITS: Mapping[str, int] = MappingProxyType(
    {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
    | dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8)
    | dict.fromkeys(("I16", "U16", "F16", "BF16"), 16)
    | dict.fromkeys(("I32", "U32", "F32"), 32)
    | dict.fromkeys(("I64", "U64", "F64", "C64"), 64)
)  # of one element, for every element type of the format


@dataclass(frozen=True)
class SafetensorsFile:
    """One safetensors file, of which only the header has been read.

    Attributes:
        path: the file.
        entries: the tensors by name.
        begins: where the data of each tensor begins in the file, in bytes.
    """

    path: Path
    entries: Mapping[str, TensorEntry]
    begins: Mapping[str, int]

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        """Read and check the header.

        Raises:
            CorruptFileError: it is not a valid header, or the data are not what the header implies, byte for byte.
            CheckpointError: it is no regular file, or cannot be read.
            MissingFileError: there is no such file.
        """
        with reading(path) as stream:
            file_size = os.fstat(stream.fileno()).st_size
            length = _header_length(path, stream.read(_LENGTH.size), file_size, stream)
            text = stream.read(length).rstrip(b" \t\r\n")
        return cls(path, *_parse(path, text, _LENGTH.size + length, file_size))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """The elements ``start <= i < stop`` of the flattened tensor, as stored.

        Raises:
            CorruptFileError: the file has become shorter since it was opened.
            CheckpointError: the file cannot be read, or is no regular file any more.
        """
        storage = STORAGE[self.entries[name].dtype]
        # NumPy reads past Python's buffer, which would be 128 KiB for nothing from Python 3.14 on.
        with reading(self.path, buffered=False) as stream:
            stream.seek(self.begins[name] + start * storage.itemsize)
            bits = np.fromfile(stream, storage, stop - start)
        if bits.size != stop - start:
            raise CorruptFileError(
                self.path,
                f"{bits.size} of the elements of tensor {quoted(name)}",
                f"{stop - start}: the file was changed while in use",
            )
        return bits


def _header_length(path: Path, first: bytes, file_size: int, stream: BinaryIO) -> int:
    if file_size == 0:
        raise CorruptFileError(path, "an empty file", _VALID)
    if len(first) < _LENGTH.size:
        raise CorruptFileError(path, f"{file_size} bytes", f"{_VALID}, which has at least {_LENGTH.size}")
    if first == LFS_POINTER[: len(first)] and first + stream.read(len(LFS_POINTER) - len(first)) == LFS_POINTER:
        raise CorruptFileError(path, *LFS_WORDS)
    (length,) = _LENGTH.unpack(first)
    if length > _LONGEST_HEADER:
        kind = format_that_begins(first + stream.read(8))
        what = "another format" if kind is None else f"{kind.found}; {kind.advice}"
        raise CorruptFileError(path, f"a header length of {length} bytes", f"{_VALID}: this is {what}")
    if _LENGTH.size + length > file_size:
        raise CorruptFileError(
            path, f"{file_size} bytes (truncated)", f"at least the {_LENGTH.size + length} bytes of its header"
        )
    return length


def _parse(
    path: Path, text: bytes, data_begin: int, file_size: int
) -> tuple[Mapping[str, TensorEntry], Mapping[str, int]]:
    if len(text) > _LONGEST_TEXT:
        raise CorruptFileError(path, f"a header of {len(text):,} bytes", f"at most {_LONGEST_TEXT:,}")
    header = parse_json_object(path, text, "a header", _VALID, integer=_size)
    _require_texts(path, header.pop("__metadata__", None))
    entries: dict[str, TensorEntry] = {}
    ranges: list[tuple[int, int, str]] = []
    for name, value in header.items():
        entries[name], begin, end = _entry(path, name, value)
        ranges.append((begin, end, name))
    data_size = _require_no_hole(path, sorted(ranges))
    if file_size != data_begin + data_size:
        how = "truncated" if file_size < data_begin + data_size else "with bytes after its end"
        raise CorruptFileError(
            path,
            f"{file_size} bytes ({how})",
            f"the {data_begin + data_size} bytes that its header implies: download it again",
        )
    return MappingProxyType(entries), MappingProxyType({name: data_begin + begin for begin, _, name in ranges})


def _size(digits: str) -> int:
    """The size that is written, or -1 where it is none: the reference reader takes no -0 either."""
    return -1 if digits.startswith("-") or int(digits) > _LARGEST else int(digits)


def _require_texts(path: Path, metadata: Any) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptFileError(path, "a __metadata__ that is not a table of texts", f"{_VALID}, where it is")


def _require_no_hole(path: Path, ranges: list[tuple[int, int, str]]) -> int:
    """The end of the last range, where each begins at the end of the one before and the first at zero."""
    end_before = 0
    for begin, end, name in ranges:
        if begin != end_before:
            how = "with a hole before it" if begin > end_before else "over those of another tensor"
            raise CorruptFileError(
                path,
                f"tensor {quoted(name)} at the bytes {begin} to {end} of the data, {how}",
                f"tensors one after another: this one at {end_before}",
            )
        end_before = end
    return end_before


def _entry(path: Path, name: str, value: Any) -> tuple[TensorEntry, int, int]:
    if not isinstance(value, dict) or not value.keys() >= _FIELDS:
        raise _malformed(path, name)
    if len(value) > len(_FIELDS):
        fields = ", ".join(quoted(field) for field in sorted(value.keys() - _FIELDS)[:3])
        raise CorruptFileError(path, f"a header entry {quoted(name)} with the field {fields} besides", _VALID)
    dtype, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(dtype, str) or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise _malformed(path, name)
    begin, end = offsets
    if begin > end:
        raise _malformed(path, name)
    if dtype not in _BITS:
        raise CorruptFileError(
            path, f"the element type {quoted(dtype)} of tensor {quoted(name)}", f"one of {', '.join(_BITS)}"
        )
    if len(shape) > _MOST_DIMENSIONS:
        raise CorruptFileError(
            path, f"{len(shape):,} dimensions of tensor {quoted(name)}", f"at most {_MOST_DIMENSIONS}"
        )
    entry = TensorEntry(dtype, tuple(shape))
    expected = _stored_bytes(path, name, entry)
    if end - begin != expected:
        raise CorruptFileError(
            path,
            f"{end - begin} bytes for tensor {quoted(name)}",
            f"{expected}, from its shape {shown(entry.shape)} and type {dtype}",
        )
    return entry, begin, end


def _malformed(path: Path, name: str) -> CorruptFileError:
    return CorruptFileError(
        path,
        f"a header entry {quoted(name)} without dtype, shape and data_offsets",
        f"{_VALID} with all three: a text, a list of sizes, and where its data begin and end",
    )


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)  # true is an int too


def _stored_bytes(path: Path, name: str, entry: TensorEntry) -> int:
    bits = 1
    for factor in (*entry.shape, _BITS[entry.dtype]):
        bits *= factor
        if bits > _LARGEST:
            raise CorruptFileError(
                path, f"a size beyond 64 bits of tensor {quoted(name)}, from its shape {shown(entry.shape)}", _VALID
            )
    if bits % 8:
        raise CorruptFileError(
            path,
            f"tensor {quoted(name)} of shape {shown(entry.shape)} and type {entry.dtype}, which ends within a byte",
            _VALID,
        )
    return bits // 8
