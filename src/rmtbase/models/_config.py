"""The dimensions that config.json gives, by the words of the model's type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.shown import quoted


@dataclass(frozen=True)
class Dimensions:
    """The sizes of a model, and the words in which config.json says so (for error messages)."""

    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int
    because: str


@dataclass(frozen=True)
class ConfigKeys:
    """The keys of config.json that hold each dimension, the first one present counting.

    An absent ``n_key_heads`` means one key head per query head; an absent ``d_head`` means d_model / n_heads.
    """

    n_layers: tuple[str, ...] = ("num_hidden_layers",)
    n_heads: tuple[str, ...] = ("num_attention_heads",)
    n_key_heads: tuple[str, ...] = ()
    d_model: tuple[str, ...] = ("hidden_size",)
    d_head: tuple[str, ...] = ()


_LLAMA_KEYS = ConfigKeys(n_key_heads=("num_key_value_heads",))
FAMILIES: Mapping[str, tuple[str, ConfigKeys]] = MappingProxyType(
    {
        "bert": ("Bert", ConfigKeys()),
        "gpt2": (
            "GPT2",
            ConfigKeys(
                n_layers=("n_layer", "num_hidden_layers"),
                n_heads=("n_head", "num_attention_heads"),
                d_model=("n_embd", "hidden_size"),
            ),
        ),
        "gpt_neox": ("GPTNeoX", ConfigKeys()),
        "llama": ("Llama", _LLAMA_KEYS),
        "mistral": ("Mistral", _LLAMA_KEYS),
        "qwen2": ("Qwen2", _LLAMA_KEYS),
        "qwen3": ("Qwen3", _LLAMA_KEYS),
    }
)
"""By the ``model_type``: what the names of the type's classes begin with, and the words of its configuration."""


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
    because = ", ".join(said)
    if n_heads % n_key_heads:
        raise CheckpointError(path, f"{because}: expected a number of heads that is a multiple of the key heads")
    if d_head is None:
        if d_model % n_heads:
            raise CheckpointError(path, f"{because}: expected a head size, or a d_model divisible by the heads")
        d_head = d_model // n_heads
    return Dimensions(n_layers, n_heads, n_key_heads, d_model, d_head, because)
