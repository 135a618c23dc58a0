"""Nulls of one shape without draws: from the laws, and of heads whose initialization fixes their spectrum."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from scipy.special import gammaincinv

from rmtbase import laws
from rmtbase.errors import ParameterError
from rmtbase.laws import BINS, PROBABILITIES, histogram_edges
from rmtbase.nulls._head_null import (
    EDGE_LEVEL,
    SMALLEST_P_VALUE,
    HeadNull,
    distance_from_moments,
    null_spectrum,
    rank_name,
)
from rmtbase.statistics import SPECTRAL_STATISTICS, cauchy_combination, spectral_statistics

Size = int | None

_WIDEST = 0.5  # largest relative spread for which the moments of ln x follow from those of x to second order
_NORMAL_IQR = 1.3489795003921634


@dataclass(frozen=True, init=False)
class AnalyticNull(HeadNull):
    """Analytic null of W_QK at one shape, or of any chain; p-values are continuous down to :data:`SMALLEST_P_VALUE`."""

    # Scores are NaN without a law: the trace of one factor, which its σ̂ fixes; the smallest eigenvalue and condition
    # numbers where more than five dimensions of a chain are nearly equal.

    dims: tuple[int, ...]  # (d_model, d_head, d_model), or the dims of a chain; the smallest, the rank, is 8 or more
    source = "the laws of rmtbase"

    def __init__(self, d_model: Size = None, d_head: Size = None, *, dims: Sequence[int] | None = None) -> None:
        object.__setattr__(self, "dims", laws.GaussianChain(d_model=d_model, d_head=d_head, dims=dims).dims)
        if self._laws["largest_eigenvalue"] is None:
            expected = f"a table, or draws, at {rank_name(self.dims)} = {self.rank} (the laws need 8 or more)"
            raise ParameterError("null", "analytic", expected)

    @property
    def unknown(self) -> list[str]:
        return [name for name, law in self._laws.items() if law is None]

    @cached_property
    def moments(self) -> tuple[Float[np.ndarray, " statistic"], Float[np.ndarray, " statistic"]]:
        pairs = [(np.nan, np.nan) if law is None else (law.mean(), law.std()) for law in self._laws.values()]
        mean, std = np.where(np.isfinite(pairs), pairs, np.nan).T
        return mean, std

    @cached_property
    def quantile(self) -> Float[np.ndarray, "statistic probability"]:
        unknown = np.full(len(PROBABILITIES), np.nan)
        return np.stack([unknown if law is None else law.ppf(PROBABILITIES) for law in self._laws.values()])

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        smallest, largest = self._laws["smallest_eigenvalue"], self._laws["largest_eigenvalue"]
        assert largest is not None  # checked at the start
        return 0.0 if smallest is None else float(smallest.ppf(EDGE_LEVEL)), float(largest.isf(EDGE_LEVEL))

    def distance(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        # |z| of ln x to second order in the relative spread of x; where that is large, from the law's quartiles.
        on_log_scale = np.array([statistic.on_log_scale for statistic in SPECTRAL_STATISTICS.values()])
        distance = distance_from_moments(on_log_scale, standard, self.mean, self.std)
        wide = on_log_scale & ~(self.std < _WIDEST * self.mean)
        for k, law in enumerate(self._laws.values()):
            if law is not None and wide[k]:
                low, median, high = np.log(law.ppf([0.25, 0.5, 0.75]))
                with np.errstate(divide="ignore"):  # a zero eigenvalue is infinitely far from the null
                    distance[..., k] = np.abs(np.log(standard[..., k]) - median) / ((high - low) / _NORMAL_IQR)
        return distance

    def p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        return np.maximum(self._tail(standard), SMALLEST_P_VALUE)

    def omnibus_p_value(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "..."]:
        # Measured rejection rate of null draws where 16 ≤ d_head ≤ d_model / 2: 0.053 to 0.056 at the level 0.05, 0.010
        # to 0.012 at 0.01; at d_head = 8 or d_head = d_model up to 0.076 and 0.038, reached at (8, 8).
        return np.maximum(cauchy_combination(self._tail(standard)), SMALLEST_P_VALUE)

    def spectrum(self) -> xr.Dataset:
        # Inner eigenvalues have the gamma law of their mean and deviation: quantiles from 1 % to 99 % are right within
        # 0.2 deviations where 16 ≤ d_head ≤ d_model / 2, within 0.3 at d_head = 8; the error is larger at a hard edge.
        ordered = laws.ordered_eigenvalues(dims=self.dims, self_normalized=True, normalization="none")
        law = laws.GaussianChain(dims=self.dims, normalization="none")
        edges = histogram_edges(dims=self.dims)
        density = np.diff(law.cdf(edges)) / np.diff(edges)
        spread = (ordered.std / ordered.mean)[:, None] ** 2
        quantile = ordered.mean[:, None] * spread * gammaincinv(1.0 / spread, PROBABILITIES)
        for place, name in ((0, "largest_eigenvalue"), (-1, "smallest_eigenvalue")):
            extreme = self._laws[name]
            if extreme is not None:
                quantile[place] = extreme.ppf(PROBABILITIES)
        return null_spectrum(ordered.mean, quantile, edges, density, density)

    def record(self) -> dict[str, object]:
        return {name: "none" if law is None else f"{law.method}: {law.accuracy}" for name, law in self._laws.items()}

    def _tail(self, standard: Float[np.ndarray, "... statistic"]) -> Float[np.ndarray, "... statistic"]:
        tail = np.full(standard.shape, np.nan)
        for k, law in enumerate(self._laws.values()):
            if law is not None:
                tail[..., k] = law.p_value(standard[..., k])
        return tail

    @cached_property
    def _laws(self) -> dict[str, laws.NullLaw | None]:
        by_name = laws.known_nulls(dims=self.dims, self_normalized=True, normalization="none")
        return {name: by_name.get(name) for name in SPECTRAL_STATISTICS}


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
