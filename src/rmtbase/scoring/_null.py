"""What heads are scored against, and the self-normalised Gaussian null of one shape.

A trained head's σ is unknown and estimated from the head's own factors, σ̂² = ‖W‖_F²/(d h). A statistic that uses the
estimate has another (narrower) null than one that uses the true σ; so every null draw is rescaled by its own estimate
too, and observed and null values are the same function of their matrices. Calibration depends on it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rmtbase.errors import ParameterError, TableError
from rmtbase.montecarlo import PROBABILITIES, divisor, self_normalized_sample
from rmtbase.statistics import SPECTRAL_STATISTICS, Statistic, monte_carlo_p_value, on_distance_scale

EDGE_LEVEL = 1e-3
"""Probability with which a null head has an eigenvalue beyond an edge quantile, on each side."""

FALSE_DISCOVERY_RATE = 0.05

_LARGEST_SINGULAR_VALUE = 1e75  # its fourth power, and that of its inverse, are in float64

SMALLEST_P_VALUE = 1e-16
"""Floor of a p-value that comes from a law. Those beyond 1e-4 are extrapolations of the right order of magnitude; below
this nothing is claimed."""

_DRAWS = 10_000
DRAWS_PER_TEST = 50  # the smallest q of a lone head is 2 · heads / (draws + 1): 0.04

Array = NDArray[np.float64]


def draws_for(n_heads: int) -> int:
    """Null draws with which one head alone among ``n_heads`` can reach q < 0.05: max(10 000, 50 n_heads)."""
    return max(_DRAWS, DRAWS_PER_TEST * n_heads)


@dataclass(frozen=True)
class HeadScores:
    """Scores of heads against a null: arrays of shape (..., statistic), or (...) for what is said of a head as a whole.

    ``farthest`` is the place of the statistic with the largest distance, see :meth:`HeadNull.distance`.
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


class HeadNull(ABC):
    """The null of W_QK at one shape, every head and every draw at its own estimate of σ.

    Values of statistics are those of the raw product at σ̂_Q = σ̂_K = 1, arrays (..., statistic) in the registry's order.

    Attributes:
        d_model, d_head: the shape.
        source: where it came from, in words.
        description: what it is, its name first.
        edge_level: probability with which a null head has an eigenvalue beyond an edge quantile, on each side.
    """

    d_model: int
    d_head: int
    source: str
    description = "gaussian: i.i.d. Gaussian W_Q and W_K at the head's own sigma, every null draw at its own estimate"
    edge_level = EDGE_LEVEL

    @property
    def method(self) -> str:
        """How it is known: ``"simulated"`` or ``"analytic"``."""
        return "simulated" if self.draws else "analytic"

    @property
    @abstractmethod
    def draws(self) -> int:
        """Number of null draws; 0 for an analytic null."""

    @cached_property
    @abstractmethod
    def mean(self) -> Array:
        """Null mean of each statistic, (statistic,); NaN where the null of a statistic is not known."""

    @cached_property
    @abstractmethod
    def std(self) -> Array:
        """Null standard deviation of each statistic, (statistic,)."""

    @cached_property
    @abstractmethod
    def quantile(self) -> Array:
        """Null quantiles, (statistic, probability)."""

    @cached_property
    @abstractmethod
    def edge_quantiles(self) -> tuple[float, float]:
        """The level and one-minus-level quantiles of the smallest and the largest eigenvalue."""

    @property
    @abstractmethod
    def p_value_floor(self) -> float:
        """The smallest p-value that one statistic can have."""

    @abstractmethod
    def distance(self, standard: Array) -> Array:
        """|z| of each statistic, (..., statistic), of ln x for the positive ones without an upper bound.

        On a linear scale a condition number, whose null is long-tailed, would always be the farthest.
        """

    @abstractmethod
    def p_value(self, standard: Array) -> Array:
        """Two-sided p-values of values (..., statistic); NaN where a statistic's null is not known."""

    @abstractmethod
    def omnibus_p_value(self, standard: Array) -> Array:
        """One p-value for all statistics together, (...), from values (..., statistic)."""

    @abstractmethod
    def spectrum(self) -> xr.Dataset:
        """What pictures show of the null: the ``/null`` group but for its edge quantiles and coordinates."""

    @abstractmethod
    def record(self) -> dict[str, object]:
        """What provenance says of it."""

    def score(self, singular_values: Array, statistics: Array, scale: ArrayLike) -> HeadScores:
        """Score heads.

        Args:
            singular_values: (..., d_head) of the raw product, descending.
            statistics: their spectral statistics, (..., statistic), in the registry's order.
            scale: each head's σ̂_Q² σ̂_K², (...). NaN where a head cannot be scored.

        Returns:
            The scores: NaN also where the largest singular value is so small or so large that trace_of_square leaves
            float64. What an infinity or a zero of overflow would score is no finding.
        """
        scale = np.asarray(scale, dtype=float)
        top = singular_values[..., 0]
        lost = (top > 0) & ~((top > 1.0 / _LARGEST_SINGULAR_VALUE) & (top < _LARGEST_SINGULAR_VALUE))
        scale, statistics = np.where(lost, np.nan, scale), np.where(lost[..., None], np.nan, statistics)
        registry = list(SPECTRAL_STATISTICS.values())

        def rescaled(values: Array, factor: Array) -> Array:
            parts = [one.rescale(values[..., k], factor, self.d_head) for k, one in enumerate(registry)]
            return np.stack(np.broadcast_arrays(*parts), axis=-1)

        standard = rescaled(statistics, 1.0 / scale)
        spreads = [one.rescale_spread(std, scale) for one, std in zip(registry, self.std, strict=True)]
        quantile = np.stack([rescaled(self.quantile[:, j], scale) for j in range(len(PROBABILITIES))], axis=-1)
        lower, upper = self.edge_quantiles
        eigenvalues = singular_values**2 / scale[..., None]
        with np.errstate(invalid="ignore", divide="ignore"):  # a statistic that is the same in every null draw
            z_score = np.where(standard == self.mean, 0.0, (standard - self.mean) / self.std)
        return HeadScores(
            observed=statistics,
            null_mean=rescaled(self.mean, scale),
            null_std=np.stack(spreads, axis=-1),
            null_quantile=quantile,
            z_score=z_score,
            p_value=self.p_value(standard),
            omnibus_p_value=self.omnibus_p_value(standard),
            farthest=np.argmax(np.nan_to_num(self.distance(standard), posinf=np.inf), axis=-1),
            outliers_above=(eigenvalues > upper).sum(axis=-1),
            outliers_below=(eigenvalues < lower).sum(axis=-1),
        )


def distance_from_moments(one: Statistic, value: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Array:
    """:meth:`HeadNull.distance` of one statistic from its null's moments alone.

    To second order in c = std / mean, ln x has the mean ln(mean) - c²/2 and the standard deviation c.
    """
    value, mean, std = (np.asarray(part, dtype=np.float64) for part in (value, mean, std))
    if not one.on_log_scale:
        return np.abs(value - mean) / std
    relative = std / mean
    with np.errstate(divide="ignore"):  # a zero eigenvalue is infinitely far from the null, and reported so
        return np.abs(np.log(value / mean) / relative + 0.5 * relative)


@dataclass(frozen=True)
class SimulatedNull(HeadNull):
    """A null of which there are draws, each at its own estimate of σ.

    Attributes:
        d_model, d_head: the shape.
        sample: (draw, statistic), in the registry's order.
        source: where the draws came from, in words.
    """

    d_model: int
    d_head: int
    sample: Array
    source: str

    @property
    def draws(self) -> int:
        """Number of null draws."""
        return self.sample.shape[0]

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

    @property
    def p_value_floor(self) -> float:
        """2 / (n + 1); half of it for all statistics together."""
        return 2.0 / (self.draws + 1)

    def distance(self, standard: Array) -> Array:
        """|z| on the scale of the draws themselves."""
        mean, std = self._distance_scale
        return np.abs((on_distance_scale(standard) - mean) / std)

    @cached_property
    def _distance_scale(self) -> tuple[Array, Array]:
        on_scale = on_distance_scale(self.sample)
        return on_scale.mean(axis=0), on_scale.std(axis=0, ddof=1)


@dataclass(frozen=True)
class GaussianNull(SimulatedNull):
    """The null simulated: independent draws of W_QK, each at its own estimate of σ.

    Attributes:
        row: the table's row that it came from, for pictures.
    """

    row: xr.Dataset

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
        row = row.assign_attrs(table.attrs)
        return cls(d_model, d_head, self_normalized_sample(row), source, row)

    @property
    def unit(self) -> float:
        """The factor that brings an eigenvalue of the table's row to σ = 1 and the raw product."""
        return float(divisor(self.row) / (self.row["sigma_q"] * self.row["sigma_k"]) ** 2)

    def spectrum(self) -> xr.Dataset:
        """The ``/null`` group, from the table's row."""
        row, unit, h = self.row, self.unit, self.d_head
        quantile = row["eigenvalue_quantile_self_normalized"].values[:h] * unit
        return xr.Dataset(
            {
                "eigenvalue_mean": ("index", row["eigenvalue_mean"].values[:h] * unit),
                "eigenvalue_quantile": (("index", "probability"), quantile),
                "bin_edge": ("edge", row["bin_edge"].values * unit),
                "density": ("bin", row["density"].values / unit),
                "density_standard_error": ("bin", row["density_standard_error"].values / unit),
                "density_free": ("bin", row["density_free"].values / unit),
            }
        )

    def record(self) -> dict[str, object]:
        """The provenance of the table."""
        return {"table": json.loads(self.row.attrs["provenance"])}


NULLS = ("gaussian", "permutation", "haar")
"""i.i.d. Gaussian factors; the head's own with their elements shuffled; the head's own, rotated against each other."""


def check_null_name(null: str) -> None:
    """Raise unless the null is one that is offered."""
    if null not in NULLS:
        raise ParameterError("null", null, "'gaussian', 'permutation' or 'haar'")
