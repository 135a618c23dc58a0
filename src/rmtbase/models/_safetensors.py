"""A safetensors file, read by byte range.

Layout of the file: eight bytes with the length n of the header (little-endian), n bytes of JSON
``{name: {"dtype", "shape", "data_offsets": [begin, end]}}``, then the data, to which the offsets refer.

The ranges are read with plain file reads. The reference reader maps the file into memory instead: every page
once touched counts as resident, so walking through a checkpoint ends with the whole of it resident. Its NumPy
flavour knows no bfloat16 unless ml_dtypes happens to be imported, and it does not say by how much a file is
too short.

Reference: the format's specification, in the README of the safetensors project.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import CheckpointError, CorruptFileError
from rmtbase.models._tensor_file import STORAGE, TensorEntry

_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000  # the reference reader's own limit
_VALID = "a safetensors file"


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
            CorruptFileError: it is not a valid header, or the file is not as long as the header implies.
            CheckpointError: the file cannot be read.
        """
        try:
            with path.open("rb") as stream:
                file_size = path.stat().st_size
                length = _header_length(path, stream.read(_LENGTH.size), file_size, stream)
                text = stream.read(length)
        except OSError as error:
            raise CheckpointError(path, f"cannot be read: {error.strerror}") from error
        return cls(path, *_parse(path, text, _LENGTH.size + length, file_size))

    def read_bits(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """The elements ``start <= i < stop`` of the flattened tensor, as stored.

        Raises:
            CorruptFileError: the file has become shorter since it was opened.
            CheckpointError: the file cannot be read.
        """
        storage = STORAGE[self.entries[name].dtype]
        try:
            bits = np.fromfile(self.path, storage, stop - start, offset=self.begins[name] + start * storage.itemsize)
        except OSError as error:
            raise CheckpointError(self.path, f"cannot be read: {error.strerror}") from error
        if bits.size != stop - start:
            raise CorruptFileError(
                self.path,
                f"{bits.size} of the elements of tensor {name!r}",
                f"{stop - start}: the file was changed while in use",
            )
        return bits


def _header_length(path: Path, first: bytes, file_size: int, stream: Any) -> int:
    if file_size == 0:
        raise CorruptFileError(path, "an empty file", _VALID)
    if len(first) < _LENGTH.size:
        raise CorruptFileError(path, f"{file_size} bytes", f"{_VALID}, which has at least {_LENGTH.size}")
    if first == b"version " and b"git-lfs" in stream.read(64):
        raise CorruptFileError(path, "a Git LFS pointer", "the file it points to: run git lfs pull, or download it")
    (length,) = _LENGTH.unpack(first)
    if length > _LONGEST_HEADER:
        raise CorruptFileError(path, f"a header length of {length} bytes", f"{_VALID}: this is another format")
    if _LENGTH.size + length > file_size:
        raise CorruptFileError(
            path,
            f"{file_size} bytes (truncated)",
            f"at least the {_LENGTH.size + length} bytes of its header",
        )
    return length


def _parse(
    path: Path, text: bytes, data_begin: int, file_size: int
) -> tuple[Mapping[str, TensorEntry], Mapping[str, int]]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(path, "a header that is not JSON", _VALID) from error
    if not isinstance(header, dict):
        raise CorruptFileError(path, "a header that is not a JSON object", _VALID)
    entries: dict[str, TensorEntry] = {}
    begins: dict[str, int] = {}
    data_size = 0
    for name, value in header.items():
        if name == "__metadata__":
            continue
        entries[name], begin, end = _entry(path, name, value)
        begins[name], data_size = data_begin + begin, max(data_size, end)
    if file_size != data_begin + data_size:
        how = "truncated" if file_size < data_begin + data_size else "with bytes after its end"
        raise CorruptFileError(
            path,
            f"{file_size} bytes ({how})",
            f"the {data_begin + data_size} bytes that its header implies: download it again",
        )
    return MappingProxyType(entries), MappingProxyType(begins)


def _entry(path: Path, name: str, value: Any) -> tuple[TensorEntry, int, int]:
    try:
        entry = TensorEntry(value["dtype"], tuple(value["shape"]))
        begin, end = value["data_offsets"]
        sizes = (*entry.shape, begin, end)
        if not isinstance(entry.dtype, str) or not all(type(n) is int and n >= 0 for n in sizes) or begin > end:
            raise ValueError
    except (TypeError, KeyError, ValueError) as error:
        raise CorruptFileError(
            path, f"a header entry {name!r} without dtype, shape and data_offsets", f"{_VALID} with all three"
        ) from error
    storage = STORAGE.get(entry.dtype)
    if storage is not None and end - begin != entry.size * storage.itemsize:
        raise CorruptFileError(
            path,
            f"{end - begin} bytes for tensor {name!r}",
            f"{entry.size * storage.itemsize}, from its shape {entry.shape} and type {entry.dtype}",
        )
    return entry, begin, end
