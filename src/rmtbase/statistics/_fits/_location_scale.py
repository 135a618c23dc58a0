"""The normal and the logistic law fitted to the elements of a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.parameters import require_finite_number
from rmtbase.statistics._fits._elements import require_elements
from rmtbase.statistics._fits._newton import maximize_likelihood


@dataclass(frozen=True)
class _LocationScaleFit:
    location: float
    scale: float
    location_standard_error: float
    scale_standard_error: float
    log_likelihood: float
    count: int


class NormalFit(_LocationScaleFit):
    """The normal law fitted to n elements.

    Attributes:
        location, scale: mean μ and standard deviation σ of the law, in the units of the elements.
        location_standard_error: σ/√n, or 0 where the location was given.
        scale_standard_error: σ/√(2n).
        log_likelihood: ln of the density of all the elements.
        count: n.
    """


class LogisticFit(_LocationScaleFit):
    """The logistic law fitted to n elements.

    Attributes:
        location: the centre μ, in the units of the elements.
        scale: s; the law's standard deviation is π s/√3.
        location_standard_error: s √(3/n), or 0 where the location was given.
        scale_standard_error: s √(9/((3 + π²) n)).
        log_likelihood: ln of the density of all the elements.
        count: n.
    """


def fit_normal(matrix: ArrayLike, location: float | None = None) -> NormalFit:
    """Maximum likelihood of i.i.d. normal elements: σ² is the mean of (w − μ)², μ the mean of w unless it is given.

    To draw matrices from the fit::

        fit = rmtbase.statistics.fit_normal(w)
        null = rmtbase.ensembles.initialized_matrix(*w.shape, "normal", mean=fit.location, std=fit.scale)

    Args:
        matrix: elements of any shape and real dtype; widened to float64 block by block.
        location: the mean, if it is known; fitted if None.

    Raises:
        ParameterError: elements that are not real, masked, not finite, fewer than two, or all equal; or a location not
            finite.
    """
    known = None if location is None else require_finite_number("location", location)
    elements = require_elements(matrix)
    mean = elements.mean_of(np.sum) if known is None else (known - elements.centre) / elements.spread
    n, scale = elements.count, elements.spread * math.sqrt(elements.mean_of(lambda z: np.sum((z - mean) ** 2)))
    return NormalFit(
        elements.centre + elements.spread * float(mean) if known is None else known,
        scale,
        scale / math.sqrt(n) if known is None else 0.0,
        scale / math.sqrt(2 * n),
        -n * (0.5 + 0.5 * math.log(2 * math.pi) + math.log(scale)),
        n,
    )


def fit_logistic(matrix: ArrayLike, location: float | None = None) -> LogisticFit:
    """Maximum likelihood of i.i.d. logistic elements, density 1/(4 s cosh²((w − μ)/(2 s))).

    Standard errors are those of independent elements, from the Fisher information. To draw matrices from the fit::

        fit = rmtbase.statistics.fit_logistic(w)
        null = rmtbase.ensembles.logistic_matrix(*w.shape, fit.scale, fit.location)

    Args:
        matrix: elements of any shape and real dtype; widened to float64 block by block.
        location: μ, if it is known; fitted if None.

    Raises:
        ParameterError: elements that are not real, masked, not finite, fewer than two, or all equal; or a location not
            finite.
        FitError: no maximum of the likelihood was found.
    """
    found = maximize_likelihood("logistic", _terms, matrix, location)
    return LogisticFit(
        found.location,
        found.scale,
        found.scale * math.sqrt(3 / found.count) if location is None else 0.0,
        found.scale * math.sqrt(9 / ((3 + math.pi**2) * found.count)),
        found.log_likelihood,
        found.count,
    )


def _terms(z: Float[np.ndarray, " number"], at: Float[np.ndarray, " parameter"]) -> Float[np.ndarray, " term"]:
    """Sums of ln f, its gradient and Hessian in (m/s, ln s), with u = (z − m)/s and (ln f)' = −tanh(u/2) in u."""
    location, log_scale = at
    u = (z - location) * math.exp(-log_scale)
    magnitude = np.abs(u)
    decay = np.exp(-magnitude)
    slope = np.copysign((1 - decay) / (1 + decay), u)
    curvature = 2 * decay / (1 + decay) ** 2  # 1/(2 cosh²(u/2))
    u_slope = u @ slope
    return np.array(
        [
            -np.sum(magnitude) - 2 * np.sum(np.log1p(decay)) - z.size * log_scale,
            slope.sum(),
            u_slope - z.size,
            -curvature.sum(),
            -slope.sum() - u @ curvature,
            -u_slope - (u * u) @ curvature,
        ]
    )
