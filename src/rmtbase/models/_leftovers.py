"""Tensors and settings that no layout uses, and that could change the answer all the same: refused by name, or noted.

A low-rank update beside a weight is part of it, and a norm of the queries that the layout does not know changes what
the queries are. None is stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._layouts import COMPONENTS
from rmtbase.models._other_formats import MERGED
from rmtbase.models._stack import Stack
from rmtbase.shown import quoted

# Parts of a tensor's name, between dots.
_ADAPTERS = re.compile(
    r"lora_\w+|base_layer|modules_to_save|original_module|ia3_\w+|vera_\w+|hada_\w+|lokr_\w+|oft_\w+|boft_\w+"
)
# What lies in an attention module and leaves queries and keys as they are: masks, rotary tables, BERT's norm of its
# output. Query, key, value and output weights and biases, and the norms of the layout, are known besides.
_BYSTANDERS = re.compile(r"bias|masked_bias|rotary_emb\..+|output\.LayerNorm\.(weight|bias|gamma|beta)")
_CUSTOM_CODE = (
    "auto_map: the model has code of its own, which is not run; its weights are read as the plain architecture's"
)
_CROSS_ATTENTION = "cross-attention present: recorded, not scored"


def require_plain_tensors(checkpoint: Checkpoint) -> None:
    """Raise CheckpointError if a tensor belongs, by its name, to an adapter, which changes the weights beside it."""
    for name in checkpoint.names:
        parts = name.split(".")
        if any(map(_ADAPTERS.fullmatch, parts)):
            raise CheckpointError(
                checkpoint.file(name),
                f"tensor {quoted(name)} is part of an adapter, which changes the weights beside it; expected {MERGED}, "
                "or the base model alone",
            )


def require_known_attention(stack: Stack) -> None:
    """Raise unless every tensor in the attention modules is used, or known to leave queries and keys as they are.

    Raises:
        CheckpointError: one is not: a norm, a table of relative positions, a mask of pruned weights, sinks.
    """
    layout = stack.layout
    stored = [layout.components[name].tensor for name in COMPONENTS[:4] if name in layout.components]
    module = stored[0].partition(".")[0]
    known = {f"{tensor}.{kind}" for tensor in stored for kind in ("weight", "bias")}
    known |= {f"{norm}.weight" for norm in layout.query_key_norms}
    layer = re.escape(layout.layer).replace(re.escape("{}"), r"\d+")
    inside = re.compile(f"{re.escape(stack.prefix)}{layer}({re.escape(module)}\\.(.+))", re.DOTALL)
    for name in stack.checkpoint.names:
        found = inside.fullmatch(name)
        if found and found[1] not in known and not _BYSTANDERS.fullmatch(found[2]):
            raise CheckpointError(
                stack.checkpoint.file(name),
                f"tensor {quoted(name)} is none that the attention of a {stack.architecture} model has, and may change "
                "its queries and keys; expected a plain one, or pass the effective matrices to rmtbase.score_heads",
            )


def leftover_notes(config: Mapping[str, Any], checkpoint: Checkpoint) -> tuple[str, ...]:
    """What is there besides and leaves the scores as they are, in words."""
    found = {
        _CUSTOM_CODE: bool(config.get("auto_map")),
        _CROSS_ATTENTION: any(".crossattention." in name for name in checkpoint.names),
    }
    return tuple(note for note, holds in found.items() if holds)
