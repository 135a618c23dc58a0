"""Nulls made from a head's own matrices: their elements shuffled, or their directions rotated against each other.

Both keep ‖W_Q‖_F and ‖W_K‖_F, so that the head and all its draws have one and the same estimate of σ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from rmtbase.ensembles import Ensemble, haar_aligned_head, permuted_head
from rmtbase.errors import ParameterError
from rmtbase.linalg import DTYPE, PRNG_IMPLEMENTATION, without_noise
from rmtbase.montecarlo import PROBABILITIES, draw_spectra, require_seed
from rmtbase.parameters import require_draws
from rmtbase.scoring._null import DRAWS_PER_TEST, EDGE_LEVEL, HeadScores, SimulatedNull
from rmtbase.statistics import SPECTRAL_STATISTICS, on_distance_scale, spectral_statistics

_RESAMPLERS: dict[str, Callable[[ArrayLike, ArrayLike], Ensemble]] = {
    "permutation": permuted_head,
    "haar": haar_aligned_head,
}
_DESCRIPTIONS = {
    "permutation": "permutation: the head's own W_Q and W_K, the elements of each in random order",
    "haar": "haar: the head's own W_Q and W_K, rotated against each other at random in the head's space",
}
SOURCE = "each head's own matrices"
_DRAWS = 1_000
_ROUNDING = 1e-9  # relative; what a null holds fixed comes out of LAPACK equal to far more digits than these

Array = NDArray[np.float64]
Weights = NDArray[np.floating]


@dataclass(frozen=True)
class ResampledNull(SimulatedNull):
    """The null of one head, from draws that resample its own matrices.

    Draws within rounding of the observed value count as equal to it: where the null holds a statistic fixed, z is 0 and
    p is 1, not a rank among rounding errors. ``"haar"`` does so with the log-determinant, ln det² S_Q S_K, and with all
    statistics if a factor is orthogonal.

    Attributes:
        observed: the head's own statistics at σ̂ = 1, (statistic,).
        eigenvalues: of the draws, at σ̂ = 1, (draw, d_head).
    """

    observed: Array
    eigenvalues: Array

    @classmethod
    def from_spectra(cls, d_model: int, observed: Array, drawn: Array, scale: float) -> ResampledNull:
        """From singular values of raw products.

        Args:
            d_model: width of the residual stream.
            observed: of the head, (d_head,), descending.
            drawn: of the draws, (draw, d_head).
            scale: the head's σ̂_Q² σ̂_K², which its draws share.
        """
        drawn = without_noise(drawn)
        with np.errstate(invalid="ignore", divide="ignore"):  # a draw of zeros has no shape
            one, sample = (_standard_statistics(values, scale) for values in (observed, drawn))
            near = np.isfinite(one) & (np.abs(sample - one) <= _ROUNDING * np.abs(one))
        return cls(
            d_model=d_model,
            d_head=observed.size,
            sample=np.where(near | np.isnan(sample), one, sample),
            source=SOURCE,
            observed=one,
            eigenvalues=drawn**2 / scale,
        )

    @cached_property
    def edge_quantiles(self) -> tuple[float, float]:
        """The k-th smallest of the smallest eigenvalues and the k-th largest of the largest, see :func:`edge_rank`."""
        rank = edge_rank(self.draws)
        ends = np.sort(self.eigenvalues[:, [-1, 0]], axis=0)
        lower, upper = ends[rank - 1, 0], ends[-rank, 1]
        return float(lower * (1.0 - _ROUNDING)), float(upper * (1.0 + _ROUNDING))

    @cached_property
    def mean(self) -> Array:
        """Null mean of each statistic; infinite where a draw is."""
        return np.where(self._fixed, self.sample[0], self.sample.mean(axis=0))

    @cached_property
    def std(self) -> Array:
        """Null standard deviation of each statistic; NaN where some draws are infinite."""
        with np.errstate(invalid="ignore"):
            return np.where(self._fixed, 0.0, self.sample.std(axis=0, ddof=1))

    @cached_property
    def _fixed(self) -> NDArray[np.bool_]:
        """Which statistics are the same in every draw."""
        return (self.sample == self.sample[0]).all(axis=0)

    @cached_property
    def quantile(self) -> Array:
        """Null quantiles, (statistic, probability): draws themselves, which may be infinite."""
        return np.quantile(self.sample, PROBABILITIES, axis=0, method="inverted_cdf").T

    def distance(self, standard: Array) -> Array:
        """|z| on the scale of the head and its draws together, which makes the test of the largest one exact."""
        center, spread = self._distance_scale
        on_scale = on_distance_scale(standard)
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(on_scale == center, 0.0, np.abs(on_scale - center) / spread)

    @cached_property
    def _distance_scale(self) -> tuple[Array, Array]:
        """Mean and standard deviation of the finite values; the value itself where all are the same."""
        pooled = on_distance_scale(np.vstack([self.observed, self.sample]))
        finite = np.isfinite(pooled)
        count = np.maximum(finite.sum(axis=0), 1)
        mean = np.where(finite, pooled, 0.0).sum(axis=0) / count
        center = np.where((pooled == pooled[0]).all(axis=0), pooled[0], mean)
        with np.errstate(invalid="ignore"):
            square = np.where(finite, (pooled - center) ** 2, 0.0).sum(axis=0)
        return center, np.sqrt(square / np.maximum(count - 1, 1))

    def spectrum(self) -> xr.Dataset:
        """Mean and quantiles of the ordered eigenvalues, and the edges: the head's part of the ``/null`` group."""
        lower, upper = self.edge_quantiles
        quantile = np.quantile(self.eigenvalues, PROBABILITIES, axis=0).T
        return xr.Dataset(
            {
                "eigenvalue_mean": ("index", self.eigenvalues.mean(axis=0)),
                "eigenvalue_quantile": (("index", "probability"), quantile),
                "edge_quantile_lower": ((), lower),
                "edge_quantile_upper": ((), upper),
            }
        )

    def record(self) -> dict[str, object]:
        """Nothing of its own: see :meth:`Resampler.record`."""
        return {}


def edge_rank(draws: int) -> int:
    """The k for which a further draw lies beyond the k-th of n with probability k/(n + 1) = :data:`EDGE_LEVEL`.

    Rounded down, and at least 1: the edges of few draws are the extreme ones.
    """
    return max(1, int(EDGE_LEVEL * (draws + 1)))


def _standard_statistics(singular_values: Array, scale: float) -> Array:
    statistics, rank = spectral_statistics(singular_values), singular_values.shape[-1]
    registry = SPECTRAL_STATISTICS.values()
    columns = [one.rescale(statistics[..., k], 1.0 / scale, rank) for k, one in enumerate(registry)]
    return np.stack(columns, axis=-1)


class Resampler:
    """Scores heads one by one, each against draws from its own matrices.

    A head's draws are a function of its matrices, the seed and their index alone: not of its place, nor of other heads.

    Attributes:
        name: ``"permutation"`` or ``"haar"``.
        draws: of each head.
        seed: of the draws.

    Raises:
        ParameterError: d_head = 1; draws is not an integer of at least 2; the seed is none; a baseline was given.
    """

    def __init__(
        self,
        name: str,
        d_head: int,
        n_heads: int,
        baseline: object,
        draws: int | None,
        seed: int,
        progress: Callable[[int], None] | None,
        note: Callable[[str], None] | None,
    ) -> None:
        if d_head < 2:
            raise ParameterError(
                "d_head", d_head, "at least 2: at d_head = 1 the scale is all there is, and it is kept"
            )
        if baseline is not None:
            raise ParameterError("baseline", baseline, f"none: the {name} null of a head is made of its own matrices")
        self.name, self.seed = name, require_seed(seed)
        self.draws = _DRAWS if draws is None else require_draws(draws)
        self._progress = progress
        if note is not None:
            note(f"null of each head: {self.draws} draws from its own matrices ({name}), seed {seed}")
            smallest = 2 * n_heads / (self.draws + 1)
            if smallest > 0.05:
                note(
                    f"with {self.draws} null draws and {n_heads} heads a lone head cannot reach q below {smallest:.2g} "
                    f"by one statistic, nor {smallest / 2:.2g} by all together (k heads: a k-th of it); "
                    f"{DRAWS_PER_TEST * n_heads} draws would let it reach 0.05"
                )

    source, method = SOURCE, "resampled"

    @property
    def description(self) -> str:
        """What the null is, its name first."""
        return _DESCRIPTIONS[self.name]

    @property
    def p_value_floor(self) -> float:
        """2 / (n + 1); half of it for all statistics together."""
        return 2.0 / (self.draws + 1)

    def null(self, w_q: Weights, w_k: Weights, singular_values: Array, scale: float) -> ResampledNull:
        """The null of a head.

        Args:
            w_q: (d_head, d_model).
            w_k: (d_head, d_model).
            singular_values: of its W_QK, (d_head,), descending, not all zero.
            scale: its σ̂_Q² σ̂_K².
        """
        ensemble = _RESAMPLERS[self.name](w_q, w_k)
        # All digits of the smallest singular values: those of a trained head, rotated, span decades.
        chunks = draw_spectra(ensemble, self.draws, self.seed, solver="svd", progress=self._progress)
        spectra = np.concatenate([chunk.singular_values for chunk in chunks])
        return ResampledNull.from_spectra(w_q.shape[-1], singular_values, spectra, scale)

    def score(
        self, w_q: Weights, w_k: Weights, singular_values: Array, sigma_q: Array, sigma_k: Array
    ) -> tuple[HeadScores, xr.Dataset]:
        """Score heads against their own nulls.

        Args:
            w_q: (head, d_head, d_model).
            w_k: (key head, d_head, d_model); query head i reads key head i // (heads / key heads).
            singular_values: (head, d_head) of the raw products.
            sigma_q: σ̂_Q of each head.
            sigma_k: σ̂_K of each head's key head.

        Returns:
            The scores, and the nulls' part of ``/null``, each with the leading axis head. A head whose product is zero
            has no shape and is not scored: NaN.
        """
        group = len(w_q) // len(w_k)
        parts = []
        for head, values in enumerate(singular_values):
            scale = float(sigma_q[head] * sigma_k[head]) ** 2
            if values[0] == 0:
                parts.append(_unscored(values.size))
                continue
            null = self.null(w_q[head], w_k[head // group], values, scale)
            parts.append((null.score(values, spectral_statistics(values), scale), null.spectrum()))
        scores, spectra = zip(*parts, strict=True)
        nulls: xr.Dataset = xr.concat(spectra, dim="head")  # type: ignore[assignment]  # datasets make a dataset
        return stack_scores(scores), nulls

    @property
    def edge_level(self) -> float:
        """Probability with which a null head has an eigenvalue beyond an edge quantile: k/(n + 1)."""
        return edge_rank(self.draws) / (self.draws + 1)

    def record(self) -> dict[str, object]:
        """What provenance says of the nulls."""
        return {
            "resampler": self.name,
            "draws_per_head": self.draws,
            "seed": self.seed,
            "key": "fold_in(fold_in(key(seed), crc32(ensemble with its shape and the sha256 of W_Q and W_K)), draw)",
            "solver": "svd",
            "dtype": DTYPE,
            "prng": PRNG_IMPLEMENTATION,
        }


def stack_scores(scores: tuple[HeadScores, ...] | list[HeadScores]) -> HeadScores:
    """Scores of single heads, or of layers, along a new first axis."""
    return HeadScores(*(np.stack([getattr(one, field.name) for one in scores]) for field in fields(HeadScores)))


def _unscored(d_head: int) -> tuple[HeadScores, xr.Dataset]:
    n, m = len(SPECTRAL_STATISTICS), len(PROBABILITIES)
    nothing, none = np.full(n, np.nan), np.zeros((), dtype=np.int64)
    scores = HeadScores(
        nothing, nothing, nothing, np.full((n, m), np.nan), nothing, nothing, np.array(np.nan), none, none, none
    )
    spectrum = xr.Dataset(
        {
            "eigenvalue_mean": ("index", np.full(d_head, np.nan)),
            "eigenvalue_quantile": (("index", "probability"), np.full((d_head, m), np.nan)),
            "edge_quantile_lower": ((), np.nan),
            "edge_quantile_upper": ((), np.nan),
        }
    )
    return scores, spectrum
