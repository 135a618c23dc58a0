"""Band of median Weibull shapes over models, with the band of untrained models as its null."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmtbase.errors import ParameterError
from rmtbase.laws import parents, weibull_null
from rmtbase.parameters import require_real_numbers, require_repeats, require_seed
from rmtbase.shown import in_one_line

_DRAWS = 4_000


@in_one_line
@dataclass(frozen=True)
class ShapeBand:
    """Median Weibull shape k of each model, the median over its matrices."""

    medians: tuple[float, ...]  #: median of each model
    #: low, high: smallest and largest median
    low: float
    high: float
    #: coefficient of variation of the medians, standard deviation (n − 1) over mean; NaN for one model
    variation: float
    null_medians: tuple[float, ...]  #: for each model the mean of the median of untrained matrices of the same N
    null_errors: tuple[float, ...]  #: standard deviations of the same
    null_variation: float  #: mean coefficient of variation of n untrained models of these sizes
    null_variation_95: float  #: 95 % quantile of the same
    #: share of untrained cohorts that vary at least as much, never below 1/(draws + 1); NaN for one model
    p_value: float


def shape_band(
    shapes: Sequence[ArrayLike],
    numbers: Sequence[ArrayLike],
    distribution: str | parents.Parent = "normal",
    draws: int = _DRAWS,
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
