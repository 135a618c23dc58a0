"""Names of the weight matrices in a layer, and the layouts in which queries, keys and values share a tensor."""

from __future__ import annotations

from typing import Any

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer, require_real_array

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
"""Weight matrices of a layer, with the same names for every architecture. Each expert of a mixture also has those of
``EXPERT_COMPONENTS``."""

EXPERT_COMPONENTS = ("expert_in", "expert_gate", "expert_out")
"""Weight matrices of one expert: y = W_out (act(W_gate x) ∘ W_in x), or y = W_out act(W_in x) without a gate."""

OUTSIDE_COMPONENTS = ("embedding", "position_embedding", "unembedding")
"""Weight matrices outside the layers: W_E (d_model, vocabulary) and W_pos (d_model, positions), whose columns are added
to the residual stream by a token or a position, and W_U (vocabulary, d_model), which gives the logits."""

FUSED_COMPONENTS = ("attention_query_key_value", "attention_query_key", "attention_key_value")
"""Queries, keys and values of a layer, or two of these, in one stored tensor; their rows are also in the separate
components."""

ATTENTION_PARTS = COMPONENTS[:3]


def split_qkv(
    weight: Any, n_heads: int, kind: str, *, n_key_heads: int | None = None, transposed: bool = False
) -> tuple[Any, Any, Any]:
    """Split a fused weight into W_Q, W_K and W_V of each head, in the form that :func:`rmtbase.score_heads` takes.

    A wrong ``kind`` gives arrays of the right shapes and is silently wrong: each of its heads mixes several heads. The
    forward pass of a model, with ``qkv = linear(x)``, shows which kind is right:

    * ``"concatenated"``: all queries, then all keys, then all values. ``qkv.split(...)`` or ``qkv.chunk(3, dim=-1)``
      comes before the view as heads. Examples: GPT-2 and its Conv1D (``transposed=True``), nanoGPT, the
      ``in_proj_weight`` of ``torch.nn.MultiheadAttention``, Phi-3 (with ``n_key_heads``).
    * ``"interleaved"``: rows run over (key head, its query heads followed by its key and its value, d_head). The view
      as heads comes first: ``qkv.view(..., n_heads, 3 * d_head)``, then ``chunk(3, dim=-1)``. Examples: GPT-NeoX
      (Pythia), BLOOM, Falcon (with ``n_key_heads``).

    To be sure, compare ``x @ q[i].T`` with the queries of head i in the forward pass, before any rotation.

    Args:
        weight: (outputs, inputs) as ``torch.nn.Linear`` stores it: ((n_heads + 2 n_key_heads) · d_head, d_model).
        n_heads: number of query heads.
        kind: ``"concatenated"`` or ``"interleaved"``.
        n_key_heads: number of key heads, equal to that of value heads; ``n_heads`` if None.
        transposed: whether the weight is stored as (inputs, outputs).

    Returns:
        (q, k, v) of shapes (n_heads, d_head, d_model) for q and (n_key_heads, d_head, d_model) for k and v, with
        q = W_Q x; arrays of the same library as ``weight``: NumPy, torch or JAX.

    Raises:
        ParameterError: the kind is unknown, the key heads do not divide the heads, or the weight has another shape.
    """
    if kind not in ("concatenated", "interleaved"):
        raise ParameterError("kind", kind, "'concatenated' or 'interleaved'")
    heads = require_positive_integer("n_heads", n_heads)
    key_heads = heads if n_key_heads is None else require_positive_integer("n_key_heads", n_key_heads)
    if heads % key_heads:
        raise ParameterError("n_key_heads", key_heads, f"a divisor of the {heads} heads")
    array = weight if hasattr(weight, "reshape") else require_real_array("weight", weight)
    shape, parts = tuple(array.shape), heads + 2 * key_heads
    if len(shape) != 2 or 0 in shape:
        raise ParameterError("weight", shape, "a matrix (outputs, inputs)")
    linear = array.T if transposed else array
    rows, d_model = linear.shape
    if rows % parts or rows // parts > d_model:
        advice = "" if d_model % parts or d_model // parts > rows else f"; transposed={not transposed} would fit"
        expected = (
            f"{parts} · d_head {'columns' if transposed else 'rows'} for {heads} heads on {key_heads} key heads, with "
            f"d_head ≤ d_model{advice}"
        )
        raise ParameterError("weight", shape, expected)
    d_head = rows // parts
    if kind == "concatenated":
        blocks = linear.reshape(parts, d_head, d_model)
        q, k, v = blocks[:heads], blocks[heads : heads + key_heads], blocks[heads + key_heads :]
    else:
        group = heads // key_heads
        blocks = linear.reshape(key_heads, group + 2, d_head, d_model)
        q, k, v = blocks[:, :group], blocks[:, group], blocks[:, group + 1]
    return q.reshape(-1, d_head, d_model), k, v
