"""How a configuration says the size of a head: data in ``head_readings.csv``, one model type a line.

A key may be there and be ignored, or be absent and have a default that is not d_model / n_heads: nothing in the
configuration itself tells. So each line was proved against the queries and keys that the type's own class in
``transformers`` makes, from its default configuration, from one with other sizes, from one without a head size, and
from one with a head size where it has none. A type without a line is not read.

Types whose queries do not read the residual stream, or whose heads are counted otherwise, have a function here.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from rmtbase.errors import CheckpointError
from rmtbase.shown import quoted

RATIO = "d_model / n_heads"


class HeadSizes(NamedTuple):
    """The sizes of a model's heads: W_Q is (d_head, d_model) for each of n_heads."""

    d_model: int
    d_head: int
    n_heads: int
    n_key_heads: int
    n_layers: int


@cache
def head_readings() -> Mapping[str, str]:
    """What gives the size of a head, by model type: a key, :data:`RATIO`, or a key and else the ratio."""
    text = files("rmtbase.models").joinpath("head_readings.csv").read_text(encoding="utf-8")
    return MappingProxyType({line["model_type"]: line["d_head"] for line in csv.DictReader(text.splitlines())})


class _Sizes:
    """The positive integers of a configuration, those that are absent at the default of the type's class."""

    def __init__(self, config: Mapping[str, Any], path: Path) -> None:
        self._config, self._path = config, path

    def get(self, name: str, default: int | None = None) -> int:
        value = self._config.get(name)
        value = default if value is None else value
        if type(value) is not int or value < 1:
            raise CheckpointError(self._path, f"{name} = {quoted(value)}; expected a positive integer")
        return value

    def get_any(self, names: tuple[str, ...], default: int) -> int:
        """The value of whichever of two names of one size is there."""
        said = [self.get(name) for name in names if self._config.get(name) is not None]
        if len(set(said)) > 1:
            raise CheckpointError(self._path, f"{' and '.join(names)} = {said}: two names of one size; expected one")
        return said[0] if said else default

    def ratio(self, names: str, whole: int, parts: int) -> int:
        if whole % parts:
            raise CheckpointError(self._path, f"{names}: {whole} over {parts}; expected a whole number")
        return whole // parts


def _mobilebert(config: Mapping[str, Any], path: Path) -> HeadSizes:
    """Queries and keys read the bottleneck, not the residual stream."""
    sizes = _Sizes(config, path)
    bottleneck = config.get("use_bottleneck", True)
    if type(bottleneck) is not bool:
        raise CheckpointError(path, f"use_bottleneck = {quoted(bottleneck)}; expected true or false")
    width = sizes.get("intra_bottleneck_size", 128) if bottleneck else sizes.get("hidden_size")
    heads = sizes.get("num_attention_heads")
    d_head = sizes.ratio("intra_bottleneck_size / num_attention_heads", width, heads)
    return HeadSizes(width, d_head, heads, heads, sizes.get("num_hidden_layers"))


def _zamba(config: Mapping[str, Any], path: Path) -> HeadSizes:
    """Queries and keys read the residual stream and the embeddings side by side."""
    sizes = _Sizes(config, path)
    heads, twice = sizes.get("num_attention_heads"), 2 * sizes.get("hidden_size")
    width = sizes.get("attention_hidden_size", twice)
    d_head = sizes.get_any(("attention_head_dim", "head_dim"), twice // heads)
    return HeadSizes(width, d_head, heads, sizes.get("num_key_value_heads", 16), sizes.get("num_hidden_layers"))


def _zamba2(config: Mapping[str, Any], path: Path) -> HeadSizes:
    """As Zamba, but the head sizes that the configuration holds are computed anew."""
    sizes = _Sizes(config, path)
    heads, width = sizes.get("num_attention_heads"), 2 * sizes.get("hidden_size")
    return HeadSizes(
        width, width // heads, heads, sizes.get("num_key_value_heads", heads), sizes.get("num_hidden_layers")
    )


def _jetmoe(config: Mapping[str, Any], path: Path) -> HeadSizes:
    """Each of a token's experts has a query head for every key head."""
    sizes = _Sizes(config, path)
    key_heads = sizes.get("num_key_value_heads", 16)
    d_head = sizes.get_any(("kv_channels", "head_dim"), 128)
    heads = key_heads * sizes.get("num_experts_per_tok", 2)
    return HeadSizes(sizes.get("hidden_size"), d_head, heads, key_heads, sizes.get("num_hidden_layers"))


def _convbert(config: Mapping[str, Any], path: Path) -> HeadSizes:
    """A share of the heads are convolutions."""
    sizes = _Sizes(config, path)
    width = sizes.get("hidden_size")
    heads = max(1, sizes.get("num_attention_heads") // sizes.get("head_ratio", 2))
    d_head = sizes.ratio("hidden_size over the heads that attend", width, heads) // 2
    return HeadSizes(width, d_head, heads, heads, sizes.get("num_hidden_layers"))


OWN_SIZES: Mapping[str, Callable[[Mapping[str, Any], Path], HeadSizes]] = MappingProxyType(
    {"convbert": _convbert, "jetmoe": _jetmoe, "mobilebert": _mobilebert, "zamba": _zamba, "zamba2": _zamba2}
)
"""The types whose sizes are computed from their configuration in a way of their own."""
