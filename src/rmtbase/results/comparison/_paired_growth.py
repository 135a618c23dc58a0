"""The correlation of two scales over sizes and steps, and the part of it that a shared initial σ builds in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_positive_integer
from rmtbase.results.comparison._scale_law import positive_numbers
from rmtbase.shown import in_one_line

_DRAWS = 9_999


@in_one_line
@dataclass(frozen=True)
class PairedGrowth:
    """Pearson's r of ln λ of two components over many (model, step).

    Attributes:
        n, n_initial: points, and those of them that are before training.
        correlation: of all points.
        built_in: mean r where the initial points stand as they are, on the diagonal, and the later ones are paired at
            random: what two components that share σ before training, and nothing after it, give.
        built_in_95: 95 % of such r are below this.
        p_value: that of r against those: one-sided. It assumes that under the null every pairing of the later points
            is as likely as any. NaN where fewer than two points are later.
        later_correlation: r of the later points alone; NaN of fewer than three.
    """

    n: int
    n_initial: int
    correlation: float
    built_in: float
    built_in_95: float
    p_value: float
    later_correlation: float


def paired_growth(
    first: ArrayLike, second: ArrayLike, initial: ArrayLike, draws: int = _DRAWS, seed: int = 0
) -> PairedGrowth:
    """r of ln λ of two components, beside what their shared start builds in.

    W_O and the way out of an MLP are drawn at one σ, so that before training both are λ₀ = 0.8875 σ, whatever training
    does: those points lie on the diagonal, as far apart as the sizes' σ.

    Args:
        first: λ of one component at each point, positive.
        second: λ of the other there.
        initial: whether the point is before training.
        draws: random pairings of the later points.
        seed: of these.

    Raises:
        ParameterError: not three positive numbers at least for each, or not as many flags.

    Source: T. Ding, arXiv:2605.18898 (2026), 5.3, whose function F8 gives r alone.
    """
    x, y = (np.log(positive_numbers(name, values)) for name, values in (("first", first), ("second", second)))
    start = np.asarray(initial, dtype=bool)
    if not x.size == y.size == start.size or x.size < 3:
        raise ParameterError("second", (y.size, start.size), f"as many as first, {x.size}, and 3 at least")
    draws = require_positive_integer("draws", draws)
    later = np.flatnonzero(~start)
    paired = np.tile(y, (draws, 1))
    paired[:, later] = np.random.default_rng(seed).permuted(paired[:, later], axis=1)
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
    """The r of ln λ that a shared σ builds in where nothing but the mean and the spread of later values is known.

    With a_j = ln of the starts, m and s the mean and standard deviation of ln of the ends, J starts and n later points,
    r = B / (B + (n − 1) s²), B = Σ (a_j − ā)² + (ā − m)² J n/(J + n): expectations of numerator and denominator.

    Args:
        starts: λ before training of each model, the same for both components.
        ends: λ of a component after training, of each model.
        n_later: how many points are later.

    Raises:
        ParameterError: numbers that are not positive.
    """
    a, b = (np.log(positive_numbers(name, values)) for name, values in (("starts", starts), ("ends", ends)))
    n, later = a.size, require_positive_integer("n_later", n_later)
    between = float(((a - a.mean()) ** 2).sum() + (a.mean() - b.mean()) ** 2 * n * later / (n + later))
    return between / (between + (later - 1) * float(b.var(ddof=1)))
