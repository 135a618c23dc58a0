"""Nulls of heads whose initialisation fixes their spectrum, or some statistics of it: what is fixed is not tested."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from rmtbase.laws import BINS, PROBABILITIES
from rmtbase.nulls._gaussian_null import GaussianNull
from rmtbase.nulls._head_null import SMALLEST_P_VALUE, SharedNull
from rmtbase.statistics import SPECTRAL_STATISTICS, spectral_statistics

FLAT = 0.02
"""Relative deviation of an eigenvalue from a fixed one that rounding explains: in W_QK bfloat16 makes up to 0.007."""


class OrthogonalNull(GaussianNull):
    """The null simulated of rows of orthogonal matrices; statistics that are the same in every draw have no p-values.

    The trace of W_QK is such a one where the rows of one factor are orthonormal, and that of one factor always.
    """

    @property
    def fixed(self) -> tuple[str, ...]:
        """The statistics that are the same in every draw."""
        return tuple(name for name, std in zip(SPECTRAL_STATISTICS, self._moments[1], strict=True) if std == 0.0)

    @cached_property
    def std(self) -> Float[np.ndarray, " statistic"]:
        """Standard deviation of the draws; NaN of what is the same in every one."""
        std = self._moments[1]
        return np.where(std == 0.0, np.nan, std)

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """|z| on the scale of the draws; 0 of what is the same in every one."""
        return np.where(self._is_fixed, 0.0, super().distance(standard))

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """Two-sided Monte Carlo p-values; NaN of what is the same in every draw."""
        return np.where(self._is_fixed, np.nan, super().p_value(standard))

    @cached_property
    def _is_fixed(self) -> Bool[np.ndarray, " statistic"]:
        return np.array([name in self.fixed for name in SPECTRAL_STATISTICS])


@dataclass(frozen=True)
class FixedSpectrum(SharedNull):
    """All eigenvalues are equal: those of a block X of orthonormal rows, X Xᵀ = c 1, and of X_1ᵀ X_2 of two such.

    At σ̂ = 1 a block of h rows of n columns has c = n, so that λ = n of one block and λ = n_0 n_2 of X_1ᵀ X_2.
    A head whose eigenvalues are equal to 2 % agrees with this, and has no p-values: no statistic of its spectrum varies
    under the null. One with others cannot have been drawn so, and its p-values are :data:`SMALLEST_P_VALUE`.

    Attributes:
        dims: (h, n), or (n_0, h, n_2).
        source: where the law came from, in words.
    """

    dims: tuple[int, ...]
    source: str = "the laws of rmtbase"
    entries = "orthogonal"

    @property
    def rank(self) -> int:
        """The rows h of a block."""
        return self.dims[0] if len(self.dims) == 2 else self.dims[1]

    @property
    def description(self) -> str:
        """What the null is, its name first."""
        factors = "factors" if len(self.dims) == 2 else "W_Q and W_K"
        return f"orthogonal: {factors} of orthonormal rows, which fix the spectrum: no statistic of it can be tested"

    @property
    def draws(self) -> int:
        """None: 0."""
        return 0

    @property
    def eigenvalue(self) -> float:
        """Every λ, at σ̂ = 1."""
        return float(self.dims[1] if len(self.dims) == 2 else self.dims[0] * self.dims[2])

    @cached_property
    def mean(self) -> Float[np.ndarray, " statistic"]:
        """The value of each statistic."""
        return spectral_statistics(np.full(self.rank, np.sqrt(self.eigenvalue)))

    @cached_property
    def std(self) -> Float[np.ndarray, " statistic"]:
        """NaN: no statistic varies, so that z is the normal score of p where there is one."""
        return np.full(len(SPECTRAL_STATISTICS), np.nan)

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        """The value of each statistic, at every probability."""
        return np.repeat(self.mean[:, None], len(PROBABILITIES), axis=1)

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        """2 % below and above the eigenvalue."""
        return self.eigenvalue * (1.0 - FLAT), self.eigenvalue * (1.0 + FLAT)

    def agrees(self, eigenvalues: Float[np.ndarray, "... rank"]) -> Bool[np.ndarray, "..."]:
        """Whether eigenvalues at σ̂ = 1 are the fixed ones, to rounding."""
        return np.asarray(np.abs(eigenvalues / self.eigenvalue - 1.0).max(axis=-1) <= FLAT)

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """|x/mean - 1|: there is no standard deviation."""
        return np.abs(standard / np.where(self.mean == 0.0, 1.0, self.mean) - 1.0)

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        """NaN of a head that agrees; else the smallest there is."""
        known = np.repeat(self._differs(standard)[..., None], standard.shape[-1], axis=-1)
        return np.where(known, SMALLEST_P_VALUE, np.nan)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        """Likewise."""
        return np.where(self._differs(standard), SMALLEST_P_VALUE, np.nan)

    def spectrum(self) -> xr.Dataset:
        """The eigenvalue, and a histogram of one full bin."""
        edges = self.eigenvalue * np.linspace(0.0, 2.0, BINS + 2)
        density = np.zeros(BINS + 1)
        density[BINS // 2] = 1.0 / (edges[1] - edges[0])
        return xr.Dataset(
            {
                "eigenvalue_mean": ("index", np.full(self.rank, self.eigenvalue)),
                "eigenvalue_quantile": (
                    ("index", "probability"),
                    np.full((self.rank, len(PROBABILITIES)), self.eigenvalue),
                ),
                "bin_edge": ("edge", edges),
                "density": ("bin", density),
                "density_standard_error": ("bin", np.zeros_like(density)),
                "density_free": ("bin", density),
            }
        )

    def record(self) -> dict[str, object]:
        """How each statistic's null is known."""
        return {**dict.fromkeys(SPECTRAL_STATISTICS, "exact: fixed by orthonormal rows"), "tolerance": FLAT}

    def _differs(self, standard: Float[np.ndarray, "... statistic"]) -> Bool[np.ndarray, "..."]:
        """By the extreme eigenvalues; False of a head without scores."""
        names = list(SPECTRAL_STATISTICS)
        extremes = standard[..., [names.index("smallest_eigenvalue"), names.index("largest_eigenvalue")]]
        return ~np.isnan(extremes).any(axis=-1) & ~self.agrees(extremes)
