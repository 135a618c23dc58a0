"""A tiny checkpoint of which two heads were given a direction, one is all zeros, and the rest is random."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

LAYERS, HEADS, KEY_HEADS, D_HEAD, D_MODEL = 3, 4, 2, 8, 32
PLANTED = ((1, 0), (2, 1))
ZERO = (0, 3)


def write_checkpoint(folder: Path, learned: bool) -> Path:
    rng = np.random.default_rng(20240611)
    tensors = {"model.embed_tokens.weight": 0.02 * rng.standard_normal((64, D_MODEL))}
    for layer in range(LAYERS):
        q = 0.02 * rng.standard_normal((HEADS, D_HEAD, D_MODEL))
        k = 0.02 * rng.standard_normal((KEY_HEADS, D_HEAD, D_MODEL))
        for planted_layer, head in PLANTED if learned else ():
            if planted_layer == layer:
                q[head] += 0.3 * np.outer(rng.standard_normal(D_HEAD), rng.standard_normal(D_MODEL))
        if learned and layer == ZERO[0]:
            q[ZERO[1]] = 0.0
        prefix = f"model.layers.{layer}"
        tensors[f"{prefix}.self_attn.q_proj.weight"] = q.reshape(-1, D_MODEL)
        tensors[f"{prefix}.self_attn.k_proj.weight"] = k.reshape(-1, D_MODEL)
        for name, shape in {
            "self_attn.v_proj": (KEY_HEADS * D_HEAD, D_MODEL),
            "self_attn.o_proj": (D_MODEL, HEADS * D_HEAD),
            "mlp.gate_proj": (48, D_MODEL),
            "mlp.up_proj": (48, D_MODEL),
            "mlp.down_proj": (D_MODEL, 48),
        }.items():
            tensors[f"{prefix}.{name}.weight"] = 0.02 * rng.standard_normal(shape)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{norm}.weight"] = np.ones(D_MODEL)
    tensors["model.norm.weight"] = np.ones(D_MODEL)
    folder.mkdir(parents=True)
    save_file({name: tensor.astype(np.float32) for name, tensor in tensors.items()}, folder / "model.safetensors")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": D_MODEL,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_HEADS,
        "num_hidden_layers": LAYERS,
        "head_dim": D_HEAD,
        "intermediate_size": 48,
        "vocab_size": 64,
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder
