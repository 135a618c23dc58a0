"""Smooth functions as polynomials on equal pieces of an interval; an evaluation costs a dozen multiplications."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from jaxtyping import Float
from numpy.polynomial import chebyshev

from rmtbase.laws._distribution import FloatArray

_DEGREE = 10
_BLOCK = 16384  # points evaluated at a time, so that temporaries stay in the cache


@dataclass(frozen=True, eq=False)
class PiecewisePolynomial:
    """Polynomials on equal pieces of [low, high], constant beyond the ends."""

    low: float  # the left end
    high: float  # the right end
    # highest power first, in a variable that runs over [-1, 1] in each piece
    coefficients: Float[np.ndarray, "power piece"]

    @classmethod
    def through(cls, values: Float[np.ndarray, "piece node"], low: float, high: float) -> PiecewisePolynomial:
        centre = values[:, _DEGREE // 2]
        coefficients = ((values - centre[:, None]) @ _to_powers()).T[::-1].copy()
        coefficients[-1] += centre
        return cls(low, high, coefficients)

    def __call__(self, x: FloatArray) -> FloatArray:
        result = np.empty(x.shape)
        flat, points = result.reshape(-1), x.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            flat[start : start + _BLOCK] = self._block(points[start : start + _BLOCK])
        return result

    def _block(self, x: FloatArray) -> FloatArray:
        pieces = self.coefficients.shape[1]
        position = np.clip((x - self.low) * (pieces / (self.high - self.low)), 0.0, pieces)
        piece = np.minimum(position, pieces - 1).astype(np.intp)
        position -= piece
        position *= 2.0
        position -= 1.0
        value = self.coefficients[0].take(piece)
        for row in self.coefficients[1:]:
            value *= position
            value += row.take(piece)
        return value


def nodes(low: float, high: float, pieces: int) -> Float[np.ndarray, "piece node"]:
    """Return the Chebyshev points of the equal pieces of [low, high], ascending."""
    width = (high - low) / pieces
    in_piece = 0.5 * (1.0 + chebyshev.chebpts1(_DEGREE + 1))
    return np.asarray(low + width * (np.arange(pieces)[:, None] + in_piece), dtype=np.float64)


def roughness(values: Float[np.ndarray, "piece node"]) -> float:
    """Return the largest Chebyshev coefficient of the highest degree, an estimate of the interpolation error."""
    return float(np.abs((values - values[:, :1]) @ to_series(_DEGREE)[:, -1]).max())


@cache
def to_series(degree: int) -> Float[np.ndarray, "point coefficient"]:
    points = chebyshev.chebpts1(degree + 1)
    matrix = np.asarray(chebyshev.chebvander(points, degree), dtype=np.float64) * (2.0 / (degree + 1))
    matrix[:, 0] *= 0.5
    return matrix


@cache
def _to_powers() -> FloatArray:
    powers = np.zeros((_DEGREE + 1, _DEGREE + 1))
    for degree in range(_DEGREE + 1):
        powers[degree, : degree + 1] = chebyshev.cheb2poly([0.0] * degree + [1.0])
    return to_series(_DEGREE) @ powers
