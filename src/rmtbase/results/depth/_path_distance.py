"""Distance of singular values from the law of a residual path, minimized over the scale."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from rmtbase.errors import ParameterError
from rmtbase.laws import ResidualPath, ResidualUpdate

Law = ResidualPath | ResidualUpdate

PARTS: dict[str, type[Law]] = {"path": ResidualPath, "update": ResidualUpdate}
"""``"path"``: P = Π (I + σ G_l/√d), all paths; ``"update"``: P - I, all paths but the direct one."""

_SMALLEST_LOG = -600.0  # singular values below e^-600 of the largest count as zero, so that ratios stay finite
_NODES = 1024  # of a table of a distribution function, whose linear interpolation has an error up to 1e-5
_HALVINGS = 42


class Nearest(NamedTuple):
    """Distance of each spectrum from a law, or from the law of each depth, and the scale that minimizes it."""

    distance: Float[np.ndarray, "draw ..."]
    scale: Float[np.ndarray, "draw ..."]


def wasserstein(values: Float[np.ndarray, "draw n"], law: Law) -> Nearest:
    """Minimize W₁(s, c q) / mean(s) over c in closed form: c is the weighted median of s_i/q_i with weights q_i.

    W₁ = Σ|s_i - c q_i|/n is the distance between the n singular values, descending, and the law's quantiles q_i at
    (i - ½)/n. The mean in the denominator makes it independent of the scale. It lies between 0 and 1, its value at
    c = 0.
    """
    quantiles = _quantiles(values.shape[1], law)
    ratio = values / quantiles
    order = np.argsort(ratio, axis=1)
    weight = np.cumsum(quantiles[order], axis=1)
    middle = np.argmax(weight >= 0.5 * weight[:, -1:], axis=1)
    row = np.arange(len(values))
    scale = ratio[row, order[row, middle]]
    distance = np.abs(values - scale[:, None] * quantiles).sum(axis=1) / values.sum(axis=1)
    return Nearest(distance, scale)


def kolmogorov_smirnov(values: Float[np.ndarray, "draw n"], law: Law) -> Nearest:
    """Minimize sup_x |F_n(x) - F(x/c)| over c by bisection, to an accuracy of 1e-5.

    The supremum is the larger of max_i (i/n - F(s_i/c)), which grows with c, and max_i (F(s_i/c) - (i-1)/n), which
    falls: the minimum lies where they cross. The singular values are descending.
    """
    nodes, levels = _distribution(law)
    with np.errstate(divide="ignore"):
        logs = np.log(values[:, ::-1])
    count = logs.shape[1]
    step = np.arange(count + 1) / count

    def sides(log_scale: Float[np.ndarray, " draw"]) -> tuple[np.ndarray, np.ndarray]:
        level = np.interp(logs - log_scale[:, None], nodes, levels)
        return (step[1:] - level).max(axis=1), (level - step[:-1]).max(axis=1)

    # At one end every nonzero value lies above the law, at the other end no value does.
    high = logs[:, -1] - nodes[0]
    low = np.where(np.isfinite(logs), logs, np.inf).min(axis=1) - nodes[-1]
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        above, below = sides(middle)
        low, high = np.where(above < below, middle, low), np.where(above < below, high, middle)
    return Nearest(np.maximum(*sides(high)), np.exp(high))


DISTANCES = {"wasserstein": wasserstein, "kolmogorov_smirnov": kolmogorov_smirnov}


def require_law(law: Law) -> None:
    """Raise :class:`ParameterError` where a law spans more than doubles can hold."""
    if law.log_eigenvalue.support[1] > -_SMALLEST_LOG:
        raise ParameterError(
            "depths", law.depth, f"a depth at which the largest eigenvalue is below e^600 (sigma {law.sigma})"
        )


@lru_cache(maxsize=1024)
def _quantiles(count: int, law: Law) -> Float[np.ndarray, " count"]:
    """Return the law's singular values at the levels (i - ½)/count, descending."""
    logs = 0.5 * np.asarray(law.log_eigenvalue.isf((np.arange(count) + 0.5) / count))
    return np.exp(np.maximum(logs, logs[0] + _SMALLEST_LOG))


@lru_cache(maxsize=512)
def _distribution(law: Law) -> tuple[np.ndarray, np.ndarray]:
    """Tabulate (ln s, level) of the law's singular values, ascending, denser towards both edges."""
    angle = 0.5 * math.pi * np.arange(1, _NODES) / _NODES
    nodes = np.append(np.asarray(law.log_eigenvalue.ppf(np.sin(angle) ** 2)), law.log_eigenvalue.support[1])
    return 0.5 * nodes, np.append(np.sin(angle) ** 2, 1.0)
