"""What several tests hold the laws against; nothing here shares code with them."""

import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

import mpmath
import numpy as np

LOWEST_FIRST = "asc" in inspect.signature(mpmath.polyroots).parameters


def polynomial_roots(coefficients: list[Any], **how: Any) -> list[Any]:
    """By mpmath, whichever of its versions, of Σ c_k x^(n - k), the coefficient of the highest power first."""
    if LOWEST_FIRST:
        return mpmath.polyroots(coefficients[::-1], asc=True, **how)
    return mpmath.polyroots(coefficients, **how)


def partitions(k: int, largest: int | None = None) -> Iterator[tuple[int, ...]]:
    if k == 0:
        yield ()
    for part in range(min(k, largest or k), 0, -1):
        for rest in partitions(k - part, part):
            yield (part, *rest)


def chain_gram(dims: Sequence[int], draws: int) -> np.ndarray:
    """C Cᵀ, C a product of Bartlett factors, which has the eigenvalues of the chain at sigma = 1."""
    rng, rank = np.random.default_rng([*dims, draws]), min(dims)
    k, core = np.arange(rank), np.eye(rank)[None]
    for n in sorted(dims)[1:]:
        factor = np.triu(rng.standard_normal((draws, rank, rank)), 1)
        factor[:, k, k] = np.sqrt(rng.chisquare(n - k, (draws, rank)))
        core = core @ factor
    return core @ core.mT


def residual_paths(rng: np.random.Generator, depth: int, sigma: float, d_model: int, draws: int) -> np.ndarray:
    """Products (I + X_L) ... (I + X_1), shape (draws, d_model, d_model)."""
    path = np.broadcast_to(np.eye(d_model), (draws, d_model, d_model))
    for _ in range(depth):
        path = path + sigma / math.sqrt(d_model) * rng.standard_normal(path.shape) @ path
    return path


def weibull_plots(rows: np.ndarray, trim: float = 0.1) -> np.ndarray:
    """Shape, scale and R² of the line through the Weibull plot of each row's magnitudes between the trims."""
    n = rows.shape[1]
    dropped = max(0, math.ceil(n * trim - 0.5 - 1e-9))
    y = np.log(-np.log1p(-(np.arange(dropped, n - dropped) + 0.5) / n))
    x = np.log(np.sort(np.abs(rows), axis=1)[:, dropped : n - dropped])
    x_mean, y_mean = x.mean(axis=1), y.mean()
    x, y = x - x_mean[:, None], y - y_mean
    shape = x @ y / (x**2).sum(axis=1)
    return np.array([shape, np.exp(x_mean - y_mean / shape), shape * (x @ y) / (y @ y)])
