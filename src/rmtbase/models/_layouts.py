"""The weight matrices of a layer by name, and the few ways in which queries, keys and values share a tensor.

Each function of ``KINDS`` takes the stored tensor in the orientation of ``torch.nn.Linear`` (rows are outputs) and
gives the rows of one part, head after head: part 0 is the queries, 1 the keys, 2 the values. ``rows`` holds the number
of rows of each part. A wrong choice here often has the right shape and is silently wrong, so each architecture is
proved against the queries and keys that its own module computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float

COMPONENTS = (
    "attention_query",
    "attention_key",
    "attention_value",
    "attention_output",
    "mlp_in",
    "mlp_gate",
    "mlp_out",
    "router",
    "shared_expert_in",
    "shared_expert_gate",
    "shared_expert_out",
)
"""The weight matrices of a layer, by one name for every architecture; each expert of a mixture has those of
``EXPERT_COMPONENTS`` besides."""

EXPERT_COMPONENTS = ("expert_in", "expert_gate", "expert_out")
"""The weight matrices of one expert: y = W_out (act(W_gate x) ∘ W_in x), or y = W_out act(W_in x) without a gate."""

OUTSIDE_COMPONENTS = ("embedding", "position_embedding", "unembedding")
"""The weight matrices outside the layers: W_E (d_model, vocabulary), W_pos (d_model, positions), whose columns are what
a token or a position puts into the residual stream, and W_U (vocabulary, d_model), which gives the logits."""

FUSED_COMPONENTS = ("attention_query_key_value", "attention_query_key", "attention_key_value")
"""Queries, keys and values of a layer, or two of these, that are one stored tensor: the rows of others once more."""

ATTENTION_PARTS = COMPONENTS[:3]


def separate(
    stored: Float[np.ndarray, "stored d_model"], part: int, rows: tuple[int, ...], d_head: int
) -> Float[np.ndarray, "row d_model"]:
    """The tensor holds one part and nothing else."""
    return stored


def concatenated(
    stored: Float[np.ndarray, "stored d_model"], part: int, rows: tuple[int, ...], d_head: int
) -> Float[np.ndarray, "row d_model"]:
    """All queries, then all keys, then all values: GPT-2."""
    start = sum(rows[:part])
    return stored[start : start + rows[part]]


def interleaved(
    stored: Float[np.ndarray, "stored d_model"], part: int, rows: tuple[int, ...], d_head: int
) -> Float[np.ndarray, "row d_model"]:
    """Rows run over (key head, its query heads and then its key and its value, d_head).

    With as many key heads as heads over (head, part, d_head): the three parts of the first head come first. GPT-NeoX.
    """
    d_model, group = stored.shape[-1], rows[0] // rows[1]
    heads = slice(group) if part == 0 else slice(group + part - 1, group + part)
    return stored.reshape(-1, group + 2, d_head, d_model)[:, heads].reshape(-1, d_model)


KINDS: Mapping[str, Callable[[np.ndarray, int, tuple[int, ...], int], np.ndarray]] = MappingProxyType(
    {"separate": separate, "concatenated": concatenated, "interleaved": interleaved}
)
"""Layout kind by name."""
