"""Tensors and settings that no layout uses but that could change the result: they are refused by name, or noted."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._other_formats import MERGED
from rmtbase.models.layouts._sites import Inventory, nested_settings
from rmtbase.shown import quoted

# Parts of a tensor's name, between dots.
_ADAPTERS = re.compile(
    r"lora_\w+|base_layer|modules_to_save|original_module|ia3_\w+|vera_\w+|hada_\w+|lokr_\w+|oft_\w+|boft_\w+"
)
_CUSTOM_CODE = (
    "auto_map: the model has code of its own, which is not run; its weights are read as the plain architecture's"
)
_NAMED = 4  # kinds of matrices
_ATTENTION = re.compile(r".*att(n|ention|_|\d|$).*", re.IGNORECASE)  # part of a matrix's name that indicates attention
_MAPS = re.compile(
    r"(to_|lin_?|linear_|proj_)?(q|k|v|qk|kv|qkv|w?q_?k_?v|query|key|value|query_key_value)(_proj|_lin|_layer|_protein|_\w)?|"
    r"w_?[qkv]|in_proj_weight|.*latent_query",
    re.IGNORECASE,
)  # name of a map to queries, keys, values, or several of these; a module that contains one is attention
_DRAFTS = re.compile(r"mtp\..+|medusa_head\..+", re.DOTALL)
_LAYER = re.compile(r"(?:model\.|language_model\.)*layers\.(\d{1,9})\..+", re.DOTALL)
_CUTOFF = "initializer_cutoff_factor"  # ModernBERT's, in units of σ
_INITIALIZER = ("init", "initialization", "initialisation")
_DEPTH = 3  # levels of nested settings
_EMBEDDINGS, _ADDED = "multiplies the embeddings", "multiplies what a layer adds to the residual stream"
_LOGITS, _CUT = "multiplies the logits of tokens", "where queries, keys and values are cut off"
_POSITIONS = "queries at far positions are multiplied by a factor that grows with the position"
_BESIDE_MATRICES = {
    "attention_in_multiplier": "multiplies the input of queries, keys and values",
    "attention_out_multiplier": "multiplies the output of attention",
    "attention_value_scale": "multiplies values",
    "attn_logit_softcapping": "where q·k is capped",
    "clip_qkv": _CUT,
    **dict.fromkeys(("attn_scale", "llama_4_scaling_beta", "log_scaling_alpha"), _POSITIONS),
    **dict.fromkeys(("embedding_multiplier", "embedding_scale", "scale_emb"), _EMBEDDINGS),
    **dict.fromkeys(("scale_embedding", "rescale_embeddings", "mup_enabled"), f"√d {_EMBEDDINGS}"),
    **dict.fromkeys(("residual_multiplier", "residual_scale"), _ADDED),
    "scale_depth": f"over the root of the number of layers, {_ADDED}",
    "mlp_multipliers": "multiply the gate and the output of the MLP",
    **dict.fromkeys(("lm_head_multiplier", "logit_scale", "output_multiplier"), _LOGITS),
    **dict.fromkeys(("logits_scaling", "logits_mup_width_multiplier"), "divides the logits of tokens"),
}  # keys of configurations that change what the matrices around them do: what they do


def require_all_heads(config: Mapping[str, Any], path: Path) -> None:
    pruned = config.get("pruned_heads")
    if pruned:
        problem = f"pruned_heads = {quoted(pruned)}: layers have lost heads, and not all the same number"
        expected = "a model with all its heads, or pass those of each layer to rmtbase.score_heads"
        raise CheckpointError(path, f"{problem}; expected {expected}")


def require_plain_tensors(checkpoint: Checkpoint) -> None:
    for name in checkpoint.names:
        parts = name.split(".")
        if any(map(_ADAPTERS.fullmatch, parts)):
            problem = f"tensor {quoted(name)} is part of an adapter, which changes the weights beside it"
            raise CheckpointError(checkpoint.file(name), f"{problem}; expected {MERGED}, or the base model alone")


def leftover_notes(config: Mapping[str, Any], checkpoint: Checkpoint, inventory: Inventory) -> Iterator[str]:
    if config.get("auto_map"):
        yield _CUSTOM_CODE
    read = {_block(site.module) for site in inventory.sites}
    beside: list[str] = []
    unread: list[str] = []
    for name in _of_attention(_matrices(checkpoint, inventory.used_tensors())):
        inside = any(name.startswith(f"{block}.") for block in read if block)
        (beside if inside else unread).append(name)
    if unread:
        yield f"attention that is not read, by the names of its matrices: {_listed(checkpoint, unread)}"
    if beside:
        yield f"beside the heads of attention that is read, not scored: {_listed(checkpoint, beside)}"
    multipliers = [
        f"{key} = {quoted(value)} ({_BESIDE_MATRICES[name]})"
        for key, name, value in nested_settings(config, _DEPTH)
        if name in _BESIDE_MATRICES and (value is True or value not in (None, False, 0, 1, [1, 1]))
    ]
    if multipliers:
        yield f"in no matrix that is read: {', '.join(multipliers)}"
    cutoff = config.get(_CUTOFF)
    if isinstance(cutoff, int | float) and not isinstance(cutoff, bool) and 0.0 < cutoff < 100.0:
        no_law = "none of --initialization has this cut; from 4 on they are as good as normal"
        law = "--initialization truncated_normal" if cutoff == 2 else no_law
        yield f"configuration: {_CUTOFF} = {cutoff:g}: weights are cut at {cutoff:g} standard deviations: {law}"
    for key, name, value in nested_settings(config, _DEPTH):
        about = (key if name == "name" else name).lower()
        if not isinstance(value, str) or len(value) >= 100 or not any(word in about for word in _INITIALIZER):
            continue
        key = key.removesuffix(".name")
        if "trunc" in value.lower() and "normal" in value.lower():
            yield (
                f"configuration: {quoted(key)} is {quoted(value)}: trunc_normal_ of torch and transformers cuts at "
                "-2 and 2, not at two standard deviations, so that weights of std 0.02 are normal (--initialization "
                "normal); truncated_normal is for cuts at two standard deviations, as by jax and flax"
            )
        elif "orthogonal" in value.lower():
            yield f"configuration: {quoted(key)} is {quoted(value)}: --initialization orthogonal has its null"


def _block(module: str) -> str:
    """Return the attention that contains a module: its name up to the first part with "att" in it."""
    parts = module.split(".")
    return ".".join(parts[: next((at for at, part in enumerate(parts, 1) if "att" in part.lower()), len(parts))])


def _of_attention(names: Iterable[str]) -> list[str]:
    parts_by_name = {name: name.removesuffix(".weight").split(".") for name in names}
    modules = {tuple(parts[:-1]) for parts in parts_by_name.values() if _MAPS.fullmatch(parts[-1])}
    return [
        name
        for name, parts in parts_by_name.items()
        if any(map(_ATTENTION.fullmatch, parts)) or (len(parts) > 1 and tuple(parts[:-1]) in modules)
    ]


def by_pattern(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names that differ only in numbers, which are {} in the name of the group."""
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(re.sub(r"\d+", "{}", name), []).append(name)
    return groups


def unread_matrices(checkpoint: Checkpoint, used: Collection[str], noted: Collection[str]) -> tuple[str, ...]:
    names = list(_matrices(checkpoint, used))
    of_attention = set(_of_attention(names))
    groups = by_pattern(name for name in names if name not in of_attention)
    unread = [name for group in groups.values() if group[0] not in noted for name in group]
    words = "not scored, because outside attention, MLPs and embeddings that are read"
    return (f"{words}: {_listed(checkpoint, unread)}",) if unread else ()


def _matrices(checkpoint: Checkpoint, used: Collection[str]) -> Iterator[str]:
    for name in checkpoint.names:
        if name not in used:
            shape = checkpoint.shape(name)
            if len(shape) > 1 and min(shape[:2]) > 1 and "F" in checkpoint.dtype(name):
                yield name


def _listed(checkpoint: Checkpoint, names: Iterable[str]) -> str:
    described = [
        (f"{len(group)} {quoted(pattern)}" if len(group) > 1 else quoted(group[0])) + f" {checkpoint.shape(group[0])}"
        for pattern, group in by_pattern(names).items()
    ]
    more = f" and {len(described) - _NAMED} more kinds" if len(described) > _NAMED else ""
    return ", ".join(described[:_NAMED]) + more


def without_draft_layers(checkpoint: Checkpoint, config: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint without the layers that draft further tokens, which follow the model's own layers."""
    n_layers, n_more = config.get("num_hidden_layers"), config.get("num_nextn_predict_layers")
    follow = range(n_layers, n_layers + n_more) if type(n_layers) is int and type(n_more) is int else range(0)
    beyond = {name for name in checkpoint.names if (match := _LAYER.fullmatch(name)) and int(match[1]) in follow}
    beside = {name for name in checkpoint.names if _DRAFTS.fullmatch(name)}
    if not beyond | beside:
        return checkpoint
    numbers = sorted({int(match[1]) for name in beyond if (match := _LAYER.fullmatch(name))})
    called = [f"layer {number}" for number in numbers] + sorted({name.partition(".")[0] for name in beside})
    return checkpoint.replaced(beyond | beside, {}, f"drafts of further tokens are left out: {', '.join(called[:6])}")
