"""Queries, keys and values cut out of the one weight in which a model of one's own keeps them."""

from __future__ import annotations

from typing import Any

from rmtbase.errors import ParameterError
from rmtbase.models._layouts import ATTENTION_PARTS, KINDS
from rmtbase.parameters import require_flag, require_positive_integer, require_real_array

_FUSED = tuple(kind for kind in KINDS if kind != "separate")


def split_qkv(
    weight: Any, n_heads: int, kind: str, *, n_key_heads: int | None = None, transposed: bool = False
) -> tuple[Any, Any, Any]:
    """W_Q, W_K and W_V of each head from a fused weight, in the form that :func:`rmtbase.score_heads` takes.

    A wrong kind gives arrays of the right shapes and is silently wrong: the heads it makes are mixtures. Which one a
    model has is seen in its forward pass, with ``qkv = linear(x)``:

    * ``"concatenated"``: all queries, then all keys, then all values; ``qkv.split(...)`` or ``qkv.chunk(3, dim=-1)``
      comes first, then the view as heads. GPT-2 and its Conv1D (``transposed=True``), nanoGPT, the ``in_proj_weight``
      of ``torch.nn.MultiheadAttention``, Phi-3 (with ``n_key_heads``).
    * ``"interleaved"``: rows run over (key head, its query heads and then its key and its value, d_head); the view as
      heads comes first: ``qkv.view(..., n_heads, 3 * d_head)``, then ``chunk(3, dim=-1)``. GPT-NeoX (Pythia), BLOOM,
      Falcon (with ``n_key_heads``).

    To be sure, compare ``x @ q[i].T`` with the queries of head i that the forward pass makes, before any rotation.

    Args:
        weight: (outputs, inputs) as ``torch.nn.Linear`` stores it: ((n_heads + 2 n_key_heads) · d_head, d_model).
        n_heads: query heads.
        kind: ``"concatenated"`` or ``"interleaved"``.
        n_key_heads: key heads, which are as many as value heads; ``n_heads`` if None.
        transposed: whether it is stored as (inputs, outputs).

    Returns:
        (q, k, v) of shapes (n_heads, d_head, d_model) and twice (n_key_heads, d_head, d_model), so that q = W_Q x;
        arrays of the kind that was given: NumPy, torch or JAX.

    Raises:
        ParameterError: an unknown kind, key heads that do not divide the heads, or a weight of another shape.
    """
    if kind not in _FUSED:
        raise ParameterError("kind", kind, " or ".join(map(repr, _FUSED)))
    heads = require_positive_integer("n_heads", n_heads)
    key_heads = heads if n_key_heads is None else require_positive_integer("n_key_heads", n_key_heads)
    if heads % key_heads:
        raise ParameterError("n_key_heads", key_heads, f"a divisor of the {heads} heads")
    array = weight if hasattr(weight, "reshape") else require_real_array("weight", weight)
    shape, parts = tuple(array.shape), heads + 2 * key_heads
    if len(shape) != 2 or 0 in shape:
        raise ParameterError("weight", shape, "a matrix (outputs, inputs)")
    linear = array.T if require_flag("transposed", transposed) else array
    rows, d_model = linear.shape
    if rows % parts or rows // parts > d_model:
        other = "" if d_model % parts or d_model // parts > rows else f"; transposed={not transposed} would fit"
        raise ParameterError(
            "weight",
            shape,
            f"{parts} · d_head {'columns' if transposed else 'rows'} for {heads} heads on {key_heads} key heads, with "
            f"d_head ≤ d_model{other}",
        )
    d_head = rows // parts
    sizes = heads * d_head, key_heads * d_head, key_heads * d_head
    q, k, v = (KINDS[kind](linear, part, sizes, d_head) for part in range(len(ATTENTION_PARTS)))
    return tuple(one.reshape(-1, d_head, d_model) for one in (q, k, v))  # type: ignore[return-value]  # three of them
