"""Maximum likelihood by Newton's method, with few parameters and many elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import FitError, ParameterError
from rmtbase.parameters import require_finite_number, require_real_array

Numbers = Float[np.ndarray, " number"]
Vector = Float[np.ndarray, " parameter"]
Evaluation = tuple[float, Vector, Float[np.ndarray, "parameter parameter"]]
"""Mean log-likelihood, its gradient and its Hessian."""

Terms = Callable[[Numbers, Vector], Float[np.ndarray, " term"]]
"""(z, (location, ln scale, …)) → sums over z of ln f, its gradient, and the upper triangle of its Hessian by rows.

Derivatives with respect to the location are with respect to location/scale at a fixed scale, so that steps are in units
of the scale.
"""

_BLOCK = 1 << 13  # elements widened to float64 at a time: they fit in the cache, and BLAS sums them in one thread
_SAMPLE = 1 << 17  # elements used for the first steps of a fit
_WIDEST = 1e40  # in spreads: even at a scale of 1e-9 spreads, sums of sixth powers of elements fit in float64
_NORMAL_QUARTILE = 0.6744897501960817
_STEPS = 100
_LAST_GAIN = 1e-12  # in the mean log-likelihood: the Newton step of this gain leaves an error of order 1e-12
_FLATTEST = 1e-8  # share of the largest curvature that replaces smaller ones
_CLOSEST = 1e-9  # of the spread: a scale that small is on its way to zero


@dataclass(frozen=True)
class Elements:
    """Sample of n elements w of any real dtype."""

    flat: NDArray  # the elements, in the order in which they lie in memory
    # centre, spread: median and deviation (from the quartiles) of a subsample; z = (w - centre)/spread
    centre: float
    spread: float

    @property
    def count(self) -> int:
        return self.flat.size

    def mean_of(self, terms: Callable[[Numbers], Any]) -> Float[np.ndarray, "..."]:
        """Average functions of z over all z; ``terms`` maps a block to their sums over the block."""
        return np.sum([terms((w - self.centre) / self.spread) for w in _blocks(self.flat)], axis=0) / self.count


def require_elements(matrix: ArrayLike) -> Elements:
    """Return the elements of a matrix; raise ParameterError unless they are real, finite and not all equal."""
    array = require_real_array("matrix", matrix)
    flat = array.ravel(order="K")
    if flat.size == 0:
        raise ParameterError("matrix", f"shape {array.shape}", "at least two elements")
    finite, low, high = 0, np.inf, -np.inf
    for block in _blocks(flat):
        finite += int(np.count_nonzero(np.isfinite(block)))
        low, high = min(low, block.min()), max(high, block.max())
    if finite < flat.size:
        raise ParameterError("matrix", f"{flat.size - finite} of {flat.size} elements not finite", "finite elements")
    if low == high:
        raise ParameterError("matrix", f"{flat.size} elements, all {low:g}", "elements that are not all equal")
    lower, centre, upper = np.quantile(_sample(flat).astype(np.float64), (0.25, 0.5, 0.75))
    spread = (upper - lower) / (2 * _NORMAL_QUARTILE)
    if spread == 0:  # at least half of the sample has one value
        spread = np.sqrt(np.mean([np.mean(((block - centre) / (high - low)) ** 2) for block in _blocks(flat)]))
        spread *= high - low
    if not 0.0 < spread < np.inf or max(high - centre, centre - low) / spread > _WIDEST:
        raise ParameterError(
            "matrix", f"elements from {low:g} to {high:g}", f"none beyond {_WIDEST:g} times their spread"
        )
    return Elements(flat, float(centre), float(spread))


def _sample(flat: NDArray) -> NDArray:
    step = -(-flat.size // _SAMPLE) | 1  # odd: it has no factor in common with usual widths, so all columns occur
    return flat[::step]


def _blocks(flat: NDArray) -> Iterator[Numbers]:
    for start in range(0, flat.size, _BLOCK):
        yield flat[start : start + _BLOCK].astype(np.float64)


@dataclass(frozen=True)
class Maximum:
    """Maximum likelihood parameters of a law, in the units of the elements."""

    # location, scale: location and scale of the law
    location: float
    scale: float
    further: Float[np.ndarray, " further"]  # its further parameters
    log_likelihood: float  # ln of the density of all the elements
    count: int  # number of elements


def maximize_likelihood(
    law: str, terms: Terms, matrix: ArrayLike, location: float | None, start: ArrayLike = (), upper: ArrayLike = ()
) -> Maximum:
    """Fit a law with a location, a scale and further parameters, which start at ``start`` and stay in [0, upper].

    The first Newton steps use a sample of the elements; the last two or three use all of them.
    """
    fixed = None if location is None else require_finite_number("location", location)
    elements = require_elements(matrix)
    centre = 0.0 if fixed is None else (fixed - elements.centre) / elements.spread
    at = np.concatenate([[centre, 0.0], np.asarray(start, dtype=np.float64)])
    free = np.arange(at.size) >= (fixed is not None)
    ceiling = np.concatenate([[np.inf, np.inf], np.asarray(upper, dtype=np.float64)])
    sample = Elements(_sample(elements.flat), elements.centre, elements.spread)
    if sample.count < elements.count:
        with suppress(FitError):  # the sample may be degenerate even if the whole is not
            at, _ = _climb(law, terms, sample, at, free, ceiling)
    at, value = _climb(law, terms, elements, at, free, ceiling)
    return Maximum(
        elements.centre + elements.spread * float(at[0]) if fixed is None else fixed,
        elements.spread * math.exp(at[1]),
        at[2:],
        elements.count * (value - math.log(elements.spread)),
        elements.count,
    )


def _climb(
    law: str, terms: Terms, elements: Elements, start: Vector, free: Bool[np.ndarray, " parameter"], upper: Vector
) -> tuple[Vector, float]:
    size, triangle = start.size, np.triu_indices(start.size)

    def evaluate(at: Vector) -> Evaluation:
        values = elements.mean_of(lambda z: terms(z, at))
        hessian = np.zeros((size, size))
        hessian[triangle] = values[1 + size :]
        return float(values[0]), values[1 : 1 + size], hessian + np.triu(hessian, 1).T

    lower = np.concatenate([[-np.inf, math.log(_CLOSEST)], np.zeros(size - 2)])
    at, (value, gradient, hessian) = start, evaluate(start)
    for _ in range(_STEPS):
        moved = np.flatnonzero(free & ~((at <= lower) & (gradient <= 0)))
        # The step is |H|⁻¹ g; |H| instead of -H makes it ascend even where ln L is convex.
        curvature, axes = np.linalg.eigh(-hessian[np.ix_(moved, moved)])
        curvature = np.maximum(np.abs(curvature), _FLATTEST * np.abs(curvature).max())
        step = np.zeros_like(gradient)
        step[moved] = axes @ (axes.T @ gradient[moved] / curvature)
        gain = gradient @ step / 2
        step[0] *= math.exp(at[1])
        trial = np.clip(at + step, lower, upper)
        if gain < _LAST_GAIN and (trial == at + step).all():
            return trial, float(value + gain)
        for _ in range(_STEPS):
            evaluation = evaluate(trial)
            if evaluation[0] > value or gain < _LAST_GAIN:  # a smaller gain is lost in rounding
                break
            step = step / 2
            trial = np.clip(at + step, lower, upper)
        else:
            raise FitError(law, "no step along Newton's direction raises the likelihood")
        at, (value, gradient, hessian) = trial, evaluation
        if at[1] <= lower[1] or (at >= upper).any():
            raise FitError(law, "the likelihood has no maximum: too many elements are equal, or nearly so")
    raise FitError(law, f"no maximum within {_STEPS} steps")
