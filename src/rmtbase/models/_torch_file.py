"""A ``.bin`` file of torch, read with ``weights_only=True``: no object but tensors is ever made from it.

Only for checkpoints that have no safetensors file. Before torch is given the file, its archive is checked to the last
record and its pickle to the last instruction, so that torch makes what was described there and no more. It is mapped
into memory, so the pages read stay resident for as long as the system has no better use for them.
"""

from __future__ import annotations

import importlib.util
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CheckpointError, CorruptFileError, MissingDependencyError
from rmtbase.interrupts import interrupts_held
from rmtbase.models._tensor_file import TensorEntry, element_type
from rmtbase.models._torch_archive import TorchArchive
from rmtbase.models._torch_pickle import pickled_tensors

# weights_only=True runs code up to 2.5.1 (CVE-2025-32434), and damaged memory before 2.10.
_OLDEST = (2, 10)
_PURPOSE = "reading a checkpoint that has no safetensors file"


@dataclass(frozen=True)
class TorchFile:
    """One file written by ``torch.save`` that holds a dictionary of dense tensors.

    Numbers, truth values and texts beside them, and None, are no weights and are passed over. Tensors may share a
    storage, as tied weights do. The format of torch before 1.6, which has no checksums, is refused.
    """

    path: Path
    entries: Mapping[str, TensorEntry]
    _size: int
    _tensors: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: Path) -> TorchFile:
        """Check every record against its checksum, which reads the file once, and map it.

        Raises:
            MissingDependencyError: torch is not installed, or older than 2.10.
            CorruptFileError: it is damaged, or holds anything but named dense tensors.
            CheckpointError: it cannot be read.
        """
        require_torch()
        archive = TorchArchive.open(path)
        described = pickled_tensors(path, archive.pickle, archive.storage_sizes)
        tensors = _load(path)
        for name, tensor in described.items():
            made = tensors.get(name)
            if made is None or (str(made.dtype), tuple(made.shape)) != (f"torch.{tensor.dtype}", tensor.shape):
                raise CorruptFileError(path, "what torch reads otherwise than it is written", "a file of named tensors")
        entries = {name: TensorEntry(element_type(tensor.dtype), tensor.shape) for name, tensor in described.items()}
        held = {name: tensors[name] for name in described}
        return cls(path, MappingProxyType(entries), archive.size, MappingProxyType(held))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """The elements ``start <= i < stop`` of the flattened tensor, as stored.

        Raises:
            CorruptFileError: the file has become shorter or longer since it was opened.
            CheckpointError: it cannot be read.
        """
        import torch

        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise CheckpointError(self.path, f"cannot be read: {error.strerror}") from error
        if size != self._size:  # a page beyond the end of a mapped file would end the process
            raise CorruptFileError(self.path, f"{size} bytes", f"{self._size}: the file was changed while in use")
        elements = self._tensors[name].detach().reshape(-1)[start:stop]
        if elements.dtype == torch.bfloat16:
            return elements.view(torch.int16).numpy().view("<u2")
        if self.entries[name].dtype.startswith("F8"):
            return elements.view(torch.uint8).numpy()
        return elements.numpy()


def require_torch() -> None:
    """Raise MissingDependencyError unless a torch is installed that reads files of others safely: 2.10 or later."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("torch", _PURPOSE, "hf")
    with interrupts_held():
        import torch

    release = re.match(r"(\d+)\.(\d+)", torch.__version__)
    if release is None or (int(release[1]), int(release[2])) < _OLDEST:
        raise MissingDependencyError("torch", _PURPOSE, "hf", f"{_OLDEST[0]}.{_OLDEST[1]}", str(torch.__version__))


def _load(path: Path) -> dict[str, Any]:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's advice is for those who call it
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many kinds, and every one of them means an unusable file
        raise CorruptFileError(
            path, f"what torch refuses to load ({type(error).__name__})", "a file of named tensors and nothing else"
        ) from error
