"""Law of the largest eigenvalue at a soft edge with a spike near its threshold."""

import math
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import CubicSpline
from scipy.optimize.elementwise import find_root
from scipy.special import ndtr, roots_jacobi

from rmtbase.laws._distribution import FloatArray
from rmtbase.parameters import require_real_numbers

_LEFT, _RIGHT, _START = -8.0, 9.0, 12.0
_ANGLES, _STAGES, _STEP = 128, 4, 0.5
_FARTHEST_SCORE = 12.0
_STORED = Path(__file__).with_name("spiked_tracy_widom.npy")


def spiked_tracy_widom_cdf(x: ArrayLike, w: ArrayLike, beta: int = 1) -> FloatArray:
    """Return P(λ_max ≤ x) at a soft edge with a rank-one spike at ``w`` from its threshold, in units of the edge.

    dF/dx + (2/β) d²F/dw² + (x - w²) dF/dw = 0, F → 0 at w → -∞ (Bloemendal & Virág 2013): w → ∞ is Tracy–Widom's law,
    w → -∞ a normal outlier of mean w² and variance 4 |w| / β. The table for β = 1 is stored by ``python -m
    rmtbase.laws._edge._spiked_tracy_widom``. Errors for x in [-8, 9] are below 2e-6 for β = 1 and 5e-6 for β = 2.
    """
    spline, angles, weights = _table(beta)
    x, w = np.broadcast_arrays(require_real_numbers("x", x), require_real_numbers("w", w))
    values = spline(np.clip(x.ravel(), _LEFT, _RIGHT))
    # Barycentric interpolation in the angle; a coincidence with a node would divide by zero.
    gap = np.arctan2(1.0, w.ravel())[:, None] - angles
    gap = np.where(np.abs(gap) < 1e-15, 1e-15, gap)
    share = weights / gap
    cdf = np.clip((share * values).sum(axis=1) / share.sum(axis=1), 0.0, 1.0).reshape(x.shape)
    return np.select([np.isnan(x + np.where(np.isinf(w), 0.0, w)), x < _LEFT, x > _RIGHT],
                     [np.nan, 0.0, _far_right(x, w, beta)], cdf)  # fmt: skip


def spiked_tracy_widom_score(q: float, w: FloatArray) -> FloatArray:
    """Return the q-quantile of F(x; w), β = 1, as z = (x - m²)/(2 √(1 + m)), m = max(-w, 0), w in [-60, 40]."""
    table = _score_table(float(q))
    return table(np.clip(np.arcsinh(w), table.x[0], table.x[-1]))


@cache
def _score_table(q: float) -> CubicSpline:
    nodes = np.linspace(np.arcsinh(-60.0), np.arcsinh(40.0), 241)
    w = np.sinh(nodes)
    depth = np.maximum(-w, 0.0)
    spread = 2.0 * np.sqrt(1.0 + depth)
    ends = np.full(w.shape, -_FARTHEST_SCORE), np.full(w.shape, _FARTHEST_SCORE)
    root = find_root(
        lambda z, w, centre, spread: spiked_tracy_widom_cdf(centre + spread * z, w) - q,
        ends,
        args=(w, depth**2, spread),
        tolerances={"xatol": 1e-14, "xrtol": 0.0},
    )
    # Where the whole law lies on one side of the bracket, the end of the bracket is used.
    scores = np.where(root.success, root.x, np.where(root.f_bracket[0] >= 0.0, *ends))
    return CubicSpline(nodes, scores)


def _far_right(x: FloatArray, w: FloatArray, beta: int) -> FloatArray:
    """F at large x, where p leaves the unstable point -√x to one side or the other at once."""
    distance = np.maximum(x, 1.0)
    return ndtr((w + np.sqrt(distance)) * np.sqrt(beta) * distance**0.25)


@cache
def _table(beta: int) -> tuple[CubicSpline, FloatArray, FloatArray]:
    angles, weights = _chebyshev()
    values = np.load(_STORED, allow_pickle=False) if beta == 1 else collocated(beta)
    steps = range((len(values) - 1) // _STAGES)
    xs = [_START, *(_START - _STEP * (step + node) for step in steps for node in _radau(_STAGES)[0].tolist())]
    return CubicSpline(xs[::-1], values[::-1]), angles, weights


def collocated(beta: int) -> FloatArray:
    """F at the Chebyshev angles, (x, angle), x descending: collocation in w = cot(φ), Radau steps in x."""
    angles, weights = _chebyshev()
    gap = angles[:, None] - angles + np.eye(angles.size)
    derivative = weights / weights[:, None] / gap  # differentiates the polynomial through values at the angles
    np.fill_diagonal(derivative, 0.0)
    np.fill_diagonal(derivative, -derivative.sum(axis=1))
    inner = slice(0, _ANGLES)
    sine, cosine = np.sin(angles[inner, None]), np.cos(angles[inner, None])
    first, second = derivative[inner, inner], (derivative @ derivative)[inner, inner]
    constant = 2.0 / beta * sine**4 * second + (cosine**2 + 4.0 / beta * sine**3 * cosine) * first
    linear = -(sine**2) * first

    nodes, radau = _radau(_STAGES)
    identity = np.eye(_STAGES * _ANGLES)
    with np.errstate(divide="ignore"):
        states = [_far_right(np.full(_ANGLES, _START), cosine[:, 0] / sine[:, 0], beta)]
    for step in range(math.ceil((_START - _LEFT) / _STEP)):
        operators = [constant + x * linear for x in _START - _STEP * (step + nodes)]
        system = identity - _STEP * np.block([[a * op for a, op in zip(row, operators, strict=True)] for row in radau])
        states.extend(np.linalg.solve(system, np.tile(states[-1], _STAGES)).reshape(_STAGES, _ANGLES))
    return np.column_stack([np.array(states), np.zeros(len(states))])


def _chebyshev() -> tuple[FloatArray, FloatArray]:
    index = np.arange(_ANGLES + 1)
    weights = np.where(index % 2, -1.0, 1.0)
    weights[[0, -1]] *= 0.5
    return 0.5 * np.pi * (1.0 - np.cos(np.pi * index / _ANGLES)), weights


def _radau(stages: int) -> tuple[FloatArray, FloatArray]:
    nodes = 0.5 * (np.append(roots_jacobi(stages - 1, 1.0, 0.0)[0], 1.0) + 1.0)
    powers = np.arange(stages)
    integrals = nodes[:, None] ** (powers + 1) / (powers + 1)
    return nodes, integrals @ np.linalg.inv(nodes[:, None] ** powers)


if __name__ == "__main__":
    np.save(_STORED, collocated(1))
