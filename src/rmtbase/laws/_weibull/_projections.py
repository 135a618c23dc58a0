"""Two other projections of a parent law on the Weibull family: maximum likelihood and matching of two moments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from rmtbase.errors import ParameterError
from rmtbase.laws._element._panels import Panels, panels
from rmtbase.laws._element.parents import Parent, require_parent
from rmtbase.shown import in_one_line

_SHAPES = (1e-3, 1e3)


@in_one_line
@dataclass(frozen=True)
class WeibullProjection:
    """Member of the Weibull family that a criterion assigns to a parent law."""

    shape: float  # k
    scale: float  # λ, in the units of the parent's σ
    divergence: float  # D_KL(parent ‖ Weibull(k, λ)) for the law of |w|, in nats


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

    def score(shape: float) -> float:
        return float(weights(shape)[0] @ log_x) - 1 / shape - log_mean

    shape = _root(score, _SHAPES[0], min(_SHAPES[1], grid.parent.moment_order()))
    return _projection(grid, shape, weights(shape)[1] / shape)


def weibull_moment_match(distribution: str | Parent = "normal") -> WeibullProjection:
    """Return the Weibull law with the mean and the mean square of |w|.

    k solves Γ(1+2/k)/Γ²(1+1/k) = E[w²]/E[|w|]², whose left side falls with k; λ = E[|w|]/Γ(1+1/k).

    Numerical, with a relative error of 1e-13. ``distribution`` is as in :func:`weibull_anchor`, and must have a finite
    second moment.
    """
    parent = require_parent(distribution)
    if parent.moment_order() <= 2:
        raise ParameterError("distribution", parent, "a parent with a finite second moment")
    grid = panels(parent)
    x = np.exp(grid.log_x)
    mean, mean_square = float(grid.probability @ x), float(grid.probability @ (x * x))
    excess = math.log(mean_square) - 2 * math.log(mean)
    shape = _root(lambda k: excess - float(gammaln(1 + 2 / k) - 2 * gammaln(1 + 1 / k)), *_SHAPES)
    return _projection(grid, shape, math.log(mean) - float(gammaln(1 + 1 / shape)))


def _root(increasing: Callable[[float], float], low: float, high: float) -> float:
    log_k = brentq(lambda log_k: increasing(math.exp(log_k)), math.log(low), math.log(high), xtol=1e-15)
    return math.exp(float(log_k))  # type: ignore[arg-type]


def _projection(grid: Panels, shape: float, log_scale: float) -> WeibullProjection:
    """Build the projection; its D_KL(parent ‖ Weibull(k, λ)) is E ln(x f) − E[ln k + k ln(x/λ) − (x/λ)^k]."""
    reduced = shape * (grid.log_x - log_scale)
    density = np.maximum(grid.density, np.finfo(float).tiny)
    with np.errstate(over="ignore"):
        terms = np.log(density) - math.log(shape) - reduced + np.exp(reduced)
    return WeibullProjection(shape, math.exp(log_scale), float(grid.probability @ terms))
