"""Simulated null of one shape: draws of W_QK or of any chain from a table, each at its own estimate of σ."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Float

from rmtbase.errors import TableError
from rmtbase.laws import PROBABILITIES
from rmtbase.nulls._head_null import ROUNDING, case_of_shape, null_spectrum
from rmtbase.nulls._sample_null import DrawnNull, SampleNull, moments_of
from rmtbase.statistics import SPECTRAL_STATISTICS, on_distance_scale, rescale_statistics


@dataclass(frozen=True)
class GaussianNull(SampleNull, DrawnNull):
    """Simulated null: independent draws of the product, each at its own estimate of σ.

    A statistic that the estimate fixes, such as Σλ = ‖W‖_F² of one factor, is the same in every draw except for
    rounding, which is removed: then z is 0 and p is 1.
    """

    dims: tuple[int, ...]  # (d_model, d_head, d_model) for W_QK, or the dims of the chain
    sample: Float[np.ndarray, "draw statistic"] = field(repr=False)  # statistics of each draw, in the registry's order
    source: str  # where the draws came from, in words
    row: xr.Dataset = field(repr=False)  # row of the table with these draws, for figures
    entries: str = "normal"  # see :class:`SharedNull`

    @classmethod
    def from_baseline(cls, table: xr.Dataset, d_model: int, d_head: int, source: str) -> GaussianNull | None:
        """Make the null of a shape from a baseline table at any σ and normalization; None if the table lacks it."""
        row = case_of_shape(table, d_model, d_head)
        if row is None:
            return None
        sample = self_normalized_sample(_complete(row, source))
        return cls((d_model, d_head, d_model), sample, source, row.assign_attrs(table.attrs))

    @classmethod
    def from_spectra(
        cls, table: xr.Dataset, dims: tuple[int, ...], source: str, entries: str = "normal"
    ) -> GaussianNull:
        """Make the null of a chain from the first case of a table of its spectra that was made for a null."""
        row = table.isel(case=0).rename(density_law="density_free").assign_coords(sigma_q=1.0, sigma_k=1.0)
        sample = _sample(_complete(row, source), row["scale_estimate"].values, min(dims))
        constant = np.ptp(sample, axis=0) <= ROUNDING * np.abs(sample[0])
        return cls(dims, np.where(constant, sample[0], sample), source, row, entries)

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        return np.quantile(self.sample, PROBABILITIES, axis=0).T

    def spectrum(self) -> xr.Dataset:
        row, h = self.row, self.rank
        # The factor that brings an eigenvalue of the row to σ = 1 and the raw product.
        unit = float(_divisor(row) / (row["sigma_q"] * row["sigma_k"]) ** 2)
        quantile = row["eigenvalue_quantile_self_normalized"].values[:h] * unit
        density, free, error = (
            row[name].values / unit for name in ("density", "density_free", "density_standard_error")
        )
        mean, edges = row["eigenvalue_mean"].values[:h] * unit, row["bin_edge"].values * unit
        return null_spectrum(mean, quantile, edges, density, free, error)

    def record(self) -> dict[str, object]:
        return {"table": json.loads(self.row.attrs["provenance"])}

    @cached_property
    def _distance_scale(self) -> tuple[np.ndarray, np.ndarray]:
        return moments_of(on_distance_scale(self.sample))


def self_normalized_sample(row: xr.Dataset) -> Float[np.ndarray, "draw statistic"]:
    """Statistics of every draw for the raw product at σ̂_Q = σ̂_K = 1, in the registry's order."""
    own_scale = (row["sigma_q_estimate"] * row["sigma_k_estimate"]).values ** 2 / _divisor(row)
    return _sample(row, own_scale, int(row["d_head"]))


def _sample(row: xr.Dataset, own_scale: Float[np.ndarray, " draw"], rank: int) -> Float[np.ndarray, "draw statistic"]:
    sample = row["sample"].sel(statistic=list(SPECTRAL_STATISTICS)).transpose("draw", "statistic").values
    return rescale_statistics(sample, 1.0 / own_scale, rank)


def _complete(row: xr.Dataset, source: str) -> xr.Dataset:
    lacking = [name for name in SPECTRAL_STATISTICS if name not in row["statistic"].values]
    if lacking:
        raise TableError(source, f"no statistic {', '.join(lacking)}", "all that this version scores; make it again")
    return row


def _divisor(row: xr.Dataset) -> float:
    return float(row["d_model"]) if row.attrs["normalization"] == "sqrt_d" else 1.0
