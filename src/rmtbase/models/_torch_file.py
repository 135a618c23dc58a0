"""A ``.bin`` file of torch, read with ``weights_only=True``: no object but tensors is ever made from it.

Only for checkpoints that have no safetensors file. It is mapped into memory where its format allows, so the
pages read stay resident for as long as the system has no better use for them.
"""

from __future__ import annotations

import importlib.util
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from numpy.typing import NDArray

from rmtbase.errors import CorruptFileError, MissingDependencyError
from rmtbase.models._tensor_file import TensorEntry

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "torch.float64": "F64",
        "torch.float32": "F32",
        "torch.float16": "F16",
        "torch.bfloat16": "BF16",
    }
)


@dataclass(frozen=True)
class TorchFile:
    """One file written by ``torch.save`` that holds a dictionary of tensors."""

    path: Path
    entries: Mapping[str, TensorEntry]
    _tensors: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def open(cls, path: Path) -> TorchFile:
        """Map the file, or load it where it is of the old format that cannot be mapped.

        Raises:
            MissingDependencyError: torch is not installed.
            CorruptFileError: it is damaged, or holds anything but named tensors.
        """
        require_torch()
        state = _load(path)
        if not isinstance(state, dict):
            raise CorruptFileError(path, f"a {type(state).__name__}", "a dictionary of tensors")
        tensors = {name: value for name, value in state.items() if hasattr(value, "dtype")}
        entries = {
            name: TensorEntry(_NAMES.get(str(value.dtype), str(value.dtype)), tuple(value.shape))
            for name, value in tensors.items()
        }
        return cls(path, MappingProxyType(entries), MappingProxyType(tensors))

    def read_bits(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """The elements ``start <= i < stop`` of the flattened tensor, as stored."""
        import torch

        elements = self._tensors[name].detach().reshape(-1)[start:stop]
        if elements.dtype == torch.bfloat16:
            return elements.view(torch.int16).numpy().view("<u2")
        return elements.numpy()


def require_torch() -> None:
    """Raise MissingDependencyError unless torch is installed."""
    if importlib.util.find_spec("torch") is None:
        raise MissingDependencyError("torch", "reading a checkpoint that has no safetensors file", "hf")


def _load(path: Path) -> Any:
    import torch

    try:
        # Only the zip format, which torch writes since 1.6, can be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except Exception as error:  # torch raises many kinds, and every one of them means an unusable file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise CorruptFileError(
            path, f"what torch refuses to load ({reason})", "a file of named tensors and nothing else"
        ) from error
