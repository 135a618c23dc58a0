"""A checkpoint folder as a lazy store of named tensors."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmtbase.errors import CheckpointError, CorruptFileError, MissingFileError, ParameterError
from rmtbase.models._safetensors import SafetensorsFile
from rmtbase.models._tensor_file import TensorEntry, TensorFile, require_finite, require_supported, widen
from rmtbase.models._torch_file import TorchFile

_CANDIDATES: tuple[tuple[str, str, Callable[[Path], TensorFile]], ...] = (
    ("model.safetensors", ".safetensors", SafetensorsFile.open),
    ("model.safetensors.index.json", ".safetensors", SafetensorsFile.open),
    ("pytorch_model.bin", ".bin", TorchFile.open),
    ("pytorch_model.bin.index.json", ".bin", TorchFile.open),
)
_CHUNK = 1 << 22  # elements hashed at a time


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of one checkpoint folder, each read when asked for and never kept.

    The folder holds, in order of preference: ``model.safetensors``; the shards that
    ``model.safetensors.index.json`` names; ``pytorch_model.bin``; the shards of
    ``pytorch_model.bin.index.json`` (the last two need torch).

    Attributes:
        path: the folder.
    """

    path: Path
    _files: Mapping[str, TensorFile] = field(repr=False, compare=False)

    @classmethod
    def open(cls, folder: str | Path) -> Checkpoint:
        """Find the files, and read and check the header of each. No weight is read.

        Raises:
            MissingFileError: the folder has no such file, or lacks a shard.
            CorruptFileError: a file is truncated or malformed, or lacks a tensor that the index places in it.
            MissingDependencyError: there are only ``.bin`` files, and torch is not installed.
        """
        folder = Path(folder)
        for name, suffix, open_file in _CANDIDATES:
            if (folder / name).is_file():
                if name.endswith(".index.json"):
                    return cls(folder, _open_shards(folder / name, suffix, open_file))
                file = open_file(folder / name)
                return cls(folder, MappingProxyType(dict.fromkeys(file.entries, file)))
        raise MissingFileError(folder / _CANDIDATES[0][0])

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors, sorted."""
        return tuple(sorted(self._files))

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def shape(self, name: str) -> tuple[int, ...]:
        """The stored shape of a tensor."""
        return self._entry(name).shape

    def dtype(self, name: str) -> str:
        """The stored element type of a tensor, by its safetensors name: "F32", "BF16", ..."""
        return self._entry(name).dtype

    def file(self, name: str) -> Path:
        """The file that holds a tensor."""
        self._entry(name)
        return self._files[name].path

    def read(self, name: str) -> NDArray[Any]:
        """A whole tensor: float32, or float64 where it is stored so. Half precision is widened exactly.

        Raises:
            ParameterError: there is no such tensor.
            NonFiniteError: it holds NaN or infinite values.
            CheckpointError: its element type is not a floating type, or it has no elements.
        """
        shape = self.shape(name)
        return self._read(name, 0, self._entry(name).size).reshape(shape)

    def read_rows(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """The rows ``start <= i < stop`` of a tensor, reading no others. As :meth:`read` otherwise."""
        shape = self.shape(name)
        if not shape or not 0 <= start < stop <= shape[0]:
            raise ParameterError("rows", (start, stop), f"0 <= start < stop <= rows of the shape {shape}")
        width = self._entry(name).size // shape[0]
        return self._read(name, start * width, stop * width).reshape(stop - start, *shape[1:])

    def digest(self, names: Iterable[str]) -> bytes:
        """SHA-256 over the element type, shape and stored bytes of the tensors, in the order given."""
        total = hashlib.sha256()
        for name in names:
            entry, file = self._entry(name), self._files[name]
            require_supported(file.path, name, entry)
            total.update(f"{entry.dtype}{entry.shape}".encode())
            for start in range(0, entry.size, _CHUNK):
                bits = file.read_bits(name, start, min(start + _CHUNK, entry.size))
                total.update(np.ascontiguousarray(bits).view(np.uint8).data)
        return total.digest()

    def require_supported(self, name: str) -> None:
        """Raise CheckpointError unless the tensor has elements of a type that can be read."""
        require_supported(self._files[name].path, name, self._entry(name))

    def _entry(self, name: str) -> TensorEntry:
        if name not in self._files:
            raise ParameterError("name", name, f"a tensor of the checkpoint {self.path}")
        return self._files[name].entries[name]

    def _read(self, name: str, start: int, stop: int) -> NDArray[Any]:
        self.require_supported(name)
        file = self._files[name]
        values = widen(file.read_bits(name, start, stop), file.entries[name].dtype)
        require_finite(file.path, name, values)
        return values


def read_json_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        MissingFileError: there is no such file.
        CorruptFileError: it does not hold a JSON object.
    """
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise MissingFileError(path) from error
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(path, "text that is not JSON", "a JSON object") from error
    if not isinstance(value, dict):
        raise CorruptFileError(path, f"a JSON {type(value).__name__}", "a JSON object")
    return value


def _open_shards(index: Path, suffix: str, open_file: Callable[[Path], TensorFile]) -> Mapping[str, TensorFile]:
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CorruptFileError(index, "no table weight_map of tensor name to file name", "one")
    shards = sorted(set(weight_map.values()))
    for shard in shards:
        _require_inside(index, shard, suffix)
        if not (index.parent / shard).is_file():
            raise MissingFileError(index.parent / shard, needed_by=index.name)
    files = {shard: open_file(index.parent / shard) for shard in shards}
    for name, shard in weight_map.items():
        if name not in files[shard].entries:
            raise CorruptFileError(
                files[shard].path,
                f"no tensor {name!r}",
                f"it there, as {index.name} says: download both again",
            )
    return MappingProxyType({name: files[shard] for name, shard in weight_map.items()})


def _require_inside(index: Path, shard: str, suffix: str) -> None:
    # The name is judged, not the resolved path: the hub's cache keeps every file as a link out of its folder.
    parts = PurePosixPath(shard).parts
    outside = not parts or shard.startswith("/") or ".." in parts
    if outside or "\\" in shard or ":" in shard or not shard.isprintable() or not shard.endswith(suffix):
        raise CorruptFileError(
            index,
            f"the shard name {shard!r}",
            f"the name of a {suffix} file inside the checkpoint's own folder",
        )
