"""What config.json says: the architecture and the dimensions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError, UnknownArchitectureError
from rmtbase.models._layout_table import known_types as supported_architectures
from rmtbase.models._layouts import LAYOUTS, ConfigKeys, Layout
from rmtbase.shown import quoted

_CLASS_ENDING = r"(Model|PreTrainedModel|LMHeadModel|DoubleHeadsModel|For[A-Z][A-Za-z]*)"
# Said of an architecture that has no key of its own for it, these can only repeat what it is there by definition.
_USUAL_WORDS = {"d_head": ("head_dim", "head_size", "attention_head_size"), "n_key_heads": ("num_key_value_heads",)}


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

    @property
    def part_rows(self) -> tuple[int, int, int]:
        """The number of outputs of the query, key and value matrices."""
        keys = self.n_key_heads * self.d_head
        return self.n_heads * self.d_head, keys, keys


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
                raise CheckpointError(path, f"{key} = {quoted(value)}; expected a positive integer")
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


def read_layout_dimensions(config: Mapping[str, Any], layout: Layout, path: Path) -> Dimensions:
    """The dimensions that the configuration gives a model of a known layout, by whatever words.

    Raises:
        CheckpointError: as :func:`read_dimensions`; or two words for one dimension disagree, or a head size is given
            that is not the d_model / n_heads which the architecture has by definition.
    """
    dimensions = read_dimensions(config, layout.config, path)
    for size in ("n_layers", "n_heads", "n_key_heads", "d_model", "d_head"):
        expected = getattr(dimensions, size)
        for key in getattr(layout.config, size) or _USUAL_WORDS[size]:
            said = config.get(key)
            if said is not None and (type(said) is not int or said != expected):
                raise CheckpointError(
                    path, f"{key} = {quoted(said)} beside {dimensions.because}; expected {expected}, as these imply"
                )
    return dimensions


def rotary_dimensions(config: Mapping[str, Any], layout: Layout, d_head: int, path: Path) -> int:
    """How many of a head's dimensions are rotated.

    Raises:
        CheckpointError: the configuration gives a part of them that is none.
    """
    if layout.rotary_fraction is None:
        return d_head
    parameters = config.get("rope_parameters")
    said = parameters.get("partial_rotary_factor") if isinstance(parameters, dict) else None
    fraction = config.get("rotary_pct", layout.rotary_fraction) if said is None else said
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
        raise CheckpointError(path, f"the rotated part {quoted(fraction)} of a head; expected a number from 0 to 1")
    return int(d_head * fraction)
