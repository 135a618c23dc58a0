"""Tensors and settings that no layout uses but that could change the result: they are refused by name, or noted.

A low-rank update beside a weight is part of that weight, and a norm of the queries that the layout does not have
changes the queries. No such tensor is ignored silently. Layers that predict several tokens ahead are left out with a
note. A note is also made of the initializer that the configuration names, where its name is misleading.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._other_formats import MERGED
from rmtbase.models._sites import Inventory, Site
from rmtbase.shown import quoted

# Parts of a tensor's name, between dots.
_ADAPTERS = re.compile(
    r"lora_\w+|base_layer|modules_to_save|original_module|ia3_\w+|vera_\w+|hada_\w+|lokr_\w+|oft_\w+|boft_\w+"
)
_CUSTOM_CODE = (
    "auto_map: the model has code of its own, which is not run; its weights are read as the plain architecture's"
)
_NAMED = 4  # kinds of matrices
_ATTENTION = re.compile(r".*att(n|ention|_|\d|$).*", re.IGNORECASE)
"""Part of a matrix's name that indicates attention."""
_MAPS = re.compile(
    r"(to_|lin_?|linear_|proj_)?(q|k|v|qk|kv|qkv|w?q_?k_?v|query|key|value|query_key_value)(_proj|_lin|_layer|_protein|_\w)?|"
    r"w_?[qkv]|in_proj_weight|.*latent_query",
    re.IGNORECASE,
)
"""Name of a map to queries, keys, values, or several of these; a module that contains one is attention."""
_DRAFTS = re.compile(r"mtp\..+|medusa_head\..+", re.DOTALL)
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d{1,9})\..+", re.DOTALL)
_CUTOFF = "initializer_cutoff_factor"  # ModernBERT's, in units of σ
_INITIALIZER = ("init", "initialization", "initialisation")
_DEPTH = 3  # levels of nested settings


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
    """Raise CheckpointError if a tensor, by its name, belongs to an adapter, which changes the weights beside it."""
    for name in checkpoint.names:
        parts = name.split(".")
        if any(map(_ADAPTERS.fullmatch, parts)):
            raise CheckpointError(
                checkpoint.file(name),
                f"tensor {quoted(name)} is part of an adapter, which changes the weights beside it; expected {MERGED}, "
                "or the base model alone",
            )


def leftover_notes(config: Mapping[str, Any], checkpoint: Checkpoint, inventory: Inventory) -> tuple[str, ...]:
    """Return notes on whatever else exists and does not affect the scores."""
    notes = (_CUSTOM_CODE,) if config.get("auto_map") else ()
    return (*notes, *_unread_attention(checkpoint, inventory.sites, inventory.used_tensors()))


def _unread_attention(checkpoint: Checkpoint, sites: Sequence[Site], used: Collection[str]) -> tuple[str, ...]:
    """Name the matrices of attention that is not read, and the further matrices of attention that is read."""
    read = {_block(site.module) for site in sites}
    beside: dict[str, list[str]] = {}
    unread: dict[str, list[str]] = {}
    for name in _of_attention(_matrices(checkpoint, used)):
        inside = any(name.startswith(f"{block}.") for block in read if block)
        (beside if inside else unread).setdefault(_pattern(name), []).append(name)
    lines = {
        "attention that is not read, by the names of its matrices": unread,
        "beside the heads of attention that is read, not scored": beside,
    }
    return tuple(f"{words}: {_listed(checkpoint, found)}" for words, found in lines.items() if found)


def _block(module: str) -> str:
    """Return the attention that contains a module: its name up to the first part with "att" in it."""
    parts = module.split(".")
    return ".".join(parts[: next((at for at, part in enumerate(parts, 1) if "att" in part.lower()), len(parts))])


def _of_attention(names: Iterable[str]) -> list[str]:
    """Select the matrices of attention by name: a part indicates attention, or the module contains such a map."""
    each = {name: name.removesuffix(".weight").split(".") for name in names}
    modules = {tuple(parts[:-1]) for parts in each.values() if _MAPS.fullmatch(parts[-1])}
    return [
        name
        for name, parts in each.items()
        if any(map(_ATTENTION.fullmatch, parts)) or (len(parts) > 1 and tuple(parts[:-1]) in modules)
    ]


def left_out(checkpoint: Checkpoint, used: Collection[str]) -> dict[str, list[str]]:
    """Return the tensors that no matrix is made of, grouped by name with {} for numbers."""
    found: dict[str, list[str]] = {}
    for name in checkpoint.names:
        if name not in used:
            found.setdefault(_pattern(name), []).append(name)
    return found


def unread_matrices(checkpoint: Checkpoint, used: Collection[str], noted: Collection[str]) -> tuple[str, ...]:
    """Name the matrices and kernels outside attention that are not used by anything that is scored.

    Args:
        checkpoint: checkpoint of the model.
        used: the names of the tensors that are read.
        noted: notes; the matrices that they name are omitted.

    Returns:
        One line, or none if there are no such matrices.
    """
    names = list(_matrices(checkpoint, used))
    of_attention = set(_of_attention(names))
    found: dict[str, list[str]] = {}
    for name in names:
        if name not in of_attention:
            found.setdefault(_pattern(name), []).append(name)
    found = {key: names for key, names in found.items() if not any(names[0] in line for line in noted)}
    if not found:
        return ()
    return (
        f"not scored, because outside the attention, MLPs and embeddings that are read: {_listed(checkpoint, found)}",
    )


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "{}", name)


def _matrices(checkpoint: Checkpoint, used: Collection[str]) -> Iterator[str]:
    """Yield the names of stored matrices and kernels of floating-point numbers that are not used."""
    for name in checkpoint.names:
        if name not in used:
            shape = checkpoint.shape(name)
            if len(shape) > 1 and min(shape[:2]) > 1 and "F" in checkpoint.dtype(name):
                yield name


def _listed(checkpoint: Checkpoint, found: Mapping[str, list[str]]) -> str:
    """List the matrices by the pattern of their names, with the shape of the first of each."""
    each = [
        f"{len(names)} {quoted(pattern)} {checkpoint.shape(names[0])}"
        if len(names) > 1
        else f"{quoted(names[0])} {checkpoint.shape(names[0])}"
        for pattern, names in found.items()
    ]
    return ", ".join(each[:_NAMED]) + (f" and {len(each) - _NAMED} more kinds" if len(each) > _NAMED else "")


def without_draft_layers(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint without the layers that draft further tokens, which follow the model's own layers.

    DeepSeek and its successors continue the numbering (``num_nextn_predict_layers``); others name these layers ``mtp``.
    The heads of Medusa, which have no attention, are left out too.
    """
    n_layers, n_more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    follow = range(n_layers, n_layers + n_more) if type(n_layers) is int and type(n_more) is int else range(0)
    beyond = {name for name in checkpoint.names if (found := _LAYER.fullmatch(name)) and int(found[1]) in follow}
    beside = {name for name in checkpoint.names if _DRAFTS.fullmatch(name)}
    if not beyond | beside:
        return checkpoint
    numbers = sorted({int(found[1]) for name in beyond if (found := _LAYER.fullmatch(name))})
    called = [f"layer {number}" for number in numbers] + sorted({name.partition(".")[0] for name in beside})
    return checkpoint.replaced(beyond | beside, {}, f"drafts of further tokens are left out: {', '.join(called[:6])}")


def initializer_notes(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return notes on the law that a configuration's truncated normal or orthogonal initializer corresponds to."""
    notes = []
    cutoff = config.get(_CUTOFF)
    if isinstance(cutoff, int | float) and not isinstance(cutoff, bool) and 0.0 < cutoff < 100.0:
        law = (
            "--initialization truncated_normal"
            if cutoff == 2
            else "none of --initialization has this cut; from 4 on they are as good as normal"
        )
        notes.append(f"configuration: {_CUTOFF} = {cutoff:g}: weights are cut at {cutoff:g} standard deviations: {law}")
    for key, value in _initializers(config, _DEPTH):
        if "trunc" in value.lower() and "normal" in value.lower():
            notes.append(
                f"configuration: {quoted(key)} is {quoted(value)}: trunc_normal_ of torch and transformers cuts at "
                "-2 and 2, not at two standard deviations, so that weights of std 0.02 are normal (--initialization "
                "normal); truncated_normal is for cuts at two standard deviations, as by jax and flax"
            )
        elif "orthogonal" in value.lower():
            notes.append(f"configuration: {quoted(key)} is {quoted(value)}: --initialization orthogonal has its null")
    return tuple(notes)


def _initializers(config: Mapping[str, Any], depth: int) -> Iterator[tuple[str, str]]:
    """Yield the string entries about initialization, including those of nested settings."""
    for key, value in config.items():
        name = str(key)
        if isinstance(value, Mapping) and depth > 1:
            inside = _initializers(value, depth - 1)
            about = any(word in name.lower() for word in _INITIALIZER)
            yield from ((f"{name}.{inner}", text) for inner, text in inside)
            if about and isinstance(value.get("name"), str):
                yield name, value["name"]
        elif isinstance(value, str) and len(value) < 100 and any(word in name.lower() for word in _INITIALIZER):
            yield name, value
