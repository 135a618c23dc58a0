"""Training budgets T/τ = T η λ_wd of models, and findings about all of them: shapes, law of scales, and growth."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws import parents, weibull_null
from rmtbase.parameters import (
    require_positive_integer,
    require_positive_number,
    require_real_numbers,
    require_repeats,
    require_seed,
)
from rmtbase.results.comparison.schema import PairedGrowth, ScaleLaw, ShapeBand
from rmtbase.shown import in_one_line

_COHORTS = 4_000  # simulated untrained cohorts
_ORDERS = 9_999  # random orders or pairings
_LISTED = 8  # largest number of models for which all orders are tried
# Upper end of "approaching" and lower end of "near-saturated". The source prints one example of each, 0.43 and 0.86,
# and no border between them; the ends allow for rounding of the printed numbers.
_APPROACHING, _NEAR_SATURATED = 0.435, 0.855


@in_one_line
@dataclass(frozen=True)
class Training:
    """Settings of a training run with AdamW.

    Source: T. Ding, arXiv:2605.18898 (2026), 4.2 and A.5; X. Wang and L. Aitchison, arXiv:2405.13698 (2024).
    """

    peak_rate: float  #: η > 0, the largest learning rate
    weight_decay: float  #: λ_wd > 0, decoupled, multiplied by the learning rate
    steps: int  #: T, the number of optimizer steps

    def __post_init__(self) -> None:
        for name in ("peak_rate", "weight_decay"):
            object.__setattr__(self, name, require_positive_number(name, getattr(self, name)))
        object.__setattr__(self, "steps", require_positive_integer("steps", self.steps))

    @property
    def budget(self) -> float:
        """T/τ = T η λ_wd: the steps in units of τ = 1/(η λ_wd), as if all were at the peak rate."""
        return self.steps * self.peak_rate * self.weight_decay

    @property
    def root(self) -> float:
        """√(η/λ_wd), to which the scale of a weight moved by noise tends to be proportional."""
        return math.sqrt(self.peak_rate / self.weight_decay)

    @property
    def state(self) -> str:
        """The published state of this budget; see :func:`budget_state`."""
        return budget_state(self.budget)

    def initial_share(self, mean_rate: float = 1.0) -> float:
        """Share of each initial weight that remains after weight decay, exp(−r T/τ).

        ``mean_rate`` is r, the mean learning rate divided by the peak one: 1 if constant, 0.55 for 1 % of warmup and a
        cosine down to a tenth.
        """
        return math.exp(-require_positive_number("mean_rate", mean_rate) * self.budget)


def budget_state(budget: float) -> str:
    """Name the published state of T/τ: "saturated" above 1, "transition" below 0.2, and two states between these.

    A budget between the published examples of these is called "approaching or near-saturated".

    Raises:
        ParameterError: ``budget`` is not a positive number.

    Source: T. Ding, arXiv:2605.18898 (2026), 5.2, Table 3 and Fig. 8.
    """
    budget = require_positive_number("budget", budget)
    if budget > 1.0:
        return "saturated"
    if budget >= _NEAR_SATURATED:
        return "near-saturated"
    if budget < 0.2:
        return "transition"
    return "approaching" if budget <= _APPROACHING else "approaching or near-saturated"


def shape_band(
    shapes: Sequence[ArrayLike],
    numbers: Sequence[ArrayLike],
    distribution: str | parents.Parent = "normal",
    draws: int = _COHORTS,
    seed: int = 0,
) -> ShapeBand:
    """Compute the cross-model band of k, and the band of independent untrained matrices of the same N.

    Under the null the k̂ are independent and normal, with mean and standard deviation from
    :func:`rmtbase.laws.weibull_null` at their N. Medians and their variation are simulated. The null is asymptotic in
    N, as that law is.

    Args:
        shapes: k̂ of the matrices of each model.
        numbers: N, the number of weights of each matrix.
        distribution: distribution of the weights before training.
        draws: number of simulated cohorts.
        seed: seed of the simulation.

    Raises:
        ParameterError: no model, a model without a matrix, or shapes and numbers of different lengths.

    Source: T. Ding, arXiv:2605.18898 (2026), 3.1, whose function F4 gives the band and its variation.
    """
    observed = [require_real_numbers("shapes", values).ravel() for values in shapes]
    counts = [require_real_numbers("numbers", values).ravel() for values in numbers]
    sizes, expected = ([values.size for values in models] for models in (counts, observed))
    if not observed or sizes != expected or not min(expected):
        raise ParameterError("numbers", sizes, f"{expected}, each above 0")
    draws, rng = require_repeats("draws", draws), np.random.default_rng(require_seed(seed))
    law = weibull_null(0.1, distribution).shape
    untrained = (
        law.limit + law.drift / n + law.spread / np.sqrt(n) * rng.standard_normal((draws, n.size)) for n in counts
    )
    drawn = np.stack([np.median(values, axis=1) for values in untrained], axis=1)
    medians = np.array(list(map(np.median, observed)))
    null = _variation(drawn)
    return ShapeBand(
        medians=tuple(medians.tolist()),
        low=float(medians.min()),
        high=float(medians.max()),
        variation=float(_variation(medians)),
        null_medians=tuple(drawn.mean(axis=0).tolist()),
        null_errors=tuple(drawn.std(axis=0, ddof=1).tolist()),
        null_variation=float(null.mean()),
        null_variation_95=float(np.quantile(null, 0.95)),
        p_value=float((null >= _variation(medians)).sum() + 1) / (draws + 1) if medians.size > 1 else float("nan"),
    )


def _variation(medians: np.ndarray) -> np.ndarray:
    if medians.shape[-1] < 2:
        return np.full(medians.shape[:-1], np.nan)
    return medians.std(axis=-1, ddof=1) / medians.mean(axis=-1)


def scale_law(roots: ArrayLike, scales: ArrayLike, seed: int = 0) -> ScaleLaw:
    """Fit the scales λ of models to x = √(η/λ_wd).

    Args:
        roots: x of each model, positive, not all equal.
        scales: λ of each model.
        seed: seed of the random orders, drawn if there are too many to try all.

    Raises:
        ParameterError: fewer than two positive numbers for each, different numbers of x and λ, or all x or all λ equal.

    Source: T. Ding, arXiv:2605.18898 (2026), 5.4, whose function F5 fits the line through the origin.
    """
    x, y = (_positive_numbers(name, values) for name, values in (("roots", roots), ("scales", scales)))
    if x.size != y.size or x.size < 2:
        raise ParameterError("scales", y.size, f"as many values as roots, {x.size}, and at least 2")
    for name, values in (("roots", x), ("scales", y)):
        if np.ptp(values) == 0:
            raise ParameterError(name, values.tolist(), "values that are not all the same")
    slope = float(x @ y / (x @ x))
    about_mean = float(((y - y.mean()) ** 2).sum())
    _, intercept, _, intercept_error = _line(x, y)
    exponent, _, exponent_error, _ = _line(np.log(x), np.log(y))
    n, dx, dy = x.size, x - x.mean(), y - y.mean()
    observed = abs(float(dx @ dy)) * (1.0 - 1e-12)  # so that orders equal up to rounding are counted
    if n <= _LISTED:
        orders = np.array(list(permutations(range(n))))
        p_value = float((np.abs(dy[orders] @ dx) >= observed).sum()) / math.factorial(n)
    else:
        orders = np.random.default_rng(require_seed(seed)).permuted(np.tile(np.arange(n), (_ORDERS, 1)), axis=1)
        p_value = float((np.abs(dy[orders] @ dx) >= observed).sum() + 1) / (_ORDERS + 1)
    return ScaleLaw(
        n=x.size,
        slope=slope,
        r_squared=1.0 - float(((y - slope * x) ** 2).sum()) / about_mean,
        deviations=tuple(np.abs(slope * x / y - 1.0).tolist()),
        correlation=float(np.corrcoef(x, y)[0, 1]),
        p_value=p_value,
        intercept=intercept,
        intercept_error=intercept_error,
        exponent=exponent,
        exponent_error=exponent_error,
    )


def _positive_numbers(name: str, values: ArrayLike) -> Float[np.ndarray, " number"]:
    numbers = require_real_numbers(name, values)
    if numbers.ndim != 1 or not (np.isfinite(numbers) & (numbers > 0)).all():
        raise ParameterError(name, numbers, "positive numbers in one dimension")
    return numbers


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Slope and intercept by least squares, and their standard errors, which are NaN for two points."""
    n, dx = x.size, x - x.mean()
    square = float(dx @ dx)
    slope = float(dx @ y) / square
    intercept = float(y.mean()) - slope * float(x.mean())
    residual = float(((y - intercept - slope * x) ** 2).sum())
    spread = np.sqrt(residual / (n - 2)) if n > 2 else np.nan
    return slope, intercept, float(spread / np.sqrt(square)), float(spread * np.sqrt(1 / n + x.mean() ** 2 / square))


def paired_growth(
    first: ArrayLike, second: ArrayLike, initial: ArrayLike, draws: int = _ORDERS, seed: int = 0
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
    x, y = (np.log(_positive_numbers(name, values)) for name, values in (("first", first), ("second", second)))
    try:
        start = np.asarray(initial, dtype=bool)
    except (TypeError, ValueError) as error:
        raise ParameterError("initial", type(initial).__name__, f"True or False for each point ({error})") from error
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
    a, b = (np.log(_positive_numbers(name, values)) for name, values in (("starts", starts), ("ends", ends)))
    n, later = a.size, require_positive_integer("n_later", n_later)
    if n == 0 or b.size < 2:
        raise ParameterError("ends", b.size, "two numbers at least, and a start")
    between = float(((a - a.mean()) ** 2).sum() + (a.mean() - b.mean()) ** 2 * n * later / (n + later))
    return between / (between + (later - 1) * float(b.var(ddof=1)))
