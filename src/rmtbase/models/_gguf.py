"""A GGUF file, llama.cpp's, read by byte range: its description, its tensors by its own names, and their numbers.

Layout of the file, all little-endian: ``GGUF``, the version, the numbers of tensors and of words, the words with their
values, the tensors (name, sizes from the fastest to the slowest, type, where its data begin), and the data, aligned.
Every length is checked against what is left of the file before it is believed, and no more is read of the description
than its bounds allow.

Reference: the specification, ``docs/gguf.md`` of the ggml project.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CheckpointError, CorruptFileError
from rmtbase.models._files import LFS_POINTER, LFS_WORDS, reading
from rmtbase.models._gguf_blocks import BLOCKS, PLAIN, BlockType
from rmtbase.models._tensor_file import STORAGE, TensorEntry
from rmtbase.shown import quoted, shown

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_VALID = "a GGUF file"
_MOST_WORDS, _MOST_TENSORS, _MOST_MEMBERS = 1 << 16, 1 << 18, 1 << 22
_LARGEST_DESCRIPTION = 1 << 28  # bytes; vocabularies of a quarter of a million words take some ten million
_LONGEST_NAME = 1 << 16
_KEPT_MEMBERS = 1 << 12  # of a list: one for each layer, say; those of vocabularies are longer and not kept
_KEPT_TEXT = 1 << 16
_ALIGNMENT = 32
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9


@dataclass(frozen=True)
class GgufFile:
    """One GGUF file, of which only the description has been read.

    Attributes:
        path: the file.
        entries: the tensors by name. Those that are quantised in a way that is read are "F32", which their blocks give.
        words: what it says of the model, without long lists.
        types: of each tensor the name of the type in which it is stored.
    """

    path: Path
    entries: Mapping[str, TensorEntry]
    words: Mapping[str, Any] = field(repr=False)
    types: Mapping[str, str] = field(repr=False)
    _begins: Mapping[str, int] = field(repr=False)
    _blocks: Mapping[str, BlockType] = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        """Read and check the description.

        Raises:
            CorruptFileError: it is truncated, or no description, or the data do not fit into the file.
            CheckpointError: its version is not read; it is no regular file, or cannot be read.
            MissingFileError: there is no such file.
        """
        with reading(path) as stream:
            description = _Description(path, stream)
            n_tensors = description.begin()
            words = description.words()
            tensors = [description.tensor() for _ in range(n_tensors)]
            end, file_size = description.position, description.file_size
        alignment = words.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise CorruptFileError(path, f"an alignment of {quoted(alignment)}", "a power of two")
        return cls._checked(path, words, tensors, -(-end // alignment) * alignment, file_size)

    @classmethod
    def _checked(
        cls,
        path: Path,
        words: dict[str, Any],
        tensors: list[tuple[str, tuple[int, ...], int, int]],
        data: int,
        file_size: int,
    ) -> GgufFile:
        """With each tensor of a known type, in its own bytes, and these in the file."""
        entries, types, begins, blocks = {}, {}, {}, {}
        ranges = []
        for name, shape, number, offset in tensors:
            if name in entries:
                raise CorruptFileError(path, f"the tensor {quoted(name)} twice", "each once")
            if number in PLAIN:
                types[name] = dtype = PLAIN[number]
                size = prod(shape) * STORAGE[dtype].itemsize
            elif number in BLOCKS:
                blocks[name] = block = BLOCKS[number]
                types[name] = block.name
                dtype = block.name if block.numbers is None else "F32"
                if shape[-1] % block.weights:
                    found = f"tensor {quoted(name)} of shape {shown(shape)}, in blocks of {block.weights} weights"
                    raise CorruptFileError(path, found, "rows of whole blocks")
                size = prod(shape) // block.weights * block.size
            else:
                raise CorruptFileError(path, f"tensor {quoted(name)} of the type {number}", "a type of GGUF")
            entries[name], begins[name] = TensorEntry(dtype, shape), data + offset
            ranges.append((data + offset, data + offset + size, name))
        end_before = data
        for begin, end, name in sorted(ranges):
            if begin < end_before or end > file_size:
                how = "beyond the end of the file" if end > file_size else "over those of another"
                found = f"{file_size} bytes, with tensor {quoted(name)} at {begin} to {end}, {how}"
                raise CorruptFileError(path, found, "tensors one after another in it: download it again")
            end_before = end
        held = (entries, words, types, begins, blocks)
        return cls(path, *map(MappingProxyType, held))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """The elements ``start <= i < stop`` of the flattened tensor, as ``STORAGE`` holds them; blocks as numbers.

        Raises:
            CorruptFileError: the file has become shorter since it was opened.
            CheckpointError: the file cannot be read, or is no regular file any more.
        """
        block = self._blocks.get(name)
        if block is None:
            storage = STORAGE[self.entries[name].dtype]
            return self._read(name, start * storage.itemsize, stop * storage.itemsize).view(storage)
        if block.numbers is None:
            raise CheckpointError(self.path, f"tensor {quoted(name)} is quantised as {block.name}, which is not read")
        first, last = start // block.weights, -(-stop // block.weights)
        stored = self._read(name, first * block.size, last * block.size).reshape(-1, block.size)
        with np.errstate(invalid="ignore", over="ignore"):  # what is no number is found by whoever reads it
            values = block.numbers(stored).reshape(-1)
        return values[start - first * block.weights : stop - first * block.weights]

    def _read(self, name: str, begin: int, end: int) -> Shaped[np.ndarray, " size"]:
        # NumPy reads past Python's buffer, which would be 128 KiB for nothing from Python 3.14 on.
        with reading(self.path, buffered=False) as stream:
            stream.seek(self._begins[name] + begin)
            found = np.fromfile(stream, np.uint8, end - begin)
        if found.size != end - begin:
            raise CorruptFileError(
                self.path,
                f"{found.size} of the bytes of tensor {quoted(name)}",
                f"{end - begin}: the file was changed while in use",
            )
        return found


class _Description:
    """Reads the description of a GGUF file from its beginning, and never more than is there."""

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path, self._stream = path, stream
        self.file_size = os.fstat(stream.fileno()).st_size
        self.position = 0

    def begin(self) -> int:
        """The number of tensors, where it is a GGUF file of a version that is read."""
        if self.file_size == 0:
            raise CorruptFileError(self.path, "an empty file", _VALID)
        magic = self._take(4)
        if magic != _MAGIC:
            if magic + self._stream.read(len(LFS_POINTER) - len(magic)) == LFS_POINTER:
                raise CorruptFileError(self.path, *LFS_WORDS)
            raise CorruptFileError(self.path, f"the beginning {quoted(magic)}", _VALID)
        version = self._number("<I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
            kind = "of a big-endian machine" if swapped in _VERSIONS else f"of version {version}"
            raise CheckpointError(self.path, f"a GGUF file {kind}; expected version 2 or 3, little-endian")
        n_tensors, self._n_words = self._number("<Q"), self._number("<Q")
        if n_tensors > _MOST_TENSORS or self._n_words > _MOST_WORDS:
            found = f"{n_tensors:,} tensors and {self._n_words:,} words"
            raise CorruptFileError(self.path, found, f"at most {_MOST_TENSORS:,} and {_MOST_WORDS:,}")
        return n_tensors

    def words(self) -> dict[str, Any]:
        """What it says of the model: numbers, texts, and lists of numbers, without the long ones."""
        found: dict[str, Any] = {}
        for _ in range(self._n_words):
            word = self._text(_LONGEST_NAME)
            if word in found:
                raise CorruptFileError(self.path, f"the word {quoted(word)} twice", "each once")
            found[word] = self._value(word, self._number("<I"))
        return found

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, type, and where its data begin."""
        name = self._text(_LONGEST_NAME)
        n_sizes = self._number("<I")
        if n_sizes > 4:
            raise CorruptFileError(self.path, f"{n_sizes} dimensions of tensor {quoted(name)}", "at most 4")
        sizes = tuple(self._number("<Q") for _ in range(n_sizes))[::-1]
        if prod(sizes) > 2**48 or 0 in sizes or not sizes:
            raise CorruptFileError(self.path, f"tensor {quoted(name)} of shape {shown(sizes)}", "weights")
        return name, sizes, self._number("<I"), self._number("<Q")

    def _value(self, word: str, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text(_LARGEST_DESCRIPTION)[:_KEPT_TEXT]
        if kind != _LIST:
            raise CorruptFileError(self.path, f"a value of the kind {kind} of {quoted(word)}", _VALID)
        of, length = self._number("<I"), self._number("<Q")
        if length > _MOST_MEMBERS:
            raise CorruptFileError(self.path, f"{length:,} members of {quoted(word)}", f"at most {_MOST_MEMBERS:,}")
        if of == _TEXT:
            for _ in range(length):
                self._take(self._length(_LARGEST_DESCRIPTION))
            return None
        if of not in _NUMBERS:
            raise CorruptFileError(self.path, f"a list of the kind {of} of {quoted(word)}", _VALID)
        number = struct.Struct(_NUMBERS[of])
        held = self._take(length * number.size)
        return [one for (one,) in number.iter_unpack(held)] if length <= _KEPT_MEMBERS else None

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _length(self, longest: int) -> int:
        length = self._number("<Q")
        if length > longest:
            raise CorruptFileError(self.path, f"a text of {length:,} bytes", f"at most {longest:,}")
        return length

    def _text(self, longest: int) -> str:
        held = self._take(self._length(longest))
        try:
            return held.decode()
        except UnicodeDecodeError as error:
            raise CorruptFileError(self.path, f"the text {quoted(held[:60])}", "one in UTF-8") from error

    def _take(self, size: int) -> bytes:
        left = min(self.file_size, _LARGEST_DESCRIPTION) - self.position
        if size > left:
            found = f"{self.file_size} bytes (truncated)"
            if self.file_size > _LARGEST_DESCRIPTION:
                found = f"a description of more than {_LARGEST_DESCRIPTION:,} bytes"
            raise CorruptFileError(self.path, found, f"{size:,} more of its description at byte {self.position:,}")
        held = self._stream.read(size)
        self.position += len(held)
        if len(held) != size:
            raise CorruptFileError(self.path, "fewer bytes than its size", _VALID)
        return held
