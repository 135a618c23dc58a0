"""Embeddings, learned position embeddings and unembedding: the matrices outside the layers, by names and shapes.

A tensor of two axes outside the layers is one of them if it has one of the names that the field has for it and the
sizes that the configuration gives: as many rows as the vocabulary has tokens, or the model positions, and as many
columns as the residual stream is wide, or as the configuration's own word for embeddings says. All else that has such a
name, or the size of the vocabulary, is told in a note and not read. Embeddings are stored a row for each token: W_E and
W_pos are the transposes, (d_model, tokens); W_U is as it is stored, (tokens, d_model).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rmtbase.models._checkpoint import Checkpoint
from rmtbase.models._expressions import Tensor
from rmtbase.models._layouts import OUTSIDE_COMPONENTS
from rmtbase.models._sites import MatrixName, Part, Place, Site

_NAMES: Mapping[str, tuple[str, ...]] = {
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
"""The last part of a module's name, by what its weight is."""
_TOKENS = ("vocab_size", "encoder_vocab_size", "decoder_vocab_size", "src_vocab_size", "tgt_vocab_size")
_POSITIONS = (
    *("max_position_embeddings", "n_positions", "n_ctx", "max_source_positions", "max_target_positions"),
    "max_sequence_length",
)
_WIDTHS = ("hidden_size", "n_embd", "d_model", "embedding_size", "word_embed_proj_dim", "d_embed")
_BEFORE_THE_FIRST = (0, 2)  # rows that stand in front of the positions, of OPT and BART two
TIED = "unembedding: the embedding itself (tie_word_embeddings), scored as that"
UNSTORED = "unembedding: none is stored; it is the embedding, or the model has none"


def find_embeddings(sites: Sequence[Site], checkpoint: Checkpoint, config: Mapping[str, Any]) -> Part:
    """The matrices outside the layers; of a model with several stacks those of one that its name says are its own."""
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
        meaning = next((one for one, words in _NAMES.items() if parts[-1] in words), None)
        if meaning is not None and shape[0] in rows[meaning] and shape[1] in widths:
            found[meaning].append(name)
        elif meaning is not None:
            expected = f"{_or(rows[meaning])} rows of {_or(widths)}, by the configuration"
            notes.append(f"not read: {name} {shape}: called as the {meaning} is; expected {expected}")
        elif shape[0] in tokens and shape[1] in widths:
            notes.append(f"not read: {name} {shape}: as large as an embedding, under a name of no known meaning")
    matrices: dict[MatrixName, Tensor] = {}
    for component in OUTSIDE_COMPONENTS:
        for place, name in _placed(found[component], {site.place.stack for site in sites}, notes):
            matrices[MatrixName(place, component)] = Tensor(name, transposed=component != "unembedding")
    if found["embedding"] and not found["unembedding"]:
        notes.append(TIED if config.get("tie_word_embeddings") is True else UNSTORED)
    return Part(matrices, tuple(notes))


def _placed(names: Sequence[str], stacks: set[str], notes: list[str]) -> Iterator[tuple[Place, str]]:
    """Each tensor of one meaning with the stack whose it is: that of the model, where it is the only one."""
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
    """What the configuration gives under one of the words, and those of its parts."""
    for key, value in config.items():
        if isinstance(value, Mapping):
            yield from _sizes(value, words)
        elif key in words and type(value) is int:
            yield value
