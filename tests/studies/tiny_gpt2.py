"""A GPT-2 made on the spot, of the demo's head shape, whose null is known."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

D_MODEL, N_HEADS, N_LAYERS, TOKENS = 128, 8, 2, 64


def write_tiny_gpt2(folder: Path, seed: int = 0, layers: int = N_LAYERS) -> Path:
    """Write config.json and model.safetensors as the hub has GPT-2's: Conv1D, queries, keys and values in one."""
    rng, folder = np.random.default_rng(seed), Path(folder)
    folder.mkdir(parents=True)
    tensors = {"wte.weight": (TOKENS, D_MODEL), "wpe.weight": (32, D_MODEL)}
    for layer in range(layers):
        of_layer = {
            "attn.c_attn": (D_MODEL, 3 * D_MODEL),
            "attn.c_proj": (D_MODEL, D_MODEL),
            "mlp.c_fc": (D_MODEL, 4 * D_MODEL),
            "mlp.c_proj": (4 * D_MODEL, D_MODEL),
        }
        for name, shape in of_layer.items():
            tensors |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[1:]}
        for name in ("ln_1", "ln_2"):
            tensors |= {f"h.{layer}.{name}.{part}": (D_MODEL,) for part in ("weight", "bias")}
    tensors |= {"ln_f.weight": (D_MODEL,), "ln_f.bias": (D_MODEL,)}
    drawn = {name: 0.02 * rng.standard_normal(shape, dtype=np.float32) for name, shape in tensors.items()}
    save_file(drawn, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": D_MODEL, "n_head": N_HEADS,
        "n_layer": layers, "n_positions": 32, "n_ctx": 32, "vocab_size": TOKENS,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
