"""Sizes of a model in memory, taken from its tensors where its configuration leaves them out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rmtbase.errors import CheckpointError, MissingTensorError, UnprovedConfigurationError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._layout_table import entries
from rmtbase.models.layouts._layout_table import known_types as supported_architectures
from rmtbase.shown import quoted

_SHOWN = 3  # names in a message


def with_sizes(config: Mapping[str, Any], checkpoint: Checkpoint) -> dict[str, Any]:
    """Add missing sizes that the tensors show to the configuration, under the keys of its type.

    Tensors do not show the number of heads: twelve heads of 64 have the shape of 24 heads of 32. If that is given, the
    head size and the number of key heads follow. Nothing is added for a model with several stacks.
    """
    completed, architecture = dict(config), config.get("model_type")
    if architecture not in supported_architectures():
        return completed
    try:
        each = list(entries(config, str(architecture), checkpoint.config_path))
    except UnprovedConfigurationError:  # its network may be run
        return completed
    if len(each) != 1 or each[0].inside:
        return completed
    (entry,) = each
    layout = entry.layout
    (first, *_) = layout.holding("q")
    query = layout.layer + first
    pattern = re.escape(query).replace(re.escape("{}"), r"(?P<layer>\d+)")
    matches = [match for name in checkpoint.names if (match := re.fullmatch(rf"(?P<prefix>|.*\.){pattern}", name))]
    stacks = {match["prefix"]: match[0] for match in matches}
    if not stacks and not entry.attends:
        raise MissingTensorError(checkpoint.path, query.format(0), str(architecture))
    if not stacks:  # perhaps no layer attends
        return completed
    if len(stacks) > 1:
        named = ", ".join(map(quoted, list(stacks.values())[:_SHOWN]))
        raise CheckpointError(checkpoint.path, f"tensors {named}; expected one stack of layers, not {len(stacks)}")
    prefix = next(iter(stacks))
    attending = min(int(match["layer"]) for match in matches)
    of_layers = re.compile(re.escape(prefix + layout.layer).replace(re.escape("{}"), r"(\d+)"))

    def linear(symbol: str) -> tuple[int, ...]:
        """Return (outputs, inputs) of the tensor that holds a symbol in the first layer with attention, or zeros."""
        for tensor in layout.holding(symbol):
            name = prefix + layout.layer.format(attending) + tensor
            shape = checkpoint.shape(name) if name in checkpoint else ()
            if len(shape) == 2:
                return shape[::-1] if layout.tensors[tensor].transposed else shape
        return 0, 0

    def size(name: str, shown: int | None) -> int | None:
        """Return a size from the configuration, or else the shown one, which is added to the configuration."""
        keys = entry.sizes.get(name, "").partition(" else ")[0].split(" or ")
        words = [key for key in keys if re.fullmatch(r"[a-z_]\w*", key) and key not in entry.sizes]
        held = next((completed[word] for word in words if completed.get(word) is not None), None)
        if held is None and words and shown:
            completed[words[0]] = held = shown
        return held if type(held) is int and held > 0 else None

    query_rows, d_model = linear("q")
    if first in layout.holding("k"):
        query_rows = 0  # unknown: the rows include those of the keys
    size("n_layers", len({match[1] for name in checkpoint.names if (match := of_layers.match(name))}))
    size("d_model", d_model)
    size("d_mlp", linear("up")[0])
    n_heads = size("n_heads", None)
    d_head = size("d_head", query_rows // n_heads if n_heads else None)
    size("n_key_heads", linear("k")[0] // d_head if d_head else None)
    return completed
