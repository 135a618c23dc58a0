"""Models in GGUF files: translation of llama.cpp's names, order of rows and metadata to those of transformers.

llama.cpp permutes the rows of W_Q and W_K of a Llama within each head, in the same way for both, so that dimensions
that are rotated together are adjacent. W_QK does not depend on this permutation, which is undone here. llama.cpp also
stores the matrices of GPT-2 as (outputs, inputs); they are transposed back to (inputs, outputs).
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from rmtbase.errors import CheckpointError
from rmtbase.models.files._checkpoint import Checkpoint
from rmtbase.models.files._tensor_file import CheckpointTensor, DerivedTensor, StoredTensor, TensorEntry
from rmtbase.models.formats._gguf import GgufFile
from rmtbase.shown import quoted, shown

_SUFFIX = ".gguf"
_MOST_FILES = 10_000  # names in a folder that are searched
_LISTED = 4
_EMBEDDING = "token_embd.weight"
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
_WHOLE = ("F64", "F32", "F16", "BF16")


@dataclass(frozen=True)
class _Family:
    """Translation of one architecture of llama.cpp to transformers."""

    model_type: str  # its name in transformers
    layer: str  # beginning of the names of a layer's tensors in transformers
    names: Mapping[str, str]  # names in transformers of the modules in a layer, without ``.weight`` and ``.bias``
    outside: Mapping[str, str]  # names in transformers of the modules outside the layers
    sizes: Mapping[str, str]  # keys of config.json for ``embedding_length`` and so on
    permuted: tuple[str, ...] = ()  # modules whose rows are permuted within heads
    turned: tuple[str, ...] = ()  # modules stored as (outputs, inputs) in GGUF and as (inputs, outputs) in transformers


_LLAMA_OUTSIDE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_BERT_OUTSIDE = {
    "token_embd": "embeddings.word_embeddings",
    "position_embd": "embeddings.position_embeddings",
    "token_types": "embeddings.token_type_embeddings",
    "token_embd_norm": "embeddings.LayerNorm",
}
_GPT2_OUTSIDE = {"token_embd": "wte", "position_embd": "wpe", "output_norm": "ln_f", "output": "lm_head"}
_SIZES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "context_length": "max_position_embeddings",
}
_LLAMA_SIZES = _SIZES | {"attention.head_count_kv": "num_key_value_heads", "attention.key_length": "head_dim"}
_LLAMA_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BERT_NAMES = {
    "attn_q": "attention.self.query",
    "attn_k": "attention.self.key",
    "attn_v": "attention.self.value",
    "attn_output": "attention.output.dense",
    "attn_output_norm": "attention.output.LayerNorm",
    "ffn_up": "intermediate.dense",
    "ffn_down": "output.dense",
    "layer_output_norm": "output.LayerNorm",
}
_GPT2_NAMES = {
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "attn_norm": "ln_1",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
_GPT2_SIZES = {
    "block_count": "n_layer",
    "embedding_length": "n_embd",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "context_length": "n_positions",
}
_HEADS = {"attn_q": "attention.head_count", "attn_k": "attention.head_count_kv"}
_FAMILIES = {
    "llama": _Family("llama", "model.layers.", _LLAMA_NAMES, _LLAMA_OUTSIDE, _LLAMA_SIZES, tuple(_HEADS)),
    "qwen2": _Family("qwen2", "model.layers.", _LLAMA_NAMES, _LLAMA_OUTSIDE, _LLAMA_SIZES),
    "qwen3": _Family("qwen3", "model.layers.", _LLAMA_NAMES, _LLAMA_OUTSIDE, _LLAMA_SIZES),
    "bert": _Family("bert", "encoder.layer.", _BERT_NAMES, _BERT_OUTSIDE, _SIZES),
    "gpt2": _Family(
        "gpt2", "h.", _GPT2_NAMES, _GPT2_OUTSIDE, _GPT2_SIZES, turned=("attn_qkv", "attn_output", "ffn_up", "ffn_down")
    ),
}


def find_gguf(path: Path) -> Path | None:
    """Return the GGUF file at a path, or in a folder without other weights; None if there is none."""
    if not path.is_dir():
        return path if path.suffix.lower() == _SUFFIX and os.path.lexists(path) else None
    try:
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in islice(entries, _MOST_FILES))
    except OSError as error:
        raise CheckpointError(path, f"cannot be read: {error.strerror}") from error
    gguf_files = [name for name in names if name.lower().endswith(_SUFFIX)]
    if not gguf_files or any(name.endswith((".safetensors", ".bin", ".index.json")) for name in names):
        return None
    if len(gguf_files) > 1:
        listed = ", ".join(shown(name, 60) for name in gguf_files[:_LISTED])
        listed += ", …" if len(gguf_files) > _LISTED else ""
        raise CheckpointError(path, f"holds {len(gguf_files)} GGUF files: {listed}; pass the path of one of them")
    return path / gguf_files[0]


def open_gguf(path: Path) -> tuple[dict[str, Any], Checkpoint]:
    """Open a GGUF file as a configuration and a checkpoint with the names of transformers."""
    file = GgufFile.open(path)
    architecture = file.metadata.get("general.architecture")
    kind = file.metadata.get("general.type", "model")
    if kind != "model":
        raise CheckpointError(path, f"a GGUF file of {quoted(kind)}; expected one of a model")
    parts = file.metadata.get("split.count", 1)
    if parts not in (0, 1):
        problem = f"one of {shown(parts)} parts of a GGUF file; expected one whole file: join them (gguf-split --merge)"
        raise CheckpointError(path, problem)
    family = _FAMILIES.get(architecture) if isinstance(architecture, str) else None
    if family is None:
        described = f"a GGUF file of the architecture {quoted(architecture)}; expected {', '.join(_FAMILIES)}"
        raise CheckpointError(path, f"{described}, or the checkpoint that it was made from")
    sizes = {key: file.metadata.get(f"{architecture}.{name}") for name, key in family.sizes.items()}
    config = {"model_type": family.model_type} | {key: value for key, value in sizes.items() if value is not None}
    if _EMBEDDING in file.entries:  # the vocabulary in the metadata is a long list, which is not kept
        config["vocab_size"] = file.entries[_EMBEDDING].shape[0]
        if "output" in family.outside and "output.weight" not in file.entries:  # llama.cpp then uses the embedding
            config["tie_word_embeddings"] = True
    tensors = {}
    for stored in file.entries:
        name, tensor = _translated(file, stored, family, str(architecture))
        if name in tensors:
            raise CheckpointError(path, f"tensor {quoted(stored)} beside another that is {quoted(name)}; expected one")
        tensors[name] = tensor
    return config, Checkpoint(path.parent, path, MappingProxyType(tensors), _notes(file))


def _translated(file: GgufFile, stored: str, family: _Family, architecture: str) -> tuple[str, CheckpointTensor]:
    """Return a tensor with its name and order of rows in transformers; an unknown tensor keeps its own name."""
    tensor = StoredTensor(file, stored)
    match = _BLOCK.fullmatch(stored)
    if match is None:
        outside, _, ending = stored.rpartition(".")
        return (f"{family.outside[outside]}.{ending}" if outside in family.outside else stored), tensor
    layer, name, ending = match.groups()
    if name not in family.names:
        if name.startswith("attn"):
            raise CheckpointError(
                file.path,
                f"tensor {quoted(stored)} is not part of the attention of a {architecture} model, and may change its "
                "queries and keys; expected plain attention, or pass the effective matrices to rmtbase.score_heads",
            )
        return f"{family.layer}{layer}.{name}.{ending}", tensor
    renamed = f"{family.layer}{layer}.{family.names[name]}.{ending}"
    if name in family.turned and ending == "weight" and len(tensor.entry.shape) == 2:
        return renamed, _rearranged(tensor, tensor.entry.shape[::-1], np.transpose)
    if name not in family.permuted:
        return renamed, tensor
    keys = (_HEADS[name], _HEADS["attn_q"])  # by default there are as many key heads as heads
    heads = next((value for key in keys if (value := file.metadata.get(f"{architecture}.{key}")) is not None), None)
    rows = tensor.entry.shape[0]
    if type(heads) is not int or heads < 1 or rows % (2 * heads):
        problem = f"tensor {quoted(stored)} has {rows} rows"
        raise CheckpointError(file.path, f"{problem}; expected an even number for each of {quoted(heads)} heads")

    def unpermuted(values: np.ndarray) -> np.ndarray:
        pairs = values.reshape(heads, rows // heads // 2, 2, -1)
        return pairs.swapaxes(1, 2).reshape(values.shape)

    return renamed, _rearranged(tensor, tensor.entry.shape, unpermuted)


def _rearranged(
    tensor: StoredTensor, shape: tuple[int, ...], arrange: Callable[[np.ndarray], np.ndarray]
) -> DerivedTensor:
    return DerivedTensor(TensorEntry(tensor.entry.dtype, shape), (tensor,), lambda *_: arrange(tensor.array()))


def _notes(file: GgufFile) -> tuple[str, ...]:
    types = sorted({file.types[name] for name, entry in file.entries.items() if len(entry.shape) > 1} - set(_WHOLE))
    note = f"quantised in a GGUF file ({', '.join(types)}): dequantised, and W_QK carries the rounding of its factors"
    return (note,) if types else ()
