"""Normalised participation ratio of every head's W_QK = W_Qᵀ W_K against random heads, in plain NumPy.

    NPR = (Σλ)² / (h Σλ²),  λ = s² the h nonzero eigenvalues of W_QKᵀ W_QK.

It does not depend on the scale of W_Q or W_K, so the null needs no estimate of σ.
"""

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file


def squared_singular_values(w_q: NDArray[np.float64], w_k: NDArray[np.float64]) -> NDArray[np.float64]:
    """λ of W_Qᵀ W_K for W_Q, W_K of shape (..., d_head, d_model); descending, shape (..., d_head).

    W_Qᵀ = O_Q R_Q and W_Kᵀ = O_K R_K give W_Qᵀ W_K = O_Q (R_Q R_Kᵀ) O_Kᵀ: the small core has the same λ.
    """
    r_q, r_k = (np.linalg.qr(np.swapaxes(w, -1, -2), mode="r") for w in (w_q, w_k))
    return np.linalg.svd(r_q @ np.swapaxes(r_k, -1, -2), compute_uv=False) ** 2


def normalized_participation_ratio(eigenvalues: NDArray[np.float64]) -> NDArray[np.float64]:
    """(Σλ)² / (h Σλ²) over the last axis."""
    return eigenvalues.sum(-1) ** 2 / (eigenvalues**2).sum(-1) / eigenvalues.shape[-1]


def head_matrices(folder: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """W_Q and W_K of every query head, shape (layer, head, d_head, d_model).

    Query head i reads key head i // (query heads / key heads).
    """
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    tensors = load_file(folder / "model.safetensors")
    heads, d_head = config["num_attention_heads"], config["head_dim"]
    group = heads // config["num_key_value_heads"]

    def stack(name: str) -> NDArray[np.float64]:
        layers = range(config["num_hidden_layers"])
        w = np.stack([tensors[f"model.layers.{i}.self_attn.{name}.weight"] for i in layers])
        return w.astype(np.float64).reshape(len(w), -1, d_head, config["hidden_size"])

    return stack("q_proj"), np.repeat(stack("k_proj"), group, axis=1)


def head_npr(folder: Path) -> NDArray[np.float64]:
    """NPR of every head of a checkpoint, shape (layer, head)."""
    return normalized_participation_ratio(squared_singular_values(*head_matrices(folder)))


def null_npr(d_model: int, d_head: int, draws: int = 20_000, seed: int = 0) -> NDArray[np.float64]:
    """NPR of `draws` independent random heads with i.i.d. normal entries, drawn in full."""
    rng = np.random.default_rng(seed)
    blocks = []
    for at in range(0, draws, 1000):
        w = rng.standard_normal((2, min(1000, draws - at), d_head, d_model))
        blocks.append(normalized_participation_ratio(squared_singular_values(w[0], w[1])))
    return np.concatenate(blocks)


def two_sided_p(observed: NDArray[np.float64], null: NDArray[np.float64]) -> NDArray[np.float64]:
    """Monte Carlo p-values, 2 min(lower, upper) with the (b + 1)/(n + 1) rule, at most 1."""
    null = np.sort(null)
    below = np.searchsorted(null, observed, side="right")
    above = null.size - np.searchsorted(null, observed, side="left")
    return np.minimum(1.0, 2 * (np.minimum(below, above) + 1) / (null.size + 1))


def compare(folder: Path, null: NDArray[np.float64]) -> dict[str, object]:
    """Compare a checkpoint's heads with the null, as plain values for a JSON file."""
    npr = head_npr(folder)
    p = two_sided_p(npr, null)
    return {
        "npr": np.round(npr, 5).tolist(),
        "npr_mean": round(float(npr.mean()), 5),
        "npr_min": round(float(npr.min()), 5),
        "npr_max": round(float(npr.max()), 5),
        "p_min": float(f"{p.min():.3g}"),
        "heads": npr.size,
        "heads_at_smallest_possible_p": int((p <= 2 / (null.size + 1)).sum()),
        "heads_p_below_bonferroni_0.05": int((p < 0.05 / npr.size).sum()),
    }
