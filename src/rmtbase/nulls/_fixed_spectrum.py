"""Null of heads whose initialization fixes their spectrum."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from rmtbase.laws import BINS, PROBABILITIES
from rmtbase.nulls._head_null import SMALLEST_P_VALUE, HeadNull, null_spectrum
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

FLAT = 0.02
"""Largest relative deviation from a fixed eigenvalue that counts as rounding: bfloat16 makes up to 0.007 in W_QK."""


@dataclass(frozen=True)
class FixedSpectrum(HeadNull):
    """Null under which all eigenvalues are equal: X Xᵀ = n 1 of h orthonormal rows, λ = n; n_0 n_2 for X_1ᵀ X_2."""

    # A head within 2 % of λ has no p-values, as no statistic varies; another cannot come from this null:
    # SMALLEST_P_VALUE.

    dims: tuple[int, ...]  # (h, n), or (n_0, h, n_2)
    source: str = "the laws of rmtbase"  # where the law came from, in words
    entries = "orthogonal"

    @property
    def rank(self) -> int:
        return self.dims[0] if len(self.dims) == 2 else self.dims[1]

    def described(self, factors: str) -> str:
        return f"orthogonal: {factors} of orthonormal rows, which fix the spectrum: no statistic of it can be tested"

    @property
    def eigenvalue(self) -> float:
        return float(self.dims[1] if len(self.dims) == 2 else self.dims[0] * self.dims[2])

    @cached_property
    def moments(self) -> tuple[Float[np.ndarray, " statistic"], Float[np.ndarray, " statistic"]]:
        """Standard deviations are NaN: no statistic varies, so that z is the normal score of p where there is one."""
        mean = spectral_statistics(np.full(self.rank, np.sqrt(self.eigenvalue)))
        return mean, np.full(len(SPECTRAL_STATISTICS), np.nan)

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        return np.repeat(self.mean[:, None], len(PROBABILITIES), axis=1)

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        return self.eigenvalue * (1.0 - FLAT), self.eigenvalue * (1.0 + FLAT)

    def agrees(self, eigenvalues: Float[np.ndarray, "... rank"]) -> Bool[np.ndarray, "..."]:
        return np.asarray(np.abs(eigenvalues / self.eigenvalue - 1.0).max(axis=-1) <= FLAT)

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return np.abs(standard / np.where(self.mean == 0.0, 1.0, self.mean) - 1.0)

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return np.repeat(self.omnibus_p_value(standard)[..., None], standard.shape[-1], axis=-1)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        """:data:`SMALLEST_P_VALUE` of heads whose extreme eigenvalues differ from the null; NaN otherwise."""
        names = list(SPECTRAL_STATISTICS)
        extremes = standard[..., [names.index("smallest_eigenvalue"), names.index("largest_eigenvalue")]]
        differs = ~np.isnan(extremes).any(axis=-1) & ~self.agrees(extremes)
        return np.where(differs, SMALLEST_P_VALUE, np.nan)

    def spectrum(self) -> xr.Dataset:
        edges = self.eigenvalue * np.linspace(0.0, 2.0, BINS + 2)
        density = np.zeros(BINS + 1)
        density[BINS // 2] = 1.0 / (edges[1] - edges[0])
        mean = np.full(self.rank, self.eigenvalue)
        return null_spectrum(mean, np.full((self.rank, len(PROBABILITIES)), self.eigenvalue), edges, density, density)

    def record(self) -> dict[str, object]:
        return {**dict.fromkeys(SPECTRAL_STATISTICS, "exact: fixed by orthonormal rows"), "tolerance": FLAT}
