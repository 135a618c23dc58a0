"""The normal law fitted to the elements of a matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.parameters import require_finite_number
from rmtbase.statistics._fits._elements import require_elements


@dataclass(frozen=True)
class NormalFit:
    """The normal law fitted to n elements.

    Attributes:
        location, scale: mean μ and standard deviation σ of the law, in the units of the elements.
        location_standard_error: σ/√n, or 0 where the location was given.
        scale_standard_error: σ/√(2n).
        log_likelihood: ln of the density of all the elements.
        count: n.
    """

    location: float
    scale: float
    location_standard_error: float
    scale_standard_error: float
    log_likelihood: float
    count: int


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
