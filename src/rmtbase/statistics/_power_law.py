"""Power laws in the tail of a sample: exponent, start of the tail, and goodness of fit."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer, require_real_numbers, require_seed
from rmtbase.shown import in_one_line

Sample = Float[np.ndarray, " value"]


@in_one_line
@dataclass(frozen=True)
class PowerLawFit:
    """Power law p(x) = (α - 1)/x_min (x/x_min)^-α fitted to the values x ≥ x_min."""

    exponent: float  # α; infinity if all values of the tail are x_min
    x_min: float  # smallest value of the tail
    tail: int  # number of values from x_min on
    # largest difference between the empirical and fitted distribution functions of the tail (Kolmogorov–Smirnov)
    distance: float

    @property
    def standard_error(self) -> float:
        """(α - 1)/√n, n the number of values of the tail, for independent values and a given x_min."""
        return (self.exponent - 1.0) / math.sqrt(self.tail)


def power_law_fit(values: ArrayLike, x_min: float | None = None) -> PowerLawFit:
    """Fit α = 1 + n/Σ ln(x_i/x_min) to a tail: Clauset, Shalizi and Newman, SIAM Review 51, 661 (2009)."""
    # Without x_min the tail with the smallest Kolmogorov–Smirnov distance, of both sides of each step; their program
    # and the package powerlaw use one side. A fit shows no power law: power_law_p_value, and heavy_tails for
    # eigenvalues, do.
    x = _require_sample(values)
    if x_min is None:
        starts = np.flatnonzero(np.diff(x[:-1], prepend=0.0) > 0.0).tolist()
        fits = [_fit(x, start) for start in starts if x[start] < x[-1]]
        return min(fits, key=lambda fit: fit.distance)
    start = int(np.searchsorted(x, float(x_min)))
    if not 0.0 < float(x_min) < x[-1] or start > x.size - 2:
        expected = f"a positive number below the largest value {x[-1]:g}, with two values in the tail"
        raise ParameterError("x_min", x_min, expected)
    return _fit(x, start, float(x_min))


def power_law_p_value(values: ArrayLike, draws: int = 99, seed: int = 0) -> float:
    """p-value of a power law in the tail of independent values, by the authors' bootstrap (section 4)."""
    x, count = _require_sample(values), require_positive_integer("draws", draws)
    fit, rng = power_law_fit(x), np.random.default_rng(require_seed(seed))
    below = x[x < fit.x_min]
    farther = 0
    for _ in range(count):
        in_tail = int(rng.binomial(x.size, fit.tail / x.size))
        tail = fit.x_min * rng.random(in_tail) ** (-1.0 / (fit.exponent - 1.0))
        drawn = np.append(rng.choice(below, x.size - in_tail) if below.size else [], tail)
        farther += drawn.max() > drawn.min() and power_law_fit(drawn).distance >= fit.distance
    return (farther + 1) / (count + 1)


def _fit(x: Sample, start: int, x_min: float | None = None) -> PowerLawFit:
    tail = x[start:]
    lowest = float(tail[0]) if x_min is None else x_min
    log_ratio = np.log(tail / lowest)
    n, total = tail.size, float(log_ratio.sum())
    steps = np.arange(n + 1) / n
    fitted = -np.expm1(-n / total * log_ratio)
    distance = max(float((steps[1:] - fitted).max()), float((fitted - steps[:-1]).max()))
    return PowerLawFit(1.0 + n / total, lowest, n, distance)


def _require_sample(values: ArrayLike) -> Sample:
    x = np.sort(require_real_numbers("values", values), axis=None)
    if not (np.isfinite(x).all() and (x > 0.0).all()):
        raise ParameterError("values", f"{x.size} values from {x[0]:g} to {x[-1]:g}", "finite positive numbers")
    if x.size < 2 or x[0] == x[-1]:
        raise ParameterError("values", f"{x.size} values", "at least two different ones")
    return x
