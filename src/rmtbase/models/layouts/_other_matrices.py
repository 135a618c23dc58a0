"""Matrices of a model outside its heads: MLPs and routers, fused tensors, embeddings, and what no layout uses.

Tensors outside the layers are embeddings by a common name and the sizes in the configuration; others are only noted.
They are stored with a row for each token: W_E and W_pos are the transposes, W_U is the stored matrix.
Tensors and settings that no layout uses but that could change the result are refused by name, or noted.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmtbase.errors import CheckpointError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._other_formats import MERGED
from rmtbase.models.layouts._expressions import Expression, Rows, Shapes, Tensor
from rmtbase.models.layouts._feed_forward import FeedForward, told_by_place
from rmtbase.models.layouts._layouts import OUTSIDE_COMPONENTS
from rmtbase.models.layouts._sites import Inventory, MatrixName, Part, Place, Site, nested_settings
from rmtbase.shown import quoted

_OUTPUT = "o_proj"
_FUSED = ("query", "key", "value")
_EMBEDDINGS: Mapping[str, tuple[str, ...]] = {
    "embedding": (
        *("embed_tokens", "wte", "word_embeddings", "word_embedding", "embed_in", "tok_embeddings", "tokens_embed"),
        *("token_embedding", "embed", "shared", "embeddings", "input_embeds_layer"),
    ),
    "position_embedding": (
        *("wpe", "position_embeddings", "position_embedding", "embed_positions", "positions_embed"),
        "position_embeds_layer",
    ),
    "unembedding": ("lm_head", "head", "embed_out", "output", "proj_out", "decoder"),
}  # last part of a module's name, for each component
_TOKENS = ("vocab_size", "encoder_vocab_size", "decoder_vocab_size", "src_vocab_size", "tgt_vocab_size")
_POSITIONS = (
    *("max_position_embeddings", "n_positions", "n_ctx", "max_source_positions", "max_target_positions"),
    "max_sequence_length",
)
_WIDTHS = ("hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim", "d_embed")
_BEFORE_THE_FIRST = (0, 2)  # rows in front of the positions: two in OPT and BART
TIED = "unembedding: the embedding itself (tie_word_embeddings), scored as that"
UNSTORED = "unembedding: none is stored; it is the embedding, or the model has none"


def with_other_matrices(inventory: Inventory, checkpoint: Checkpoint, config: Mapping[str, Any]) -> Inventory:
    used = inventory.used_tensors()
    types = {value for _, key, value in nested_settings(config) if key == "model_type" and isinstance(value, str)}
    feed_forward = FeedForward(inventory.sites, checkpoint, config, used, frozenset(types))
    outputs: dict[Place, dict[str, Expression]] = {}  # W_O of sites that modify the values before it: there is no W_OV
    between: dict[str, list[Place]] = {}
    for site in inventory.sites:
        name = f"{site.module}.{_OUTPUT}.weight"
        if site.output is not None or site.d_value is None or name not in checkpoint:
            continue
        if checkpoint.shape(name) == (site.d_query, site.n_heads * site.d_value):
            outputs[site.place] = {"attention_output": Tensor(name)}
            gated = any("gate" in tensor for tensor in checkpoint.names if tensor.startswith(f"{site.module}."))
            (queries, *_), rows = site.query_key_tensors(), site.n_heads * site.d_head
            gated = gated or checkpoint.shape(queries)[0] > rows
            obstacle = "a gate" if gated else "more than the weights of attention"
            words = f"between the values and {_OUTPUT} stands {obstacle}: W_O is a matrix by itself, no head has a W_OV"
            between.setdefault(words, []).append(site.place)
    by_place: dict[Place, dict[str, Expression]] = {}
    for part in (outputs, feed_forward.layers, inventory.others):
        for place, matrices in part.items():
            by_place.setdefault(place, {}).update(matrices)
    return replace(
        inventory,
        others=by_place,
        notes=(*inventory.notes, *told_by_place(between), *feed_forward.notes),
        parts={
            "fused": find_fused(inventory.sites, checkpoint.shape),
            "embeddings": find_embeddings(inventory.sites, checkpoint, config),
            "experts": feed_forward.experts,
        },
    )


def find_fused(sites: Iterable[Site], shapes: Shapes) -> Part:
    """Find the tensors that hold the queries, keys and values of a site, or two of these, and nothing else."""
    fused: dict[MatrixName, Expression] = {}
    for site in sites:
        names_by_tensor: dict[Expression, list[str]] = {}
        rows: dict[Expression, list[int]] = {}
        for name in _FUSED:
            expression = getattr(site, name)
            if isinstance(expression, Rows) and isinstance(expression.of, Tensor):
                names_by_tensor.setdefault(expression.of, []).append(name)
                taken = (row for run in expression.runs for row in range(*run))
                rows.setdefault(expression.of, []).extend(taken)
        for tensor, names in names_by_tensor.items():
            if len(names) > 1 and sorted(rows[tensor]) == list(range(tensor.shape(shapes)[0])):
                fused[MatrixName(site.place, f"attention_{'_'.join(names)}")] = tensor
    return Part(fused)


def find_embeddings(sites: Sequence[Site], checkpoint: Checkpoint, config: Mapping[str, Any]) -> Part:
    """Find the matrices outside the layers; with several stacks, the name of a matrix tells which it belongs to."""
    sizes = [(key, value) for _, key, value in nested_settings(config) if type(value) is int]
    widths = {width for site in sites for width in (site.d_query, site.d_key)}
    widths |= {size for key, size in sizes if key in _WIDTHS}
    tokens = {size for key, size in sizes if key in _TOKENS}
    positions = {size + n_before for key, size in sizes if key in _POSITIONS for n_before in _BEFORE_THE_FIRST}
    rows = {"embedding": tokens, "position_embedding": positions, "unembedding": tokens}
    names_by_component: dict[str, list[str]] = defaultdict(list)
    notes: list[str] = []
    unread: list[str] = []
    for name in checkpoint.names:
        parts, shape = name.removesuffix(".weight").split("."), checkpoint.shape(name)
        if len(shape) != 2 or not name.endswith(".weight") or any(re.fullmatch(r"\d+", part) for part in parts):
            continue
        meaning = next((component_named for component_named, words in _EMBEDDINGS.items() if parts[-1] in words), None)
        if meaning is not None and shape[0] in rows[meaning] and shape[1] in widths:
            names_by_component[meaning].append(name)
        elif meaning is not None:
            expected = f"{_or(rows[meaning])} rows of {_or(widths)}, by the configuration"
            notes.append(f"not read: {name} {shape}: named like the {meaning}; expected {expected}")
            unread.append(name)
        elif shape[0] in tokens and shape[1] in widths:
            notes.append(f"not read: {name} {shape}: it has the size of an embedding, but an unknown name")
            unread.append(name)
    matrices: dict[MatrixName, Tensor] = {}
    stacks = {site.place.stack for site in sites}
    for component in OUTSIDE_COMPONENTS:
        names, by_stack = names_by_component[component], defaultdict[str, list[str]](list)
        for name in names:
            of_stacks = [stack for stack in stacks if stack in name.split(".")] if len(names) > 1 else []
            by_stack[of_stacks[0] if len(of_stacks) == 1 else ""].append(name)
        for stack, (first, *more) in by_stack.items():
            if more:
                notes.append(f"not read: {' and '.join((first, *more))}: expected one of them")
                unread += (first, *more)
            else:
                name = MatrixName(Place(stack, -1), component)
                matrices[name] = Tensor(first, transposed=component != "unembedding")
    if names_by_component["embedding"] and not names_by_component["unembedding"]:
        notes.append(TIED if config.get("tie_word_embeddings") is True else UNSTORED)
    return Part(matrices, tuple(notes), tuple(unread))


def _or(sizes: Collection[int]) -> str:
    return " or ".join(map(str, sorted(sizes))) or "unknown"


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
_TIMES_EMBEDDINGS, _ADDED = "multiplies the embeddings", "multiplies what a layer adds to the residual stream"
_LOGITS, _CUT = "multiplies the logits of tokens", "where queries, keys and values are cut off"
_FAR_POSITIONS = "queries at far positions are multiplied by a factor that grows with the position"
_BESIDE_MATRICES = {
    "attention_in_multiplier": "multiplies the input of queries, keys and values",
    "attention_out_multiplier": "multiplies the output of attention",
    "attention_value_scale": "multiplies values",
    "attn_logit_softcapping": "where q·k is capped",
    "clip_qkv": _CUT,
    **dict.fromkeys(("attn_scale", "llama_4_scaling_beta", "log_scaling_alpha"), _FAR_POSITIONS),
    **dict.fromkeys(("embedding_multiplier", "embedding_scale", "scale_emb"), _TIMES_EMBEDDINGS),
    **dict.fromkeys(("scale_embedding", "rescale_embeddings", "mup_enabled"), f"√d {_TIMES_EMBEDDINGS}"),
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
