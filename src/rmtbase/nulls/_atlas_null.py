"""Null of one shape from an atlas, in which some order statistics of a simulation stand for its draws.

An observed x below the kept x_(r) has at most r - 1 draws as small. The least such r - 1 is never below the true count
b, so that the p-value is valid, and r ≤ 1.03 (b + 1), so that it is hardly larger.
"""

import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path

import numpy as np
import xarray as xr
from jaxtyping import Float, Float32, Int

from rmtbase import laws
from rmtbase.errors import MissingFileError, TableError
from rmtbase.laws import BINS, PROBABILITIES, histogram_edges
from rmtbase.nulls._head_null import HeadNull, null_spectrum
from rmtbase.nulls._sample_null import finite_moments
from rmtbase.statistics import SPECTRAL_STATISTICS, on_distance_scale
from rmtbase.tables import open_atlas_case

RATIO = 1.03
"""Largest ratio of a p-value from the kept ranks to the p-value of the full sample, except for rounding."""

STEP = 2.0**-16
"""Kept values are multiples of this, in standard deviations, rounded away from the observed values."""


@dataclass(frozen=True, init=False)
class AtlasNull(HeadNull):
    """Gaussian null of a shape in an atlas; p-values are those of the full sample or up to 3 % larger."""

    # They take some 270 values and are not uniform: Fisher's combination, shares of true nulls and QQ plots need care.
    # The process keeps the cases of the shipped atlas: do not change them.

    dims: tuple[int, int, int]  # (d_model, d_head, d_model)
    case: xr.Dataset = field(repr=False)  # case of the atlas, ``tables.ATLAS_SCHEMA`` without its first dimension
    source: str  # the atlas, in words

    def __init__(
        self, d_model: int, d_head: int, case: xr.Dataset, source: str = "the null draws shipped with rmtbase"
    ) -> None:
        for name, value in (("dims", (d_model, d_head, d_model)), ("case", case), ("source", source)):
            object.__setattr__(self, name, value)
        layout = (case["statistic"].values.tolist(), case["probability"].values.tolist(), case.sizes["bin"])
        if layout != (list(SPECTRAL_STATISTICS), list(PROBABILITIES), BINS):
            raise TableError(source, "other statistics, probabilities or bins", "those of this version; make it again")

    @property
    def draws(self) -> int:
        return int(self.case["draws"])

    @cached_property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        moments = (self.case[f"{name}_self_normalized"].values for name in ("mean", "std"))
        return finite_moments(self.dims, *moments)

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        return self.case["quantile_self_normalized"].values

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return np.abs(self._on_scale(standard))

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """Two-sided Monte Carlo p-values 2 (b + 1) / (n + 1), b the largest count that the kept ranks allow."""
        z = self._on_scale(standard)
        lower, upper = self.case["order_statistic_lower"].values, self.case["order_statistic_upper"].values
        counts = [(self._count(z[..., k], lower[k]), self._count(-z[..., k], -upper[k])) for k in range(len(lower))]
        p = np.minimum(1.0, 2.0 * (np.stack([np.minimum(*pair) for pair in counts], axis=-1) + 1) / (self.draws + 1))
        return np.where(np.isnan(z), np.nan, p)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        observed = self.distance(standard).max(axis=-1)
        p = (self._count(-observed, -self.case["largest_distance"].values) + 1) / (self.draws + 1)
        return np.where(np.isnan(observed), np.nan, p)

    def spectrum(self) -> xr.Dataset:
        (d_model, h, _), case = self.dims, self.case
        edges = histogram_edges(d_model, h)
        law = laws.low_rank_product(d_model, h, normalization="none")
        quantile = case["eigenvalue_quantile_self_normalized"].values[:h].astype(float)
        names = ("eigenvalue_mean", "density", "density_standard_error")
        mean, density, error = (case[name].values.astype(float) for name in names)
        return null_spectrum(mean[:h], quantile, edges, density, np.diff(law.cdf(edges)) / np.diff(edges), error)

    def record(self) -> dict[str, object]:
        made, shape = json.loads(self.case.attrs["provenance"]), list(self.dims[:2])
        simulations = []
        for simulation in made["simulations"]:
            if shapes := [case for case in simulation["shapes"] if case[:2] == shape]:
                simulations.append({**simulation, "shapes": shapes})
        atlas = {name: str(self.case.attrs[name]) for name in ("title", "version", "rmtbase_version")}
        return {"atlas": {**atlas, **made, "simulations": simulations}}

    def _on_scale(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        center, spread = self.case["distance_center"].values, self.case["distance_spread"].values
        return (on_distance_scale(standard) - center) / spread

    def _count(self, observed: Float[np.ndarray, "..."], sample: Float32[np.ndarray, " rank"]) -> np.ndarray:
        present = ~np.isnan(sample)
        return count_bound(observed, sample[present], self.case["rank"].values[present], self.draws)


def atlas_path() -> Path:
    return Path(str(files("rmtbase.nulls").joinpath("atlas", "atlas.nc")))


@lru_cache(maxsize=32)
def atlas_case(d_model: int, d_head: int, path: Path | str | None = None) -> xr.Dataset | None:
    try:
        return open_atlas_case(atlas_path() if path is None else Path(path), d_model, d_head)
    except MissingFileError:  # a source tree in which it has not been made
        return None


def kept_ranks(draws: int) -> Int[np.ndarray, " rank"]:
    """Ranks that are kept of a sample: 1, 2, …, 33, then each as far from the last as :data:`RATIO` allows."""
    ranks = [1]
    while ranks[-1] < draws:
        ranks.append(max(ranks[-1] + 1, int(RATIO * (ranks[-1] + 1))))
    return np.array([rank for rank in ranks if rank <= draws], dtype=np.int64)


def count_bound(
    observed: Float[np.ndarray, "..."], kept: Float[np.ndarray, " rank"], ranks: Int[np.ndarray, " rank"], draws: int
) -> Int[np.ndarray, "..."]:
    """Upper bound of the number of draws at or below each observed value; ``draws`` if no kept value is above it."""
    return np.append(ranks - 1, draws)[np.searchsorted(kept, observed, side="right")]  # NaN is above all
