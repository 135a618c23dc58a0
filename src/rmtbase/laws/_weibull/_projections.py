"""Projection of a parent law on the Weibull family by maximum likelihood."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from rmtbase.laws._element._panels import panels
from rmtbase.laws._element.parents import Parent, require_parent
from rmtbase.shown import in_one_line

_SHAPES = (1e-3, 1e3)


@in_one_line
@dataclass(frozen=True)
class WeibullProjection:
    """Member of the Weibull family that a criterion assigns to a parent law."""

    shape: float  # k
    scale: float  # λ, in the units of the parent's σ


def weibull_maximum_likelihood(distribution: str | Parent = "normal") -> WeibullProjection:
    """Return the Weibull law nearest to a parent in D_KL(parent ‖ Weibull), the limit of maximum likelihood.

    k solves E[|w|^k ln|w|]/E[|w|^k] − 1/k = E[ln|w|], whose left side grows with k; λ = E[|w|^k]^(1/k).

    Numerical, with a relative error of 1e-13. ``distribution`` as in :func:`weibull_anchor`.
    """
    grid = panels(require_parent(distribution))
    probability, log_x = grid.probability, grid.log_x
    log_mean = float(probability @ log_x)

    def weights(shape: float) -> tuple[np.ndarray, float]:
        """Return the contributions of the nodes to E[|w|^k], as fractions of it, and ln E[|w|^k]."""
        powers = shape * log_x
        with np.errstate(divide="ignore"):
            logs = powers + np.log(probability)
        top = logs.max()
        shares = np.exp(logs - top)
        return shares / shares.sum(), top + math.log(shares.sum())

    def score(log_shape: float) -> float:
        shape = math.exp(log_shape)
        return float(weights(shape)[0] @ log_x) - 1 / shape - log_mean

    low, high = _SHAPES[0], min(_SHAPES[1], grid.parent.moment_order())
    shape = math.exp(float(brentq(score, math.log(low), math.log(high), xtol=1e-15)))  # type: ignore[arg-type]
    return WeibullProjection(shape, math.exp(weights(shape)[1] / shape))
