"""Matrices of a model outside its heads: MLPs and routers, fused tensors, embeddings.

A tensor of two axes outside the layers is read as an embedding if it has a common name of embeddings and the sizes that
the configuration gives: as many rows as there are tokens or positions, and as many columns as the width of the residual
stream or of embeddings. Any other tensor with such a name, or with the size of the vocabulary, is mentioned in a note
and not read. Embeddings are stored with a row for each token: W_E and W_pos are the transposes, (d_model, tokens); W_U
is the stored matrix, (tokens, d_model).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.layouts._expressions import Expression, Rows, Shapes, Tensor
from rmtbase.models.layouts._feed_forward import find_feed_forward, told_by_place
from rmtbase.models.layouts._layouts import OUTSIDE_COMPONENTS
from rmtbase.models.layouts._sites import Inventory, MatrixName, Part, Place, Site

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
}
"""Last part of a module's name, for each component."""
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
    """Add to the inventory of a checkpoint the MLPs and routers that it lacks, and its further parts.

    Existing entries are kept. Only names and shapes are used.
    """
    used = {name for held in inventory.matrices.values() for one in held.values() for name in one.tensors()}
    found = find_feed_forward(inventory.sites, checkpoint, config, used, frozenset(_types(config)))
    outputs, notes = _outputs(inventory.sites, checkpoint)
    others: dict[Place, dict[str, Expression]] = {}
    for part in (outputs, found.layers, inventory.others):
        for place, matrices in part.items():
            others.setdefault(place, {}).update(matrices)
    return replace(
        inventory,
        others=others,
        notes=(*inventory.notes, *notes, *found.notes),
        parts={
            "fused": find_fused(inventory.sites, checkpoint.shape),
            "embeddings": find_embeddings(inventory.sites, checkpoint, config),
            "experts": found.experts,
        },
    )


def _outputs(
    sites: tuple[Site, ...], checkpoint: Checkpoint
) -> tuple[dict[Place, dict[str, Expression]], tuple[str, ...]]:
    """Find W_O of sites that modify the heads' values before it, so that there is a W_O but no W_OV.

    In most cases the values pass a gate, which has ``gate`` in its name or shares a tensor with the queries.
    """
    found: dict[Place, dict[str, Expression]] = {}
    between: dict[str, list[Place]] = {}
    for site in sites:
        name = f"{site.module}.{_OUTPUT}.weight"
        if site.output is not None or site.d_value is None or name not in checkpoint:
            continue
        if checkpoint.shape(name) == (site.d_query, site.n_heads * site.d_value):
            found[site.place] = {"attention_output": Tensor(name)}
            gated = any("gate" in one for one in checkpoint.names if one.startswith(f"{site.module}."))
            (queries, *_), rows = site.query_key_tensors(), site.n_heads * site.d_head
            what = "a gate" if gated or checkpoint.shape(queries)[0] > rows else "more than the weights of attention"
            words = f"between the values and {_OUTPUT} stands {what}: W_O is a matrix by itself, no head has a W_OV"
            between.setdefault(words, []).append(site.place)
    return found, tuple(told_by_place(between))


def _types(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the model types of a configuration and of its parts."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _types(value)
        elif key == "model_type" and isinstance(value, str):
            yield value


def find_fused(sites: Iterable[Site], shapes: Shapes) -> Part:
    """Find the tensors that hold the queries, keys and values of a site, or two of these, and nothing else.

    Their components are ``attention_query_key_value``, ``attention_query_key`` or ``attention_key_value``, according to
    their content. Each row must belong to exactly one of queries, keys and values; a tensor that holds more is omitted.
    """
    found: dict[MatrixName, Expression] = {}
    for site in sites:
        held: dict[Expression, list[str]] = {}
        rows: dict[Expression, list[int]] = {}
        for name in _FUSED:
            expression = getattr(site, name)
            if isinstance(expression, Rows) and isinstance(expression.of, Tensor):
                held.setdefault(expression.of, []).append(name)
                taken = (row for run in expression.runs for row in range(*run))
                rows.setdefault(expression.of, []).extend(taken)
        for tensor, names in held.items():
            if len(names) > 1 and sorted(rows[tensor]) == list(range(tensor.shape(shapes)[0])):
                found[MatrixName(site.place, f"attention_{'_'.join(names)}")] = tensor
    return Part(found)


def find_embeddings(sites: Sequence[Site], checkpoint: Checkpoint, config: Mapping[str, Any]) -> Part:
    """Find the matrices outside the layers; with several stacks, the name of a matrix tells which it belongs to."""
    widths = {site.d_query for site in sites} | {site.d_key for site in sites} | set(_sizes(config, _WIDTHS))
    tokens = set(_sizes(config, _TOKENS))
    positions = {size + more for size in _sizes(config, _POSITIONS) for more in _BEFORE_THE_FIRST}
    rows = {"embedding": tokens, "position_embedding": positions, "unembedding": tokens}
    found: dict[str, list[str]] = defaultdict(list)
    notes = []
    for name in checkpoint.names:
        parts, shape = name.removesuffix(".weight").split("."), checkpoint.shape(name)
        if len(shape) != 2 or not name.endswith(".weight") or any(re.fullmatch(r"\d+", part) for part in parts):
            continue
        meaning = next((one for one, words in _EMBEDDINGS.items() if parts[-1] in words), None)
        if meaning is not None and shape[0] in rows[meaning] and shape[1] in widths:
            found[meaning].append(name)
        elif meaning is not None:
            expected = f"{_or(rows[meaning])} rows of {_or(widths)}, by the configuration"
            notes.append(f"not read: {name} {shape}: named like the {meaning}; expected {expected}")
        elif shape[0] in tokens and shape[1] in widths:
            notes.append(f"not read: {name} {shape}: it has the size of an embedding, but an unknown name")
    matrices: dict[MatrixName, Tensor] = {}
    for component in OUTSIDE_COMPONENTS:
        for place, name in _placed(found[component], {site.place.stack for site in sites}, notes):
            matrices[MatrixName(place, component)] = Tensor(name, transposed=component != "unembedding")
    if found["embedding"] and not found["unembedding"]:
        notes.append(TIED if config.get("tie_word_embeddings") is True else UNSTORED)
    return Part(matrices, tuple(notes))


def _placed(names: Sequence[str], stacks: set[str], notes: list[str]) -> Iterator[tuple[Place, str]]:
    """Yield each tensor of one component with its stack, "" where it is the only such tensor."""
    of_stack: dict[str, list[str]] = defaultdict(list)
    for name in names:
        own = [stack for stack in stacks if stack in name.split(".")] if len(names) > 1 else []
        of_stack[own[0] if len(own) == 1 else ""].append(name)
    for stack, same in of_stack.items():
        if len(same) > 1:
            notes.append(f"not read: {' and '.join(same)}: expected one of them")
        else:
            yield Place(stack, -1), same[0]


def _or(sizes: Collection[int]) -> str:
    return " or ".join(map(str, sorted(sizes))) or "unknown"


def _sizes(config: Mapping[str, Any], words: Sequence[str]) -> Iterator[int]:
    """Yield the sizes that a configuration and its parts give under one of the keys ``words``."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _sizes(value, words)
        elif key in words and type(value) is int:
            yield value
