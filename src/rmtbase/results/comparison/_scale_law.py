"""Fit of the scale of trained weights to √(η/λ_wd): line through the origin, exponent, and a permutation test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations
from math import factorial
from typing import NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import stdtr

from rmtbase.errors import ParameterError
from rmtbase.parameters import require_real_numbers
from rmtbase.results.comparison._training_budget import budget_state
from rmtbase.shown import in_one_line

_LISTED = 8  # largest number of models for which all orders are tried
_DRAWS = 9_999


@in_one_line
@dataclass(frozen=True)
class ScaleLaw:
    """λ of n models against x = √(η/λ_wd).

    Attributes:
        n: number of models.
        slope: slope of the line through the origin, Σ x λ / Σ x².
        r_squared: R² of that line about the mean of λ; negative if a constant fits better.
        deviations: |line/λ − 1| of each model.
        correlation: Pearson's r of x and λ; it belongs to the line with an intercept.
        p_value: two-sided p-value of r: the share of orders of λ whose |r| is as large (all n! orders up to n = 8). It
            assumes that under the null all orders of the models' λ are equally likely.
        intercept, intercept_error: intercept of the least-squares line with an intercept, and its standard error.
        exponent, exponent_error: b of λ ∝ x^b by least squares of logarithms, and its standard error.
        p_value_of_one: p-value of b = 1 by Student's t with n − 2 degrees of freedom; NaN for two models.
    """

    n: int
    slope: float
    r_squared: float
    deviations: tuple[float, ...]
    correlation: float
    p_value: float
    intercept: float
    intercept_error: float
    exponent: float
    exponent_error: float
    p_value_of_one: float


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
    x, y = (positive_numbers(name, values) for name, values in (("roots", roots), ("scales", scales)))
    if x.size != y.size or x.size < 2:
        raise ParameterError("scales", y.size, f"as many values as roots, {x.size}, and at least 2")
    for name, values in (("roots", x), ("scales", y)):
        if np.ptp(values) == 0:
            raise ParameterError(name, values.tolist(), "values that are not all the same")
    slope = float(x @ y / (x @ x))
    about_mean = float(((y - y.mean()) ** 2).sum())
    _, intercept, _, intercept_error = _line(x, y)
    exponent, _, exponent_error, _ = _line(np.log(x), np.log(y))
    degrees = x.size - 2
    with np.errstate(divide="ignore", invalid="ignore"):
        p_value_of_one = 2.0 * stdtr(degrees, -abs((1.0 - exponent) / exponent_error)) if degrees else np.nan
    return ScaleLaw(
        n=x.size,
        slope=slope,
        r_squared=1.0 - float(((y - slope * x) ** 2).sum()) / about_mean,
        deviations=tuple(np.abs(slope * x / y - 1.0).tolist()),
        correlation=float(np.corrcoef(x, y)[0, 1]),
        p_value=_order_p_value(x, y, seed),
        intercept=intercept,
        intercept_error=intercept_error,
        exponent=exponent,
        exponent_error=exponent_error,
        p_value_of_one=float(p_value_of_one),
    )


def positive_numbers(name: str, values: ArrayLike) -> Float[np.ndarray, " number"]:
    """Return the numbers as an array, or raise :class:`ParameterError` unless they are positive, finite and 1-D."""
    found = require_real_numbers(name, values)
    if found.ndim != 1 or not (np.isfinite(found) & (found > 0)).all():
        raise ParameterError(name, found, "positive numbers in one dimension")
    return found


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float, float]:
    """Slope and intercept by least squares, and their standard errors, which are NaN for two points."""
    n, dx = x.size, x - x.mean()
    square = float(dx @ dx)
    slope = float(dx @ y) / square
    intercept = float(y.mean()) - slope * float(x.mean())
    rest = float(((y - intercept - slope * x) ** 2).sum())
    spread = np.sqrt(rest / (n - 2)) if n > 2 else np.nan
    return slope, intercept, float(spread / np.sqrt(square)), float(spread * np.sqrt(1 / n + x.mean() ** 2 / square))


def _order_p_value(x: np.ndarray, y: np.ndarray, seed: int) -> float:
    n, dx, dy = x.size, x - x.mean(), y - y.mean()
    observed = abs(float(dx @ dy)) * (1.0 - 1e-12)  # so that orders equal up to rounding are counted
    if n <= _LISTED:
        orders = np.array(list(permutations(range(n))))
        return float((np.abs(dy[orders] @ dx) >= observed).sum()) / factorial(n)
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(n), (_DRAWS, 1)), axis=1)
    return float((np.abs(dy[orders] @ dx) >= observed).sum() + 1) / (_DRAWS + 1)


class PublishedModel(NamedTuple):
    """Numbers printed for one model; NaN if a table lacks it."""

    name: str
    peak_rate: float
    weight_decay: float
    mean_scale: float
    budget: float = math.nan
    max_to_q99: float = math.nan


PUBLISHED_MODELS = (
    PublishedModel("Pythia-70m", 1.0e-3, 0.01, 0.0224, 1.43, 7.2),
    PublishedModel("Pythia-160m", 6.0e-4, 0.01, 0.0200, 0.86, 6.6),
    PublishedModel("Pythia-410m", 3.0e-4, 0.01, 0.0190, 0.43, 8.0),
    PublishedModel("Pythia-1B", 3.0e-4, 0.01, 0.0191, 0.43, 11.3),
    PublishedModel("Pythia-6.9B", 1.2e-4, 0.01, 0.0149, 0.17, 8.6),
    PublishedModel("OLMo-1-7B", 3.0e-4, 0.10, 0.0032, max_to_q99=27.7),
    PublishedModel("OLMo-2-7B", 3.0e-4, 0.10, 0.0167),
    PublishedModel("LLaMA-3-8B", 3.0e-4, 0.10, 0.0097),
    PublishedModel("Mistral-7B", 3.0e-4, 0.10, 0.0026),
    PublishedModel("Qwen2.5-7B", 3.0e-4, 0.10, 0.0138),
    PublishedModel("Qwen2.5-14B", 3.0e-4, 0.10, 0.0158, max_to_q99=18.4),
    PublishedModel("Qwen3-8B", 5.0e-4, 0.10, 0.0225, max_to_q99=17.3),
)
"""Published Weibull scales and training settings of twelve models, to the digits that were printed.

From T. Ding, *A Two-Parameter Weibull Framework for Diagnosing Transformer Weight Distributions* (2026),
arXiv:2605.18898v1, CC BY 4.0: table 4, with max/q99 and the training budget of the models in tables 2 and 3."""


_FUSED_COMPONENTS = ("attention_query_key_value", "attention_output", "mlp_in", "mlp_out")
_GATED_COMPONENTS = ("attention_query", "attention_key", "attention_value", "attention_output",
                     "mlp_gate", "mlp_in", "mlp_out")  # fmt: skip
PUBLISHED_SHAPES: dict[str, tuple[float, ...]] = {
    "Pythia-70m": (1.0488, 1.1838, 1.1903, 1.1898),
    "Pythia-160m": (1.0982, 1.1917, 1.1927, 1.1953),
    "Pythia-410m": (1.1466, 1.1988, 1.1991, 1.2011),
    "Pythia-1B": (1.1758, 1.1990, 1.1997, 1.1993),
    "Pythia-6.9B": (1.1726, 1.1986, 1.2026, 1.2010),
    "OLMo-1-7B": (0.8123, 0.7601, 1.0601, 1.0409, 1.2010, 1.2039, 1.2041),
    "OLMo-2-7B": (0.9895, 0.9716, 1.1930, 1.1958, 1.1976, 1.2032, 1.2031),
    "LLaMA-3-8B": (1.1352, 1.1462, 1.1710, 1.1841, 1.1890, 1.1971, 1.1931),
    "Mistral-7B": (1.1485, 1.1291, 1.1702, 1.1902, 1.1947, 1.1964, 1.1926),
    "Qwen2.5-7B": (1.1328, 1.1033, 1.1430, 1.1665, 1.1904, 1.1888, 1.1830),
    "Qwen2.5-14B": (1.1638, 1.1413, 1.1628, 1.1903, 1.1929, 1.1926, 1.1897),
    "Qwen3-8B": (1.1623, 1.1539, 1.1581, 1.1802, 1.1872, 1.1886, 1.1846),
}
"""Median Weibull shape k over the layers of these models, of the components of either tuple above.

From DATABASE_v9_1.csv of the repository of the package npm-weibull-py (github.com/tiexinding/NPM-Weibull-public at
213fd405, 2026-08-15; T. Ding, CC BY 4.0), to four decimals. The paper prints ranges of them only, and had 27 of the
48 layers of Qwen2.5-14B."""


def published_shapes() -> xr.DataArray:
    """Return the published median k by model and component; NaN for a component that a model lacks."""
    models = [one.name for one in PUBLISHED_MODELS]
    components = list(dict.fromkeys((*_FUSED_COMPONENTS[:1], *_GATED_COMPONENTS)))
    shapes = xr.DataArray(
        np.full((len(models), len(components)), np.nan), {"published_model": models, "component": components}
    )
    for name, values in PUBLISHED_SHAPES.items():
        of = _FUSED_COMPONENTS if len(values) == len(_FUSED_COMPONENTS) else _GATED_COMPONENTS
        shapes.loc[name, list(of)] = np.array(values)
    return shapes


def published_models() -> xr.Dataset:
    """Dataset of the published models, in the layout of the group ``/published`` of a comparison."""
    dim = "published_model"
    columns = {name: [getattr(one, name) for one in PUBLISHED_MODELS] for name in PublishedModel._fields}
    states = ["" if math.isnan(budget) else budget_state(budget) for budget in columns["budget"]]
    return xr.Dataset(
        {
            "mean_scale": (dim, columns["mean_scale"]),
            "root": (dim, np.sqrt(np.array(columns["peak_rate"]) / np.array(columns["weight_decay"]))),
            "budget": (dim, columns["budget"]),
            "budget_state": (dim, states),
            "max_to_q99": (dim, columns["max_to_q99"]),
            "shape": published_shapes(),
        },
        {dim: columns["name"]},
    )
