"""Files of ``torch.save``, read by ``torch.load`` with ``weights_only=True`` and memory-mapped.

Before torch reads a file, this module checks what torch does not: checksums, compressed records, and names of objects,
since torch's own list lets a pickle make a bytearray of any size.
"""

from __future__ import annotations

import importlib.util
import io
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CheckpointError, CorruptFileError, MissingDependencyError
from rmtbase.models.files._files import LFS_POINTER, LFS_WORDS, reading
from rmtbase.models.files._other_formats import format_that_begins
from rmtbase.models.files._tensor_file import TensorEntry, entry_of
from rmtbase.shown import one_line, quoted, shown

# Despite weights_only=True, torch runs code up to 2.5.1 (CVE-2025-32434), and before 2.10 may corrupt memory.
_OLDEST = (2, 10)
_PURPOSE = "reading a checkpoint that has no safetensors file"
_VALID = "named dense tensors as torch.save writes a state dictionary, and numbers or texts beside them"
_DOWNLOAD = "a whole archive as torch.save writes it: download the file again"
LONGEST_PICKLE = 1 << 24
"""Largest number of bytes of a pickle that is read; one tensor takes two or three hundred."""
_MOST_STEPS = 1_000_000  # instructions; one tensor takes fifty
_OF_TENSORS = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_(tensor_v2|tensor_v3|parameter)"
    r"|torch\.storage UntypedStorage|torch ((?!Q)\w+Storage|Size|bool|u?int\d+|b?float\w+|complex\d+)"
)
LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""Beginning of a file from torch before 1.6: its magic number as a pickle."""
_NO_ARCHIVE = {
    LFS_POINTER: LFS_WORDS,
    LEGACY: (
        "the format of torch before 1.6, which has no checksums",
        "the zip format: load it with torch.load(path, weights_only=True) and write that with torch.save, or take the "
        "model's safetensors file",
    ),
}


@dataclass(frozen=True)
class TorchFile:
    """Dictionary of dense tensors in a file of ``torch.save``; numbers, booleans, strings and None are skipped."""

    path: Path
    entries: Mapping[str, TensorEntry]
    _size: int
    _tensors: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: Path) -> TorchFile:
        require_torch()
        with reading(path) as stream:
            size = stream.seek(0, 2)
            _require_whole(path, stream, size)
        import torch

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch's advice is meant for its direct callers
                loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except Exception as error:  # torch raises many kinds, and every one of them means an unusable file
            described = f"a file that torch refuses to load ({type(error).__name__})"
            raise CorruptFileError(path, described, _VALID) from error
        if not isinstance(loaded, dict):
            raise CorruptFileError(path, f"a value of type {type(loaded).__name__} at its top", _VALID)
        tensors = {name: value for name, value in loaded.items() if _is_tensor(path, name, value, size)}
        entries = {name: entry_of(tensor) for name, tensor in tensors.items()}
        return cls(path, MappingProxyType(entries), size, MappingProxyType(tensors))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        import torch

        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise CheckpointError(self.path, f"cannot be read: {error.strerror}") from error
        if size != self._size:  # reading beyond the end of a mapped file would kill the process
            raise CorruptFileError(self.path, f"{size} bytes", f"{self._size}: the file was changed while in use")
        elements = self._tensors[name].detach().reshape(-1)[start:stop]
        if elements.dtype == torch.bfloat16:
            return elements.view(torch.int16).numpy().view("<u2")
        if self.entries[name].dtype.startswith("F8"):
            return elements.view(torch.uint8).numpy()
        return elements.numpy()


def require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("torch", _PURPOSE, "hf")
    import torch

    release = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if release is None or (int(release[1]), int(release[2])) < _OLDEST:
        raise MissingDependencyError("torch", _PURPOSE, "hf", f"{_OLDEST[0]}.{_OLDEST[1]}", str(torch.__version__))


def _require_whole(path: Path, stream: BinaryIO, size: int) -> None:
    """Raise CorruptFileError unless an archive is complete and undamaged, and its pickle contains only tensors."""
    if size == 0:
        raise CorruptFileError(path, "an empty file", _DOWNLOAD)
    stream.seek(0)
    first = stream.read(64)
    for start, (described, expected) in _NO_ARCHIVE.items():
        if first.startswith(start):
            raise CorruptFileError(path, described, expected)
    if first[8:9] == b"{":  # the header, after its length
        raise CorruptFileError(path, "a safetensors file", "one written by torch.save; name it model.safetensors")
    if not first.startswith(b"PK\x03\x04"):
        if (kind := format_that_begins(first)) is not None:
            raise CorruptFileError(path, kind, "a zip archive written by torch.save")
        raise CorruptFileError(path, "a file that is not a zip archive", _DOWNLOAD)
    try:
        with zipfile.ZipFile(stream) as archive:
            for record in archive.infolist():
                if record.compress_type or record.flag_bits & 1 or record.file_size != record.compress_size:
                    described = f"the record {quoted(record.filename)} compressed or encrypted"
                    raise CorruptFileError(path, described, _DOWNLOAD)
            if (name := archive.testzip()) is not None:
                described = f"the record {quoted(name)} with other bytes than were written (its checksum differs)"
                raise CorruptFileError(path, described, _DOWNLOAD)
            program = pickle_in(path, archive)
    except CorruptFileError:
        raise
    except Exception as error:  # zipfile passes on errors of struct and of its codecs
        described = f"{size} bytes that are no whole archive (truncated perhaps: {one_line(str(error), 200)})"
        raise CorruptFileError(path, described, _DOWNLOAD) from error
    try:
        for name, argument in instructions(io.BytesIO(program)):
            if name in ("GLOBAL", "INST") and not _OF_TENSORS.fullmatch(str(argument)):
                described = f"the object {quoted(str(argument).replace(' ', '.'))} in its pickle"
                raise CorruptFileError(path, described, _VALID)
    except ValueError as error:
        raise CorruptFileError(path, f"a pickle that breaks off ({one_line(str(error), 200)})", _VALID) from error


def pickle_in(path: Path, archive: zipfile.ZipFile) -> bytes:
    records = [record for record in archive.infolist() if re.fullmatch(r"[^/]+/data\.pkl", record.filename)]
    if len(records) != 1:
        raise CorruptFileError(path, f"an archive with {len(records)} records data.pkl", _VALID)
    if records[0].compress_type or records[0].file_size > LONGEST_PICKLE:
        described = f"a record data.pkl of {records[0].file_size:,} bytes, compressed or too long"
        raise CorruptFileError(path, described, f"at most {LONGEST_PICKLE:,}, as they are")
    return archive.read(records[0])


def instructions(program: BinaryIO) -> Iterator[tuple[str, Any]]:
    """Yield names and arguments of the instructions of a pickle, whose lengths are checked on the way."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about escapes in strings
        for step, (code, argument, _) in enumerate(pickletools.genops(program)):
            if step == _MOST_STEPS:
                raise ValueError(f"more than {_MOST_STEPS:,} steps")
            yield code.name, argument


def _is_tensor(path: Path, name: Any, value: Any, file_size: int) -> bool:
    """Return True for a dense tensor within the file, False for a number or string; raise for anything else."""
    import torch

    if type(name) is not str:
        raise CorruptFileError(path, f"a key of type {type(name).__name__}", _VALID)
    if value is None or isinstance(value, (bool, int, float, str)):
        return False
    if not isinstance(value, torch.Tensor):
        raise CorruptFileError(path, f"a value of type {type(value).__name__} as entry {quoted(name)}", _VALID)
    if value.is_conj() or value.is_neg():
        raise CorruptFileError(path, f"a conjugate or negated view as entry {quoted(name)}", _VALID)
    n_bytes = value.untyped_storage().nbytes()
    if n_bytes > file_size or value.numel() * value.element_size() > n_bytes:
        described = f"a tensor {quoted(name)} of shape {shown(tuple(value.shape))} over a storage of {n_bytes:,} bytes"
        raise CorruptFileError(path, described, f"as many bytes as it takes, in a file of {file_size:,}")
    return True
