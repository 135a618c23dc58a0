"""GGUF files of llama.cpp: their metadata and weights, and their translation to the names of transformers.

The ``gguf`` package knows the types and dequantises their blocks. The header is read here: ``gguf.GGUFReader`` takes
7 s and 490 MiB for a vocabulary of 150 000, this reader 0.2 s and no additional memory; and it trusts the counts in a
header, so that a list of 2^26 members in a file of 2 kB fills the memory.

llama.cpp permutes the rows of W_Q and W_K of a Llama within each head, in the same way for both, so that dimensions
that are rotated together are adjacent. W_QK does not depend on this permutation, which is undone here.

Reference: the specification, ``docs/gguf.md`` of the ggml project.
"""

from __future__ import annotations

import importlib.util
import os
import re
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CheckpointError, CorruptFileError, MissingDependencyError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._files import LFS_POINTER, LFS_WORDS, reading
from rmtbase.models.files._tensor_file import (
    STORAGE,
    WEIGHTS,
    CheckpointTensor,
    DerivedTensor,
    StoredTensor,
    TensorEntry,
)
from rmtbase.reasons import packaged_texts
from rmtbase.shown import quoted, shown
from rmtbase.words import listing

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_VALID = "a GGUF file"
_MOST_ENTRIES, _MOST_TENSORS, _MOST_MEMBERS = 1 << 16, 1 << 18, 1 << 22
_LARGEST_HEADER = 1 << 28  # bytes; vocabularies of a quarter of a million tokens take some ten million
_LONGEST_NAME = 1 << 16
_KEPT_MEMBERS = 1 << 12  # longest list that is kept, such as one number per layer; vocabularies are longer
_KEPT_TEXT = 1 << 16
_PIECE = 1 << 18  # weights dequantised at a time, few enough to stay in the processor's cache
_ALIGNMENT = 32
_NUMBERS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_TEXT, _LIST = 8, 9
_SUFFIX = ".gguf"
_MOST_FILES = 10_000  # names in a folder that are searched
_LISTED = 4
_EMBEDDING = "token_embd.weight"
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
_HEADS = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}


@dataclass(frozen=True)
class GgufFile:
    path: Path  # the file
    # the tensors by name. Quantised ones have the type "F32", to which their blocks are dequantised.
    entries: Mapping[str, TensorEntry]
    metadata: Mapping[str, Any] = field(repr=False)  # the metadata by key, without long lists
    types: Mapping[str, str] = field(repr=False)  # the type in which each tensor is stored, by ggml's name
    _begins: Mapping[str, int] = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> GgufFile:
        if importlib.util.find_spec("gguf") is None:
            raise MissingDependencyError("gguf", "reading a GGUF file", "gguf")
        with reading(path) as stream:
            header = _Header(path, stream)
            metadata, tensors = header.read()
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
            raise CorruptFileError(path, f"an alignment of {quoted(alignment)}", "a power of two")
        from gguf import GGMLQuantizationType

        file_size, data = header.file_size, -(-header.position // alignment) * alignment
        entries, types, begins, ranges = {}, {}, {}, []
        for name, shape, number, offset in tensors:
            if name in entries:
                raise CorruptFileError(path, f"the tensor {quoted(name)} twice", "each once")
            try:
                kind = GGMLQuantizationType(number).name
            except ValueError as error:
                expected = "a type that the package gguf knows"
                raise CorruptFileError(path, f"tensor {quoted(name)} of the type {number}", expected) from error
            weights, size, dequantise = _blocks_of(kind)
            if shape[-1] % weights:
                described = f"tensor {quoted(name)} of shape {shown(shape)}, in blocks of {weights} weights"
                raise CorruptFileError(path, described, "rows of whole blocks")
            dtype = kind
            if kind not in STORAGE:
                with suppress(NotImplementedError):  # the package knows more types than it dequantises
                    dequantise(np.zeros((1, size), np.uint8))
                    dtype = "F32"
            entries[name], types[name], begins[name] = TensorEntry(dtype, shape), kind, data + offset
            ranges.append((data + offset, data + offset + prod(shape) // weights * size, name))
        end_before = data
        for begin, end, name in sorted(ranges):
            if begin < end_before or end > file_size:
                difference = "beyond the end of the file" if end > file_size else "over those of another"
                described = f"{file_size} bytes, with tensor {quoted(name)} at {begin} to {end}, {difference}"
                raise CorruptFileError(path, described, "tensors one after another in it: download it again")
            end_before = end
        return cls(path, *map(MappingProxyType, (entries, metadata, types, begins)))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Read the elements ``start <= i < stop`` of the flattened tensor in the types of ``STORAGE``, dequantised."""
        entry, kind = self.entries[name], self.types[name]
        if kind in STORAGE:
            storage = STORAGE[entry.dtype]
            return self._read(name, start * storage.itemsize, stop * storage.itemsize).view(storage)
        weights, size, dequantise = _blocks_of(kind)
        first, last = start // weights, -(-stop // weights)
        stored = self._read(name, first * size, last * size).reshape(-1, size)
        values = np.empty(len(stored) * weights, np.float32)
        step = _PIECE // weights
        for place in range(0, len(stored), step):
            # One row per call: many small rows take twice the time, and a call holds its results twice.
            piece = dequantise(stored[place : place + step].reshape(1, -1))
            values[place * weights : (place + step) * weights] = piece[0]
        return values[start - first * weights : stop - first * weights]

    def _read(self, name: str, begin: int, end: int) -> Shaped[np.ndarray, " size"]:
        # NumPy bypasses Python's buffer, which from Python 3.14 on would be 128 KiB for nothing.
        with reading(self.path, buffered=False) as stream:
            stream.seek(self._begins[name] + begin)
            content = np.fromfile(stream, np.uint8, end - begin)
        if content.size != end - begin:
            expected = f"{end - begin}: the file was changed while in use"
            raise CorruptFileError(self.path, f"{content.size} of the bytes of tensor {quoted(name)}", expected)
        return content


@cache
def _blocks_of(kind: str) -> tuple[int, int, Callable[[np.ndarray], np.ndarray]]:
    """Return the numbers of weights and bytes in a block of a type, and the function that dequantises rows of them."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.quants import dequantize

    def dequantise(rows: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):  # the reader checks for NaN and infinite values
            return dequantize(rows, GGMLQuantizationType[kind])

    return *GGML_QUANT_SIZES[GGMLQuantizationType[kind]], dequantise


class _Header:
    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self.path, self._stream = path, stream
        self.file_size = os.fstat(stream.fileno()).st_size
        self.position = 0

    def read(self) -> tuple[dict[str, Any], list[tuple[str, tuple[int, ...], int, int]]]:
        """Read the metadata without long lists, and name, shape, type and offset of each tensor."""
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
        n_tensors, n_entries = self._number("<Q"), self._number("<Q")
        if n_tensors > _MOST_TENSORS or n_entries > _MOST_ENTRIES:
            described = f"{n_tensors:,} tensors and {n_entries:,} metadata entries"
            raise CorruptFileError(self.path, described, f"at most {_MOST_TENSORS:,} and {_MOST_ENTRIES:,}")
        entries: dict[str, Any] = {}
        for _ in range(n_entries):
            key = self._text(_LONGEST_NAME)
            if key in entries:
                raise CorruptFileError(self.path, f"the metadata {quoted(key)} twice", "each once")
            entries[key] = self._value(key, self._number("<I"))
        return entries, [self._tensor() for _ in range(n_tensors)]

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._text(_LONGEST_NAME)
        n_sizes = self._number("<I")
        if n_sizes > 4:
            raise CorruptFileError(self.path, f"{n_sizes} dimensions of tensor {quoted(name)}", "at most 4")
        sizes = tuple(self._number("<Q") for _ in range(n_sizes))[::-1]
        if prod(sizes) > 2**48 or 0 in sizes or not sizes:
            raise CorruptFileError(self.path, f"tensor {quoted(name)} of shape {shown(sizes)}", "weights")
        return name, sizes, self._number("<I"), self._number("<Q")

    def _value(self, key: str, kind: int) -> Any:
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        if kind == _TEXT:
            return self._text(_LARGEST_HEADER)[:_KEPT_TEXT]
        if kind != _LIST:
            raise CorruptFileError(self.path, f"a value of the kind {kind} of {quoted(key)}", _VALID)
        member_kind, length = self._number("<I"), self._number("<Q")
        if length > _MOST_MEMBERS:
            raise CorruptFileError(self.path, f"{length:,} members of {quoted(key)}", f"at most {_MOST_MEMBERS:,}")
        if member_kind == _TEXT:
            for _ in range(length):
                self._take(self._length(_LARGEST_HEADER))
            return None
        if member_kind not in _NUMBERS:
            raise CorruptFileError(self.path, f"a list of the kind {member_kind} of {quoted(key)}", _VALID)
        number = struct.Struct(_NUMBERS[member_kind])
        content = self._take(length * number.size)
        return [member for (member,) in number.iter_unpack(content)] if length <= _KEPT_MEMBERS else None

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack(form, self._take(struct.calcsize(form)))
        return value

    def _length(self, longest: int) -> int:
        length = self._number("<Q")
        if length > longest:
            raise CorruptFileError(self.path, f"a text of {length:,} bytes", f"at most {longest:,}")
        return length

    def _text(self, longest: int) -> str:
        content = self._take(self._length(longest))
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise CorruptFileError(self.path, f"the text {quoted(content[:60])}", "one in UTF-8") from error

    def _take(self, size: int) -> bytes:
        left = min(self.file_size, _LARGEST_HEADER) - self.position
        if size > left:
            described = f"{self.file_size} bytes (truncated)"
            if self.file_size > _LARGEST_HEADER:
                described = f"a header of more than {_LARGEST_HEADER:,} bytes"
            raise CorruptFileError(self.path, described, f"{size:,} more of its header at byte {self.position:,}")
        content = self._stream.read(size)
        self.position += len(content)
        if len(content) != size:
            raise CorruptFileError(self.path, "fewer bytes than its size", _VALID)
        return content


class _Family(NamedTuple):
    """Translation of one architecture of llama.cpp to transformers, as ``gguf.toml`` describes it."""

    layer: str
    names: Mapping[str, str]
    outside: Mapping[str, str]
    sizes: Mapping[str, str]
    permuted: tuple[str, ...]
    turned: tuple[str, ...]


@cache
def _families() -> dict[str, _Family]:
    table = packaged_texts("rmtbase.models.formats", "gguf.toml")
    whole = {name: table.get(family.get("like"), {}) | family for name, family in table.items()}
    return {name: _Family(*(family[part] for part in _Family._fields)) for name, family in whole.items()}


def find_gguf(path: Path) -> Path | None:
    if not path.is_dir():
        return path if path.suffix.lower() == _SUFFIX and os.path.lexists(path) else None
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_FILES))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror}") from error
    gguf_files = [name for name in names if name.lower().endswith(_SUFFIX)]
    if not gguf_files or any(name.endswith((".safetensors", ".bin", ".index.json")) for name in names):
        return None
    if len(gguf_files) > 1:
        listed = listing([shown(name, 60) for name in gguf_files], _LISTED)
        raise CheckpointError(path, f"holds {len(gguf_files)} GGUF files: {listed}; pass the path of one of them")
    return path / gguf_files[0]


def open_gguf(path: Path) -> tuple[dict[str, Any], Checkpoint]:
    file = GgufFile.open(path)
    architecture = file.metadata.get("general.architecture")
    kind = file.metadata.get("general.type", "model")
    if kind != "model":
        raise CheckpointError(path, f"a GGUF file of {quoted(kind)}; expected one of a model")
    parts = file.metadata.get("split.count", 1)
    if parts not in (0, 1):
        problem = f"one of {shown(parts)} parts of a GGUF file; expected one whole file: join them (gguf-split --merge)"
        raise CheckpointError(path, problem)
    family = _families().get(architecture) if isinstance(architecture, str) else None
    if family is None:
        described = f"a GGUF file of the architecture {quoted(architecture)}; expected {', '.join(_families())}"
        raise CheckpointError(path, f"{described}, or the checkpoint that it was made from")
    sizes = {key: file.metadata.get(f"{architecture}.{name}") for name, key in family.sizes.items()}
    config = {"model_type": architecture} | {key: value for key, value in sizes.items() if value is not None}
    if _EMBEDDING in file.entries:  # the vocabulary in the metadata is a long list, which is not kept
        config["vocab_size"] = file.entries[_EMBEDDING].shape[0]
        if "output" in family.outside and "output.weight" not in file.entries:  # llama.cpp then uses the embedding
            config["tie_word_embeddings"] = True
    tensors = {}
    for stored in file.entries:
        name, tensor = _translated(file, stored, family, str(architecture))
        if name in tensors:
            raise CheckpointError(path, f"tensor {quoted(stored)} beside another that is {quoted(name)}; expected one")
        tensors[name] = tensor
    types = sorted({file.types[name] for name, entry in file.entries.items() if len(entry.shape) > 1} - set(WEIGHTS))
    note = f"quantised in a GGUF file ({', '.join(types)}): dequantised, and W_QK carries the rounding of its factors"
    return config, Checkpoint(path.parent, path, MappingProxyType(tensors), (note,) if types else ())


def _translated(file: GgufFile, stored: str, family: _Family, architecture: str) -> tuple[str, CheckpointTensor]:
    """Return a tensor with its name and order of rows in transformers; an unknown tensor keeps its own name."""
    tensor = StoredTensor(file, stored)
    match = _BLOCK.fullmatch(stored)
    if match is None:
        outside, _, ending = stored.rpartition(".")
        return (f"{family.outside[outside]}.{ending}" if outside in family.outside else stored), tensor
    layer, name, ending = match.groups()
    if name not in family.names:
        if name.startswith("attn"):
            raise CheckpointError(
                file.path,
                f"tensor {quoted(stored)} is not part of the attention of a {architecture} model, and may change its "
                "queries and keys; expected plain attention, or pass the effective matrices to rmtbase.score_heads",
            )
        return f"{family.layer}{layer}.{name}.{ending}", tensor
    renamed = f"{family.layer}{layer}.{family.names[name]}.{ending}"
    if name in family.turned and ending == "weight" and len(tensor.entry.shape) == 2:
        turned = TensorEntry(tensor.entry.dtype, tensor.entry.shape[::-1])
        return renamed, DerivedTensor(turned, (tensor,), lambda *_: tensor.array().T)
    if name not in family.permuted:
        return renamed, tensor
    keys = (_HEADS[name], _HEADS["attn_q"])  # by default there are as many key heads as heads
    heads = next((value for key in keys if (value := file.metadata.get(f"{architecture}.{key}")) is not None), None)
    rows = tensor.entry.shape[0]
    if type(heads) is not int or heads < 1 or rows % (2 * heads):
        problem = f"tensor {quoted(stored)} has {rows} rows"
        raise CheckpointError(file.path, f"{problem}; expected an even number for each of {quoted(heads)} heads")

    def unpermuted(*_: int) -> np.ndarray:
        pairs = tensor.array().reshape(heads, rows // heads // 2, 2, -1)
        return pairs.swapaxes(1, 2).reshape(tensor.entry.shape)

    return renamed, DerivedTensor(tensor.entry, (tensor,), unpermuted)
