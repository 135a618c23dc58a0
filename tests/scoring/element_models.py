"""State dicts of small models, drawn as they begin, for tests of elements."""

import numpy as np

import rmtbase
from rmtbase.models import open_model

D_MODEL, N_HEADS = 64, 4


def gpt_neox(n_layers, sigma_in, sigma_out, rng, d_model=D_MODEL):
    """GPT-NeoX: fused rows (head, part, d_head); normal input sides of σ_in and output sides of σ_out."""
    sizes = {
        "attention.query_key_value": (3 * d_model, d_model, sigma_in),
        "attention.dense": (d_model, d_model, sigma_out),
        "mlp.dense_h_to_4h": (4 * d_model, d_model, sigma_in),
        "mlp.dense_4h_to_h": (d_model, 4 * d_model, sigma_out),
    }
    return {
        f"gpt_neox.layers.{layer}.{name}.weight": rng.normal(0.0, sigma, (rows, columns)).astype(np.float32)
        for layer in range(n_layers)
        for name, (rows, columns, sigma) in sizes.items()
    }


def gpt2(n_layers, rng):
    """GPT-2: stored as (inputs, outputs), queries before keys before values."""
    sizes = {"attn.c_attn": 3, "attn.c_proj": 1, "mlp.c_fc": 4, "mlp.c_proj": 0.25}
    return {
        f"h.{layer}.{name}.weight": rng.normal(
            0.0, 0.02, (int(max(1, 1 / times)) * D_MODEL, int(max(1, times)) * D_MODEL)
        ).astype(np.float32)
        for layer in range(n_layers)
        for name, times in sizes.items()
    }


NEOX_CONFIG = {"num_attention_heads": N_HEADS}
GPT2_CONFIG = {"n_head": N_HEADS}


def score(tensors, null="analytic", **options):
    """The scores of either model."""
    is_gpt2 = any(name.startswith("h.") for name in tensors)
    family, config = ("gpt2", GPT2_CONFIG) if is_gpt2 else ("gpt_neox", NEOX_CONFIG)
    return rmtbase.score(open_model(tensors, family=family, config=config, proof=False), null, **options)
