"""Heads that keep only some of their directions: NumPy, and rmtbase's estimate of what they have learned."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from rmtbase.results.signal import LearnedPart, learned_part

Array = NDArray[np.float64]
Weights = Callable[[LearnedPart, Array], Array]


def kept(part: LearnedPart, singular: Array) -> Array:
    """Set every direction of the noise to 0, and keep the others unchanged."""
    return np.where(np.arange(singular.size) < part.values.size, 1.0, 0.0)


def shrunken(part: LearnedPart, singular: Array) -> Array:
    """Keep the learned directions, each at its shrunken strength."""
    weights = np.zeros(singular.size)
    weights[: part.values.size] = part.values / singular[: part.values.size]
    return weights


# What is left of W_QK = Σ s_i u_i v_iᵀ: Σ w_i s_i u_i v_iᵀ with these w.
VARIANTS: dict[str, Weights] = {
    "whole": lambda part, s: np.ones(s.size),
    "shrunken": shrunken,
    "truncated": kept,
    "rest": lambda part, s: 1.0 - kept(part, s),
    "nothing": lambda part, s: np.zeros(s.size),
}


def filtered(w_q: Array, w_k: Array, variant: str) -> tuple[Array, Array, LearnedPart]:
    """Filter W_QK of a head: the factors W_Q U √w Uᵀ and W_K V √w Vᵀ have the product U (w s) Vᵀ.

    Each stays in the head's own coordinates, which rotary embeddings turn by position.
    """
    part = learned_part(w_q, w_k)
    (o_q, r_q), (o_k, r_k) = (np.linalg.qr(one.T) for one in (w_q, w_k))
    left, singular, right = np.linalg.svd(r_q @ r_k.T)
    root = np.sqrt(VARIANTS[variant](part, singular))
    u, v = o_q @ left, o_k @ right.T
    return w_q @ (u * root) @ u.T, w_k @ (v * root) @ v.T, part
