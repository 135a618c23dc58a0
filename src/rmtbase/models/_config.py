"""What config.json says: the architecture and the dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, UnknownArchitectureError
from rmtbase.models._layouts import LAYOUTS, ConfigKeys, supported_architectures

_CLASS_ENDING = r"(Model|PreTrainedModel|LMHeadModel|DoubleHeadsModel|For[A-Z][A-Za-z]*)"


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a model, and the words in which config.json says so (for error messages).

    ``d_mlp`` is None where the configuration does not give it.
    """

    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int
    d_mlp: int | None
    because: str


def read_architecture(config: Mapping[str, Any], path: Path) -> str:
    """The model type: ``model_type``, or where that is absent, what the class in ``architectures`` implies.

    Raises:
        UnknownArchitectureError: no layout is known for it.
    """
    named = config.get("model_type")
    if named is None:
        classes = config.get("architectures")
        named = ", ".join(map(str, classes)) if isinstance(classes, list) and classes else "(none named)"
        for architecture, layout in LAYOUTS.items():
            if re.fullmatch(layout.class_prefix + _CLASS_ENDING, named):
                return architecture
    if not isinstance(named, str) or named not in LAYOUTS:
        raise UnknownArchitectureError(path, str(named), supported_architectures())
    return named


def read_dimensions(config: Mapping[str, Any], keys: ConfigKeys, path: Path) -> Dimensions:
    """The dimensions that the configuration gives.

    Raises:
        CheckpointError: one is absent or not a positive integer, or the number of heads is not a multiple
            of the number of key heads, or d_model is not a multiple of the number of heads and no head size
            is given.
    """
    said: list[str] = []

    def find(candidates: tuple[str, ...]) -> int | None:
        for key in candidates:
            value = config.get(key)
            if value is None:
                continue
            if type(value) is not int or value < 1:
                raise CheckpointError(path, f"{key} = {value!r}; expected a positive integer")
            said.append(f"{key} = {value}")
            return value
        return None

    def need(candidates: tuple[str, ...]) -> int:
        value = find(candidates)
        if value is None:
            raise CheckpointError(path, f"no {' or '.join(candidates)}; expected a positive integer")
        return value

    n_layers, n_heads, d_model = need(keys.n_layers), need(keys.n_heads), need(keys.d_model)
    n_key_heads = find(keys.n_key_heads) or n_heads
    d_head = find(keys.d_head)
    d_mlp = find(keys.d_mlp)
    because = ", ".join(said)
    if n_heads % n_key_heads:
        raise CheckpointError(path, f"{because}: expected a number of heads that is a multiple of the key heads")
    if d_head is None:
        if d_model % n_heads:
            raise CheckpointError(path, f"{because}: expected a head size, or a d_model divisible by the heads")
        d_head = d_model // n_heads
    if d_mlp is None and keys.d_mlp_over_d_model:
        d_mlp = keys.d_mlp_over_d_model * d_model
    return Dimensions(n_layers, n_heads, n_key_heads, d_model, d_head, d_mlp, because)
