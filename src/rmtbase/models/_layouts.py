"""Where each architecture keeps its weight matrices, and the few ways in which queries, keys and values share a tensor.

Tensor names are those of the ``transformers`` classes. What stands in front of the layer's name (``model.``,
``transformer.``, nothing at all) differs between checkpoints of one architecture and is found from the names
present.

Each function of ``KINDS`` takes the stored tensor in the orientation of ``torch.nn.Linear`` (rows are outputs) and
gives the rows of one part, head after head: part 0 is the queries, 1 the keys, 2 the values. ``rows`` holds the number
of rows of each part. A wrong choice here often has the right shape and is silently wrong, so each architecture is
proved against the queries and keys that its own module computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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
)
"""The weight matrices of a layer, by one name for every architecture."""

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


@dataclass(frozen=True)
class Stored:
    """Where one component lies within a layer.

    Attributes:
        tensor: the tensor's name within the layer, without ``.weight``.
        kind: how query, key and value share it, a name of ``KINDS``.
        transposed: stored as (inputs, outputs), as ``transformers``' Conv1D does, not as torch.nn.Linear's
            (outputs, inputs).
    """

    tensor: str
    kind: str = "separate"
    transposed: bool = False


@dataclass(frozen=True)
class ConfigKeys:
    """The keys of config.json that hold each dimension, the first one present counting.

    An absent ``n_key_heads`` means one key head per query head; an absent ``d_head`` means d_model / n_heads;
    an absent ``d_mlp`` means ``d_mlp_over_d_model`` times d_model, where that is given.
    """

    n_layers: tuple[str, ...] = ("num_hidden_layers",)
    n_heads: tuple[str, ...] = ("num_attention_heads",)
    n_key_heads: tuple[str, ...] = ()
    d_model: tuple[str, ...] = ("hidden_size",)
    d_head: tuple[str, ...] = ()
    d_mlp: tuple[str, ...] = ("intermediate_size",)
    d_mlp_over_d_model: int | None = None


@dataclass(frozen=True)
class Layout:
    """One architecture.

    Attributes:
        class_prefix: what the model classes in the ``architectures`` of config.json begin with.
        layer: the layer's name, with a place for its index.
        components: component -> where it lies.
        config: the keys of its dimensions.
        query_key_norms: names within the layer of norms applied to queries and keys.
        rotary: whether positions enter by rotating queries and keys.
        rotary_frequencies: the tensor within the layer in which older checkpoints keep the frequencies.
        rotary_fraction: the part of a head's dimensions that is rotated where the configuration does not say, or
            None where all are, whatever it says.
    """

    class_prefix: str
    layer: str
    components: Mapping[str, Stored]
    config: ConfigKeys = field(default_factory=ConfigKeys)
    query_key_norms: tuple[str, ...] = ()
    rotary: bool = False
    rotary_frequencies: str | None = None
    rotary_fraction: float | None = None


def _llama_like(class_prefix: str, query_key_norms: tuple[str, ...] = ()) -> Layout:
    return Layout(
        class_prefix=class_prefix,
        layer="layers.{}.",
        components={
            "attention_query": Stored("self_attn.q_proj"),
            "attention_key": Stored("self_attn.k_proj"),
            "attention_value": Stored("self_attn.v_proj"),
            "attention_output": Stored("self_attn.o_proj"),
            "mlp_in": Stored("mlp.up_proj"),
            "mlp_gate": Stored("mlp.gate_proj"),
            "mlp_out": Stored("mlp.down_proj"),
        },
        config=ConfigKeys(n_key_heads=("num_key_value_heads",), d_head=("head_dim",)),
        query_key_norms=query_key_norms,
        rotary=True,
        rotary_frequencies="self_attn.rotary_emb.inv_freq",
    )


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        "bert": Layout(
            class_prefix="Bert",
            layer="encoder.layer.{}.",
            components={
                "attention_query": Stored("attention.self.query"),
                "attention_key": Stored("attention.self.key"),
                "attention_value": Stored("attention.self.value"),
                "attention_output": Stored("attention.output.dense"),
                "mlp_in": Stored("intermediate.dense"),
                "mlp_out": Stored("output.dense"),
            },
        ),
        "gpt2": Layout(
            class_prefix="GPT2",
            layer="h.{}.",
            components={
                "attention_query": Stored("attn.c_attn", "concatenated", transposed=True),
                "attention_key": Stored("attn.c_attn", "concatenated", transposed=True),
                "attention_value": Stored("attn.c_attn", "concatenated", transposed=True),
                "attention_output": Stored("attn.c_proj", transposed=True),
                "mlp_in": Stored("mlp.c_fc", transposed=True),
                "mlp_out": Stored("mlp.c_proj", transposed=True),
            },
            config=ConfigKeys(
                n_layers=("n_layer", "num_hidden_layers"),
                n_heads=("n_head", "num_attention_heads"),
                d_model=("n_embd", "hidden_size"),
                d_mlp=("n_inner",),
                d_mlp_over_d_model=4,
            ),
        ),
        "gpt_neox": Layout(
            class_prefix="GPTNeoX",
            layer="layers.{}.",
            components={
                "attention_query": Stored("attention.query_key_value", "interleaved"),
                "attention_key": Stored("attention.query_key_value", "interleaved"),
                "attention_value": Stored("attention.query_key_value", "interleaved"),
                "attention_output": Stored("attention.dense"),
                "mlp_in": Stored("mlp.dense_h_to_4h"),
                "mlp_out": Stored("mlp.dense_4h_to_h"),
            },
            rotary=True,
            rotary_frequencies="attention.rotary_emb.inv_freq",
            rotary_fraction=0.25,
        ),
        "llama": _llama_like("Llama"),
        "mistral": _llama_like("Mistral"),
        "qwen2": _llama_like("Qwen2"),
        "qwen3": _llama_like("Qwen3", query_key_norms=("self_attn.q_norm", "self_attn.k_norm")),
    }
)
"""Layout by the ``model_type`` of config.json."""
