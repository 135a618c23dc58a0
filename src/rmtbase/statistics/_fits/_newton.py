"""Maximum likelihood by Newton's method, with few parameters and many elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from numpy.typing import ArrayLike

from rmtbase.errors import FitError
from rmtbase.parameters import require_finite_number
from rmtbase.statistics._fits._elements import Elements, require_elements

Terms = Callable[[Float[np.ndarray, " number"], Float[np.ndarray, " parameter"]], Float[np.ndarray, " term"]]
"""(z, (location, ln scale, …)) → sums over z of ln f, its gradient, and the upper triangle of its Hessian by rows.

Derivatives by the location are by location/scale, the scale held: those of a step that is measured in scales.
"""

_STEPS = 100
_LAST_GAIN = 1e-12  # in the mean log-likelihood: Newton's step behind it leaves an error of its square root, squared
_FLATTEST = 1e-8  # curvature below this share of the largest is taken for it
_CLOSEST = 1e-9  # of the spread: a scale that falls to it is on its way to zero


@dataclass(frozen=True)
class Maximum:
    """The law that makes the elements likeliest, in their own units.

    Attributes:
        location, scale: of the law.
        further: its further parameters.
        log_likelihood: ln of the density of all the elements.
        count: how many there are.
    """

    location: float
    scale: float
    further: Float[np.ndarray, " further"]
    log_likelihood: float
    count: int


def maximize_likelihood(
    law: str, terms: Terms, matrix: ArrayLike, location: float | None, start: ArrayLike = (), upper: ArrayLike = ()
) -> Maximum:
    """Fit a law of a location, a scale and further parameters, which start at ``start`` and stay in [0, upper].

    Newton's first steps are made with a sample of the elements, the last ones, two or three, with all of them.

    Raises:
        ParameterError: as :func:`require_elements`, or a location that is not finite.
        FitError: no maximum was found.
    """
    known = None if location is None else require_finite_number("location", location)
    elements = require_elements(matrix)
    centre = 0.0 if known is None else (known - elements.centre) / elements.spread
    at = np.concatenate([[centre, 0.0], np.asarray(start, dtype=np.float64)])
    free = np.arange(at.size) >= (known is not None)
    ceiling = np.concatenate([[np.inf, np.inf], np.asarray(upper, dtype=np.float64)])
    sample = elements.sample()
    if sample.count < elements.count:
        with suppress(FitError):  # a sample may be degenerate where the whole is not
            at, _ = _climb(law, terms, sample, at, free, ceiling)
    at, value = _climb(law, terms, elements, at, free, ceiling)
    return Maximum(
        elements.centre + elements.spread * float(at[0]) if known is None else known,
        elements.spread * math.exp(at[1]),
        at[2:],
        elements.count * (value - math.log(elements.spread)),
        elements.count,
    )


def _climb(
    law: str,
    terms: Terms,
    elements: Elements,
    start: Float[np.ndarray, " parameter"],
    free: Bool[np.ndarray, " parameter"],
    upper: Float[np.ndarray, " parameter"],
) -> tuple[Float[np.ndarray, " parameter"], float]:
    def evaluate(
        at: Float[np.ndarray, " parameter"],
    ) -> tuple[float, Float[np.ndarray, " parameter"], Float[np.ndarray, "parameter parameter"]]:
        return _unpack(elements.mean_of(lambda z: terms(z, at)), at.size)

    lower = np.concatenate([[-np.inf, math.log(_CLOSEST)], np.zeros(start.size - 2)])
    at, (value, gradient, hessian) = start, evaluate(start)
    for _ in range(_STEPS):
        held = ~free | ((at <= lower) & (gradient <= 0))
        step = _newton_step(gradient, hessian, held)
        gain = gradient @ step / 2
        step[0] *= math.exp(at[1])
        trial = np.clip(at + step, lower, upper)
        if gain < _LAST_GAIN and (trial == at + step).all():
            return trial, float(value + gain)
        for _ in range(_STEPS):
            found = evaluate(trial)
            if found[0] > value or gain < _LAST_GAIN:  # a smaller gain is lost in rounding
                break
            step = step / 2
            trial = np.clip(at + step, lower, upper)
        else:
            raise FitError(law, "no step along Newton's direction raises the likelihood")
        at, (value, gradient, hessian) = trial, found
        if at[1] <= lower[1] or (at >= upper).any():
            raise FitError(law, "the likelihood has no maximum: too many elements are equal, or nearly so")
    raise FitError(law, f"no maximum within {_STEPS} steps")


def _newton_step(
    gradient: Float[np.ndarray, " parameter"],
    hessian: Float[np.ndarray, "parameter parameter"],
    held: Bool[np.ndarray, " parameter"],
) -> Float[np.ndarray, " parameter"]:
    """H⁻¹ g among the parameters that are not held, with |H| in place of -H: uphill also where ln L is not concave."""
    step = np.zeros_like(gradient)
    moved = np.flatnonzero(~held)
    curvature, axes = np.linalg.eigh(-hessian[np.ix_(moved, moved)])
    curvature = np.maximum(np.abs(curvature), _FLATTEST * np.abs(curvature).max())
    step[moved] = axes @ (axes.T @ gradient[moved] / curvature)
    return step


def _unpack(
    terms: Float[np.ndarray, " term"], size: int
) -> tuple[float, Float[np.ndarray, " parameter"], Float[np.ndarray, "parameter parameter"]]:
    hessian = np.zeros((size, size))
    hessian[np.triu_indices(size)] = terms[1 + size :]
    return float(terms[0]), terms[1 : 1 + size], hessian + np.triu(hessian, 1).T
