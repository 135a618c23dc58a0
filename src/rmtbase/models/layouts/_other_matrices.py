"""Matrices of a model outside its heads: MLPs and routers, fused tensors, embeddings.

Tensors outside the layers are embeddings by a common name and the sizes in the configuration; others are only noted.
They are stored with a row for each token: W_E and W_pos are the transposes, W_U is the stored matrix.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._expressions import Expression, Rows, Shapes, Tensor
from rmtbase.models.layouts._feed_forward import FeedForward, told_by_place
from rmtbase.models.layouts._layouts import OUTSIDE_COMPONENTS
from rmtbase.models.layouts._sites import Inventory, MatrixName, Part, Place, Site, nested_settings

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
