"""Checkpoints under Llama's names, for the benchmarks to score: a configuration, and weights of N(0, σ²)."""

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np

SIGMA = 0.02


@dataclass(frozen=True)
class Stack:
    """An attention stack."""

    n_layers: int
    n_heads: int
    n_key_heads: int
    d_model: int
    d_head: int
    layers_per_shard: int = 8

    @property
    def heads(self) -> int:
        """Heads of the whole stack."""
        return self.n_layers * self.n_heads

    def tensors(self, layer: int) -> dict[str, tuple[int, int]]:
        """Names and shapes of a layer's tensors: queries, then keys."""
        name = f"model.layers.{layer}.self_attn.{{}}_proj.weight"
        return {
            name.format("q"): (self.n_heads * self.d_head, self.d_model),
            name.format("k"): (self.n_key_heads * self.d_head, self.d_model),
        }


def write_config(stack: Stack, folder: Path, dtype: str, **more: object) -> None:
    """Write the configuration of a stack, with what a benchmark adds."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": stack.n_layers,
        "num_attention_heads": stack.n_heads,
        "num_key_value_heads": stack.n_key_heads,
        "hidden_size": stack.d_model,
        "head_dim": stack.d_head,
        "torch_dtype": dtype,
    }
    (folder / "config.json").write_text(json.dumps(config | more))


def write_stack(stack: Stack, folder: Path) -> int:
    """Write the checkpoint, a tensor at a time; returns its size in bytes."""
    rng = np.random.default_rng(0)
    write_config(stack, folder, "bfloat16")
    starts = range(0, stack.n_layers, stack.layers_per_shard)
    shards = [range(stack.n_layers)[start : start + stack.layers_per_shard] for start in starts]
    weight_map: dict[str, str] = {}
    size = 0
    for number, layers in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        tensors = {tensor: shape for layer in layers for tensor, shape in stack.tensors(layer).items()}
        size += write_safetensors(folder / name, tensors, rng)
        weight_map |= dict.fromkeys(tensors, name)
    index = {"metadata": {"total_size": size}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return size


def write_safetensors(path: Path, tensors: Mapping[str, tuple[int, int]], rng: np.random.Generator) -> int:
    """Write N(0, σ²) tensors in bfloat16: the header's length, the header, the numbers."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin, end = end, end + 2 * shape[0] * shape[1]
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for shape in tensors.values():
            weights = np.float32(SIGMA) * rng.standard_normal(shape, dtype=np.float32)
            file.write(weights.astype(ml_dtypes.bfloat16).view(np.uint16).tobytes())
    return end
