"""Safetensors files: the ``safetensors`` package reads the header, this module reads weights by byte range.

Weights are read with plain file reads instead of ``get_slice``, which under NumPy does not support FP8, and bfloat16
only once ml_dtypes has been imported. Moreover, ``get_slice`` copies from a memory-mapped file: six float32 matrices of
4096 × 4096 take 0.25 s and 190 MiB of additional memory, against 0.06 s and 64 MiB here (safetensors 0.8).
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from jaxtyping import Shaped
from safetensors import SafetensorError, safe_open

from rmtbase.errors import CorruptFileError
from rmtbase.models.files._files import LFS_POINTER, LFS_WORDS, reading
from rmtbase.models.files._other_formats import format_that_begins
from rmtbase.models.files._tensor_file import STORAGE, TensorEntry
from rmtbase.shown import one_line, quoted, shown

_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 1 << 25  # bytes; 100 000 tensors take 12 million. For 92 million the package takes 8 s and 1.7 GiB
_MOST_DIMENSIONS = 64  # NumPy's own limit
_VALID = "a safetensors file"


@dataclass(frozen=True)
class SafetensorsFile:
    path: Path  # the file
    entries: Mapping[str, TensorEntry]  # the tensors by name
    _begins: Mapping[str, int]

    @classmethod
    def open(cls, path: Path) -> SafetensorsFile:
        with reading(path) as stream:
            file_size = os.fstat(stream.fileno()).st_size
            first = stream.read(_LENGTH.size)
            if file_size == 0:
                raise CorruptFileError(path, "an empty file", _VALID)
            if len(first) < _LENGTH.size:
                raise CorruptFileError(path, f"{file_size} bytes", f"{_VALID}, which has at least {_LENGTH.size}")
            (length,) = _LENGTH.unpack(first)
            if not 2 <= length <= _LONGEST_HEADER:
                first += stream.read(len(LFS_POINTER) - len(first))
                if first == LFS_POINTER:
                    raise CorruptFileError(path, *LFS_WORDS)
                kind = format_that_begins(first) or "another format"
                raise CorruptFileError(path, f"a header length of {length} bytes", f"{_VALID}: this is {kind}")
            if _LENGTH.size + length > file_size:
                expected = f"at least the {_LENGTH.size + length} bytes of its header"
                raise CorruptFileError(path, f"{file_size} bytes (truncated)", expected)
            try:
                with safe_open(path, framework="numpy") as file:
                    slices = {name: file.get_slice(name) for name in file.offset_keys()}
                    described = {name: (part.get_dtype(), tuple(part.get_shape())) for name, part in slices.items()}
                    entries = {name: TensorEntry(*entry) for name, entry in described.items()}
            except SafetensorError as error:
                with suppress(ValueError, TypeError, LookupError, AttributeError, RecursionError):
                    tensors = [
                        value for name, value in json.loads(stream.read(length)).items() if name != "__metadata__"
                    ]
                    implied = _LENGTH.size + length + max(value["data_offsets"][1] for value in tensors)
                    if file_size != implied:
                        difference = "truncated" if file_size < implied else "with bytes after its end"
                        expected = f"the {shown(implied)} bytes that its header implies: download it again"
                        raise CorruptFileError(path, f"{file_size} bytes ({difference})", expected) from error
                described = f"a file that the package safetensors refuses ({one_line(str(error), 300)})"
                raise CorruptFileError(path, described, _VALID) from error
        begins, begin = {}, _LENGTH.size + length
        for name, entry in entries.items():  # in the order of their data, which is contiguous
            if len(entry.shape) > _MOST_DIMENSIONS:
                described = f"{len(entry.shape):,} dimensions of tensor {quoted(name)}"
                raise CorruptFileError(path, described, f"at most {_MOST_DIMENSIONS}")
            begins[name] = begin
            # Every type except BOOL is named after the bits of an element, as in F8_E4M3.
            bits = 8 if entry.dtype == "BOOL" else int(re.sub(r"\D*(\d+).*", r"\1", entry.dtype))
            begin += entry.size * bits // 8
        if begin != file_size:
            raise CorruptFileError(path, f"{file_size} bytes", f"the {begin} bytes that its header implies")
        return cls(path, MappingProxyType(entries), MappingProxyType(begins))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        storage = STORAGE[self.entries[name].dtype]
        # NumPy bypasses Python's buffer, which from Python 3.14 on would be 128 KiB for nothing.
        with reading(self.path, buffered=False) as stream:
            stream.seek(self._begins[name] + start * storage.itemsize)
            bits = np.fromfile(stream, storage, stop - start)
        if bits.size != stop - start:
            expected = f"{stop - start}: the file was changed while in use"
            raise CorruptFileError(self.path, f"{bits.size} of the elements of tensor {quoted(name)}", expected)
        return bits
