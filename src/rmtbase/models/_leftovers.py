"""Tensors and settings that no layout uses, and that could change the answer all the same: refused by name, or noted.

A low-rank update beside a weight is part of it, and a norm of the queries that the layout does not know changes what
the queries are. None is stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
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
_NAMED = 4  # kinds of matrices
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


def left_out(checkpoint: Checkpoint, used: Collection[str]) -> dict[str, list[str]]:
    """The tensors that no matrix is made of, those together whose names are alike but for numbers, {} in the key."""
    found: dict[str, list[str]] = {}
    for name in checkpoint.names:
        if name not in used:
            found.setdefault(re.sub(r"\d+", "{}", name), []).append(name)
    return found


def unread_matrices(checkpoint: Checkpoint, used: Collection[str], noted: Collection[str]) -> tuple[str, ...]:
    """A line that names the matrices and kernels that are none of attention, of an MLP or of embeddings.

    Args:
        checkpoint: of the model.
        used: the names of the tensors that are read.
        noted: lines that name others.
    """
    each = []
    for pattern, names in left_out(checkpoint, used).items():
        shape, dtype = checkpoint.shape(names[0]), checkpoint.dtype(names[0])
        if len(shape) > 1 and min(shape[:2]) > 1 and "F" in dtype and not any(names[0] in line for line in noted):
            each.append(f"{len(names)} {quoted(pattern)} {shape}" if len(names) > 1 else f"{quoted(names[0])} {shape}")
    if not each:
        return ()
    more = f" and of {len(each) - _NAMED} more kinds" if len(each) > _NAMED else ""
    return (f"not scored, as none of attention, of an MLP or of embeddings: {', '.join(each[:_NAMED])}{more}",)
