"""Tensors and settings that no layout uses, and that could change the answer all the same: refused by name, or noted.

A low-rank update beside a weight is part of it, and a norm of the queries that the layout does not know changes what
the queries are. None is stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._other_formats import MERGED
from rmtbase.shown import quoted

# Parts of a tensor's name, between dots.
_ADAPTERS = re.compile(
    r"lora_\w+|base_layer|modules_to_save|original_module|ia3_\w+|vera_\w+|hada_\w+|lokr_\w+|oft_\w+|boft_\w+"
)
_CUSTOM_CODE = (
    "auto_map: the model has code of its own, which is not run; its weights are read as the plain architecture's"
)
_CROSS_ATTENTION = "cross-attention present: recorded, not scored"


def require_all_heads(config: Mapping[str, Any], path: Path) -> None:
    """Raise CheckpointError if the configuration says that heads were taken out of some layers."""
    pruned = config.get("pruned_heads")
    if pruned:
        raise CheckpointError(
            path,
            f"pruned_heads = {quoted(pruned)}: layers have lost heads, and not all the same number; expected a model "
            "with all its heads, or pass those of each layer to rmtbase.score_heads",
        )


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


def leftover_notes(config: Mapping[str, Any], checkpoint: Checkpoint) -> tuple[str, ...]:
    """What is there besides and leaves the scores as they are, in words."""
    found = {
        _CUSTOM_CODE: bool(config.get("auto_map")),
        _CROSS_ATTENTION: any(".crossattention." in name for name in checkpoint.names),
    }
    return tuple(note for note, holds in found.items() if holds)
