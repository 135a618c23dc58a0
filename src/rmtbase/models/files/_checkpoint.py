"""Checkpoint as a lazy store of named tensors, in a folder or in memory."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from rmtbase.errors import CheckpointError, CorruptFileError, ParameterError
from rmtbase.models.files import _tensor_file as stored_types
from rmtbase.models.files._files import read_json_object, reading
from rmtbase.models.files._other_programs import missing_file
from rmtbase.models.files._safetensors import SafetensorsFile
from rmtbase.models.files._tensor_file import StateDict
from rmtbase.models.files._torch_file import TorchFile
from rmtbase.shown import quoted, shown
from rmtbase.words import listing

_Files = Mapping[str, stored_types.TensorFile]  # by the names of the tensors
_Opener = Callable[[Path], stored_types.TensorFile]
_CANDIDATES: tuple[tuple[str, str, _Opener], ...] = (
    ("model.safetensors", ".safetensors", SafetensorsFile.open),
    ("model.safetensors.index.json", ".safetensors", SafetensorsFile.open),
    ("pytorch_model.bin", ".bin", TorchFile.open),
    ("pytorch_model.bin.index.json", ".bin", TorchFile.open),
)
# torch.compile, FSDP and activation checkpointing insert these into names wherever they wrap a module;
# torch.nn.DataParallel, its distributed variant and PEFT put the second set in front of all names.
_WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_IN_FRONT = ("module.", "base_model.model.")
_INDEX_ENDING = ".index.json"
_LARGEST_INDEX = 1 << 26  # bytes; the index of a model with 92 000 tensors takes nine million
_SHOWN = 3  # names in a note
_CHUNK = 1 << 20  # elements hashed at a time, few enough to stay in the processor's cache


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of one checkpoint, by the names of the model's modules, each read when asked for and never kept."""

    path: Path  # the folder; for tensors in memory, their name in messages
    config_path: Path  # the path of the configuration, or its name in messages
    _tensors: Mapping[str, stored_types.CheckpointTensor] = field(repr=False, compare=False)
    # choices about the files that are not obvious, such as an index beside a single file, which is not read
    notes: tuple[str, ...] = ()

    @classmethod
    def open(cls, folder: str | Path) -> Checkpoint:
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
        state = StateDict.from_tensors(tensors, name)
        return cls._of_files(state.path, Path("config"), dict.fromkeys(state.entries, state), [])

    @classmethod
    def _of_files(cls, path: Path, config_path: Path, files: _Files, notes: Iterable[str]) -> Checkpoint:
        tensors: dict[str, stored_types.CheckpointTensor] = {}
        own_names = {name: _WRAPPERS.sub("", name) for name in files}
        for in_front in _IN_FRONT:
            if all(name.startswith(in_front) for name in own_names.values()):
                own_names = {name: inner.removeprefix(in_front) for name, inner in own_names.items()}
        for name, unwrapped in own_names.items():
            if unwrapped in tensors:
                both = f"both {quoted(tensors[unwrapped].stored[0].name)} and {quoted(name)}"
                raise CorruptFileError(files[name].path, both, f"one tensor {quoted(unwrapped)}, wrapped or not")
            tensors[unwrapped] = stored_types.StoredTensor(files[name], name)
        return cls(path, config_path, MappingProxyType(tensors), tuple(notes))

    def replaced(self, used: Iterable[str], by: Mapping[str, stored_types.CheckpointTensor], note: str) -> Checkpoint:
        gone = set(used)
        left = {name: tensor for name, tensor in self._tensors.items() if name not in gone}
        return replace(self, _tensors=MappingProxyType(left | dict(by)), notes=(*self.notes, note))

    @property
    def files(self) -> tuple[Path, ...]:
        stored = (one for tensor in self._tensors.values() for one in tensor.stored)
        return tuple(sorted({tensor.path for tensor in stored if not isinstance(tensor.file, StateDict)}))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._tensors))

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def shape(self, name: str) -> tuple[int, ...]:
        return self._entry(name).shape

    def dtype(self, name: str) -> str:
        """Return the stored element type of a tensor under its safetensors name: "F32", "BF16", ..."""
        return self._entry(name).dtype

    def file(self, name: str) -> Path:
        return self.tensor(name).stored[0].path

    def tensor(self, name: str) -> stored_types.CheckpointTensor:
        if name not in self._tensors:
            raise ParameterError("name", name, f"a tensor of the checkpoint {self.path}")
        return self._tensors[name]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self.shape(name) for name in self.names}

    def read(self, name: str) -> Float[np.ndarray, "..."]:
        """Read a whole tensor as float32, or as float64 where it is stored so. Half precision is widened exactly."""
        return stored_types.widened(self.read_stored(name))

    def read_stored(self, name: str) -> Shaped[np.ndarray, "..."]:
        shape = self.shape(name)
        return self._read(name, 0, self._entry(name).size).reshape(shape)

    def read_rows(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, "..."]:
        shape = self.shape(name)
        width = self._entry(name).size // shape[0]
        return self._read(name, start * width, stop * width).reshape(stop - start, *shape[1:])

    def digest(self, names: Iterable[str]) -> bytes:
        """Return SHA-256 over the element type, shape and stored bytes of the tensors, in the order given."""
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
        """Raise what :meth:`read_stored` raises if a number of these tensors is not finite; nothing is dequantised."""
        from rmtbase.linalg import available_cores  # which imports SciPy

        def check(name: str) -> None:
            self.require_supported(name)
            for stored in self.tensor(name).stored:
                for start in range(0, stored.entry.size if stored.entry.dtype in stored_types.WEIGHTS else 0, _CHUNK):
                    bits = stored.read_bits(start, min(start + _CHUNK, stored.entry.size))
                    numbers = stored_types.numbers_of(bits, stored.entry.dtype)
                    if not np.isfinite(stored_types.largest_magnitude(numbers)):
                        self.read_stored(name)

        with ThreadPoolExecutor(available_cores()) as pool:
            try:
                for _ in pool.map(check, names):  # errors come in the order of the names
                    pass
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def require_supported(self, name: str) -> None:
        stored_types.require_supported(self.file(name), name, self._entry(name))

    def _entry(self, name: str) -> stored_types.TensorEntry:
        return self.tensor(name).entry

    def _read(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        self.require_supported(name)
        values = stored_types.numbers_of(self.tensor(name).read_bits(start, stop), self._entry(name).dtype)
        stored_types.require_finite(self.file(name), name, values)
        return values


def _read_single(path: Path, open_file: _Opener) -> tuple[_Files, list[str]]:
    file = open_file(path)
    index = path.with_name(path.name + _INDEX_ENDING)
    notes = [f"{path.name} is read, {index.name} beside it is not"] if os.path.lexists(index) else []
    return dict.fromkeys(file.entries, file), notes


def _read_shards(index: Path, suffix: str, open_file: _Opener) -> tuple[_Files, list[str]]:
    weight_map = read_json_object(index, _LARGEST_INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise CorruptFileError(index, "no table weight_map of tensor name to file name", "one")
    placed: dict[str, list[str]] = defaultdict(list)
    for name, shard in weight_map.items():
        placed[shard].append(name)
    for shard in sorted(placed):
        # Check the name rather than the resolved path: the hub's cache keeps every file as a link out of its folder.
        parts = PurePosixPath(shard).parts
        outside = not parts or shard.startswith("/") or ".." in parts
        if outside or "\\" in shard or ":" in shard or not shard.isprintable() or not shard.endswith(suffix):
            expected = f"the name of a {suffix} file inside the checkpoint's own folder"
            raise CorruptFileError(index, f"the shard name {quoted(shard)}", expected)
        with reading(index.parent / shard, needed_by=index.name):
            pass  # check that all shards exist before the first one is read
    files: dict[str, stored_types.TensorFile] = {}
    for shard, names in sorted(placed.items()):
        # Shards are read in order, so that a fault in one is reported before the next is opened.
        file = open_file(index.parent / shard)
        for name in names:
            if name not in file.entries:
                expected = f"it there, as {index.name} says: download both again"
                raise CorruptFileError(file.path, f"no tensor {quoted(name)}", expected)
        if twice := next((name for name in file.entries if name in files), None):
            both = f"the tensor {quoted(twice)} in both {shown(files[twice].path.name)} and {shown(shard)}"
            raise CorruptFileError(index, both, "each tensor in one of its shards")
        files |= dict.fromkeys(file.entries, file)
    unnamed = sorted(files.keys() - weight_map.keys())
    notes = (
        [f"tensors that {index.name} does not name are read too: {listing([*map(quoted, unnamed)], _SHOWN)}"]
        if unnamed
        else []
    )
    return files, notes


_BLOCK = 1 << 22  # elements in a block of rows, 16 MiB in float32; a block of wider rows is square


class WeightReader:
    """Reader of tensors that keeps the last one, since queries, keys and values may share it."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._last: tuple[str, Shaped[np.ndarray, "..."]] | None = None

    def read_one_of(self, name: str) -> Any:
        """Read matrices of a stack one at a time, or all at once where they can only be made together."""
        tensor = self._checkpoint.tensor(name)
        is_stack = len(tensor.entry.shape) == 3 and not tensor.is_made_whole
        return _Stack(self._checkpoint, name) if is_stack else self.read(name)

    def blocks(self, name: str) -> Iterator[Shaped[np.ndarray, "row column"]]:
        """Yield blocks of rows, converted as by :meth:`read`; each is read by itself where it can be made by itself."""
        rows, width = self._checkpoint.shape(name)
        height = max(width, _BLOCK // width)
        tensor = self.read(name) if self._checkpoint.tensor(name).is_made_whole else None
        for start in range(0, rows, height):
            stop = min(start + height, rows)
            yield _rows(self._checkpoint, name, start, stop) if tensor is None else tensor[start:stop]

    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """Read a whole tensor, in the precision in which it is stored; float64 is rounded to float32."""
        last = self._last
        if last is not None and last[0] == name:
            return last[1]
        self._last = last = None  # so that two tensors are never held at once
        values = _weights(self._checkpoint, name, self._checkpoint.read_stored(name))
        values.flags.writeable = False
        self._last = (name, values)
        return values


class _Stack:
    def __init__(self, checkpoint: Checkpoint, name: str) -> None:
        self._checkpoint, self._name, self.shape = checkpoint, name, checkpoint.shape(name)

    def __getitem__(self, index: int) -> Shaped[np.ndarray, "row column"]:
        return _rows(self._checkpoint, self._name, index, index + 1)[0]


def _rows(checkpoint: Checkpoint, name: str, start: int, stop: int) -> Shaped[np.ndarray, "..."]:
    return _weights(checkpoint, name, checkpoint.read_rows(name, start, stop))


def _weights(checkpoint: Checkpoint, name: str, values: Shaped[np.ndarray, "..."]) -> Shaped[np.ndarray, "..."]:
    stored_types.require_digits(checkpoint.file(name), name, values, checkpoint.dtype(name))
    if values.dtype != np.float64:
        return values
    try:
        # A few values that underflow beside larger ones change nothing; require_digits refuses a tensor of only those.
        with np.errstate(over="raise", under="ignore"):
            return values.astype(np.float32)
    except FloatingPointError as error:
        problem = f"tensor {quoted(name)} holds values beyond the range of float32"
        raise CheckpointError(checkpoint.file(name), f"{problem}; expected weights, or rescale them") from error
