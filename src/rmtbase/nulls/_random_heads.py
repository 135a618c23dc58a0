"""Random heads of one shape, drawn by NumPy: the moved share that chance gives them, as they are and with equal axes.

A factor with more columns than rows is replaced by the triangle L of W = L O (Bartlett), whose rows have the norms of
those of W and the same Gram matrix.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from jaxtyping import Float

from rmtbase.linalg import equal_rows
from rmtbase.statistics import moved_share

UPPER = 0.95
"""Probability with which the moved share of a random head is at most its upper point."""

_DRAWS = 400  # of a shape with d_head above _SMALL; of others twice as many
_SMALL = 32
_AT_ONCE = 2**22  # numbers of the draws that are solved together, at most

Stack = Float[np.ndarray, "draw rank side"]


@dataclass(frozen=True)
class UpperPoint:
    """Point below which a share of :data:`UPPER` of the moved shares of random heads lie, with its standard error."""

    value: float
    standard_error: float


@dataclass(frozen=True)
class RandomHeads:
    upper: UpperPoint
    # the same, and the mean ordered eigenvalues, with rows of one norm in each factor; None without head axes
    equal_mean: Float[np.ndarray, " rank"] | None = None
    equal_upper: UpperPoint | None = None


def upper_point(spectra: Float[np.ndarray, "draw rank"]) -> UpperPoint:
    """Upper point of moved shares by order statistics, the error from those one binomial deviation to either side."""
    shares = np.sort(moved_share(spectra, spectra.mean(axis=0)))
    n = int(np.isfinite(shares).sum())
    if not n:
        return UpperPoint(math.nan, math.nan)
    spread = math.sqrt(n * UPPER * (1.0 - UPPER))
    low, at, high = (min(max(math.ceil(n * UPPER + side * spread), 1), n) - 1 for side in (-1.0, 0.0, 1.0))
    return UpperPoint(float(shares[at]), float(shares[high] - shares[low]) / 2.0)


@lru_cache(maxsize=64)
def random_heads(dims: tuple[int, ...], axis: int | None, seed: int = 0) -> RandomHeads:
    plain, equal = [], []
    for left, right in _factors(dims, dims.index(min(dims)) if axis is None else axis, seed):
        plain.append(_eigenvalues(left, right, min(dims)))
        if axis is not None:
            equal.append(_eigenvalues(equal_rows(left), equal_rows(right), min(dims)))
    spectra = np.concatenate(plain)
    if axis is None:
        return RandomHeads(upper_point(spectra))
    of_equal = np.concatenate(equal)
    return RandomHeads(upper_point(spectra), of_equal.mean(axis=0), upper_point(of_equal))


def _factors(dims: tuple[int, ...], axis: int, seed: int) -> Iterator[tuple[Stack, Stack]]:
    sides = dims[axis::-1], dims[axis:]
    many = max(1, _AT_ONCE // (4 * dims[axis] ** 2))
    draws = _DRAWS if dims[axis] > _SMALL else 2 * _DRAWS
    for first in range(0, draws, many):
        drawn = []
        for draw in range(first, min(first + many, draws)):
            rng = np.random.default_rng([seed, *dims, draw])
            drawn.append([_rows(side, rng) for side in sides])
        left, right = (np.stack(side) for side in zip(*drawn, strict=True))
        yield left, right


def _rows(dims: Sequence[int], rng: np.random.Generator) -> Float[np.ndarray, "rank side"]:
    """Draw a matrix whose Gram matrix has the law of that of X_1 X_2 ⋯, dims (rank, n_1, n_2, …); 1 without factors."""
    rank = dims[0]
    product, inner = np.eye(rank), rank
    for _, n in pairwise(dims):
        if n <= inner:
            product, inner = product @ rng.standard_normal((inner, n)), n
            continue
        triangle = np.tril(rng.standard_normal((inner, inner)), -1)
        np.fill_diagonal(triangle, np.sqrt(rng.chisquare(n - np.arange(inner))))
        product = product @ triangle
    return product


def _eigenvalues(left: Stack, right: Stack, rank: int) -> Float[np.ndarray, "draw rank"]:
    return np.linalg.svd(np.swapaxes(left, -1, -2) @ right, compute_uv=False)[:, :rank] ** 2
