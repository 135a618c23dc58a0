"""The self-normalised Gaussian null of one shape.

A trained head's σ is unknown and estimated from the head's own factors, σ̂² = ‖W‖_F²/(d h). A statistic that uses the
estimate has another (narrower) null than one that uses the true σ; so every null draw is rescaled by its own estimate
too, and observed and null values are the same function of their matrices. Calibration depends on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError, TableError
from rmtbase.montecarlo import PROBABILITIES
from rmtbase.statistics import SPECTRAL_STATISTICS, monte_carlo_p_value

EDGE_LEVEL = 1e-3
"""Probability with which a null head has an eigenvalue beyond an edge quantile, on each side."""

FALSE_DISCOVERY_RATE = 0.05

_DRAWS = 10_000
DRAWS_PER_TEST = 50  # the smallest q of a lone head is 2 · heads / (draws + 1): 0.04

Array = NDArray[np.float64]


def draws_for(n_heads: int) -> int:
    """Null draws with which one head alone among ``n_heads`` can reach q < 0.05: max(10 000, 50 n_heads)."""
    return max(_DRAWS, DRAWS_PER_TEST * n_heads)


@dataclass(frozen=True)
class HeadScores:
    """Scores of heads against a null: arrays of shape (..., statistic), or (...) for what is said of a head as a whole.

    ``farthest`` is the place of the statistic with the largest distance, see :meth:`GaussianNull.distance`.
    """

    observed: Array
    null_mean: Array
    null_std: Array
    null_quantile: Array
    z_score: Array
    p_value: Array
    omnibus_p_value: Array
    farthest: NDArray[np.int64]
    outliers_above: NDArray[np.int64]
    outliers_below: NDArray[np.int64]


@dataclass(frozen=True)
class GaussianNull:
    """The null of W_QK at (d_model, d_head), every draw at its own estimate of σ, raw product at σ_Q = σ_K = 1.

    Attributes:
        d_model, d_head: the shape.
        sample: (draw, statistic), in the registry's order.
        row: the table's row that it came from, for pictures.
        source: where the table came from, in words.
    """

    d_model: int
    d_head: int
    sample: Array
    row: xr.Dataset
    source: str

    @classmethod
    def from_baseline(cls, table: xr.Dataset, d_model: int, d_head: int, source: str) -> GaussianNull | None:
        """The null of that shape from a baseline table at whatever σ and normalization, or None if it is not there."""
        rows = np.flatnonzero((table["d_model"].values == d_model) & (table["d_head"].values == d_head))
        if rows.size == 0:
            return None
        lacking = [name for name in SPECTRAL_STATISTICS if name not in table["statistic"].values]
        if lacking:
            raise TableError(
                source, f"no statistic {', '.join(lacking)}", "all that this version scores; make it again"
            )
        row = table.isel(case=int(rows[0]))
        own_scale = (row["sigma_q_estimate"] * row["sigma_k_estimate"]).values ** 2 / _divisor(table, d_model)
        statistics = SPECTRAL_STATISTICS.values()
        columns = [
            one.rescale(row["sample"].sel(statistic=one.name).values, 1.0 / own_scale, d_head) for one in statistics
        ]
        return cls(d_model, d_head, np.stack(columns, axis=-1), row.assign_attrs(table.attrs), source)

    @property
    def draws(self) -> int:
        """Number of null draws."""
        return self.sample.shape[0]

    @property
    def unit(self) -> float:
        """The factor that brings an eigenvalue of the table's row to σ = 1 and the raw product."""
        return float(_divisor(self.row, self.d_model) / (self.row["sigma_q"] * self.row["sigma_k"]) ** 2)

    @cached_property
    def mean(self) -> Array:
        """Null mean of each statistic."""
        return self.sample.mean(axis=0)

    @cached_property
    def std(self) -> Array:
        """Null standard deviation of each statistic."""
        return self.sample.std(axis=0, ddof=1)

    @cached_property
    def quantile(self) -> Array:
        """Null quantiles, (statistic, probability)."""
        return np.quantile(self.sample, PROBABILITIES, axis=0).T

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        """The level and one-minus-level quantiles of the smallest and the largest eigenvalue."""
        names = list(SPECTRAL_STATISTICS)
        smallest = self.sample[:, names.index("smallest_eigenvalue")]
        largest = self.sample[:, names.index("largest_eigenvalue")]
        return float(np.quantile(smallest, EDGE_LEVEL)), float(np.quantile(largest, 1.0 - EDGE_LEVEL))

    def p_value(self, standard: Array) -> Array:
        """Two-sided Monte Carlo p-values of values (..., statistic) at σ̂ = 1."""
        return np.stack(
            [monte_carlo_p_value(standard[..., k], self.sample[:, k]) for k in range(self.sample.shape[1])],
            axis=-1,
        )

    @cached_property
    def _omnibus_null(self) -> Array:
        return np.sort(self.distance(self.sample).max(axis=-1))

    def omnibus_p_value(self, standard: Array) -> Array:
        """One p-value for all statistics together: that of the largest distance, against the null draws' own largest.

        The joint null draws carry the correlations between statistics, so that the test has its level exactly,
        p = (b + 1) / (n + 1), however redundant the statistics are.

        Source: P. H. Westfall and S. S. Young, Resampling-Based Multiple Testing (1993), the single-step max-T.
        """
        null = self._omnibus_null
        observed = self.distance(standard).max(axis=-1)
        at_least = null.size - np.searchsorted(null, observed, side="left")
        return np.where(np.isnan(observed), np.nan, (at_least + 1) / (null.size + 1))

    @cached_property
    def _distance_scale(self) -> tuple[Array, Array]:
        on_scale = self._on_scale(self.sample)
        return on_scale.mean(axis=0), on_scale.std(axis=0, ddof=1)

    def distance(self, standard: Array) -> Array:
        """|z| of each statistic, (..., statistic), of ln x for the positive ones without an upper bound.

        On a linear scale a condition number, whose null is long-tailed, would always be the farthest.
        """
        mean, std = self._distance_scale
        return np.abs((self._on_scale(standard) - mean) / std)

    @staticmethod
    def _on_scale(values: Array) -> Array:
        on_log = np.array([one.on_log_scale for one in SPECTRAL_STATISTICS.values()])
        with np.errstate(divide="ignore"):  # a zero eigenvalue is infinitely far from the null, and reported so
            return np.where(on_log, np.log(np.where(on_log, values, 1.0)), values)

    def score(self, singular_values: Array, statistics: Array, scale: ArrayLike) -> HeadScores:
        """Score heads.

        Args:
            singular_values: (..., d_head) of the raw product, descending.
            statistics: their spectral statistics, (..., statistic), in the registry's order.
            scale: each head's σ̂_Q² σ̂_K², (...). NaN where a head cannot be scored.
        """
        scale = np.asarray(scale, dtype=float)
        registry = list(SPECTRAL_STATISTICS.values())

        def rescaled(values: Array, factor: Array) -> Array:
            parts = [one.rescale(values[..., k], factor, self.d_head) for k, one in enumerate(registry)]
            return np.stack(np.broadcast_arrays(*parts), axis=-1)

        standard = rescaled(statistics, 1.0 / scale)
        spreads = [one.rescale_spread(std, scale) for one, std in zip(registry, self.std, strict=True)]
        quantile = np.stack([rescaled(self.quantile[:, j], scale) for j in range(len(PROBABILITIES))], axis=-1)
        lower, upper = self.edge_quantiles
        eigenvalues = singular_values**2 / scale[..., None]
        return HeadScores(
            observed=statistics,
            null_mean=rescaled(self.mean, scale),
            null_std=np.stack(spreads, axis=-1),
            null_quantile=quantile,
            z_score=(standard - self.mean) / self.std,
            p_value=self.p_value(standard),
            omnibus_p_value=self.omnibus_p_value(standard),
            farthest=np.argmax(np.nan_to_num(self.distance(standard), posinf=np.inf), axis=-1),
            outliers_above=(eigenvalues > upper).sum(axis=-1),
            outliers_below=(eigenvalues < lower).sum(axis=-1),
        )


def _divisor(table: xr.Dataset, d_model: int) -> float:
    """What the table's normalization has divided the eigenvalues of the raw product by."""
    return float(d_model) if table.attrs["normalization"] == "sqrt_d" else 1.0


def check_null_name(null: str) -> None:
    """Raise unless the null is one that is offered."""
    if null != "gaussian":
        raise ParameterError("null", null, "'gaussian' (the i.i.d. Gaussian factors at the head's own σ)")
