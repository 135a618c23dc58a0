"""Byte n-gram models, interpolated over all orders: what the trained model has to beat.

    p_n(c | h) = (N(hc) + κ_n T(h) p_{n−1}(c | h')) / (N(h) + κ_n T(h)),    p_0 = 1/256,

with h the n − 1 preceding bytes, h' its last n − 2, N the training counts and T(h) the number of distinct
bytes seen after h. κ = 1 is the interpolated estimator of Witten and Bell (IEEE Transactions on Information
Theory 37, 1991, 1085); here κ_n is tuned, order by order, on training files that are kept out of the counts
for that purpose.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

KAPPA_GRID = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)


@dataclass(frozen=True)
class Counts:
    """Counts of one order; an n-gram's code is its bytes read as a big-endian number.

    Attributes:
        gram, gram_count: sorted codes of the n-grams seen, and how often each was.
        context, context_count, context_types: sorted codes of the contexts, N(h) and T(h).
    """

    gram: NDArray[np.int64]
    gram_count: NDArray[np.int64]
    context: NDArray[np.int64]
    context_count: NDArray[np.int64]
    context_types: NDArray[np.int64]


@dataclass(frozen=True)
class Text:
    """Files joined end to end, with each byte's position in its own file."""

    byte: NDArray[np.uint8]
    position: NDArray[np.int64]


@dataclass(frozen=True)
class NGram:
    """An interpolated model of order len(counts), with one κ for each order."""

    counts: tuple[Counts, ...]
    kappa: tuple[float, ...]


def join(texts: Sequence[NDArray[np.uint8]]) -> Text:
    """Join files; no n-gram will reach across two of them."""
    return Text(np.concatenate(texts), np.concatenate([np.arange(text.size) for text in texts]))


def codes(text: Text, order: int) -> NDArray[np.int64]:
    """Codes of the n-grams that end at the bytes with at least n − 1 bytes before them in their file."""
    if not 1 <= order <= 7:
        raise ValueError(f"order = {order}: expected 1 to 7, so that a code fits in 64 bits")
    ends = np.flatnonzero(text.position >= order - 1)
    code = np.zeros(ends.size, dtype=np.int64)
    for back in range(order - 1, -1, -1):
        code = (code << 8) | text.byte[ends - back]
    return code


def count(text: Text, order: int) -> Counts:
    """Count the n-grams of one order."""
    gram, gram_count = np.unique(codes(text, order), return_counts=True)
    context, first = np.unique(gram >> 8, return_index=True)
    return Counts(gram, gram_count, context, np.add.reduceat(gram_count, first), np.diff(np.append(first, gram.size)))


def look_up(keys: NDArray[np.int64], values: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    """Values at the wanted keys, 0 where a key is absent; `keys` is sorted."""
    at = np.minimum(np.searchsorted(keys, wanted), keys.size - 1)
    return np.where(keys[at] == wanted, values[at], 0)


def refine(lower: NDArray[np.float64], text: Text, counts: Counts, order: int, kappa: float) -> NDArray[np.float64]:
    """p_n from p_{n−1}, for every byte of the text; bytes with too short a past keep p_{n−1}."""
    here = text.position >= order - 1
    gram = codes(text, order)
    total = look_up(counts.context, counts.context_count, gram >> 8)
    types = look_up(counts.context, counts.context_types, gram >> 8)
    number = look_up(counts.gram, counts.gram_count, gram)
    seen = np.maximum(total + kappa * types, 1e-300)
    result = lower.copy()
    result[here] = np.where(total > 0, (number + kappa * types * lower[here]) / seen, lower[here])
    return result


def probabilities(model: NGram, text: Text) -> list[NDArray[np.float64]]:
    """p_n of every byte of the text given its past, for n = 1 … the model's order."""
    p = np.full(text.byte.size, 1 / 256)
    result = []
    for order, (counts, kappa) in enumerate(zip(model.counts, model.kappa, strict=True), start=1):
        p = refine(p, text, counts, order, kappa)
        result.append(p)
    return result


def fit(train: Text, order: int, kappa: Sequence[float] | None = None) -> NGram:
    """Count all orders up to `order`; κ = 1 unless given."""
    kappa = (1.0,) * order if kappa is None else tuple(kappa)
    return NGram(tuple(count(train, n) for n in range(1, order + 1)), kappa)


def tune(train: Text, tuning: Text, order: int) -> tuple[float, ...]:
    """Choose κ_1, κ_2, … in this order, each to minimise the tuning text's bits per byte at its order."""
    p = np.full(tuning.byte.size, 1 / 256)
    chosen = []
    for n in range(1, order + 1):
        counts = count(train, n)
        tried = {kappa: refine(p, tuning, counts, n, kappa) for kappa in KAPPA_GRID}
        best = min(tried, key=lambda kappa: mean_bits(tried[kappa], tuning))
        chosen.append(best)
        p = tried[best]
    return tuple(chosen)


def mean_bits(p: NDArray[np.float64], text: Text) -> float:
    """Mean −log₂ p over every byte but the first of each file: what the trained model is scored on."""
    return float(-np.log2(p[text.position >= 1]).mean())
