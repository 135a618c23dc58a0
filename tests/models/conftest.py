"""Tiny checkpoints: of every architecture by transformers, and by hand for the ways to break one."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

D_MODEL, N_LAYERS, N_HEADS, N_KEY_HEADS, D_HEAD = 12, 2, 4, 2, 3


@dataclass
class Parts:
    """What a checkpoint consists of, to be changed before it is written."""

    config: dict = field(default_factory=dict)
    tensors: dict = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        save_file(self.tensors, folder / "model.safetensors")
        return folder

    def write_sharded(self, folder: Path) -> Path:
        """One shard per tensor."""
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config))
        shards = {name: f"model-{i:05d}.safetensors" for i, name in enumerate(self.tensors)}
        for name, shard in shards.items():
            save_file({name: self.tensors[name]}, folder / shard)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
        return folder


@pytest.fixture
def parts() -> Parts:
    """A Llama with two layers, queries and keys only."""
    rng = np.random.default_rng(20)
    tensors = {}
    for layer in range(N_LAYERS):
        for name, heads in (("q_proj", N_HEADS), ("k_proj", N_KEY_HEADS)):
            weight = rng.standard_normal((heads * D_HEAD, D_MODEL), np.float32)
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = weight
    config = {
        "model_type": "llama",
        "hidden_size": D_MODEL,
        "num_hidden_layers": N_LAYERS,
        "num_attention_heads": N_HEADS,
        "num_key_value_heads": N_KEY_HEADS,
    }
    return Parts(config, tensors)


def stored_of(module):
    """The shapes of a module's parameters by name, and a function that reads one in float64."""
    parameters = dict(module.named_parameters())
    shapes = {name: tuple(parameter.shape) for name, parameter in parameters.items()}
    return shapes, lambda name: parameters[name].detach().double().cpu().numpy()
