"""Nulls known from draws, of W_QK or of any chain, each at its own estimate of σ; p-values are ranks among them."""

from __future__ import annotations

import json
from abc import abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from rmtbase import statistics
from rmtbase.errors import TableError
from rmtbase.laws import PROBABILITIES
from rmtbase.linalg import without_noise
from rmtbase.nulls._head_null import EDGE_LEVEL, ROUNDING, HeadNull, HeadScores, null_spectrum, statistics_of
from rmtbase.nulls._random_heads import UpperPoint, upper_point
from rmtbase.shown import in_one_line


class SampleNull(HeadNull):
    sample: Float[np.ndarray, "draw statistic"]  # statistics of each draw, standardized as the head's are

    @property
    def draws(self) -> int:
        return self.sample.shape[0]

    @cached_property
    @abstractmethod
    def _distance_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and spread of each statistic on the scale of distances."""

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        center, spread = self._distance_scale
        on_scale = statistics.on_distance_scale(standard)
        with np.errstate(invalid="ignore", divide="ignore"):  # a statistic that the null holds fixed has no spread
            return np.where(on_scale == center, 0.0, np.abs(on_scale - center) / spread)

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        columns = [statistics.p_value_among_sorted(standard[..., k], draws) for k, draws in enumerate(self._sorted)]
        return np.stack(columns, axis=-1)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        """Rank of the largest distance among the draws' own: P. H. Westfall and S. S. Young (1993), max-T."""
        return statistics.upper_p_value_among_sorted(self.distance(standard).max(axis=-1), self._largest_distances)

    @cached_property
    def _sorted(self) -> Float[np.ndarray, "statistic draw"]:
        return np.sort(self.sample.T, axis=1)

    @cached_property
    def _largest_distances(self) -> Float[np.ndarray, " draw"]:
        return np.sort(self.distance(self.sample).max(axis=-1))


def moments_of(sample: Float[np.ndarray, "draw statistic"]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation; where all draws are equal, their value and 0. Infinite draws have no deviation."""
    fixed = (sample == sample[0]).all(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(fixed, sample[0], sample.mean(axis=0)), np.where(fixed, 0.0, sample.std(axis=0, ddof=1))


def finite_moments(dims: tuple[int, ...], mean: np.ndarray, std: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of draws; NaN where the chain has no such moment for them to estimate."""
    extremes = statistics.ExtremeMoments(smallest=statistics.inverse_moment_order(dims))
    return statistics.drawn_moments(mean, std, statistics.moment_orders(extremes, min(dims)))


@dataclass(frozen=True)
class GaussianNull(SampleNull):
    """Independent draws of the product, each at its own σ̂; statistics that σ̂ fixes are equal: z is 0 and p is 1."""

    dims: tuple[int, ...]  # (d_model, d_head, d_model) for W_QK, or the dims of the chain
    sample: Float[np.ndarray, "draw statistic"] = field(repr=False)  # statistics of each draw, in the registry's order
    source: str  # where the draws came from, in words
    row: xr.Dataset = field(repr=False)  # row of the table with these draws, for figures
    entries: str = "normal"  # see :class:`HeadNull`

    @classmethod
    def from_baseline(cls, table: xr.Dataset, d_model: int, d_head: int, source: str) -> GaussianNull | None:
        row = case_of_shape(table, d_model, d_head)
        if row is None:
            return None
        sample = self_normalized_sample(_complete(row, source))
        return cls((d_model, d_head, d_model), sample, source, row.assign_attrs(table.attrs))

    @classmethod
    def from_spectra(cls, table: xr.Dataset, dims: tuple[int, ...], source: str, entries: str = "normal") -> Self:
        """Make the null of a chain from the first case of a table of its spectra that was made for a null."""
        row = table.isel(case=0).rename(density_law="density_free").assign_coords(sigma_q=1.0, sigma_k=1.0)
        sample = _sample(_complete(row, source), row["scale_estimate"].values, min(dims))
        constant = np.ptp(sample, axis=0) <= ROUNDING * np.abs(sample[0])
        return cls(dims, np.where(constant, sample[0], sample), source, row, entries)

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        return finite_moments(self.dims, *moments_of(self.sample))

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        return np.quantile(self.sample, PROBABILITIES, axis=0).T

    def spectrum(self) -> xr.Dataset:
        row, h = self.row, self.rank
        # The factor that brings an eigenvalue of the row to σ = 1 and the raw product.
        unit = float(_divisor(row) / (row["sigma_q"] * row["sigma_k"]) ** 2)
        quantile = row["eigenvalue_quantile_self_normalized"].values[:h] * unit
        density, free, error = (row[f"density{end}"].values / unit for end in ("", "_free", "_standard_error"))
        mean, edges = row["eigenvalue_mean"].values[:h] * unit, row["bin_edge"].values * unit
        return null_spectrum(mean, quantile, edges, density, free, error)

    def record(self) -> dict[str, object]:
        return {"table": json.loads(self.row.attrs["provenance"])}

    @cached_property
    def _distance_scale(self) -> tuple[np.ndarray, np.ndarray]:
        return moments_of(statistics.on_distance_scale(self.sample))


class OrthogonalNull(GaussianNull):
    """Null of rows of orthogonal matrices; statistics that are equal in every draw, as a trace, have no p-values."""

    @cached_property
    def _is_fixed(self) -> Bool[np.ndarray, " statistic"]:
        return self.moments[1] == 0.0

    @property
    def fixed(self) -> tuple[str, ...]:
        return tuple(np.array(list(statistics.SPECTRAL_STATISTICS))[self._is_fixed].tolist())

    @property
    def std(self) -> Float[np.ndarray, " statistic"]:
        return np.where(self._is_fixed, np.nan, self.moments[1])

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return np.where(self._is_fixed, 0.0, super().distance(standard))

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return np.where(self._is_fixed, np.nan, super().p_value(standard))


def case_of_shape(table: xr.Dataset, d_model: int, d_head: int) -> xr.Dataset | None:
    cases = np.flatnonzero((table["d_model"].values == d_model) & (table["d_head"].values == d_head))
    return table.isel(case=int(cases[0])) if cases.size else None


def self_normalized_sample(row: xr.Dataset) -> Float[np.ndarray, "draw statistic"]:
    own_scale = (row["sigma_q_estimate"] * row["sigma_k_estimate"]).values ** 2 / _divisor(row)
    return _sample(row, own_scale, int(row["d_head"]))


def _sample(row: xr.Dataset, own_scale: Float[np.ndarray, " draw"], rank: int) -> Float[np.ndarray, "draw statistic"]:
    sample = row["sample"].sel(statistic=list(statistics.SPECTRAL_STATISTICS)).transpose("draw", "statistic").values
    return statistics.rescale_statistics(sample, 1.0 / own_scale, rank)


def _complete(row: xr.Dataset, source: str) -> xr.Dataset:
    lacking = [name for name in statistics.SPECTRAL_STATISTICS if name not in row["statistic"].values]
    if lacking:
        raise TableError(source, f"no statistic {', '.join(lacking)}", "all that this version scores; make it again")
    return row


def _divisor(row: xr.Dataset) -> float:
    return float(row["d_model"]) if row.attrs["normalization"] == "sqrt_d" else 1.0


@in_one_line
@dataclass(frozen=True)
class ResampledNull(SampleNull):
    """Null of one head, from draws that resample its own matrices; they keep ‖W_Q‖_F and ‖W_K‖_F, and so σ̂."""

    # Draws within rounding of the observed value count as equal to it: signed permutations fix the log-determinant, and
    # all statistics if a factor has orthogonal rows of equal length.

    dims: tuple[int, ...]  # the shape, (d_model, d_head, d_model) for W_QK
    observed: Float[np.ndarray, " statistic"]  # the head's own statistics at σ̂ = 1, in the registry's order
    sample: Float[np.ndarray, "draw statistic"] = field(repr=False)  # statistics of the draws
    eigenvalues: Float[np.ndarray, "draw rank"] = field(repr=False)  # eigenvalues of the draws at σ̂ = 1, descending

    @classmethod
    def from_spectra(cls, dims: tuple[int, ...], observed: np.ndarray, drawn: np.ndarray, scale: float) -> Self:
        drawn = without_noise(drawn)
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw of zeros has no shape
            both = (statistics_of(values) for values in (observed, drawn))
            own, sample = (statistics.rescale_statistics(values, 1.0 / scale, observed.size) for values in both)
            near = np.isfinite(own) & (np.abs(sample - own) <= ROUNDING * np.abs(own))
        return cls(dims, own, np.where(near | np.isnan(sample), own, sample), drawn**2 / scale)

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        rank = edge_rank(self.draws)
        ends = np.sort(self.eigenvalues[:, [-1, 0]], axis=0)
        lower, upper = ends[rank - 1, 0], ends[-rank, 1]
        return float(lower * (1.0 - ROUNDING)), float(upper * (1.0 + ROUNDING))

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        return moments_of(self.sample)

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        """Quantiles, each of which is a draw and may be infinite."""
        return np.quantile(self.sample, PROBABILITIES, axis=0, method="inverted_cdf").T

    def spectrum(self) -> xr.Dataset:
        quantile = np.quantile(self.eigenvalues, PROBABILITIES, axis=0).T
        return _spectrum(self.eigenvalues.mean(axis=0), quantile, self.edge_quantiles, upper_point(self.eigenvalues))

    def record(self) -> dict[str, object]:
        return {"draws": self.draws}

    @cached_property
    def _distance_scale(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and deviation of the finite values of head and draws together: the test of the largest is exact."""
        pooled = statistics.on_distance_scale(np.vstack([self.observed, self.sample]))
        finite = np.isfinite(pooled)
        count = np.maximum(finite.sum(axis=0), 1)
        mean = np.where(finite, pooled, 0.0).sum(axis=0) / count
        center = np.where((pooled == pooled[0]).all(axis=0), pooled[0], mean)
        with np.errstate(invalid="ignore"):
            square = np.where(finite, (pooled - center) ** 2, 0.0).sum(axis=0)
        return center, np.sqrt(square / np.maximum(count - 1, 1))


def edge_rank(draws: int) -> int:
    """Rank k ≥ 1 beyond which a further draw lies with probability k/(n + 1), :data:`EDGE_LEVEL` at most if k > 1."""
    return max(1, int(EDGE_LEVEL * (draws + 1)))


def unscored_head(rank: int) -> tuple[HeadScores, xr.Dataset]:
    n, m = len(statistics.SPECTRAL_STATISTICS), len(PROBABILITIES)
    nothing, none = np.full(n, np.nan), np.zeros((), dtype=np.int64)
    quantile = np.full((n, m), np.nan)
    scores = HeadScores(nothing, nothing, nothing, quantile, nothing, nothing, np.array(np.nan), none, none, none)
    unknown = UpperPoint(np.nan, np.nan)
    return scores, _spectrum(np.full(rank, np.nan), np.full((rank, m), np.nan), (np.nan, np.nan), unknown)


def _spectrum(mean: np.ndarray, quantile: np.ndarray, edges: tuple[float, float], moved: UpperPoint) -> xr.Dataset:
    return xr.Dataset(
        {
            "eigenvalue_mean": ("index", mean),
            "eigenvalue_quantile": (("index", "probability"), quantile),
            "edge_quantile_lower": ((), edges[0]),
            "edge_quantile_upper": ((), edges[1]),
            "moved_share_upper": ((), moved.value),
            "moved_share_upper_standard_error": ((), moved.standard_error),
        }
    )
