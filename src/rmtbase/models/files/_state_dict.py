"""Named tensors in memory: the state dict of a module of torch, or any mapping of names to arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from jaxtyping import Shaped

from rmtbase.errors import CheckpointError, ParameterError
from rmtbase.models.files._tensor_file import STORAGE, TensorEntry, element_type
from rmtbase.parameters import require_real_array
from rmtbase.shown import quoted


@dataclass(frozen=True)
class StateDict:
    """Named tensors of torch, NumPy or JAX, on any device, in place of a :class:`TensorFile`.

    Numbers, booleans, strings, bytes and None beside them are skipped. Tensors may share their storage, as tied weights
    do. They are not copied, so that later changes to them affect what is read.
    """

    path: Path  # name in messages, not a file
    entries: Mapping[str, TensorEntry]  # the tensors by name
    _tensors: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_tensors(cls, tensors: Mapping[Any, Any], name: str) -> StateDict:
        """Take the tensors without copying them. No weight is read."""
        expected = "a state dict: names of tensors, and the tensors"
        held = {}
        for key, value in tensors.items():
            if not isinstance(key, str):
                raise ParameterError("model", f"a mapping with a key of type {type(key).__name__}", expected)
            if getattr(value, "is_nested", False) is True:
                found = f"a mapping with a nested tensor under {quoted(key)}, which has no one shape"
                raise ParameterError("model", found, f"{expected}; take it apart (tensor.unbind()), or leave it out")
            if hasattr(value, "shape") and hasattr(value, "dtype"):
                held[key] = value
            elif value is not None and not isinstance(value, (bool, int, float, str, bytes)):
                found = f"a mapping with a {type(value).__name__} under {quoted(key)}"
                raise ParameterError("model", found, f"{expected}; pass the inner one where it is in a larger mapping")
        entries = {key: TensorEntry(_dtype(value), tuple(value.shape)) for key, value in held.items()}
        return cls(Path(name), MappingProxyType(entries), MappingProxyType(held))

    def read_bits(self, name: str, start: int, stop: int) -> Shaped[np.ndarray, " size"]:
        """Read the elements ``start <= i < stop`` of the flattened tensor, in the types of ``STORAGE``."""
        try:
            elements = self._tensors[name].reshape(-1)[start:stop]
            torch = sys.modules.get("torch")
            if torch is not None and isinstance(elements, torch.Tensor) and elements.dtype.itemsize == 1:
                elements = elements.view(torch.uint8)  # NumPy has no 8-bit floats
            elements = require_real_array(name, elements)
        except (ParameterError, RuntimeError, TypeError) as error:
            found = f"tensor {quoted(name)} is a {type(self._tensors[name]).__name__} that cannot be read"
            raise CheckpointError(self.path, f"{found} ({error}); expected a dense tensor with values") from error
        return elements.view(STORAGE[self.entries[name].dtype])


def _dtype(tensor: Any) -> str:
    return element_type(str(tensor.dtype).removeprefix("torch."))


def weights_in_effect(module: Any) -> dict[str, Any]:
    """Return the state dict of a module of torch, with the results of ``torch.nn.utils.parametrize``."""
    tensors = dict(module.state_dict())
    for path, one in module.named_modules():
        if getattr(one, "parametrizations", None) is None:
            continue
        stem = f"{path}." if path else ""
        for name in one.parametrizations:
            tensors[f"{stem}{name}"] = getattr(one, name).detach()
        tensors = {name: held for name, held in tensors.items() if not name.startswith(f"{stem}parametrizations.")}
    return tensors
