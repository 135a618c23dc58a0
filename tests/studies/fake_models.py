"""Small stand-ins for every model of the sources: its layout, random weights, heads of the demo's shape."""

import json
import zlib
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tiny_gpt2 import D_MODEL, N_HEADS, N_LAYERS, TOKENS, write_tiny_gpt2

D_HEAD, D_MLP, N_KEY_HEADS = D_MODEL // N_HEADS, 64, 2
LAYERS_OF_GPT2 = 8
"""Of GPT-2 itself, of which post 2 shows a head of layer 7."""
LLAMA_LIKE = {
    "meta-llama": "llama", "mistralai": "mistral", "allenai/OLMo-7B": "olmo", "allenai/OLMo-2": "olmo2",
    "Qwen/Qwen2.5": "qwen2", "Qwen/Qwen3": "qwen3",
}  # fmt: skip


def write_fake(folder: Path, hub_id: str, revision: str = "main") -> Path:
    """Write the stand-in of a model's revision; each has weights of its own."""
    seed = zlib.crc32(f"{hub_id}@{revision}".encode())
    if "gpt2" in hub_id:
        return write_untrained(folder, "gpt2", seed, LAYERS_OF_GPT2 if hub_id.endswith("/gpt2") else N_LAYERS)
    if "pythia" in hub_id:
        return write_untrained(folder, "gpt_neox", seed, N_LAYERS)
    kind = next(kind for name, kind in LLAMA_LIKE.items() if hub_id.startswith(name))
    return write_untrained(folder, kind, seed, N_LAYERS)


LAYOUTS = ("gpt2", "gpt_neox", *LLAMA_LIKE.values())
"""Types of the models of the sources."""


def write_untrained(folder: Path, kind: str, seed: int, layers: int) -> Path:
    """Write a model of a type whose weights are N(0, 0.02)."""
    if kind == "gpt2":
        return write_tiny_gpt2(folder, seed, layers=layers)
    return _write(folder, seed, *(_neox(layers) if kind == "gpt_neox" else _llama(kind, layers)))


def _write(folder: Path, seed: int, config: dict, shapes: dict[str, tuple[int, ...]]) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    drawn = {
        name: (np.ones if "norm.weight" in name else lambda shape: 0.02 * rng.standard_normal(shape))(shape)
        for name, shape in shapes.items()
    }
    save_file(
        {name: one.astype(np.float32) for name, one in drawn.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _neox(layers: int) -> tuple[dict, dict[str, tuple[int, ...]]]:
    config = {
        "model_type": "gpt_neox", "architectures": ["GPTNeoXForCausalLM"], "hidden_size": D_MODEL,
        "num_attention_heads": N_HEADS, "num_hidden_layers": layers, "intermediate_size": D_MLP, "vocab_size": TOKENS,
        "max_position_embeddings": 32, "rotary_pct": 0.25,
    }  # fmt: skip
    linear = {
        "attention.query_key_value": (3 * D_MODEL, D_MODEL), "attention.dense": (D_MODEL, D_MODEL),
        "mlp.dense_h_to_4h": (D_MLP, D_MODEL), "mlp.dense_4h_to_h": (D_MODEL, D_MLP),
    }  # fmt: skip
    shapes: dict[str, tuple[int, ...]] = {"gpt_neox.embed_in.weight": (TOKENS, D_MODEL)}
    for layer in range(layers):
        begin = f"gpt_neox.layers.{layer}"
        for name, shape in linear.items():
            shapes |= {f"{begin}.{name}.weight": shape, f"{begin}.{name}.bias": shape[:1]}
        for name in ("input_layernorm", "post_attention_layernorm"):
            shapes |= {f"{begin}.{name}.{part}": (D_MODEL,) for part in ("weight", "bias")}
    shapes |= {f"gpt_neox.final_layer_norm.{part}": (D_MODEL,) for part in ("weight", "bias")}
    return config, shapes | {"embed_out.weight": (TOKENS, D_MODEL)}


def _llama(kind: str, layers: int) -> tuple[dict, dict[str, tuple[int, ...]]]:
    classes = {"llama": "Llama", "mistral": "Mistral", "olmo": "Olmo", "olmo2": "Olmo2", "qwen2": "Qwen2"}
    config = {
        "model_type": kind, "architectures": [f"{classes.get(kind, 'Qwen3')}ForCausalLM"], "hidden_size": D_MODEL,
        "num_attention_heads": N_HEADS, "num_key_value_heads": N_KEY_HEADS, "num_hidden_layers": layers,
        "intermediate_size": D_MLP, "vocab_size": TOKENS, "max_position_embeddings": 32, "head_dim": D_HEAD,
        "tie_word_embeddings": False,
    }  # fmt: skip
    keys = N_KEY_HEADS * D_HEAD
    linear = {
        "self_attn.q_proj": (D_MODEL, D_MODEL), "self_attn.k_proj": (keys, D_MODEL),
        "self_attn.v_proj": (keys, D_MODEL), "self_attn.o_proj": (D_MODEL, D_MODEL), "mlp.gate_proj": (D_MLP, D_MODEL),
        "mlp.up_proj": (D_MLP, D_MODEL), "mlp.down_proj": (D_MODEL, D_MLP),
    }  # fmt: skip
    norms = {"input_layernorm": D_MODEL, "post_attention_layernorm": D_MODEL}
    if kind == "olmo":
        norms = {}
    if kind == "olmo2":
        norms = {"post_attention_layernorm": D_MODEL, "post_feedforward_layernorm": D_MODEL,
                 "self_attn.q_norm": D_MODEL, "self_attn.k_norm": keys}  # fmt: skip
    if kind == "qwen3":
        norms |= {"self_attn.q_norm": D_HEAD, "self_attn.k_norm": D_HEAD}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (TOKENS, D_MODEL)}
    for layer in range(layers):
        begin = f"model.layers.{layer}"
        shapes |= {f"{begin}.{name}.weight": shape for name, shape in linear.items()}
        shapes |= {f"{begin}.{name}.weight": (size,) for name, size in norms.items()}
        if kind == "qwen2":
            shapes |= {f"{begin}.{name}.bias": shape[:1] for name, shape in linear.items() if name[10:11] in "qkv"}
    if kind != "olmo":
        shapes["model.norm.weight"] = (D_MODEL,)
    return config, shapes | {"lm_head.weight": (TOKENS, D_MODEL)}
