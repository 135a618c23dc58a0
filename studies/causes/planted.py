"""Heads with a known cause of their difference from random ones, in NumPy, without rmtbase."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Heads = tuple[Array, Array]
Rng = np.random.Generator

QUERY, KEY, RELATION = "directions in W_Q", "directions in W_K", "W_Q and W_K are related"
QUERY_ELEMENTS, KEY_ELEMENTS = "elements of W_Q", "elements of W_K"
ELEMENTS = frozenset({QUERY_ELEMENTS, KEY_ELEMENTS})


class Cause(NamedTuple):
    """Construction of heads with a known cause, and the causes that a verdict may name."""

    make: Callable[[Rng, Array, Array], Heads]
    right: frozenset[str]


def unit(rng: Rng, heads: int, *shape: int) -> Array:
    """Draw a random unit vector for each head, as a row or a column."""
    vectors = rng.standard_normal((heads, *shape))
    return vectors / np.linalg.norm(vectors, axis=(1, 2), keepdims=True)


def direction(rng: Rng, w: Array, thresholds: float, axis: Array | None = None) -> Array:
    """W + θ a uᵀ, θ in units of (d h)^(1/4), at which a spike leaves the spectrum of W."""
    heads, h, d = w.shape
    a = unit(rng, heads, h, 1) if axis is None else axis
    return w + thresholds * (d * h) ** 0.25 * a * unit(rng, heads, 1, d)


def in_queries(thresholds: float) -> Cause:
    return Cause(lambda rng, q, k: (direction(rng, q, thresholds), k), frozenset({QUERY}))


def in_keys(thresholds: float) -> Cause:
    return Cause(lambda rng, q, k: (q, direction(rng, k, thresholds)), frozenset({KEY}))


def in_both(thresholds: float) -> Cause:
    def make(rng: Rng, q: Array, k: Array) -> Heads:
        return direction(rng, q, thresholds), direction(rng, k, thresholds)

    return Cause(make, frozenset({QUERY, KEY}))


def on_one_axis(thresholds: float) -> Cause:
    """Directions too weak for the factors, on the same head axis, which add up in W_QK."""

    def make(rng: Rng, q: Array, k: Array) -> Heads:
        axis = unit(rng, *q.shape[:2], 1)
        return direction(rng, q, thresholds, axis), direction(rng, k, thresholds, axis)

    return Cause(make, frozenset({QUERY, KEY, RELATION}))


def common_subspace(rng: Rng, q: Array, k: Array) -> Heads:
    """Let W_K read a third of the directions that W_Q reads; all spectra stay random."""
    n = q.shape[1] // 3
    rows_q = np.linalg.qr(np.swapaxes(q, 1, 2))[0]
    rows_k, triangle = np.linalg.qr(np.swapaxes(k, 1, 2))
    rows_k[..., :n] = rows_q[..., :n]
    turned = np.linalg.qr(rng.standard_normal((len(k), q.shape[1], q.shape[1])))[0]
    return q, np.swapaxes(np.linalg.qr(rows_k)[0] @ turned @ triangle, 1, 2)


def common_axes(rng: Rng, q: Array, k: Array) -> Heads:
    """Give W_Q and W_K the same left singular vectors; both spectra stay random."""
    turned = np.linalg.qr(rng.standard_normal((len(q), q.shape[1], q.shape[1])))[0]
    q, k = (
        turned @ (values[..., None] * right)
        for _, values, right in (np.linalg.svd(w, full_matrices=False) for w in (q, k))
    )
    return q, k


def gains(rng: Rng, spread: float, *shape: int) -> Array:
    return np.exp(spread * rng.standard_normal(shape))


def row_gains(rng: Rng, q: Array, k: Array) -> Heads:
    return q * gains(rng, 0.5, *q.shape[:2], 1), k * gains(rng, 0.5, *k.shape[:2], 1)


def column_gains(rng: Rng, q: Array, k: Array) -> Heads:
    return q * gains(rng, 0.3, len(q), 1, q.shape[2]), k * gains(rng, 0.3, len(k), 1, k.shape[2])


def shared_column_gains(rng: Rng, q: Array, k: Array) -> Heads:
    both = gains(rng, 0.3, len(q), 1, q.shape[2])
    return q * both, k * both


def equal_gains(rng: Rng, q: Array, k: Array) -> Heads:
    both = gains(rng, 0.5, *q.shape[:2], 1)
    return q * both, k * both


def elements(law: Callable[[Rng, tuple[int, ...]], Array]) -> Cause:
    return Cause(lambda rng, q, k: (law(rng, q.shape), law(rng, k.shape)), ELEMENTS)


def orthogonal(rng: Rng, q: Array, k: Array) -> Heads:
    q, k = (np.swapaxes(np.linalg.qr(np.swapaxes(w, 1, 2))[0], 1, 2) for w in (q, k))
    return q, k


def giant(rng: Rng, q: Array, k: Array) -> Heads:
    """Set one weight of W_Q to about a third of the norm of all others together."""
    q = q.copy()
    q[:, 3, 5] = np.sqrt(q[0].size) / 3.0
    return q, k


def shared_keys(thresholds: float) -> Cause:
    """Four query heads read each key head, which may have a direction."""

    def make(rng: Rng, q: Array, k: Array) -> Heads:
        k = k[: len(k) // 4]
        return q, direction(rng, k, thresholds) if thresholds else k

    return Cause(make, frozenset({KEY} if thresholds else ()))


CAUSES: dict[str, Cause] = {
    "nothing": Cause(lambda rng, q, k: (q, k), frozenset()),
    **{f"direction in W_Q, {f:g} thresholds": in_queries(f) for f in (1.0, 1.2, 1.5, 2.0, 3.0)},
    **{f"direction in W_K, {f:g} thresholds": in_keys(f) for f in (1.0, 1.5, 3.0)},
    **{f"directions in both, {f:g} thresholds": in_both(f) for f in (1.0, 1.5, 3.0)},
    **{f"direction of W_QK on one head axis, {f:g} thresholds each": on_one_axis(f) for f in (0.7, 1.0)},
    "common subspace": Cause(common_subspace, frozenset({RELATION})),
    "common head axes": Cause(common_axes, frozenset({RELATION})),
    "W_K near W_Q": Cause(lambda rng, q, k: (q, np.sqrt(0.5) * (q + k)), frozenset({RELATION})),
    "row gains": Cause(row_gains, ELEMENTS),
    "column gains": Cause(column_gains, ELEMENTS),
    "shared column gains": Cause(shared_column_gains, ELEMENTS),
    "equal row gains": Cause(equal_gains, ELEMENTS | {RELATION}),
    "Laplace elements": elements(lambda rng, shape: rng.laplace(size=shape)),
    "t₅ elements": elements(lambda rng, shape: rng.standard_t(5, shape)),
    "t₃ elements": elements(lambda rng, shape: rng.standard_t(3, shape)),
    "95 % zeros": elements(lambda rng, shape: rng.standard_normal(shape) * (rng.random(shape) < 0.05)),
    "ternary elements": elements(lambda rng, shape: rng.choice([-1.0, 0.0, 1.0], shape)),
    "uniform elements": elements(lambda rng, shape: rng.uniform(-1.0, 1.0, shape)),
    "orthogonal rows": Cause(orthogonal, ELEMENTS),
    "one giant weight": Cause(giant, frozenset({QUERY_ELEMENTS})),
    "grouped queries": shared_keys(0.0),
    "grouped queries, direction in W_K, 2 thresholds": shared_keys(2.0),
}
