"""Correlation of two Weibull scales over sizes and steps, and the part that a shared initial σ builds in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer, require_repeats, require_seed
from rmtbase.results.comparison._scale_law import positive_numbers
from rmtbase.shown import in_one_line

_DRAWS = 9_999


@in_one_line
@dataclass(frozen=True)
class PairedGrowth:
    """Pearson's r of ln λ of two components over many (model, step)."""

    #: n, n_initial: number of points, and number of points before training
    n: int
    n_initial: int
    correlation: float  #: r of all points
    #: mean r if the initial points keep their place on the diagonal and the later points are paired at random. This is
    #: the r of two components that share σ before training, and nothing after it.
    built_in: float
    built_in_95: float  #: 95 % quantile of r under such random pairings
    #: one-sided p-value of r against the random pairings. It assumes that under the null all pairings of the later
    #: points are equally likely. NaN if fewer than two points are later.
    p_value: float
    later_correlation: float  #: r of only the later points; NaN if there are fewer than three


def paired_growth(
    first: ArrayLike, second: ArrayLike, initial: ArrayLike, draws: int = _DRAWS, seed: int = 0
) -> PairedGrowth:
    """Correlate ln λ of two components, and compare r with the value that their shared start builds in.

    W_O and the output projection of an MLP are drawn at one σ, so that before training both have λ₀ = 0.8875 σ. These
    points lie on the diagonal, spread as far as σ differs between model sizes, whatever training does later.

    Args:
        first: λ of one component at each point, positive.
        second: λ of the other there.
        initial: whether each point is before training.
        draws: number of random pairings of the later points.
        seed: seed of the pairings.

    Raises:
        ParameterError: fewer than three positive numbers for each, or another number of flags.

    Source: T. Ding, arXiv:2605.18898 (2026), 5.3, whose function F8 gives only r.
    """
    x, y = (np.log(positive_numbers(name, values)) for name, values in (("first", first), ("second", second)))
    start = _flags(initial)
    if not x.size == y.size == start.size or x.size < 3:
        raise ParameterError("second", (y.size, start.size), f"as many values as first, {x.size}, and at least 3")
    draws = require_repeats("draws", draws)
    later = np.flatnonzero(~start)
    paired = np.tile(y, (draws, 1))
    paired[:, later] = np.random.default_rng(require_seed(seed)).permuted(paired[:, later], axis=1)
    dx, spread = x - x.mean(), np.sqrt(x.var() * y.var()) * x.size
    with np.errstate(invalid="ignore", divide="ignore"):
        null, observed = paired @ dx / spread, float(y @ dx / spread)
    return PairedGrowth(
        n=x.size,
        n_initial=int(start.sum()),
        correlation=observed,
        built_in=float(null.mean()),
        built_in_95=float(np.quantile(null, 0.95)),
        p_value=float((null >= observed - 1e-12).sum() + 1) / (draws + 1) if later.size > 1 else float("nan"),
        later_correlation=float(np.corrcoef(x[later], y[later])[0, 1]) if later.size > 2 else float("nan"),
    )


def built_in_correlation(starts: ArrayLike, ends: ArrayLike, n_later: int) -> float:
    """Compute the r of ln λ that a shared σ builds in, from only the mean and the spread of the later values.

    With a_j = ln of the starts, m and s the mean and standard deviation of ln of the ends, J starts and n later points,
    r = B / (B + (n − 1) s²), B = Σ (a_j − ā)² + (ā − m)² J n/(J + n): the ratio of the expectations of numerator and
    denominator.

    Args:
        starts: λ of each model before training, the same for both components.
        ends: λ of a component of each model after training.
        n_later: number of later points.

    Raises:
        ParameterError: a number is not positive.
    """
    a, b = (np.log(positive_numbers(name, values)) for name, values in (("starts", starts), ("ends", ends)))
    n, later = a.size, require_positive_integer("n_later", n_later)
    if n == 0 or b.size < 2:
        raise ParameterError("ends", b.size, "two numbers at least, and a start")
    between = float(((a - a.mean()) ** 2).sum() + (a.mean() - b.mean()) ** 2 * n * later / (n + later))
    return between / (between + (later - 1) * float(b.var(ddof=1)))


def _flags(initial: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(initial, dtype=bool)
    except (TypeError, ValueError) as error:
        raise ParameterError("initial", type(initial).__name__, f"True or False for each point ({error})") from error
