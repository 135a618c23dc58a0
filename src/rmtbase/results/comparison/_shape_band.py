"""The band of Weibull shapes over models, and how narrow that of models that have learned nothing would be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws import parents, weibull_null
from rmtbase.parameters import require_positive_integer
from rmtbase.shown import in_one_line

_DRAWS = 4_000


@in_one_line
@dataclass(frozen=True)
class ShapeBand:
    """Medians over its matrices of each model's Weibull shape k.

    Attributes:
        medians: of each model.
        low, high: the least and the largest of them.
        variation: their coefficient of variation, standard deviation (n − 1) over mean; NaN of one model.
        null_medians: means of what untrained matrices of the same N give.
        null_errors: standard deviations of these, one for each model.
        null_variation: mean coefficient of variation of n untrained models of these sizes.
        null_variation_95: 95 % of theirs are below this.
        p_value: the share of untrained cohorts that vary as much, at least 1/(draws + 1).
    """

    medians: tuple[float, ...]
    low: float
    high: float
    variation: float
    null_medians: tuple[float, ...]
    null_errors: tuple[float, ...]
    null_variation: float
    null_variation_95: float
    p_value: float


def shape_band(
    shapes: Sequence[ArrayLike],
    numbers: Sequence[ArrayLike],
    distribution: str | parents.Parent = "normal",
    draws: int = _DRAWS,
    seed: int = 0,
) -> ShapeBand:
    """The cross-model band of k, beside that of independent matrices of the same N that have learned nothing.

    Each k̂ of the null is normal with the mean and the standard deviation of :func:`rmtbase.laws.weibull_null` at its N,
    independent of the others; medians and their variation are drawn. Asymptotic in N as that law.

    Args:
        shapes: k̂ of the matrices of each model.
        numbers: N, how many weights each of them has.
        distribution: of the weights before training.
        draws: cohorts of the null.
        seed: of these.

    Raises:
        ParameterError: no model, one without a matrix, shapes and numbers of different length.

    Source: T. Ding, arXiv:2605.18898 (2026), 3.1, whose function F4 gives band and variation.
    """
    observed = [np.asarray(one, dtype=float).ravel() for one in shapes]
    counts = [np.asarray(one, dtype=float).ravel() for one in numbers]
    if not observed or [one.size for one in observed] != [one.size for one in counts] or not min(map(len, observed)):
        raise ParameterError("numbers", [one.size for one in counts], f"{[one.size for one in observed]}, each above 0")
    draws, rng = require_positive_integer("draws", draws), np.random.default_rng(seed)
    law = weibull_null(0.1, distribution).shape
    drawn = np.stack(
        [
            np.median(
                law.limit + law.drift / n + law.spread / np.sqrt(n) * rng.standard_normal((draws, n.size)), axis=1
            )
            for n in counts
        ],
        axis=1,
    )
    medians = np.array([np.median(one) for one in observed])
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
