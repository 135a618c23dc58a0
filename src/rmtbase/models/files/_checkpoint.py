"""Checkpoint as a lazy store of named tensors, in a folder or in memory."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import CorruptFileError, ParameterError
from rmtbase.models.files._attention_names import own_names
from rmtbase.models.files._files import read_json_object, reading
from rmtbase.models.files._other_programs import missing_file
from rmtbase.models.files._safetensors import SafetensorsFile
from rmtbase.models.files._state_dict import StateDict
from rmtbase.models.files._stored_tensor import CheckpointTensor, StoredTensor
from rmtbase.models.files._tensor_file import (
    TensorEntry,
    TensorFile,
    is_float,
    largest_magnitude,
    numbers_of,
    require_finite,
    require_supported,
    widened,
)
from rmtbase.models.files._torch_file import TorchFile
from rmtbase.shown import quoted, shown

_CANDIDATES: tuple[tuple[str, str, Callable[[Path], TensorFile]], ...] = (
    ("model.safetensors", ".safetensors", SafetensorsFile.open),
    ("model.safetensors.index.json", ".safetensors", SafetensorsFile.open),
    ("pytorch_model.bin", ".bin", TorchFile.open),
    ("pytorch_model.bin.index.json", ".bin", TorchFile.open),
)
_INDEX_ENDING = ".index.json"
_LARGEST_INDEX = 1 << 26  # bytes; the index of a model with 92 000 tensors takes nine million
_SHOWN = 3  # names in a note
_CHUNK = 1 << 20  # elements hashed at a time, few enough to stay in the processor's cache


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of one checkpoint, each read when asked for and never kept.

    The tensors come from the first of these that the folder holds: ``model.safetensors``; the shards that
    ``model.safetensors.index.json`` names; ``pytorch_model.bin``; the shards that ``pytorch_model.bin.index.json``
    names (the last two need torch). Tensors have the names of the model's own modules, without the insertions of
    torch.compile, FSDP, activation checkpointing, DataParallel and PEFT.

    Attributes:
        path: the folder; for tensors in memory, their name in messages.
        config_path: the path of the configuration, or its name in messages.
        notes: choices about the files that are not obvious: tensors of a shard that the index does not name are read,
            as transformers does; an index beside a single file is not read; quantised weights are dequantised.
    """

    path: Path
    config_path: Path
    _tensors: Mapping[str, CheckpointTensor] = field(repr=False, compare=False)
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: str | Path) -> Checkpoint:
        """Find the files, and read and check their headers. Weights are read only for the checksums of ``.bin`` files.

        Instead of a folder, one of its ``.safetensors`` or ``.bin`` files can be given; only that file is then read.

        Raises:
            MissingFileError: the folder has no such file, or lacks a shard.
            CorruptFileError: a file is truncated or malformed, or lacks a tensor that the index places in it; or a
                tensor is in two shards.
            CheckpointError: one of these files is not a regular file, or cannot be read.
            MissingDependencyError: there are only ``.bin`` files, and torch is not installed, or older than 2.10.
        """
        folder = Path(folder)
        if folder.suffix in (".safetensors", ".bin") and not folder.is_dir():
            files, notes = _read_single(folder, TorchFile.open if folder.suffix == ".bin" else SafetensorsFile.open)
            return cls._of_files(folder.parent, folder.parent / "config.json", files, notes)
        for name, suffix, open_file in _CANDIDATES:
            if os.path.lexists(folder / name):
                if name.endswith(_INDEX_ENDING):
                    files, notes = _read_shards(folder / name, suffix, open_file)
                else:
                    files, notes = _read_single(folder / name, open_file)
                return cls._of_files(folder, folder / "config.json", files, notes)
        raise missing_file(folder, _CANDIDATES[0][0])

    @classmethod
    def of_tensors(cls, tensors: Mapping[Any, Any], name: str) -> Checkpoint:
        """Open a state dict without copying its tensors; messages refer to it by ``name``.

        Raises:
            ParameterError: ``tensors`` is not a state dict.
        """
        held = StateDict.from_tensors(tensors, name)
        return cls._of_files(held.path, Path("config"), dict.fromkeys(held.entries, held), [])

    @classmethod
    def _of_files(
        cls, path: Path, config_path: Path, files: Mapping[str, TensorFile], notes: Iterable[str]
    ) -> Checkpoint:
        """Open the tensors of files, by their names without wrappers."""
        tensors = _without_wrappers({name: StoredTensor(file, name) for name, file in files.items()})
        return cls(path, config_path, MappingProxyType(tensors), tuple(notes))

    def replaced(self, used: Iterable[str], by: Mapping[str, CheckpointTensor], note: str) -> Checkpoint:
        """Return the checkpoint without the tensors ``used``, with the tensors ``by`` made from them, and a note."""
        gone = set(used)
        left = {name: tensor for name, tensor in self._tensors.items() if name not in gone}
        return replace(self, _tensors=MappingProxyType(left | dict(by)), notes=(*self.notes, note))

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the tensors, sorted; empty for tensors in memory."""
        stored = (one for tensor in self._tensors.values() for one in tensor.stored)
        return tuple(sorted({one.path for one in stored if not isinstance(one.file, StateDict)}))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, sorted."""
        return tuple(sorted(self._tensors))

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the stored shape of a tensor."""
        return self._entry(name).shape

    def dtype(self, name: str) -> str:
        """Return the stored element type of a tensor under its safetensors name: "F32", "BF16", ..."""
        return self._entry(name).dtype

    def file(self, name: str) -> Path:
        """Return the file that holds a tensor; for tensors in memory, their name in messages."""
        return self.tensor(name).stored[0].path

    def tensor(self, name: str) -> CheckpointTensor:
        """Return the tensor with this name, unread.

        Raises:
            ParameterError: there is no such tensor.
        """
        if name not in self._tensors:
            raise ParameterError("name", name, f"a tensor of the checkpoint {self.path}")
        return self._tensors[name]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every tensor, by name."""
        return {name: self.shape(name) for name in self.names}

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """Read a whole tensor as float32, or as float64 where it is stored so. Half precision is widened exactly.

        Raises as :meth:`read_stored`.
        """
        return widened(self.read_stored(name))

    def read_stored(self, name: str) -> Shaped[np.ndarray, "..."]:
        """Read a whole tensor in the precision in which it is stored; bfloat16 is that of ml_dtypes.

        Raises:
            ParameterError: there is no such tensor.
            NonFiniteError: it holds NaN or infinite values.
            CheckpointError: its element type is not a floating type, or it has no elements.
        """
        shape = self.shape(name)
        return self._read(name, 0, self._entry(name).size).reshape(shape)

    def read_rows(self, name: str, start: int, stop: int) -> Float[np.ndarray, "..."]:
        """Read only the rows ``start <= i < stop`` of a tensor, otherwise as :meth:`read`."""
        return widened(self.read_stored_rows(name, start, stop))

    def read_stored_rows(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, "..."]:
        """Read rows as :meth:`read_rows` does, in the precision in which they are stored."""
        shape = self.shape(name)
        if not shape or not 0 <= start < stop <= shape[0]:
            raise ParameterError("rows", (start, stop), f"0 <= start < stop <= rows of the shape {shape}")
        width = self._entry(name).size // shape[0]
        return self._read(name, start * width, stop * width).reshape(stop - start, *shape[1:])

    def digest(self, names: Iterable[str]) -> bytes:
        """Return SHA-256 over the element type, shape and stored bytes of the tensors, in the order given.

        For a quantised tensor these are the codes and everything that is needed to dequantise them.
        """
        total = hashlib.sha256()
        for name in names:
            self.require_supported(name)
            for stored in self.tensor(name).stored:
                total.update(f"{stored.entry.dtype}{stored.entry.shape}".encode())
                for start in range(0, stored.entry.size, _CHUNK):
                    bits = stored.read_bits(start, min(start + _CHUNK, stored.entry.size))
                    total.update(np.ascontiguousarray(bits).view(np.uint8).data)
        return total.digest()

    def require_finite(self, names: Iterable[str]) -> None:
        """Raise what :meth:`read_stored` raises if a stored number of these tensors is NaN or infinite, or no number.

        Each tensor is read once, and nothing is dequantised.
        """
        from rmtbase.linalg import available_cores  # which imports SciPy

        def check(name: str) -> None:
            self.require_supported(name)
            for stored in self.tensor(name).stored:
                for start in range(0, stored.entry.size if is_float(stored.entry) else 0, _CHUNK):
                    bits = stored.read_bits(start, min(start + _CHUNK, stored.entry.size))
                    if not np.isfinite(largest_magnitude(numbers_of(bits, stored.entry.dtype))):
                        self.read_stored(name)

        with ThreadPoolExecutor(available_cores()) as pool:
            try:
                for _ in pool.map(check, names):  # errors come in the order of the names
                    pass
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def require_supported(self, name: str) -> None:
        """Raise CheckpointError unless the tensor has elements of a type that can be read."""
        require_supported(self.file(name), name, self._entry(name))

    def _entry(self, name: str) -> TensorEntry:
        return self.tensor(name).entry

    def _read(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        self.require_supported(name)
        values = numbers_of(self.tensor(name).read_bits(start, stop), self._entry(name).dtype)
        require_finite(self.file(name), name, values)
        return values


def _read_single(path: Path, open_file: Callable[[Path], TensorFile]) -> tuple[Mapping[str, TensorFile], list[str]]:
    file = open_file(path)
    index = path.with_name(path.name + _INDEX_ENDING)
    notes = [f"{path.name} is read, {index.name} beside it is not"] if os.path.lexists(index) else []
    return dict.fromkeys(file.entries, file), notes


def _read_shards(
    index: Path, suffix: str, open_file: Callable[[Path], TensorFile]
) -> tuple[Mapping[str, TensorFile], list[str]]:
    weight_map = read_json_object(index, _LARGEST_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CorruptFileError(index, "no table weight_map of tensor name to file name", "one")
    placed: dict[str, list[str]] = defaultdict(list)
    for name, shard in weight_map.items():
        placed[shard].append(name)
    for shard in sorted(placed):
        _require_inside(index, shard, suffix)
        with reading(index.parent / shard, needed_by=index.name):
            pass  # check that all shards exist before the first one is read
    files: dict[str, TensorFile] = {}
    for shard, names in sorted(placed.items()):
        # Shards are read in order, so that a fault in one is reported before the next is opened.
        file = open_file(index.parent / shard)
        _require_agreement(index, file, names, files)
        files |= dict.fromkeys(file.entries, file)
    unnamed = sorted(files.keys() - weight_map.keys())
    notes = [f"tensors that {index.name} does not name are read too: {_some(unnamed)}"] if unnamed else []
    return files, notes


def _without_wrappers(tensors: Mapping[str, StoredTensor]) -> dict[str, CheckpointTensor]:
    """Return the tensors by the names that they have in the model itself."""
    unwrapped: dict[str, CheckpointTensor] = {}
    for name, own in own_names(tensors).items():
        if own in unwrapped:
            both = f"both {quoted(unwrapped[own].stored[0].name)} and {quoted(name)}"
            raise CorruptFileError(tensors[name].path, both, f"one tensor {quoted(own)}, wrapped or not")
        unwrapped[own] = tensors[name]
    return unwrapped


def _require_agreement(index: Path, file: TensorFile, names: list[str], before: Mapping[str, TensorFile]) -> None:
    """Raise CorruptFileError unless a shard holds the tensors that the index places in it, and none of those before."""
    for name in names:
        if name not in file.entries:
            raise CorruptFileError(
                file.path, f"no tensor {quoted(name)}", f"it there, as {index.name} says: download both again"
            )
    twice = next((name for name in file.entries if name in before), None)
    if twice is not None:
        both = f"{shown(before[twice].path.name)} and {shown(file.path.name)}"
        raise CorruptFileError(index, f"the tensor {quoted(twice)} in both {both}", "each tensor in one of its shards")


def _some(names: list[str]) -> str:
    return ", ".join(map(quoted, names[:_SHOWN])) + (f", … ({len(names)} of them)" if len(names) > _SHOWN else "")


def _require_inside(index: Path, shard: str, suffix: str) -> None:
    # Check the name rather than the resolved path: the hub's cache keeps every file as a link out of its folder.
    parts = PurePosixPath(shard).parts
    outside = not parts or shard.startswith("/") or ".." in parts
    if outside or "\\" in shard or ":" in shard or not shard.isprintable() or not shard.endswith(suffix):
        raise CorruptFileError(
            index, f"the shard name {quoted(shard)}", f"the name of a {suffix} file inside the checkpoint's own folder"
        )
